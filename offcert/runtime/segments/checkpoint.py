"""Checkpoints: what a segment saves is computed again when the backward pass asks for it.

The rules:

1. Autograd holds a `Saved` for each tensor that a segment saves. What modules hold stays in it; all
   else is dropped, and is there again once the segment has run again. Tensors that are asked for a
   second time are computed a second time.
2. A segment runs again from where it began (`offcert.runtime.segments.frame`), and stops when the
   last tensor has been saved: what is computed after that, nobody needs.
3. An operator may save a tensor before it has written it: noise, statistics. A rehearsal sees which
   these are: they are looked at when the operator has ended, and a run does not stop at them.
4. **Rehearsal.** What the first run saves stays, and is what autograd gets: on the device as far as
   the step has room, else on the host. When the backward pass asks for the first tensor of it, the
   segment runs again beside, and fingerprints of all bytes are compared. If they agree, the segment
   is proved, and what lies on the host need not come back: it was made again. Otherwise the segment
   is refused, and the gradients of the step are right all the same.
5. **Verification.** In later steps one segment after the other is compared in full, by fingerprints
   of its first run; in all others the last differentiable value that was saved is compared. A
   difference is a `RecomputeError`: what would be needed is gone.
6. An operator of the user's own that is written in Python may keep anything anywhere; a segment
   that calls one is refused in its rehearsal, before it runs again, unless the operator was
   declared to be pure (`offcert.runtime.segments.operators`).
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple, Protocol

import torch

from offcert.runtime.segments.fingerprint import fingerprint, has_bytes, kind_of
from offcert.runtime.segments.operators import Operators, operator_number
from offcert.runtime.watch.entries import Handle, View, is_plain
from offcert.runtime.watch.guard import Guard, one_line
from offcert.runtime.watch.proof import RecomputeError, SegmentProof, StopRunning


class Mode(Enum):
    """How much of a call of a segment is compared."""

    # Of fake tensors there is nothing to compare.
    TRUSTED = 0
    ONE = 1
    ALL = 2
    REHEARSAL = 3


class Told(Protocol):
    """The object that is told how a call of a segment ends."""

    guard: Guard

    def ran(self, kind: str) -> None:
        """Take note that it begins to run again, or has done so."""

    def may_drop_casts(self) -> bool:
        """Whether nobody will use the weights that autocast has cast in the forward pass."""

    def has_room(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage may stay on the device in this step."""

    def doubts(self, proof: SegmentProof, flag: torch.Tensor) -> None:
        """Take note of a flag on a device: whether it has made the same again."""


class Argument(Protocol):
    """A tensor that a call is given."""

    def holds(self, storage: torch.UntypedStorage, version: int) -> bool:
        """Whether it lies in a storage, which has not been changed since."""

    def tensor(self) -> torch.Tensor:
        """Return it, detached."""


class _Pending(NamedTuple):
    """A tensor that an operator may not have written yet, with its fingerprint so far."""

    place: int
    tensor: torch.Tensor
    early: torch.Tensor | None
    operator: int


class Saved:
    """The object that autograd holds instead of a tensor that a segment has saved.

    Attributes
    ----------
    checkpoint : Checkpoint
        Of the call that saved it.
    index : int
        How many tensors the call had saved before.
    held : object
        The tensor, if it stays: itself, a `Handle`, or an `_OnHost`.
    made : dict of int to tensor
        The tensor as it was made again, for each backward pass.
    """

    __slots__ = ("__weakref__", "checkpoint", "held", "index", "made")

    def __init__(self, checkpoint: Checkpoint, index: int) -> None:
        self.checkpoint = checkpoint
        self.index = index
        self.held: Any = None
        self.made: dict[int, torch.Tensor] = {}

    def kept(self) -> torch.Tensor:
        """Return the tensor that stayed."""
        held = self.held
        return held if isinstance(held, torch.Tensor) else held.restore()


class _OnHost:
    """A copy in the host's memory of a tensor for which the device has no room."""

    __slots__ = ("_copy", "_device")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._device = tensor.device
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            self._copy = tensor.detach().to("cpu", copy=True)

    def restore(self) -> torch.Tensor:
        """Return the tensor on its device, where it counts as all others do."""
        with torch.no_grad():
            return self._copy.to(self._device, copy=True)


class _Given:
    """A tensor that lies in an argument of the call, which the hooks around the segment hold."""

    __slots__ = ("_argument", "_view")

    def __init__(self, argument: Argument, view: View) -> None:
        self._argument = argument
        self._view = view

    def restore(self) -> torch.Tensor:
        """Return the tensor on its device."""
        tensor = self._argument.tensor()
        view = self._view
        return tensor.view(view.dtype).as_strided(view.shape, view.stride, view.offset)


class Checkpoint:
    """A call of a segment, as autograd's saved-tensor hooks see it.

    Parameters
    ----------
    proof : SegmentProof
        Of the segment.
    told : Told
        Who hears of what becomes of it.
    mode : Mode
        How much is compared.
    """

    def __init__(self, proof: SegmentProof, told: Told, mode: Mode) -> None:
        self.proof = proof
        self.told = told
        self.mode = mode
        # By address, the storages that modules hold.
        self.held: dict[int, bool] = {}
        # What the call is given, and the storages of results that are kept, by address.
        self.arguments: Mapping[int, Argument] = {}
        self.kept: Container[int] = ()
        self.completed = False
        self.prints: dict[int, tuple[Any, torch.Tensor | None]] = {}
        self._saved: list[weakref.ref[Saved]] = []
        self._pending: list[_Pending] = []
        self._rehearsed = False
        self._operators: Operators | None = None
        self._copies: dict[Any, tuple[weakref.ref[Any], _OnHost]] = {}
        self._compared = proof.compared if mode is Mode.ONE else None

    def run(self, again: Again) -> None:
        """Run the segment again, until `again` stops it or it has ended."""
        raise NotImplementedError

    # What autograd asks of the first run.

    def pack(self, tensor: torch.Tensor) -> Saved:
        """Return what autograd holds instead of a tensor."""
        index = len(self._saved)
        saved = Saved(self, index)
        self._saved.append(weakref.ref(saved))
        if self._operators is None:
            self._pack(saved, tensor)
        else:
            # Operators of ours are none of the segment's.
            with torch._C._DisableTorchDispatch():
                self._pack(saved, tensor)
        return saved

    def _pack(self, saved: Saved, tensor: torch.Tensor) -> None:
        if self.held and is_held(tensor, self.held):
            # Autograd goes on with what the module holds, whatever becomes of that.
            itself = tensor.is_leaf and tensor.requires_grad
            saved.held = tensor if itself else tensor.detach()
        elif self.mode is Mode.ONE:
            if saved.index == self._compared:
                self.prints[saved.index] = kind_of(tensor), fingerprint(tensor)
        elif self.mode is not Mode.TRUSTED:
            self._look_at(saved, tensor)

    def unpack(self, saved: Saved) -> torch.Tensor:
        """Return a tensor that autograd needs."""
        if self.mode is Mode.REHEARSAL:
            self._settle()
            # A gradient may be computed within the segment, before that is over.
            if self.completed and not self._rehearsed:
                self._rehearsed = True
                self._bring_back(self._rehearse())
        if saved.held is not None:
            return saved.kept()
        number = torch._C._current_graph_task_id()
        made = saved.made.pop(number, None)
        if made is None:
            self._make_again(number)
            made = saved.made.pop(number, None)
            if number == -1:
                # Nothing tells when those that nobody has asked for are not needed any more.
                self._forget()
        if made is None:
            self._differs("saves other tensors than before")
            raise AssertionError
        return made

    @contextmanager
    def watched(self, operators: Operators) -> Iterator[None]:
        """Hear of the ends of operators in the block, which is a first run, or a call of it."""
        self._operators = operators
        try:
            with operators.told(self._settle):
                yield
        finally:
            # They refer to this object, which must not live on because of that.
            self._operators = None
        for operator in operators.foreign:
            self.proof.refuse(f"{operator} is written in Python, and may keep anything")

    def end(self) -> None:
        """Take note that the first run has ended, while somebody still holds its results."""
        self._settle()
        self.completed = True
        if self.mode is Mode.REHEARSAL:
            self._leave_shared()

    def _leave_shared(self) -> None:
        """Hold no storage that others hold as well: a plan may want it to leave the device."""
        by_storage: dict[int, list[Saved]] = {}
        for reference in self._saved:
            saved = reference()
            if saved is not None and isinstance(saved.held, Handle):
                storage = saved.kept().untyped_storage()
                by_storage.setdefault(storage._cdata, []).append(saved)
                del storage
        for address, those in by_storage.items():
            # Of each handle its tensor, and the storage's own Python object.
            if torch._C._storage_Use_Count(address) > len(those) + 1:
                for saved in those:
                    saved.held = _OnHost(saved.kept())

    def is_on_host(self, index: int) -> bool:
        """Whether a tensor that was saved stays on the host, and is still needed."""
        saved = self._saved[index]()
        return saved is not None and isinstance(saved.held, _OnHost)

    def rest(self) -> None:
        """Do not run again beside what stays: autograd has all that it needs."""
        self._rehearsed = True

    def _forget(self) -> None:
        for reference in self._saved:
            saved = reference()
            if saved is not None:
                saved.made.pop(-1, None)

    # What is compared.

    def _look_at(self, saved: Saved, tensor: torch.Tensor) -> None:
        """Take note of a tensor of a rehearsal or a verification."""
        if not has_bytes(tensor):
            if self.mode is Mode.REHEARSAL:
                kind = type(tensor).__name__ if tensor.layout is torch.strided else "sparse tensor"
                self.proof.refuse(f"it saves a {kind}, which cannot be compared")
            saved.held = tensor.detach()
            return
        if self._is_written(saved.index, tensor):
            self._take(saved.index, tensor)
            self._keep(saved, tensor)
        else:
            early = fingerprint(tensor) if self.mode is Mode.REHEARSAL else None
            pending = _Pending(saved.index, tensor.detach(), early, operator_number())
            self._pending.append(pending)

    def _is_written(self, index: int, tensor: torch.Tensor) -> bool:
        """Whether the operator that saves a tensor has written it already."""
        if tensor.requires_grad:
            return True
        if self._operators is not None:
            return self._operators.has_made(tensor)
        if self._pending and self._pending[0].operator < operator_number():
            self._settle()
        return self.mode is Mode.ALL and index not in self.proof.unwritten

    def _settle(self) -> None:
        """Look at the tensors whose operators have ended."""
        pending, self._pending = self._pending, []
        for index, tensor, early, _ in pending:
            self._take(index, tensor)
            now = self.prints[index][1]
            if early is not None and now is not None and not torch.equal(early, now):
                self.proof.unwritten.add(index)
            saved = self._saved[index]()
            if saved is not None:
                self._keep(saved, tensor)

    def _take(self, index: int, tensor: torch.Tensor) -> None:
        if tensor.requires_grad:
            self.proof.compared = index
        self.prints[index] = kind_of(tensor), fingerprint(tensor)

    def _keep(self, saved: Saved, tensor: torch.Tensor) -> None:
        if self.mode is not Mode.REHEARSAL:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata, tensor._version, View.like(tensor)
        argument, found = self.arguments.get(storage._cdata), self._copies.get(key)
        if argument is not None and argument.holds(storage, tensor._version):
            saved.held = _Given(argument, key[-1])
        elif found is not None and found[0]() is storage:
            saved.held = found[1]
        elif storage._cdata not in self.kept and self.told.has_room(storage):
            saved.held = Handle(tensor, None)
        else:
            saved.held = _OnHost(tensor)
            self._copies[key] = weakref.ref(storage), saved.held

    # Running again.

    def _rehearse(self) -> dict[int, torch.Tensor]:
        """Run the segment again beside what its first run has saved; prove or refuse it."""
        again = Again(self, None)
        if self.proof.refused is None:
            try:
                self._run(again)
            except StopRunning:
                raise
            except Exception as error:
                self.proof.refuse(one_line(error))
        if self.proof.refused is None:
            difference = again.difference or again.wrong_count()
            if difference is None and not all(bool(flag) for flag in again.flags):
                difference = "a tensor comes out different"
            if difference is None:
                self.proof.accept()
            else:
                self.proof.refuse(difference)
        return again.made

    def _bring_back(self, made: dict[int, torch.Tensor]) -> None:
        """Put on the device what stayed on the host: what was made again, if it is the same."""
        self._copies.clear()
        for reference in self._saved:
            saved = reference()
            if saved is not None and isinstance(saved.held, _OnHost):
                again = None if self.proof.refused else made.pop(saved.index, None)
                saved.held = Handle(saved.kept() if again is None else again, None)

    def _make_again(self, number: int) -> None:
        again = Again(self, number)
        self._run(again)
        difference = again.difference or again.wrong_count()
        if difference is not None and self.completed:
            self._differs(difference)
        if again.flags:
            self.told.doubts(self.proof, torch.stack(again.flags).all())

    def _run(self, again: Again) -> None:
        hooks = torch.autograd.graph.saved_tensors_hooks(again.pack, _as_is)
        with hooks, torch.enable_grad():
            self.run(again)
        again.settle()

    def _differs(self, what: str) -> None:
        self.proof.refuse(what)
        raise RecomputeError(
            f"{self.proof.name} was run again for the backward pass, and {what}; its gradients "
            "would be wrong. From the next step on it does not run again"
        )


class Again:
    """A run of a segment for the backward pass.

    Parameters
    ----------
    checkpoint : Checkpoint
        Of the first run.
    number : int or None
        Of the backward pass for which tensors are made; None for a rehearsal, which only compares.

    Attributes
    ----------
    flags : list of torch.Tensor
        On other devices than the CPU: whether tensors are the same.
    difference : str or None
        The first difference that was found.
    made : dict of int to tensor
        In a rehearsal, what was made again of the tensors that stay on the host.
    """

    def __init__(self, checkpoint: Checkpoint, number: int | None) -> None:
        self.made: dict[int, torch.Tensor] = {}
        self.flags: list[torch.Tensor] = []
        self.difference: str | None = None
        self._checkpoint = checkpoint
        self._number = number
        self._asked = len(checkpoint._saved)
        self._count = 0
        # Tensors that had not been written yet, and by which operators.
        self._pending: list[tuple[int, int, torch.Tensor]] = []

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take a tensor that is saved again, and stop if it is the last one."""
        index, self._count = self._count, self._count + 1
        found = tensor.detach()
        if index >= self._asked:
            return found
        checkpoint = self._checkpoint
        if self._number is not None:
            saved = checkpoint._saved[index]()
            if saved is not None and saved.held is None:
                saved.made[self._number] = found
        elif checkpoint.is_on_host(index):
            self.made[index] = found
        if index in checkpoint.proof.unwritten:
            self._pending.append((operator_number(), index, found))
        elif index in checkpoint.prints:
            self._compare(index, found)
        if self._count == self._asked and not self._is_unwritten():
            raise StopRunning(self)
        return found

    def _is_unwritten(self) -> bool:
        """Whether a tensor of the operator that is under way has not been written yet."""
        return bool(self._pending) and self._pending[-1][0] == operator_number()

    def settle(self) -> None:
        """Compare the tensors that had not been written when they were saved."""
        for _, index, tensor in self._pending:
            if index in self._checkpoint.prints:
                self._compare(index, tensor)

    def _compare(self, index: int, tensor: torch.Tensor) -> None:
        kind, was = self._checkpoint.prints[index]
        if was is None or self.difference is not None:
            return
        if kind == kind_of(tensor):
            now = fingerprint(tensor)
            if now is not None and now.device.type != "cpu":
                self.flags.append((now == was).all())
                return
            if now is not None and torch.equal(now, was):
                return
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        self.difference = f"a tensor of shape {shape} comes out different"

    def wrong_count(self) -> str | None:
        """Return how many tensors were saved, if these are not as many as before, or None."""
        if self._count == self._asked:
            return None
        return f"it saves {self._count} tensors instead of {self._asked}"


_ORDINARY = torch.Tensor, torch.nn.Parameter


def is_held(tensor: torch.Tensor, held: dict[int, bool]) -> bool:
    """Whether a tensor lies in one of some storages, given by their addresses."""
    ordinary = type(tensor) in _ORDINARY and tensor.layout is torch.strided
    return (ordinary or is_plain(tensor)) and tensor.untyped_storage()._cdata in held


def _as_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
