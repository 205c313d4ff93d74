"""`backend`: a backend for `torch.compile` that follows plans."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._guards import CompileContext
from torch.autograd.graph import register_multi_grad_hook

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.compiled.divided import DividedGraph
from offcert.runtime.compiled.graph_network import divided_by_least_cut, pair_of_least_cut
from offcert.runtime.compiled.graph_plan import GraphPlan, GraphReport, graph_plan, together
from offcert.runtime.compiled.graph_program import carry_out
from offcert.runtime.compiled.inductor import (
    NAME,
    Buffers,
    compiled_by_inductor,
    most_bytes,
)
from offcert.runtime.plan.step_plan import AnyPlan, planned
from offcert.runtime.watch.guard import OffloadWarning

Compiler = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]


def backend(
    plan: AnyPlan,
    problem: Problem | None = None,
    *,
    strict: bool = False,
    compiler: Compiler | str = NAME,
) -> Backend:
    """Return a backend for `torch.compile` that carries a plan out in the compiled graphs.

    This is a second way to follow a plan, beside `offcert.offload`, which runs the model's own
    code::

        problem = offcert.profile(step, clock="graphs", hardware="h100-sxm")
        certificate = offcert.certify(problem.with_memory("50%"))
        compiled = torch.compile(model, backend=offcert.backend(certificate), dynamic=False)

    The problem has to be about these graphs themselves, as Inductor divides them. Operators that
    copy beside the computation are put where the plan says, what it has computed again is made so,
    and TorchInductor makes kernels of both graphs. Code that breaks the graph makes several, of
    which each does its part.

    What of the plan is carried out is in `Backend.report`. Where it is not all, an `OffloadWarning`
    says in the first backward pass what stays on the device, and why, or how much more memory the
    kernels take than the plan may. Gradients are those of the same graphs without a plan.

    Parameters
    ----------
    plan : Certificate, Plan or Schedule
        When tensors leave and come back, and what runs again.
    problem : Problem, optional
        The problem that a plan or schedule was made for; a certificate brings its own.
    strict : bool
        Raise an `InputError` in the first backward pass if the graphs carry out less than the plan.
    compiler : callable or ``"inductor"``
        Makes a function of each of the two graphs, as the compilers of
        ``torch._dynamo.backends.common.aot_autograd`` do. Another one than Inductor has to keep the
        order of what the plan has put in, to read nothing that comes back before the wait for it,
        and to know that saved tensors may share storages. Kernels of Inductor round otherwise than
        operators, with a plan and without one.

    Returns
    -------
    Backend
        For one model.

    Raises
    ------
    InputError
        If a problem was not captured from compiled graphs.
    PlanError
        If a plan does not make sense, or exceeds its problem's memory.
    """
    pairs = list(planned(plan, problem))
    if len(pairs) != 1:
        raise InputError(f"plan must be one certificate, not {len(pairs)}")
    if isinstance(compiler, str) and compiler != NAME:
        raise InputError(f'compiler must be "{NAME}" or callable, not {compiler!r}')
    return Backend(graph_plan(*pairs[0]), strict=strict, compiler=compiler)


class Backend:
    """Compiles graphs that follow a plan; see `backend`.

    Attributes
    ----------
    planned : GraphPlan
        The plan.
    reports : list of GraphReport
        One for every compilation with a backward pass, in their order.
    """

    def __init__(
        self, plan: GraphPlan, *, strict: bool = False, compiler: Compiler | str = NAME
    ) -> None:
        self.__name__ = "offcert"
        self.planned = plan
        self.reports: list[GraphReport] = []
        self._buffers: list[Buffers] = []
        self._frames: list[Hashable] = []
        # For each frame, which of the captured graphs it is.
        self._number: dict[Hashable, int] = {}
        self._strict = strict
        self._compiler = compiler
        # Whether there are graphs of which nobody has been told.
        self._untold = self._waited = False

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        """Compile the graph that Dynamo has traced."""
        if options:
            raise InputError(
                f"offcert.backend follows a plan without {', '.join(options)}: call torch.compile "
                "with the backend alone"
            )
        buffers = Buffers()
        partition = partial(self.partition, buffers=buffers)
        compiler = self._compiler
        # In the place of the one that Inductor calls for each graph.
        inner = None if isinstance(compiler, str) else lambda m, given, **_: compiler(m, given)
        return self._told(compiled_by_inductor(module, inputs, partition, buffers, inner))

    @property
    def report(self) -> GraphReport:
        """Parts that the newest graphs of all code carry out, and how many older ones do."""
        if not self.reports:
            raise InputError("no graph with a backward pass was compiled yet: train a step first")
        newest = dict(zip(self._frames, range(len(self.reports)), strict=True))
        current = sorted(newest.values())
        peak = most_bytes([self._buffers[n] for n in current])
        found = together([self.reports[n] for n in current], peak)
        older = [each for n, each in enumerate(self.reports) if n not in current]
        refused = sum(each.refused is not None for each in older)
        return replace(found, before=(len(older) - refused, refused))

    @property
    def carried_bytes(self) -> int:
        """Bytes of the planned storages that move in any of the graphs."""
        return self.report.carried_bytes if self.reports else 0

    def partition(
        self, joint: fx.GraphModule, inputs: Any, *, buffers: Buffers, **options: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Divide a joint graph as it was captured, and put the plan for it into both parts."""
        frame, refused = _frame(), _why_refused(joint)
        if refused is None:
            pair, divided = divided_by_least_cut(joint, inputs, options)
            report = self._carried_out(divided, frame, buffers)
        else:
            pair = pair_of_least_cut(joint, inputs, options)
            report = self.planned.report(None, refused)
        given = {node.name for node in pair[0].graph.find_nodes(op="placeholder")}
        buffers.storages = {name: ("given", name) for name in given}
        buffers.given = {("given", name) for name in given}
        buffers.owned = set(options.get("static_lifetime_input_indices") or ())
        self.reports.append(report)
        self._buffers.append(buffers)
        self._frames.append(frame)
        self._untold = True
        return pair

    def _carried_out(self, divided: DividedGraph, frame: Hashable, buffers: Buffers) -> GraphReport:
        """Put the plan for a graph into it, if it is one of those that were captured."""
        plan = self.planned
        taken = {self._number[each] for each in self._number if each != frame}
        same = [n for n, each in enumerate(plan.graphs) if each.digest == divided.digest]
        number = next((n for n in same if n not in taken), None)
        if number is None:
            return plan.report(None, "the graph is none of those that were captured")
        self._number[frame] = number
        hosts = carry_out(plan, number, divided)
        buffers.hosts = set(hosts or ())
        why = "what it runs again while another graph runs reads what has left by then"
        return plan.report(number, why if hosts is None else None)

    def _told(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return a compiled graph after whose first run the user is told of the plan.

        That is when a gradient comes by: then all graphs of the forward pass are there.
        """

        @functools.wraps(compiled)
        def run(*args: Any) -> Any:
            found = compiled(*args)
            if self._untold:
                rows = found if isinstance(found, list | tuple) else (found,)
                of = [each for each in rows if isinstance(each, torch.Tensor)]
                of = [each for each in of if each.requires_grad]
                if of:
                    register_multi_grad_hook(of, lambda gradient: self._tell(), mode="any")
            return found

        return run

    def _tell(self) -> None:
        if not self._untold:
            return
        report = self.report
        if report.complete and report.peak is None and self._compiler == NAME and not self._waited:
            # The backward graph is compiled when it first runs: more is known in the next step.
            self._waited = True
            return
        self._untold = self._waited = False
        if self._strict and not report.complete:
            raise InputError(str(report))
        if not (report.complete and report.within):
            warnings.warn(str(report), OffloadWarning, stacklevel=2)


def _frame() -> Hashable:
    """Return a key of the code that is being compiled: a function, or the rest of one."""
    frame = getattr(CompileContext.current_compile_id(), "frame_id", None)
    return object() if frame is None else frame


def _why_refused(joint: fx.GraphModule) -> str | None:
    """Return why a graph can follow no plan, if that is so."""
    for node in joint.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) or (
            isinstance(value, torch.Tensor)
            and not all(isinstance(size, int) for size in value.shape)
        ):
            return "its shapes are dynamic: compile with dynamic=False"
    return None
