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
    from offcert.proofs.devices_certificate import DevicesCertificate
    from offcert.proofs.placement_certificate import PlacementCertificate
    from offcert.proofs.split_certificate import SplitCertificate
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
    "read_devices_problem",
    "read_placement_problem",
    "read_problem",
    "read_split",
    "simulate",
    "solve",
    "sub_batch_steps",
    "sub_batches",
    "verify",
    "verify_on",
    "with_tail_chunks",
    "write_problem",
]

# The names of each module.
_NAMES = {
    "offcert.campaign.benchmark": "benchmark",
    "offcert.certification.devices": "certify_devices",
    "offcert.certification.ladder": "certify",
    "offcert.certification.methods": "solve",
    "offcert.certification.placing": "place",
    "offcert.certification.splitting": "certify_split",
    "offcert.core.chain": "Chain",
    "offcert.core.checkpoint_chain": "CheckpointChain",
    "offcert.core.computations": "Computation Run Value",
    "offcert.core.errors": "InputError OffcertError PlanError",
    "offcert.core.execution": "Execution",
    "offcert.core.network": "Network",
    "offcert.core.platform": "Kind Link Platform",
    "offcert.core.program": "Program Segment",
    "offcert.core.result": "Bound Evidence SolveStatus",
    "offcert.core.strategy": "Strategy",
    "offcert.core.trace": "Operation Tensor Trace",
    "offcert.core.units": "Units",
    "offcert.instances.library": "Library",
    "offcert.proofs.certificate": "Certificate read_certificate",
    "offcert.proofs.devices_certificate": "DevicesCertificate",
    "offcert.proofs.placement_certificate": "PlacementCertificate",
    "offcert.proofs.split_certificate": "SplitCertificate",
    "offcert.questions.devices.problem": (
        "Accumulation DevicesProblem Gradient read_devices_problem"
    ),
    "offcert.questions.placement.files": "read_placement_problem",
    "offcert.questions.placement.problem": "Placement PlacementProblem Residence",
    "offcert.questions.schedule.check": "check",
    "offcert.questions.schedule.files": "read_problem write_problem",
    "offcert.questions.schedule.plan": "Move Plan",
    "offcert.questions.schedule.problem": "Minimise Problem Recompute Transfers",
    "offcert.questions.schedule.result": "Result",
    "offcert.questions.schedule.schedule": "Schedule Transfer",
    "offcert.questions.schedule.simulate": "simulate",
    "offcert.questions.split.problem": "SplitProblem read_split",
    "offcert.training.doctor": "doctor",
    "offcert.verification.document": "verify",
    "offcert.verification.elsewhere": "Elsewhere verify_on",
}
_NEED_TORCH = {
    "offcert.runtime.capture.step": "TrainingStep",
    "offcert.runtime.compiled.backend": "backend",
    "offcert.runtime.plan.policies": "checkpoint_policies for_policies",
    "offcert.runtime.profiling.profile": "profile",
    "offcert.runtime.sub_batches": "sub_batch_steps sub_batches",
    "offcert.runtime.tail_chunks": "chunked_loss with_tail_chunks",
    "offcert.runtime.watch.operators": "pure",
    "offcert.training.budget": "budget_solver",
    "offcert.training.offload": "offload",
}
_HOMES = {
    name: module for module, names in (_NAMES | _NEED_TORCH).items() for name in names.split()
}

# The core does not know who draws; whoever uses it has come through this door.
_drawn_by("offcert.report.notebook")


def _load(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'offcert' has no attribute {name!r}")
    if _HOMES[name] in _NEED_TORCH:
        from importlib.util import find_spec

        if find_spec("torch") is None:
            return _without_torch(name)
    value = getattr(import_module(_HOMES[name]), name)
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
