"""PyTorch's non-reentrant checkpointing, with evidence that what is made again is the same.

PyTorch compares shapes and types only. Here each tensor that a segment saves leaves a sample; in a
rehearsal it leaves a copy on the host as well, which is used instead if the segment turns out to
make something else.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import (
    _checkpoint_without_reentrant_generator,
    _CheckpointFrame,
    _Handle,
    _StopRecomputationError,
)

from offcert.runtime.segments.evidence import Sample, copied, is_same
from offcert.runtime.segments.uncounted import uncounted
from offcert.runtime.watch.entries import InPlaceError, View, is_plain
from offcert.runtime.watch.guard import one_line
from offcert.runtime.watch.proof import RecomputeError, SegmentProof

# By the addresses of storages that a segment is given: the storage, and which input lies in it.
Given = dict[int, tuple[weakref.ref[torch.UntypedStorage], int]]


Block = TypeVar("Block", bound=Callable[[], Any])


class Checked(Protocol):
    """A call of a segment, as far as its checkpoint asks.

    It is an `offcert.runtime.segments.frame.Frame`.
    """

    name: str
    proof: SegmentProof
    rehearses: bool
    turn: int
    # Addresses of the storages that modules hold, and whether they must not change.
    held: dict[int, bool]
    given: Given

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Return the contexts of the first run and of all others."""

    def given_again(self, index: int) -> torch.Tensor:
        """Return an input of the segment's call, as it is now."""

    def end_rehearsal(self) -> None:
        """Let go of the inputs that a rehearsal has kept."""

    def doubts(self, flag: torch.Tensor) -> None:
        """Take note of a flag on a device: whether the segment has made the same again."""


@contextmanager
def checkpointed(call: Checked, body: Callable[[], Any]) -> Iterator[None]:
    """Run the block as the first run of a segment, whose body runs again in the backward pass.

    Raises
    ------
    RecomputeError
        In the backward pass, if what is made again is not the same and is no rehearsal.
    """
    generator = _checkpoint_without_reentrant_generator(
        body, preserve_rng_state=False, context_fn=call.contexts, determinism_check="none"
    )
    next(generator)
    frame = generator.gi_frame.f_locals["new_frame"]
    frame.__class__ = _Frame
    frame.begin(call)
    try:
        yield
    except BaseException as error:
        generator.throw(error)
        raise
    next(generator, None)


class Begun(AbstractContextManager[None], Generic[Block]):
    """The first run of a segment, which has begun; no stack of contexts.

    A stack holds the exception that leaves it, and so whatever the calls that were left held.
    """

    def __init__(self, call: Checked, body: Block) -> None:
        self.body = body
        self._context = checkpointed(call, body)
        self._context.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._context.__exit__(kind, error, traceback)


@dataclass(slots=True)
class _Evidence:
    """The evidence about a tensor from when it was saved."""

    sample: Sample | None
    # Only in a rehearsal, and until the segment has made the same again.
    original: torch.Tensor | None = None
    # The tensor itself, if a module holds it anyway.
    held: torch.Tensor | None = None
    # Which input it lies in, and how.
    given: tuple[int, View] | None = None


@dataclass(slots=True)
class _Copies:
    """Copies of what a rehearsal saves, each storage's contents once."""

    known: dict[Any, tuple[Any, torch.Tensor]] = field(default_factory=dict)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy on the host."""
        storage = tensor.untyped_storage()
        key = storage._cdata, tensor._version, View.like(tensor)
        found = self.known.get(key)
        # An address may be used again.
        if found is None or found[0]() is not storage:
            with uncounted():
                found = self.known[key] = weakref.ref(storage), copied(tensor)
        return found[1]


class _Made(weakref.WeakKeyDictionary[Any, torch.Tensor]):
    """Tensors that are made again in a backward pass, compared as they arrive."""

    def __init__(self, frame: weakref.ref[_Frame], gid: Any) -> None:
        super().__init__()
        self._frame = frame
        self._gid = gid

    def __setitem__(self, handle: Any, tensor: torch.Tensor) -> None:
        frame = self._frame()
        assert frame is not None
        super().__setitem__(handle, frame.compared(self._gid, tensor))

    def put(self, handle: Any, tensor: torch.Tensor) -> None:
        """Use this one, without comparing it."""
        super().__setitem__(handle, tensor)


class _ByTask(dict[Any, _Made]):
    """Tensors that are made again, by the backward pass for which they are made."""

    def __init__(self, frame: _Frame) -> None:
        super().__init__()
        self._frame = weakref.ref(frame)

    def __missing__(self, gid: Any) -> _Made:
        found = self[gid] = _Made(self._frame, gid)
        return found


class _Frame(_CheckpointFrame):
    """PyTorch's record of a checkpoint, with what its tensors were."""

    def begin(self, call: Checked) -> None:
        """Take samples from now on, and copies in a rehearsal."""
        self.call = call
        self.copies = _Copies()
        self.difference: str | None = None
        self.flags: list[torch.Tensor] = []
        self.recomputed: Any = _ByTask(self)
        self.rerun = self.__dict__.pop("recompute_fn")
        # The methods take their places: bound to the object, they would keep it alive.
        del self.metadata_fn

    def metadata_fn(self, tensor: torch.Tensor) -> _Evidence:
        """Return the evidence of a tensor that is being saved."""
        call = self.call
        if not is_plain(tensor):
            if call.rehearses:
                kind = type(tensor).__name__ if tensor.layout is torch.strided else "sparse tensor"
                call.proof.refuse(f"it saves a {kind}, which cannot be compared")
            kept = tensor.detach() if call.rehearses else None
            return _Evidence(Sample(tensor, call.turn), kept)
        fixed = call.held.get(tensor.untyped_storage()._cdata)
        if fixed is not None:
            # Autograd goes on with what the module holds, whatever becomes of that.
            itself = tensor.is_leaf and tensor.requires_grad
            held = tensor if itself else tensor.detach()
            return _Evidence(Sample(tensor, call.turn) if fixed else None, held=held)
        found = _Evidence(Sample(tensor, call.turn))
        if call.rehearses and not isinstance(tensor, FakeTensor):
            found.original = self.copies.of(tensor.detach())
            storage = tensor.untyped_storage()
            known = call.given.get(storage._cdata)
            if known is not None and known[0]() is storage:
                found.given = known[1], View.like(tensor)
        return found

    def recompute_fn(self, *args: Any) -> None:
        """Run the segment again; a rehearsal may fail."""
        if not self.call.rehearses:
            self.rerun(*args)
            return
        if self.call.proof.refused is not None:
            return
        try:
            self.rerun(*args)
        except _StopRecomputationError:
            raise
        except Exception as error:
            self.call.proof.refuse(one_line(error))

    def compared(self, gid: Any, tensor: torch.Tensor) -> torch.Tensor:
        """Compare a tensor that is made again with the one that was saved; return which to use.

        At once: kernels may change what has been saved without a trace, such as statistics.
        """
        evidence = self.x_metadatas[self.recomp_counter[gid] - 1]
        if evidence.sample is None:
            assert evidence.held is not None
            return evidence.held
        with uncounted():
            if self.call.rehearses and evidence.original is not None:
                fits: bool | torch.Tensor = is_same(evidence.original, tensor)
            else:
                fits = evidence.sample.fits(tensor)
        if isinstance(fits, torch.Tensor):
            self.flags.append(fits)
        elif not fits and self.difference is None:
            shape = "x".join(map(str, tensor.shape)) or "scalar"
            self.difference = f"a tensor of shape {shape} comes out different"
        return tensor

    def check_recomputed_tensors_match(self, gid: Any) -> None:
        """Judge the tensors that were made again; called before any of them is used."""
        found, asked = self.recomp_counter[gid], len(self.weak_holders)
        difference, self.difference = self.difference, None
        flags, self.flags = self.flags, []
        if self.ignore_saved_mismatch:
            # A gradient was computed within the segment, which was not over.
            difference = None
        elif difference is None and found != asked:
            difference = f"it saves {found} tensors instead of {asked}"
        if self.call.rehearses:
            if self.forward_completed or difference is not None:
                self._conclude(gid, difference)
        elif difference is not None:
            self._differs(difference)
        elif flags:
            self.call.doubts(torch.stack(flags).all())

    def _differs(self, what: str) -> None:
        self.call.proof.refuse(what)
        raise RecomputeError(
            f"{self.call.name} was run again for the backward pass, and {what}; its gradients "
            "would be wrong. From the next step on it does not run again"
        )

    def _conclude(self, gid: Any, difference: str | None) -> None:
        """End a rehearsal: drop the copies, or put them in the place of what was made again."""
        proof = self.call.proof
        if difference is not None:
            proof.refuse(difference)
        if proof.refused is None:
            proof.accept()
            self.call.rehearses = False
            self.call.end_rehearsal()
            self.copies.known.clear()
            for each in self.x_metadatas:
                each.original = None
            return
        for weak, evidence in zip(self.weak_holders, self.x_metadatas, strict=True):
            holder = weak()
            if holder is not None:
                handle = holder.handles.get(gid) or _Handle()
                holder.handles[gid] = handle
                self.recomputed[gid].put(handle, self._saved(evidence))
        self.call.end_rehearsal()

    def _saved(self, evidence: _Evidence) -> torch.Tensor:
        """Return the tensor that was saved, as autograd would have it now."""
        if evidence.held is not None:
            return evidence.held.detach()
        if evidence.given is not None:
            index, view = evidence.given
            # What was changed in the segment is no input any more.
            with suppress(InPlaceError):
                given = self.call.given_again(index)
                if given.dtype == view.dtype:
                    return given.as_strided(view.shape, view.stride, view.offset)
        assert evidence.original is not None
        assert evidence.sample is not None
        with uncounted():
            return evidence.original.to(evidence.sample.kind[2])
