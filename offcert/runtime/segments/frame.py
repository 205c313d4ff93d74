"""One call of a segment: its first run, those in the backward pass, and what it is given."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import _StopRecomputationError

from offcert.runtime.segments.checkpoint import Begun, Given
from offcert.runtime.segments.handed import require_no_cache
from offcert.runtime.segments.keeper import Inputs, Keeper, Tick, Watch
from offcert.runtime.segments.keeping import Give, Keep
from offcert.runtime.segments.settings import GeneratorStates
from offcert.runtime.segments.state import Before, ModuleStates
from offcert.runtime.watch.entries import is_plain
from offcert.runtime.watch.events import AGAIN, RESUME
from offcert.runtime.watch.guard import Guard, guarded
from offcert.runtime.watch.nodes import recomputing
from offcert.runtime.watch.proof import SegmentProof

if TYPE_CHECKING:
    from offcert.runtime.segments.resolve import Part


class Walk:
    """Where a forward pass has got to, or a segment that runs again.

    Attributes
    ----------
    lookup : Lookup
        The program that is followed, by calls (`offcert.runtime.segments.resolve`).
    calls : dict
        How often each module has been called in the forward passes of the step.
    frame : Frame or None
        The innermost segment that runs.
    again : Frame or None
        The segment that runs again.
    watch : Watch or None
        Of the kept results.
    lines : list
        Lines that are open, from the outermost to the innermost.
    calling : bool
        Whether a call of theirs is being made.
    """

    __slots__ = ("again", "calling", "calls", "frame", "lines", "lookup", "opened", "watch")

    def __init__(self, lookup: Any, calls: dict[str, int], again: Frame | None = None) -> None:
        self.lookup = lookup
        self.calls = calls
        self.opened: dict[str, list[int]] = {}
        self.frame = again
        self.again = again
        self.watch: Watch | None = None
        self.lines: list[Any] = []
        self.calling = False

    @property
    def depth(self) -> int:
        """How many segments the one that runs again lies in; -1 if none runs again."""
        return -1 if self.again is None else self.again.depth

    def count(self, key: str) -> int:
        """Return the number of the call that begins."""
        call = self.calls.get(key, 0)
        self.calls[key] = call + 1
        return call

    def tick(self, event: Tick) -> None:
        """Note an event of a module."""
        if self.watch is not None:
            self.watch.tick(event)


class Now(threading.local):
    """The walk that is under way in a thread, if any."""

    def __init__(self) -> None:
        self.walk: Walk | None = None


class Told(Protocol):
    """The object that is told how a call of a segment ends."""

    guard: Guard

    def ran(self, kind: str) -> None:
        """Take note that it begins to run again, or has done so."""

    def may_drop_casts(self) -> bool:
        """Whether nobody will use the weights that autocast has cast in the forward pass."""

    def doubts(self, proof: SegmentProof, flag: torch.Tensor) -> None:
        """Take note of a flag on a device: whether it has made the same again."""


class Body:
    """A function with its arguments, which only autograd's hooks hold once it has been called.

    PyTorch's checkpoint would hold its arguments itself as long as the function runs, and would ask
    for them before anybody knows that it runs again.

    Parameters
    ----------
    frame : Frame
        Of the segment.
    function : callable
        The function that is called.
    args, kwargs : tuple, dict
        Arguments of the call.
    """

    def __init__(
        self,
        frame: Frame,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.frame = frame
        self.function = function
        self.pending: tuple[tuple[Any, ...], dict[str, Any]] | None = (args, kwargs)
        self.leaves, self.spec = tree_flatten((args, kwargs))
        self.places: list[tuple[int, int]] = []
        self.inputs = Inputs(frame.name)
        # PyTorch only looks for generators of devices at arguments, of which it is given none.
        tensors = (leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor))
        frame.arguments = [leaf for leaf in self.leaves if not isinstance(leaf, torch.Tensor)]
        self.generators = GeneratorStates.of(leaf.device for leaf in tensors)
        for leaf in self.leaves:
            require_no_cache(frame.name, leaf)
        # The checkpoint holds the body, and the body the frame.
        frame.body = weakref.ref(self)
        self._pack()

    def _pack(self) -> None:
        index_of: dict[int, int] = {}
        for place, leaf in enumerate(self.leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            index = index_of.setdefault(id(leaf), len(self.inputs))
            if index == len(self.inputs):
                self.inputs.hold(leaf)
                if is_plain(leaf):
                    storage = leaf.untyped_storage()
                    self.frame.given[storage._cdata] = weakref.ref(storage), index
            self.places.append((place, index))
        for place, _ in self.places:
            self.leaves[place] = None

    def __call__(self) -> Any:
        """Call it: for the first time, or again with what the hooks have held."""
        walk = self.frame.now.walk
        if walk is None or walk.again is not self.frame:
            assert self.pending is not None
            (args, kwargs), self.pending = self.pending, None
            return self.function(*args, **kwargs)
        self.frame.told.ran(AGAIN)
        with suppress(_StopRecomputationError), self.generators.again():
            args, kwargs = self._unpack()
            self.function(*args, **kwargs)
        del args, kwargs
        if walk.watch is not None:
            walk.watch.release()
        # What the calls that were left held is free now. PyTorch looks at no result.
        self.frame.told.ran(RESUME)
        return None

    def _unpack(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tensors = self.inputs.again(rehearses=self.frame.rehearses)
        leaves = list(self.leaves)
        for place, index in self.places:
            leaves[place] = tensors[index]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return args, kwargs


class Frame:
    """A call of a segment.

    PyTorch's checkpoint holds the contexts that this gives it, and so the frame and what it keeps,
    as long as autograd may still need them.

    Parameters
    ----------
    part : Part
        The segment.
    now : Now
        Of the segments.
    keeper : Keeper or None
        Of the outermost segment around it.
    told : Told
        Who hears of what becomes of it.
    rehearses : bool
        Whether what it makes again is only compared.
    turn : int
        Of the step: in each one other elements are compared.
    """

    def __init__(
        self,
        part: Part,
        now: Now,
        keeper: Keeper | None,
        told: Told,
        *,
        rehearses: bool = False,
        turn: int = 0,
    ) -> None:
        assert now.walk is not None
        self.name = part.name
        self.states = part.states
        self.depth = part.depth
        self.proof = part.proof
        self.now = now
        self.keeper = keeper
        self.told = told
        self.rehearses = rehearses
        self.turn = turn
        self.lookup = now.walk.lookup
        self.calls = dict(now.walk.calls)
        self.arguments: list[Any] = []
        self.held: dict[int, bool] = {}
        self.given: Given = {}
        self.body: weakref.ref[Body] | None = None
        self.before: Before | None = None

    @property
    def guard(self) -> Guard:
        """Of the step that it is called in."""
        return self.told.guard

    @guarded()
    def start(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Begun[Body] | None:
        """Begin the first run; return the function to be called in it, or None on failure."""
        return Begun(self, Body(self, function, args, kwargs))

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Return the contexts of the first run and of all others."""
        return _First(self), _Again(self)

    def given_again(self, index: int) -> torch.Tensor:
        """Return an input of the segment's call, as it is now."""
        body = None if self.body is None else self.body()
        assert body is not None
        return body.inputs.now(index)

    def end_rehearsal(self) -> None:
        """Let go of the inputs that a rehearsal has kept."""
        body = None if self.body is None else self.body()
        if body is not None:
            body.inputs.end_rehearsal()

    def doubts(self, flag: torch.Tensor) -> None:
        """Pass on a flag on a device: whether the segment has made the same again."""
        self.told.doubts(self.proof, flag)

    def begins(self, states: ModuleStates) -> Before:
        """Take down the state in which the segment, or a call of it, begins."""
        before = states.begin(self.arguments, rehearses=self.rehearses)
        self.held |= {row.storage: row.fixed for row in before.rows}
        return before

    def ended(self, states: ModuleStates, before: Before) -> None:
        """Take note of the first run's changes; refuse the segment if one forbids runs again."""
        for reason, name in states.end(before).doubts[:1]:
            self.proof.refuse(reason, states.module_of(name))

    @contextmanager
    def first(self) -> Iterator[None]:
        """Run the segment for the first time: in a forward pass, or in an outer segment."""
        walk = self.now.walk
        assert walk is not None
        self.before = self.begins(self.states)
        outer, walk.frame = walk.frame, self
        own = walk.watch is None and self.keeper is not None
        if own:
            assert self.keeper is not None
            walk.watch = Keep(self.keeper)
        try:
            yield
        finally:
            walk.frame = outer
            if own:
                assert walk.watch is not None
                walk.watch.leave()
                walk.watch = None
        self.ended(self.states, self.before)
        if own and self.keeper is not None:
            self.keeper.check()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Run it again, from the state in which it began."""
        assert self.before is not None
        walk = Walk(self.lookup, dict(self.calls), self)
        if self.keeper is not None:
            last = partial(self._is_last, walk)
            walk.watch = Give(self.keeper, last, self.proof)
        outer, self.now.walk = self.now.walk, walk
        try:
            with recomputing(), self.states.again(self.before):
                yield
        finally:
            self.now.walk = outer
            if walk.watch is not None:
                walk.watch.leave()
                # The watch refers to the walk, which must not live on because of that.
                walk.watch = None
            if outer is None and self.told.may_drop_casts():
                # Within an autocast of the user's, the weights that were cast would stay until that
                # ends. To switch the cache off instead would cast again what is in it already.
                torch.clear_autocast_cache()

    def _is_last(self, walk: Walk) -> bool:
        """Return whether what is handed out now will not be asked for again."""
        return walk.frame is self and not _keeps_graph()


def _keeps_graph() -> bool:
    """Whether the backward pass that runs may be followed by another one through the same graph."""
    if torch._C._current_graph_task_id() == -1:
        return True
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


class _Context(AbstractContextManager[None]):
    """A context that can be entered again and again."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._open: list[ExitStack] = []

    def enter(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def __enter__(self) -> None:
        stack = ExitStack()
        stack.enter_context(self.enter())
        self._open.append(stack)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.pop().__exit__(kind, error, traceback)


class _First(_Context):
    def enter(self) -> AbstractContextManager[None]:
        return self.frame.first()


class _Again(_Context):
    def enter(self) -> AbstractContextManager[None]:
        return self.frame.again()


def run_frame(
    frame: Frame, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function so that what it saves for the backward pass is computed again there.

    Tensors anywhere in its arguments are handed to the saved-tensor hooks that are active; the same
    tensor given twice is one.
    """
    begun = frame.start(function, args, kwargs)
    if begun is None:
        return function(*args, **kwargs)
    with begun:
        return begun.body()
