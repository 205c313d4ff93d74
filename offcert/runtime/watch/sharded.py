"""Parameters that `fully_shard` (FSDP2) has taken apart: gathered and freed while a step runs.

PyTorch keeps one storage for each gathered parameter. It frees it by resizing it to nothing, and
gathers it again, by hooks of its own, before the backward pass needs it. So a tensor over such a
storage is left to PyTorch, whether autograd saves it or not, and its bytes are there from when the
storage grows until it shrinks.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError

# What is read of PyTorch's objects, none of which it promises to keep. Given by PyTorch 2.13.
_READ = {
    "a state": ("_fsdp_param_groups", "_comm_ctx", "_state_ctx", "_is_root"),
    "a group": ("fsdp_params", "offload_policy", "reduce_grads", "_all_gather_result"),
    "a parameter": ("sharded_param", "all_gather_outputs", "unsharded_accumulated_grad"),
}


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a `DTensor` that is on this process; any other tensor itself."""
    if type(tensor) is torch.Tensor or not is_distributed(tensor):
        return tensor
    found: torch.Tensor = tensor._local_tensor  # type: ignore[attr-defined]
    return found


class Whole:
    """The description and the version of a `DTensor`, without the tensor itself.

    Changes in place are counted by the `DTensor`; its part does not know of them.
    """

    __slots__ = ("_shell", "_version")

    def __init__(self, tensor: Any) -> None:
        # Shares the version of the tensor, and gives up the part.
        self._shell = tensor.detach()
        self._shell._local_tensor = tensor._local_tensor.new_empty(0)
        self._version = self._shell._version

    @property
    def changed(self) -> bool:
        """Whether the tensor has been changed in place since."""
        return bool(self._shell._version != self._version)

    def of(self, part: torch.Tensor) -> torch.Tensor:
        """Return the `DTensor` with a part."""
        found: torch.Tensor = type(self._shell)(part, self._shell._spec, requires_grad=False)
        return found


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a `DTensor`."""
    kind = _distributed()
    return kind is not None and isinstance(tensor, kind)


def are_distributed(types: Iterable[type]) -> bool:
    """Whether one of the types of an operator's arguments is `DTensor`."""
    kind = _distributed()
    return kind is not None and any(issubclass(each, kind) for each in types)


def _distributed() -> Any:
    # Whoever has made one has imported it.
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def states_of(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, Any]]:
    """Return the modules to which `fully_shard` was applied, each with PyTorch's state of it."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    if kind is None:
        return []
    return [(each, each._get_fsdp_state()) for each in modules if isinstance(each, kind)]


def is_sharded(model: nn.Module) -> bool:
    """Whether processes hold parts of a model, so that each of its calls is one of all of them."""
    return bool(states_of(model.modules())) or any(map(is_distributed, model.parameters()))


class Sharded:
    """The sharded parameters of a model; false if it has none.

    `modules` are those that `fully_shard` was applied to; `states`, `groups` and `parameters`
    PyTorch's objects: one a call of it, one a collective, one a parameter.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        found = states_of(modules)
        self.modules: list[Any] = [module for module, _ in found]
        self.states = list({id(state): state for _, state in found}.values())
        self.groups = [group for state in self.states for group in _groups(state)]
        self.parameters = [each for group in self.groups for each in group.fsdp_params]

    def __bool__(self) -> bool:
        return bool(self.states)

    def shards_of(self, modules: Iterable[nn.Module]) -> list[Any]:
        """Return the sharded parameters of some modules."""
        inside = {id(module) for module in modules}
        owners = [(each, each._module_info) for each in self.parameters]
        return [
            each
            for each, info in owners
            if any(id(module) in inside for module in (info.module, *info.shared_modules))
        ]

    def whole(self, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Return parameters, with the shard in the place of each that is gathered now."""
        shards = {
            id(each._unsharded_param): each.sharded_param
            for each in self.parameters
            if hasattr(each, "_unsharded_param")
        }
        return [shards.get(id(each), each) for each in parameters]

    def gathered(self) -> Iterator[torch.UntypedStorage]:
        """Yield the storages of gathered parameters, also of those that are freed now."""
        for each in self.parameters:
            for tensor in each.all_gather_outputs:
                yield tensor.untyped_storage()

    def under_way(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that collectives have gathered and that are still held."""
        contexts = {id(state._comm_ctx): state._comm_ctx for state in self.states}
        held = [getattr(each, "all_gather_state", None) for each in contexts.values()]
        results = [each.all_gather_result for each in held if each is not None]
        for result in (*results, *(group._all_gather_result for group in self.groups)):
            if result is not None:
                yield result.all_gather_output

    def gradients(self) -> Iterator[torch.Tensor]:
        """Yield the gradients that are kept whole, as they are not reduced in every step."""
        for each in self.parameters:
            whole = getattr(each, "_unsharded_param", None)
            for gradient in (each.unsharded_accumulated_grad, getattr(whole, "grad", None)):
                if gradient is not None:
                    yield local(gradient)
        for group in self.groups:
            if getattr(group, "_partial_reduce_output", None) is not None:
                yield group._partial_reduce_output

    def remembered(self) -> list[Any]:
        """Return the objects in which PyTorch remembers gathered parameters."""
        shared = [each for s in self.states for each in (s._comm_ctx, s._state_ctx)]
        unique = {id(each): each for each in shared}
        return [*self.states, *self.groups, *self.parameters, *unique.values()]

    def flags(self) -> list[Any]:
        """Return the settings by which steps differ in what is gathered, freed or reduced."""
        rows = [
            [
                group.reduce_grads,
                getattr(group, "all_reduce_grads", True),
                getattr(group, "reshard_after_backward", True),
                getattr(group, "post_forward_mesh_info", None) is not None
                # The first one is the root's: what it gathers it keeps, from its first call on.
                and not (number == 0 and getattr(state, "_auto_reshard_after_forward", False)),
            ]
            for number, state in enumerate(self.states)
            for group in _groups(state)
        ]
        runs = [[len(list(group)), row] for row, group in groupby(rows)]
        return [runs, any(True for _ in self.gradients())]


def mark_of(parameter: Any) -> Any:
    """Return a value that changes when the shard of a parameter does, as far as versions tell."""
    shard, flat = parameter.sharded_param, parameter._sharded_param_data
    held = [each for each in (shard, local(shard), flat) if not each.is_inference()]
    return id(shard), flat.untyped_storage()._cdata, [each._version for each in held]


class Gathered:
    """Finds out whether a storage is that of a gathered parameter.

    Parameters that have not been gathered yet have no storage.
    """

    def __init__(self, sharded: Sharded) -> None:
        self._waiting = list(sharded.parameters)
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __contains__(self, storage: torch.UntypedStorage) -> bool:
        waiting = []
        for each in self._waiting:
            if not each.all_gather_outputs:
                waiting.append(each)
            for tensor in each.all_gather_outputs:
                found = tensor.untyped_storage()
                self._known[found._cdata] = weakref.ref(found)
        self._waiting = waiting
        reference = self._known.get(storage._cdata)
        return reference is not None and reference() is storage


def _groups(state: Any) -> list[Any]:
    return list(getattr(state, "_fsdp_param_groups", ()))


def require_followable(model: nn.Module) -> None:
    """Raise an `InputError` if `fully_shard` (FSDP2) was applied in a way that is not followed."""
    found = states_of(model.modules())
    if not found:
        return
    paths = {id(module): path for path, module in model.named_modules()}
    names = {id(m): paths[id(m)] or type(model).__name__ for m, _ in found}
    first, states = names[id(found[0][0])], {id(m): s for m, s in found}
    _require_read("a state", first, found[0][1])
    if id(model) not in states:
        raise InputError(
            f"{first} is sharded by fully_shard (FSDP2), but the model itself is not: apply "
            "fully_shard to the model, too, after its parts"
        )
    if states[id(model)]._is_root is False:
        raise InputError(
            f"{type(model).__name__} is a part of a model that fully_shard (FSDP2) was applied "
            "to: train the whole model under the plan"
        )
    for module, state in found:
        for group in _groups(state):
            _require_group(names[id(module)], group)


def _require_group(name: str, group: Any) -> None:
    _require_read("a group", name, group)
    who = f"{name} is sharded by fully_shard (FSDP2)"
    if type(group.offload_policy).__name__ != "OffloadPolicy":
        raise InputError(
            f"{who} with {type(group.offload_policy).__name__}, which moves parameters itself: "
            "no plan is followed beside it; leave offload_policy out"
        )
    for each in group.fsdp_params:
        _require_read("a parameter", name, each)
        if hasattr(local(each.sharded_param), "fsdp_pre_all_gather"):
            raise InputError(
                f"{who} with parameters of {type(local(each.sharded_param)).__name__}, which "
                "gather themselves: what they hold meanwhile is not known"
            )


def _require_read(what: str, name: str, thing: Any) -> None:
    for attribute in _READ[what]:
        if not hasattr(thing, attribute):
            raise InputError(
                f"{name} is sharded by fully_shard (FSDP2) of PyTorch {torch.__version__}, whose "
                f"{what.removeprefix('a ')} has no {attribute}: plans are followed with 2.13"
            )


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
