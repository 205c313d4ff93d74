"""The parts of a model: listed once, because listing takes longer than most steps of a hook."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from itertools import chain

import torch
from torch import nn

from offcert.runtime.watch.sharded import Sharded, local


class Parts:
    """The modules and parameters of a model as they were when it was looked at.

    Of a parameter that is gathered the shard counts that this process keeps; `sharded` are those
    that `fully_shard` has taken apart.
    """

    def __init__(self, root: nn.Module) -> None:
        self.modules = list(root.modules())
        self.sharded = Sharded(self.modules)
        self.parameters = self.sharded.whole(root.parameters())

    @property
    def device(self) -> str:
        """The kind of device that parameters, or else buffers, are on; the CPU's without any."""
        buffers = (each for module in self.modules for each in module._buffers.values())
        held = (each for each in chain(self.parameters, buffers) if each is not None)
        kinds = (each.device.type for each in held)
        return next((kind for kind in kinds if kind != "meta"), "cpu")

    def training(self) -> list[bool]:
        """Return which modules are in training mode."""
        return [module.training for module in self.modules]

    def trained(self) -> list[bool]:
        """Return which parameters require gradients."""
        return [parameter.requires_grad for parameter in self.parameters]

    def storages(self) -> dict[int, weakref.ref[torch.UntypedStorage]]:
        """Return the storages of the modules now, by address.

        These are parameters, buffers and attributes. Sparse tensors and some subclasses have none.
        """
        found: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        # Nearly all attributes are of few types that are no tensors, and told in no time.
        for module in self.modules:
            attributes = module.__dict__
            for held in (attributes["_parameters"], attributes["_buffers"], attributes):
                for name in held:
                    value = held[name]
                    kind = type(value)
                    if kind in _NO_TENSORS:
                        continue
                    if kind is not torch.Tensor and kind is not nn.Parameter:
                        if not isinstance(value, torch.Tensor):
                            continue
                        value = local(value)
                    try:
                        storage = value.untyped_storage()
                    except (NotImplementedError, RuntimeError):
                        continue
                    found[storage._cdata] = weakref.ref(storage)
        return found


_NO_TENSORS = frozenset((bool, int, float, str, tuple, dict, OrderedDict, set, type(None)))
