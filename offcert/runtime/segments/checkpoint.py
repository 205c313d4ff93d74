"""Checkpoints: what a segment saves is computed again when the backward pass asks for it.

The rules:

1. Autograd holds a `SavedTensor` for each tensor that a segment saves. What modules hold stays in
   it; all else is dropped, and is there again once the segment has run again. Tensors that are
   asked for a second time are computed a second time.
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
   declared to be pure (`offcert.runtime.segments.keeper`).
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from offcert.runtime.segments.arguments import Argument
from offcert.runtime.segments.fingerprint import fingerprint, has_bytes, kind_of
from offcert.runtime.segments.keeper import Operators, operator_number
from offcert.runtime.segments.saved import (
    ComparisonMode,
    Given,
    OnHost,
    Pending,
    SavedTensor,
    as_is,
    is_held,
)
from offcert.runtime.segments.walk import Calls
from offcert.runtime.torch_private import backward_number, storage_users, undispatched
from offcert.runtime.watch.entries import Handle, InPlaceError, View
from offcert.runtime.watch.guard import (
    RecomputeError,
    SegmentProof,
    StopRunning,
    one_line,
    require_same,
)


class Checkpoint:
    """A call of a segment, as autograd's saved-tensor hooks see it."""

    def __init__(self, proof: SegmentProof, segments: Calls, mode: ComparisonMode) -> None:
        self.proof, self.segments, self.mode = proof, segments, mode
        # By address, the storages that modules hold.
        self.held: dict[int, bool] = {}
        # What the call is given, and the storages of results that are kept, by address.
        self.arguments: Mapping[int, Argument] = {}
        self.kept: Container[int] = ()
        self.completed = False
        self.prints: dict[int, tuple[Any, torch.Tensor | None]] = {}
        self.saved: list[weakref.ref[SavedTensor]] = []
        self._pending: list[Pending] = []
        self._differentiable: set[int] = set()
        self._rehearsed = False
        self._operators: Operators | None = None
        self._copies: dict[Any, tuple[weakref.ref[Any], OnHost]] = {}
        self._compared = proof.compared if mode is ComparisonMode.ONE else None
        # Whether all that has been saved so far is like what a rehearsal saved.
        self._as_rehearsed = True

    def run(self, again: Again) -> None:
        """Run the segment again, until `again` stops it or it has ended."""
        raise NotImplementedError

    def may_stop(self) -> bool:
        """Whether the run that is under way may be left before its end."""
        return not self.unknown

    # What autograd asks of the first run.

    def pack(self, tensor: torch.Tensor) -> SavedTensor:
        """Return the object that autograd holds instead of a tensor."""
        index = len(self.saved)
        saved = SavedTensor(self, index)
        self.saved.append(weakref.ref(saved))
        mode = self.mode
        if mode is not ComparisonMode.TRUSTED:
            kinds, kind = self.proof.kinds, (tensor.shape, tensor.dtype, tensor.requires_grad)
            if mode is ComparisonMode.REHEARSAL:
                if index == 0:
                    kinds.clear()
                    self.proof.unwritten.clear()
                kinds.append(kind)
            elif self._as_rehearsed and (index >= len(kinds) or kinds[index] != kind):
                self._as_rehearsed = False
        if self.held and is_held(tensor, self.held):
            # Autograd goes on with what the module holds, whatever becomes of that.
            itself = tensor.is_leaf and tensor.requires_grad
            saved.held = tensor if itself else tensor.detach()
        elif mode is ComparisonMode.ONE:
            if index == self._compared and tensor.requires_grad:
                self._take(index, tensor)
        elif mode is not ComparisonMode.TRUSTED:
            # Operators of ours are none of the segment's.
            with undispatched():
                self._look_at(saved, tensor)
        return saved

    @property
    def unknown(self) -> bool:
        """Whether other tensors are saved than in a rehearsal, so that it is not known how."""
        if self.mode is ComparisonMode.TRUSTED:
            return False
        return not self._as_rehearsed or len(self.saved) != len(self.proof.kinds)

    def unpack(self, saved: SavedTensor) -> torch.Tensor:
        """Return a tensor that autograd needs."""
        if self.mode is ComparisonMode.REHEARSAL:
            self._settle()
            # A gradient may be computed within the segment, before that is over.
            if self.completed and not self._rehearsed:
                self._rehearsed = True
                self._bring_back(self._rehearse())
        if saved.held is not None:
            return saved.kept()
        number = backward_number()
        made = saved.made.pop(number, None)
        if made is None:
            self._make_again(number)
            made = saved.made.pop(number, None)
            if number == -1:
                # Nothing tells when those that nobody has asked for are not needed any more.
                for each in self._alive():
                    each.made.pop(-1, None)
        if made is None:
            raise self._differs("saves other tensors than before")
        return made

    @contextmanager
    def watched(self, operators: Operators) -> Iterator[None]:
        """Hear of the ends of operators in the block, which is a first run, or a call of it."""
        self._operators = operators
        operators.told.append(self._settle)
        try:
            yield
        finally:
            # They refer to this object, which must not live on because of that.
            operators.told.remove(self._settle)
            self._operators = None
        for operator in operators.foreign:
            self.proof.refuse(f"{operator} is written in Python, and may keep anything")

    def end(self) -> None:
        """Take note that the first run has ended, while somebody still holds its results."""
        self._settle()
        self.completed = True
        if self.mode is ComparisonMode.REHEARSAL:
            self._leave_shared()

    def _leave_shared(self) -> None:
        """Hold no storage that others hold as well: a plan may want it to leave the device."""
        by_storage: dict[int, list[SavedTensor]] = {}
        for saved in self._alive():
            if isinstance(saved.held, Handle) and not saved.held.changed:
                assert saved.held.tensor is not None
                storage = saved.held.tensor.untyped_storage()
                by_storage.setdefault(storage._cdata, []).append(saved)
                del storage
        for address, those in by_storage.items():
            # Of each handle its tensor, and the storage's own Python object.
            if storage_users(address) > len(those) + 1:
                for saved in those:
                    saved.held = OnHost(saved.kept())

    def is_on_host(self, index: int) -> bool:
        """Whether a tensor that was saved stays on the host, and is still needed."""
        saved = self.saved[index]()
        return saved is not None and isinstance(saved.held, OnHost)

    def rest(self) -> None:
        """Do not run again beside what stays: autograd has all that it needs."""
        self._rehearsed = True

    def _alive(self) -> list[SavedTensor]:
        """Return the saved tensors that autograd still holds."""
        return [saved for reference in self.saved if (saved := reference()) is not None]

    # What is compared.

    def _look_at(self, saved: SavedTensor, tensor: torch.Tensor) -> None:
        """Take note of a tensor of a rehearsal or a verification."""
        if not has_bytes(tensor):
            if self.mode is ComparisonMode.REHEARSAL:
                kind = type(tensor).__name__ if tensor.layout is torch.strided else "sparse tensor"
                self.proof.refuse(f"it saves a {kind}, which cannot be compared")
            saved.held = tensor.detach()
            return
        if self._is_written(saved.index, tensor):
            self._take(saved.index, tensor)
            self._keep(saved, tensor)
        else:
            early = fingerprint(tensor) if self.mode is ComparisonMode.REHEARSAL else None
            pending = Pending(saved.index, tensor.detach(), early, operator_number())
            self._pending.append(pending)

    def _is_written(self, index: int, tensor: torch.Tensor) -> bool:
        """Whether the operator that saves a tensor has written it already."""
        if tensor.requires_grad:
            return True
        if self._operators is not None:
            return self._operators.has_made(tensor)
        if self._pending and self._pending[0].operator < operator_number():
            self._settle()
        known = self.mode is ComparisonMode.ALL and self._as_rehearsed
        return known and index not in self.proof.unwritten

    def _settle(self) -> None:
        """Look at the tensors whose operators have ended."""
        pending, self._pending = self._pending, []
        for index, tensor, early, _ in pending:
            self._take(index, tensor)
            now = self.prints[index][1]
            if early is not None and now is not None and not torch.equal(early, now):
                self.proof.unwritten.add(index)
            saved = self.saved[index]()
            if saved is not None:
                self._keep(saved, tensor)

    def _take(self, index: int, tensor: torch.Tensor) -> None:
        if tensor.requires_grad:
            self._differentiable.add(index)
            self.proof.compared = index
        self.prints[index] = kind_of(tensor), fingerprint(tensor)

    def _keep(self, saved: SavedTensor, tensor: torch.Tensor) -> None:
        if self.mode is not ComparisonMode.REHEARSAL:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata, tensor._version, View.like(tensor)
        argument, found = self.arguments.get(storage._cdata), self._copies.get(key)
        session = self.segments.session
        if argument is not None and argument.holds(tensor):
            saved.held = Given(argument, key[-1])
        elif found is not None and found[0]() is storage:
            saved.held = found[1]
        elif storage._cdata not in self.kept and (session is None or session.has_room(storage)):
            saved.held = Handle(tensor, None)
        else:
            saved.held = OnHost(tensor)
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
        for saved in self._alive():
            if isinstance(saved.held, OnHost):
                again = None if self.proof.refused else made.pop(saved.index, None)
                saved.held = Handle(saved.kept() if again is None else again, None)

    def _make_again(self, number: int) -> None:
        for saved in self._alive():
            # Of backward passes before; one around this one will ask again.
            saved.made.clear()
        if self.unknown:
            # Some may have been looked at before they were written.
            kept = self._differentiable.intersection(self.prints)
            self.prints = {index: self.prints[index] for index in kept}
        again = Again(self, number)
        try:
            self._run(again)
        except (RecomputeError, InPlaceError) as error:
            self.proof.refuse(str(error))
            raise
        difference = again.difference or again.wrong_count()
        if difference is not None and self.completed:
            raise self._differs(difference)
        if again.flags:
            flag, session = torch.stack(again.flags).all(), self.segments.session
            if session is None:
                require_same(self.proof, flag)
            else:
                # It is looked at when the backward pass has ended.
                session.flags.append((self.proof, flag))

    def _run(self, again: Again) -> None:
        hooks = torch.autograd.graph.saved_tensors_hooks(again.pack, as_is)
        with hooks, torch.enable_grad():
            self.run(again)
        again.settle()

    def _differs(self, what: str) -> RecomputeError:
        """Refuse the segment, and return the error that says so."""
        self.proof.refuse(what)
        return RecomputeError(
            f"{self.proof.name} was run again for the backward pass, and {what}; its gradients "
            "would be wrong. From the next step on it does not run again"
        )


class Again:
    """A run of a segment for a backward pass, given its number; without one, a rehearsal.

    On other devices than the CPU `flags` say whether tensors are the same; `difference` is the
    first that was found; in a rehearsal, which only compares, `made` has again the tensors that
    stay on the host.
    """

    def __init__(self, checkpoint: Checkpoint, number: int | None) -> None:
        self.made: dict[int, torch.Tensor] = {}
        self.flags: list[torch.Tensor] = []
        self.difference: str | None = None
        self._checkpoint, self._number = checkpoint, number
        self._asked = len(checkpoint.saved)
        self._unknown, self._unwritten = checkpoint.unknown, checkpoint.proof.unwritten
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
            saved = checkpoint.saved[index]()
            if saved is not None and saved.held is None:
                saved.made[self._number] = found
        elif checkpoint.is_on_host(index):
            self.made[index] = found
        unwritten = not tensor.requires_grad if self._unknown else index in self._unwritten
        if unwritten:
            self._pending.append((operator_number(), index, found))
        elif index in checkpoint.prints:
            self._compare(index, found)
        if self._count == self._asked:
            # What the operator under way has not written yet is still to be compared.
            waits = bool(self._pending) and self._pending[-1][0] == operator_number()
            if not waits and checkpoint.may_stop():
                raise StopRunning(self)
        return found

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
