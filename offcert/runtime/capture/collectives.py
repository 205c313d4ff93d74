"""Sharded models while a step is captured: nothing stays of it, and without data nothing is sent.

On tensors without data a collective gives what it would have made room for, and no process hears of
it. A step that is captured on real tensors is run by all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.runtime.torch_private import TorchDispatchMode, work_done
from offcert.runtime.watch.sharded import Parts, Sharded, is_distributed


class Unsent(TorchDispatchMode):
    """Lets collectives of `torch.distributed` do nothing; enter it within the fake mode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the tensors that a collective writes to, and a handle that says it is done."""
        if func.namespace != "c10d":
            return func(*args, **(kwargs or {}))
        if func.name() not in _WRITTEN:
            raise InputError(
                f"what {func.overloadpacket} does is not known without data: capture the step with "
                'tensors="real", in all processes'
            )
        return args[0], work_done()


# Collectives whose first argument is what they write to, and return.
_WRITTEN = ("c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::allreduce_")


def require_gathered(parts: Parts) -> None:
    """Raise an `InputError` if parameters are `DTensor`s that the step does not gather.

    Such operators consist of others on this process, which are looked for on fake tensors of the
    size of all parts: in a capture without data nobody can tell them from those of the step.
    """
    shards = {id(each.sharded_param) for each in parts.sharded.parameters}
    if any(is_distributed(each) and id(each) not in shards for each in parts.parameters):
        raise InputError(
            "parameters of the model are DTensors (tensor parallelism), whose operators are not "
            'known without data: capture the step with tensors="real", in all processes'
        )


@contextmanager
def sharding_kept(
    sharded: Sharded, replace: Callable[[torch.Tensor], torch.Tensor] | None
) -> Iterator[None]:
    """Put back what `fully_shard` remembers of a model as it was before the block."""
    if any(True for _ in sharded.gradients()):
        raise InputError(
            "the model holds gradients that have not been reduced (set_requires_gradient_sync): "
            "capture a step before they are accumulated"
        )
    for module in sharded.modules:
        # What is gathered is freed: the block gathers it anew, in the place of nothing.
        module.reshard()
    before = [_Content(each) for each in sharded.remembered()]
    try:
        for each in sharded.parameters:
            # Gathered into storages of the block's own: those that are there stay freed.
            each.all_gather_outputs = []
            each.__dict__.pop("_unsharded_param", None)
            if replace is not None:
                each._sharded_param_data = replace(each._sharded_param_data)
                each.sharded_param = replace(each.sharded_param)
        yield
    finally:
        if replace is None:
            for module in sharded.modules:
                module.reshard()
        for content in before:
            content.put_back()


class _Content:
    """The attributes of an object, and the elements of the lists and sets among them."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing
        self._attributes = dict(vars(thing))
        held = self._attributes.items()
        self._lists = {name: list(value) for name, value in held if isinstance(value, list)}
        self._sets = {name: set(value) for name, value in held if isinstance(value, set)}

    def put_back(self) -> None:
        """Give the object its old content."""
        vars(self._thing).clear()
        vars(self._thing).update(self._attributes)
        for name, elements in self._lists.items():
            self._attributes[name][:] = elements
        for name, members in self._sets.items():
            self._attributes[name].clear()
            self._attributes[name].update(members)
