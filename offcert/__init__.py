"""Certified offloading plans for neural-network training under a memory limit.

What most programs need is here, and loaded when it is first used::

    import offcert

    problem = offcert.read_problem("network.json")
    certificate = offcert.certify(problem, time_limit=10)
    assert offcert.verify(certificate).valid
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offcert._version import __version__ as __version__
from offcert.core.notebook import drawn_by as _drawn_by

if TYPE_CHECKING:
    from offcert.campaign.benchmark import benchmark
    from offcert.certification.devices import certify_devices
    from offcert.certification.ladder import certify
    from offcert.certification.methods import solve
    from offcert.certification.placing import place
    from offcert.certification.splitting import certify_split
    from offcert.core.chain import Chain
    from offcert.core.checkpoint_chain import CheckpointChain
    from offcert.core.computations import Computation, Run, Value
    from offcert.core.errors import InputError, OffcertError, PlanError
    from offcert.core.execution import Execution
    from offcert.core.network import Network
    from offcert.core.platform import Kind, Link, Platform
    from offcert.core.program import Program, Segment
    from offcert.core.result import Bound, Evidence, SolveStatus
    from offcert.core.strategy import Strategy
    from offcert.core.trace import Operation, Tensor, Trace
    from offcert.core.units import Units
    from offcert.instances.library import Library
    from offcert.proofs.certificate import Certificate, read_certificate
    from offcert.proofs.devices_certificate import DevicesCertificate, read_devices_certificate
    from offcert.proofs.placement_certificate import PlacementCertificate, read_placement
    from offcert.proofs.split_certificate import SplitCertificate, read_split_certificate
    from offcert.questions.devices.problem import (
        Accumulation,
        DevicesProblem,
        Gradient,
        read_devices_problem,
    )
    from offcert.questions.placement.files import read_placement_problem
    from offcert.questions.placement.problem import Placement, PlacementProblem, Residence
    from offcert.questions.schedule.check import check
    from offcert.questions.schedule.files import read_problem, write_problem
    from offcert.questions.schedule.plan import Move, Plan
    from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
    from offcert.questions.schedule.result import Result
    from offcert.questions.schedule.schedule import Schedule, Transfer
    from offcert.questions.schedule.simulate import simulate
    from offcert.questions.split.problem import SplitProblem, read_split
    from offcert.runtime.capture.step import TrainingStep
    from offcert.runtime.compiled.backend import backend
    from offcert.runtime.plan.policies import checkpoint_policies, for_policies
    from offcert.runtime.profiling.profile import profile
    from offcert.runtime.sub_batches import sub_batch_steps, sub_batches
    from offcert.runtime.tail_chunks import chunked_loss, with_tail_chunks
    from offcert.runtime.watch.operators import pure
    from offcert.training.budget import budget_solver
    from offcert.training.doctor import doctor
    from offcert.training.offload import offload
    from offcert.verification.document import verify
    from offcert.verification.elsewhere import Elsewhere, verify_on

__all__ = [
    "Accumulation",
    "Bound",
    "Certificate",
    "Chain",
    "CheckpointChain",
    "Computation",
    "DevicesCertificate",
    "DevicesProblem",
    "Elsewhere",
    "Evidence",
    "Execution",
    "Gradient",
    "InputError",
    "Kind",
    "Library",
    "Link",
    "Minimise",
    "Move",
    "Network",
    "OffcertError",
    "Operation",
    "Placement",
    "PlacementCertificate",
    "PlacementProblem",
    "Plan",
    "PlanError",
    "Platform",
    "Problem",
    "Program",
    "Recompute",
    "Residence",
    "Result",
    "Run",
    "Schedule",
    "Segment",
    "SolveStatus",
    "SplitCertificate",
    "SplitProblem",
    "Strategy",
    "Tensor",
    "Trace",
    "TrainingStep",
    "Transfer",
    "Transfers",
    "Units",
    "Value",
    "backend",
    "benchmark",
    "budget_solver",
    "certify",
    "certify_devices",
    "certify_split",
    "check",
    "checkpoint_policies",
    "chunked_loss",
    "doctor",
    "for_policies",
    "offload",
    "place",
    "profile",
    "pure",
    "read_certificate",
    "read_devices_certificate",
    "read_devices_problem",
    "read_placement",
    "read_placement_problem",
    "read_problem",
    "read_split",
    "read_split_certificate",
    "simulate",
    "solve",
    "sub_batch_steps",
    "sub_batches",
    "verify",
    "verify_on",
    "with_tail_chunks",
    "write_problem",
]

# Where each name lives.
_HOMES = {
    "Accumulation": "offcert.questions.devices.problem",
    "Bound": "offcert.core.result",
    "Certificate": "offcert.proofs.certificate",
    "Chain": "offcert.core.chain",
    "CheckpointChain": "offcert.core.checkpoint_chain",
    "Computation": "offcert.core.computations",
    "DevicesCertificate": "offcert.proofs.devices_certificate",
    "DevicesProblem": "offcert.questions.devices.problem",
    "Elsewhere": "offcert.verification.elsewhere",
    "Evidence": "offcert.core.result",
    "Execution": "offcert.core.execution",
    "Gradient": "offcert.questions.devices.problem",
    "InputError": "offcert.core.errors",
    "Kind": "offcert.core.platform",
    "Library": "offcert.instances.library",
    "Link": "offcert.core.platform",
    "Minimise": "offcert.questions.schedule.problem",
    "Move": "offcert.questions.schedule.plan",
    "Network": "offcert.core.network",
    "OffcertError": "offcert.core.errors",
    "Operation": "offcert.core.trace",
    "Placement": "offcert.questions.placement.problem",
    "PlacementCertificate": "offcert.proofs.placement_certificate",
    "PlacementProblem": "offcert.questions.placement.problem",
    "Plan": "offcert.questions.schedule.plan",
    "PlanError": "offcert.core.errors",
    "Platform": "offcert.core.platform",
    "Problem": "offcert.questions.schedule.problem",
    "Program": "offcert.core.program",
    "Recompute": "offcert.questions.schedule.problem",
    "Residence": "offcert.questions.placement.problem",
    "Result": "offcert.questions.schedule.result",
    "Run": "offcert.core.computations",
    "Schedule": "offcert.questions.schedule.schedule",
    "Segment": "offcert.core.program",
    "SolveStatus": "offcert.core.result",
    "SplitCertificate": "offcert.proofs.split_certificate",
    "SplitProblem": "offcert.questions.split.problem",
    "Strategy": "offcert.core.strategy",
    "Tensor": "offcert.core.trace",
    "Trace": "offcert.core.trace",
    "Transfer": "offcert.questions.schedule.schedule",
    "Transfers": "offcert.questions.schedule.problem",
    "Units": "offcert.core.units",
    "Value": "offcert.core.computations",
    "benchmark": "offcert.campaign.benchmark",
    "certify": "offcert.certification.ladder",
    "certify_devices": "offcert.certification.devices",
    "certify_split": "offcert.certification.splitting",
    "check": "offcert.questions.schedule.check",
    "doctor": "offcert.training.doctor",
    "place": "offcert.certification.placing",
    "read_certificate": "offcert.proofs.certificate",
    "read_devices_certificate": "offcert.proofs.devices_certificate",
    "read_devices_problem": "offcert.questions.devices.problem",
    "read_placement": "offcert.proofs.placement_certificate",
    "read_placement_problem": "offcert.questions.placement.files",
    "read_problem": "offcert.questions.schedule.files",
    "read_split": "offcert.questions.split.problem",
    "read_split_certificate": "offcert.proofs.split_certificate",
    "simulate": "offcert.questions.schedule.simulate",
    "solve": "offcert.certification.methods",
    "verify": "offcert.verification.document",
    "verify_on": "offcert.verification.elsewhere",
    "write_problem": "offcert.questions.schedule.files",
}
_NEED_TORCH = {
    "TrainingStep": "offcert.runtime.capture.step",
    "backend": "offcert.runtime.compiled.backend",
    "budget_solver": "offcert.training.budget",
    "checkpoint_policies": "offcert.runtime.plan.policies",
    "for_policies": "offcert.runtime.plan.policies",
    "offload": "offcert.training.offload",
    "profile": "offcert.runtime.profiling.profile",
    "pure": "offcert.runtime.watch.operators",
    "sub_batch_steps": "offcert.runtime.sub_batches",
    "sub_batches": "offcert.runtime.sub_batches",
    "chunked_loss": "offcert.runtime.tail_chunks",
    "with_tail_chunks": "offcert.runtime.tail_chunks",
}

# The core does not know who draws; whoever uses it has come through this door.
_drawn_by("offcert.report.notebook")


def _load(name: str) -> Any:
    if name in _NEED_TORCH:
        from importlib.util import find_spec

        if find_spec("torch") is None:
            return _without_torch(name)
    elif name not in _HOMES:
        raise AttributeError(f"module 'offcert' has no attribute {name!r}")
    value = getattr(import_module((_HOMES | _NEED_TORCH)[name]), name)
    globals()[name] = value
    return value


def _without_torch(name: str) -> Any:
    """Return a function that says what to install only when it is called: a look does no harm."""

    def missing(*args: Any, **kwargs: Any) -> Any:
        from offcert.core.errors import require_torch

        require_torch(name)
        # It has been installed meanwhile.
        return _load(name)(*args, **kwargs)

    return missing


if not TYPE_CHECKING:
    # Type checkers see the imports above and would take any name for one of these.
    __getattr__ = _load


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
