"""Records one training step, moment by moment.

A moment is an event of the clock or a call of an operator. Whichever clock a trace is built for
(`offcert.runtime.capture.build`), its operations are stretches of moments, so one recording serves
all of them.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.runtime.capture.moments import Life, LineFinder, Moment, RecordedStorages, Seen
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware.attention import attention_scratch
from offcert.runtime.hardware.cost import attention_parts, operator_cost, operator_ns
from offcert.runtime.segments.arguments import given_a_cache
from offcert.runtime.torch_private import tree_leaves
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.watch.events import INPUT, OPERATOR, OUTPUT, UNPACK, Event, Session
from offcert.runtime.watch.guard import guarded
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.operators import (
    NodeCount,
    changed_in_place,
    is_here,
    keeps_casts,
    leave,
    tensors_of,
)
from offcert.runtime.watch.rule import EvictionRule
from offcert.runtime.watch.saved_hooks import Owned, dtype_name
from offcert.runtime.watch.sharded import local
from offcert.runtime.watch.signature import Signature, signature
from offcert.runtime.watch.tracker import LiveBytes, StorageRecord


class Recorder(Session):
    """Records the step that begins with the next call of the root; enter `active` around it.

    `hooks` are attached while it is active. The roofline of `hardware` gives operators their
    durations, all zero without one. With a `limit` the step is kept within so many bytes on the
    device, for which copies may take `host` bytes (`offcert.runtime.watch.rule`); what is recorded
    is the step without a limit.
    """

    def __init__(
        self,
        hooks: Hooks,
        hardware: Hardware | None = None,
        limit: int | None = None,
        host: int | None = None,
    ) -> None:
        super().__init__(hooks)
        self.tracker = LiveBytes()
        self.tracker.guard, self.tracker.kind = hooks.guard, hooks.parts.device
        self.rule = None if limit is None else EvictionRule(self.tracker, limit, host)
        self.moments: list[Moment] = []  # In order; the first is the call of the root
        self.lives: list[Life] = []  # Of all storages that were counted
        self.saved: list[Seen] = []  # In the order in which autograd saved them
        # Of every call of the root its signature, and the nodes of the autograd graph that it made.
        self.calls: list[Signature] = []
        self.nodes: list[int] = []
        self.autocast = False  # Whether it was active when the backward pass began
        # By kernel that attention runs on, the part of its peak that the hardware reaches.
        self.attention: dict[str, Fraction] = {}
        # The moments at which autograd asked for something, and at which it had saved it.
        self.unpacked: list[tuple[int, int]] = []
        # What autograd saves in the forward pass, as often as it does, and what operators make.
        self.packed: list[Seen] = []
        self.made: list[Seen] = []
        # For each call of a module, its first moment and the tensors that it is given.
        self.given: list[tuple[int, list[Seen]]] = []
        # Calls that cannot be made again: they change what they are given.
        self.only_once: set[Event] = set()
        self.lines = LineFinder()
        self.nested = False  # Whether it has met nested tensors, of which no plan is made
        self.elsewhere = False  # Whether operators of some thread have not been seen
        self._hardware = hardware
        self._life_of: dict[StorageRecord, Life] = {}
        self._storages = RecordedStorages(self)
        self._life_of_entry: weakref.WeakKeyDictionary[StorageEntry, Life] = (
            weakref.WeakKeyDictionary()
        )
        self._held_since: dict[int, tuple[Life, int]] = {}
        self._given_up: dict[int, tuple[Life, int]] = {}
        self._operators: Counter[str] = Counter()
        self._unpack_calls = 0
        self._paths: list[str] = []
        self._gradient_path = ""
        self._in_backward = False
        self._node_count = NodeCount()
        self._is_saving = False
        # The calls of the root whose results wait for a gradient.
        self._waiting: set[int] = set()

    @property
    def abandoned(self) -> tuple[int, ...]:
        """The calls of the root to whose results no gradient has come."""
        return tuple(sorted(self._waiting))

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch operators and the gradients of parameters."""
        with ExitStack() as stack:
            for parameter in self.hooks.parts.parameters:
                # Others have been put in their place for a call (`torch.func.functional_call`).
                if parameter.requires_grad and parameter.is_leaf:
                    hook = parameter.register_post_accumulate_grad_hook(self._exclude_gradient)
                    stack.callback(hook.remove)
            stack.callback(self._leave_hooks)
            self.tracker.__enter__()
            stack.callback(leave, self.tracker)
            yield

    @guarded()
    def _exclude_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.tracker.exclude([parameter.grad])

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recorder | None:
        """Begin the step, or go on with it at another call of the root."""
        self.lines.cut()
        if not torch.is_grad_enabled():
            return None
        self.calls.append(signature(self.hooks.parts, args, kwargs))
        self.elsewhere |= not is_here(self.tracker)
        if not self.moments:
            self._storages.owned = Owned(self.hooks.parts)
            self._storages.device = self.hooks.parts.device
            self.tracker.start(self.hooks.parts.sharded)
            self.tracker.announcer = self._announce
            self.tracker.listener = self._listen
        self._storages.enter()
        self._is_saving = True
        self._node_count = NodeCount()
        return self

    def left(self, session: Session, output: Any) -> None:
        """Leave the saved-tensor hooks with the root."""
        self.nodes.append(self._node_count.made)
        self._leave_hooks()

    def _leave_hooks(self) -> None:
        saving, self._is_saving = self._is_saving, False
        if saving:
            self._storages.leave()

    def tick(self, event: Event) -> None:
        """Note an event as a moment."""
        if event.kind in (INPUT, OUTPUT):
            self._gradient_path = event.path
            if not event.path:
                self._waiting.discard(event.call)
        self._next(event)

    def wants(self, event: Event) -> bool:
        """Every gradient is of interest."""
        if event.kind == OUTPUT and not event.path:
            self._waiting.add(event.call)
        return True

    def begin_backward(self) -> None:
        """From now on operators belong to the backward pass."""
        self._in_backward = True
        self.autocast |= keeps_casts(self.hooks.parts.device)
        self.elsewhere |= not is_here(self.tracker)

    def end_backward(self) -> None:
        """From now on they do not."""
        self._in_backward = False

    def enter(self, path: str, values: Any) -> None:
        """Note that a module is called."""
        self._paths.append(path)
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        unique = {id(tensor): tensor for tensor in tensors}
        # The inputs are saved before the call, if it runs again.
        seen = [self.see(tensor) for tensor in unique.values()]
        super().enter(path, values)
        self.given.append((len(self.moments) - 1, seen))
        if self._in_backward or self.nested:
            self.lines.cut()
        else:
            self.lines.enter(self.moments[-1].event, values)
        if given_a_cache(values):
            self.only_once.add(self.moments[-1].event)

    def leave(self, path: str, output: Any) -> None:
        """Note that it returns."""
        super().leave(path, output)
        if not self.nested:
            self.lines.leave(path, output)
        if path in self._paths:
            del self._paths[len(self._paths) - 1 - self._paths[::-1].index(path) :]

    def _next(self, event: Event) -> None:
        """Close the moment before and open one."""
        self._note_gathered()
        if self.moments:
            self.moments[-1].peak = self.tracker.peak
        self.tracker.now = len(self.moments)
        self.tracker.start_peak()
        module = self._paths[-1] if self._paths else self._gradient_path
        self.moments.append(Moment(event, self._in_backward, self.tracker.live, module))
        self._look_who_holds()

    def _note_gathered(self) -> None:
        """Note the parameters that have been gathered or freed since the latest moment."""
        for record in self.tracker.look():
            life = self._life_of[record] = Life(record)
            life.touched.add(record.born)
            self.lives.append(life)

    def _announce(self, func: Any, args: Any, kwargs: Any) -> None:
        if not _is_query(func):
            self.lines.note_operator()
            name = str(func)
            self._next(Event(OPERATOR, name, self._operators[name]))
            self._operators[name] += 1
            if self.rule is not None and not self.nested:
                self.rule.before(func, args, kwargs)

    def _listen(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if _is_query(func):
            return
        for tensor in tensors_of((args, kwargs, out)):
            self.nested |= tensor.is_nested
            if tensor.layout is torch.strided:
                self._touch(tensor)
        if self.nested:
            return
        for tensor in changed_in_place(func, args, kwargs):
            life = self._touch(tensor)
            if life is not None:
                life.changed.add(self.tracker.now)
        if not self._in_backward:
            self.made += [self.see(each) for each in tensors_of(out) if self._is_new(each)]
        flops, traffic = operator_cost(func, args, kwargs, out)
        moment = self.moments[-1]
        moment.launches = flops > 0 or traffic > 0
        if self._hardware is not None:
            moment.duration = operator_ns(self._hardware, func, args, kwargs, out)
            # Bytes that the stated device takes beside the tensors that are seen here.
            self.tracker.need(attention_scratch(func, args))
            self.attention |= attention_parts(self._hardware, func, args, kwargs)

    def see(self, tensor: torch.Tensor) -> Seen:
        """Return moment, storage, size, dtype and shape of a tensor as they are now."""
        tensor, now = local(tensor), self.tracker.now
        if tensor.is_nested:
            self.nested = True
            return Seen(now, None, 0, dtype_name(tensor.dtype), ())
        dtype, shape = dtype_name(tensor.dtype), tuple(map(int, tensor.shape))
        if not self._storages.is_movable(tensor):
            return Seen(now, None, 0, dtype, shape)
        storage = tensor.untyped_storage()
        record = self.tracker.record(storage)
        key: Any = None if record is None else self._life_of.get(record)
        if key is None:
            # Older than the step: the batch, for example.
            key = storage._cdata
        return Seen(now, key, storage.nbytes(), dtype, shape)

    def _is_new(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided:
            return False
        record = self.tracker.record(tensor.untyped_storage())
        return record is not None and record.born == self.tracker.now

    def _touch(self, tensor: torch.Tensor) -> Life | None:
        record = self.tracker.record(tensor.untyped_storage())
        if record is None:
            return None
        life = self._life_of.get(record)
        if life is None:
            life = self._life_of[record] = Life(record)
            self.lives.append(life)
        life.touched.add(self.tracker.now)
        if life.entry is not None:
            # The operator's result may be a view that someone keeps.
            self._hold(life)
        return life

    def note_saved(self, entry: StorageEntry, tensor: torch.Tensor) -> None:
        """Note that autograd has saved a storage for the first time."""
        if self.rule:
            self.rule.note(entry)
        life = self._touch(tensor)
        if any(path in self.hooks.compiled for path in self._paths):
            # Compiled code will save something else.
            life = None
        if life is not None:
            life.saved_at = self.tracker.now
            life.entry = weakref.ref(entry)
            self._life_of_entry[entry] = life
            self._hold(life)
        self.saved.append(replace(self.see(tensor), storage=life))

    def moment_of_saving(self, tensor: torch.Tensor) -> int:
        """Return the moment of the operator that saves a tensor.

        What an operator makes is saved right after it, what it takes right before it is called.
        """
        now = self.tracker.now
        life = self._touch(tensor) if self._storages.is_movable(tensor) else None
        made = life is not None and (life.record.born == now or now in life.changed)
        return now if made else now + 1

    def note_unpacked(self, entry: StorageEntry) -> None:
        """Note that autograd asks for a storage: a moment of its own."""
        self._next(Event(UNPACK, "", self._unpack_calls))
        self._unpack_calls += 1
        self.note_needed(entry)

    def note_needed(self, entry: StorageEntry) -> None:
        """Note that autograd needs a storage, or has saved it again."""
        life = self._life_of_entry.get(entry)
        if life is not None:
            life.touched.add(self.tracker.now)
            self._hold(life)

    def _hold(self, life: Life) -> None:
        key = id(life)
        given_up = self._given_up.get(key)
        if given_up is None:
            self._held_since.setdefault(key, (life, self.tracker.now))
        elif life.entry is not None and life.entry() is not None:
            # Saved again: autograd may be the last to hold it, after all.
            self._held_since[key] = self._given_up.pop(key)

    def _look_who_holds(self) -> None:
        """End the stretches of the storages that nobody besides autograd holds any more.

        What autograd has released is held by somebody else for the rest of its life.
        """
        for key, (life, since) in list(self._held_since.items()):
            entry = None if life.entry is None else life.entry()
            if entry is None:
                # Not to be looked at again, of steps with many passes at every moment.
                self._given_up[key] = self._held_since.pop(key)
            elif not entry.held_elsewhere:
                del self._held_since[key]
                life.held.append((since, self.tracker.now - 1))

    def finish(self) -> None:
        """End the holds of storages that are still open, and stop counting: the step is over."""
        if self.moments:
            self.moments[-1].peak = max(self.moments[-1].peak, self.tracker.peak)
        for life, since in (*self._held_since.values(), *self._given_up.values()):
            life.held.append((since, len(self.moments) - 1))
        self._held_since.clear()
        self._given_up.clear()
        self.tracker.stop()
        if self.nested:
            raise InputError("the step computes with nested tensors, which stay where they are")


def _is_query(func: Any) -> bool:
    """Whether an operator only asks a fake tensor for its device; real tensors never do."""
    return bool(func.namespace == "prim")
