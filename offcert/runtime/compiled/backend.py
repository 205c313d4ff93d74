"""`backend`: a backend for `torch.compile` that follows plans.

TorchInductor makes kernels of graphs that follow a plan. It works from what depends on what. So the
numbers are right if everything that somebody must wait for, or must keep, is there as a dependency.
Two things were not, and made wrong numbers of right graphs:

1. Whatever is cheap, it computes anew for each operator that takes it. The operator that begins a
   copy and the one that waits for it then have two tensors; the copied one is given up at once, and
   overwritten during the copy. So a storage that leaves passes through `HOLD` first, an operator
   that does nothing: its one result is what both take.
2. It writes over what is saved for the backward pass ("donated buffers") after the last use of that
   tensor. PyTorch's default partitioner, whose graphs plans know, saves several tensors over one
   storage, and Inductor takes them for strangers: one is overwritten while another is still needed,
   without any plan, too. So nothing is donated.

Inductor puts operators in another order where dependencies allow it, and computes several in one
kernel, of which it may keep nothing in memory. A plan says before which operations a tensor leaves
and returns; where these are in the kernels is for Inductor to say. The numbers differ from those
of the program as Inductor's do: each kernel rounds otherwise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as aot_config
from torch._functorch.partitioners import default_partition

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.compiled.again import Marked, mark_segments
from offcert.runtime.compiled.anchors import Anchors
from offcert.runtime.compiled.graph_pair import GraphPair, NodeCalls
from offcert.runtime.compiled.insert import GraphTransfer, insert
from offcert.runtime.compiled.planned import Planned, planned
from offcert.runtime.compiled.report import GraphReport, MovedInGraphs, Stays
from offcert.runtime.compiled.storages import GraphStorages, timing, why_missing
from offcert.runtime.plan.step_plan import AnyPlan
from offcert.runtime.plan.step_plan import planned as pairs_of
from offcert.runtime.watch.guard import OffloadWarning

NAME = "inductor"

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]

_library = torch.library.Library("offcert", "FRAGMENT")
_library.define("hold(Tensor(a) tensor) -> Tensor(a)")


@torch.library.impl(_library, "hold", "CompositeExplicitAutograd")
def _hold(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@torch.library.register_fake("offcert::hold", lib=_library)
def _fake_hold(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


# ``(tensor) -> tensor``: the same; for a compiler a tensor that must be in memory, just once.
HOLD = torch.ops.offcert.hold.default


def compiled_by_inductor(
    module: fx.GraphModule, inputs: Sequence[Any], partition: Partition
) -> Any:
    """Return Inductor's kernels for a graph that Dynamo has traced and our partitioner divides.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The graph that was traced.
    inputs : sequence
        Its inputs.
    partition : callable
        As `offcert.runtime.compiled.backend.Backend.partition`.

    Raises
    ------
    InputError
        If the PyTorch that is installed takes no partitioner.
    """
    from torch._inductor.compile_fx import compile_fx

    patches = {
        "custom_partitioner_fn": _partitioner(partition),
        # Copies inside of CUDA graphs would go to the same addresses again, whoever has them then.
        "triton.cudagraphs": False,
    }
    with aot_config.patch(donated_buffer=False):
        return compile_fx(module, inputs, config_patches=patches)


def require_inductor() -> None:
    """Raise an `InputError` if Inductor takes no partitioner."""
    try:
        from torch._inductor.custom_graph_pass import CustomPartitionerFn  # noqa: F401
    except ImportError:
        raise InputError(
            f"the Inductor of torch {torch.__version__} takes no partitioner, which a plan needs; "
            "that of torch 2.13 does"
        ) from None


def _partitioner(partition: Partition) -> Any:
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Partitioner(CustomPartitionerFn):
        """Divides a joint graph as a plan wants it."""

        def __call__(
            self, gm: fx.GraphModule, joint_inputs: Sequence[object], **options: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            options.pop("compiler", None)
            return partition(gm, joint_inputs, **options)

        def uuid(self) -> None:
            """Return None: graphs of a plan are for no cache, as reports are made with them."""

    return Partitioner()


Compiler = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]


def backend(
    plan: AnyPlan,
    problem: Problem | None = None,
    *,
    strict: bool = False,
    compiler: Compiler | str | None = None,
) -> Backend:
    """Return a backend for `torch.compile` that carries a plan out in the compiled graphs.

    This is a second way to follow a plan, beside `offcert.offload`, which runs the model's own
    code::

        compiled = torch.compile(model, backend=offcert.backend(certificate))

    The graphs are divided where PyTorch's default partitioner does, so that what is saved is what
    the plan knows. Then operators that copy beside the computation are put where the plan
    says, and what it has computed again is marked for the partitioner. A plan that does neither
    changes nothing.

    What of the plan is carried out is in `Backend.reports`; where it is not all, an
    `OffloadWarning` says what stays on the device, and why. Gradients are bitwise those of the same
    graphs without a plan.

    Parameters
    ----------
    plan : Certificate, Plan or Schedule
        When tensors leave and come back, and what runs again.
    problem : Problem, optional
        The problem that a plan or schedule was made for; a certificate brings its own.
    strict : bool
        Raise an `InputError` where a graph carries out less than the plan.
    compiler : callable or str, optional
        Makes a function of each of the two graphs, as the compilers of
        ``torch._dynamo.backends.common.aot_autograd`` do. Without one they run as they are,
        operator by operator. It has to keep the order of what the plan has put in, to read nothing
        that comes back before the wait for it, and to know that saved tensors may share storages.
        ``"inductor"``: TorchInductor, with what it needs for that
        (`offcert.runtime.compiled.backend`). Its kernels round otherwise than operators, with a
        plan and without one, and it orders them itself: the numbers are those of the program up to
        rounding, and the peak may not be that of the plan.

    Returns
    -------
    Backend
        For one model.

    Raises
    ------
    InputError
        If a problem was not captured with a clock that can be followed, the captured step calls
        the model several times.
    PlanError
        If a plan does not make sense, or exceeds its problem's memory.
    """
    pairs = list(pairs_of(plan, problem))
    if len(pairs) != 1:
        raise InputError(f"plan must be one certificate, not {len(pairs)}")
    if isinstance(compiler, str):
        if compiler != NAME:
            raise InputError(f'compiler must be "{NAME}" or callable, not {compiler!r}')
        require_inductor()
    return Backend(planned(*pairs[0]), strict=strict, compiler=compiler)


class Backend:
    """Compiles graphs that follow a plan; see `backend`.

    Attributes
    ----------
    planned : Planned
        The plan.
    reports : list of GraphReport
        One for every compilation with a backward pass, in their order.
    """

    def __init__(
        self, plan: Planned, *, strict: bool = False, compiler: Compiler | str | None = None
    ) -> None:
        self.__name__ = "offcert"
        self.planned = plan
        self.reports: list[GraphReport] = []
        self._strict = strict
        self._compiler = compiler or as_it_is

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        """Compile the graph that Dynamo has traced.

        Raises
        ------
        InputError
            If `torch.compile` was called with a mode or options, such as CUDA graphs.
        """
        if options:
            raise InputError(
                f"offcert.backend follows a plan without {', '.join(options)}: call torch.compile "
                "with the backend alone"
            )
        if isinstance(self._compiler, str):
            return compiled_by_inductor(module, inputs, self.partition)
        compilers: dict[str, Any] = {"fw_compiler": self._compiler, "bw_compiler": self._compiler}
        return aot_autograd(**compilers, partition_fn=self.partition)(module, inputs)

    @property
    def carried_bytes(self) -> int:
        """Bytes of the planned storages that move in any of the graphs."""
        moved = {each.place: each.size for report in self.reports for each in report.carried}
        return sum(moved.values())

    def partition(
        self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Divide a joint graph into a forward and a backward graph that follow the plan.

        Raises
        ------
        InputError
            If the backend is strict, and they cannot follow all of it.
        """
        plan = self.planned
        refused = _why_refused(joint)
        if refused is not None or not (plan.moved or plan.segments):
            report = GraphReport(plan.name, plan.bytes_moved, refused=refused)
            self._note(report)
            return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        marked: list[Marked] = []
        if plan.segments:
            calls = NodeCalls(joint.graph.nodes, {event.path for event in plan.events})
            marked = mark_segments(plan.segments, joint, num_fwd_outputs, calls)
        forward, backward = default_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **options
        )
        again = tuple(each.divided(backward) for each in marked)
        pair = GraphPair(forward, backward, num_fwd_outputs)
        hold = HOLD if isinstance(self._compiler, str) else None
        carried, stays = insert_plan(plan, pair, _owned(joint, options), hold)
        self._note(GraphReport(plan.name, plan.bytes_moved, tuple(carried), tuple(stays), again))
        return forward, backward

    def _note(self, report: GraphReport) -> None:
        self.reports.append(report)
        if report.complete:
            return
        if self._strict:
            raise InputError(str(report))
        warnings.warn(str(report), OffloadWarning, stacklevel=2)


def insert_plan(
    plan: Planned, pair: GraphPair, owned: Iterable[str] = (), hold: Any = None
) -> tuple[list[MovedInGraphs], list[Stays]]:
    """Put the transfers of a plan into a forward and a backward graph; return what became of them.

    Parameters
    ----------
    plan : Planned
        The plan.
    pair : GraphPair
        The graphs, which are changed.
    owned : iterable of str
        The inputs that are parameters and buffers.
    hold : torch._ops.OpOverload, optional
        An operator through which storages pass before they leave.
    """
    calls = NodeCalls(pair.nodes, {event.path for event in plan.events})
    anchors = Anchors(plan, pair, calls)
    places = GraphStorages(pair, owned).found(plan, anchors)
    carried, stays, transfers = [], [], []
    for moved in plan.moved:
        storage = places.get(moved.place)
        why = why_missing(moved.place, anchors) if storage is None else storage.why_not()
        when = why if storage is None or why is not None else timing(moved, storage, anchors, pair)
        if storage is None or when is None or isinstance(when, str):
            saver = plan.names[moved.place.operation]
            stays.append(Stays(moved.tensor, moved.place.size, saver, str(when)))
            continue
        transfer = GraphTransfer(storage, when.absences)
        transfers.append(transfer)
        carried.append(
            MovedInGraphs(
                moved.tensor,
                moved.place,
                transfer.whole.name,
                tuple(pair.nodes[each.release].name for each in when.absences),
                tuple(pair.nodes[each.claim].name for each in when.absences),
                when.exact,
            )
        )
    insert(transfers, pair, hold)
    return carried, stays


def as_it_is(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that runs a graph operator by operator.

    It is given its inputs in a list that it empties, so that they die with their last use.
    """

    def run(values: list[Any]) -> Any:
        with torch.fx.traceback.preserve_node_meta():
            return fx.Interpreter(module).boxed_run(values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _owned(joint: fx.GraphModule, options: Mapping[str, Any]) -> set[str]:
    """Return the names of the inputs that are parameters and buffers."""
    inputs = joint.graph.find_nodes(op="placeholder")
    return {inputs[n].name for n in options.get("static_lifetime_input_indices") or ()}


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
