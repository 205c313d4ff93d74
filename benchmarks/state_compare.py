"""Everything that a training leaves behind, as bytes, for `benchmarks/fuzz_state.py`."""

from __future__ import annotations

import hashlib
import itertools
import random
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy
import torch
from state_kinds import Watched
from torch import nn

# By name: what is to be the same.
Moment = dict[str, Any]


def moment(model: nn.Module, layers: Sequence[Watched], losses: Sequence[torch.Tensor]) -> Moment:
    """Return all of it at this moment."""
    found: Moment = {f"loss {index}": _tensor(each) for index, each in enumerate(losses)}
    for name, module in model.named_modules():
        found[f"mode {name}"] = module.training
        for own, each in module._parameters.items():
            if each is not None:
                found[f"parameter {name}.{own}"] = _tensor(each)
                found[f"gradient {name}.{own}"] = None if each.grad is None else _tensor(each.grad)
        for own, buffer in module._buffers.items():
            found[f"buffer {name}.{own}"] = None if buffer is None else _tensor(buffer)
    for index, layer in enumerate(layers):
        found[f"state of layer {index}: {layer.kind}"] = read(layer.seen())
    python, numbers = random.getstate(), numpy.random.get_state(legacy=False)
    found["random numbers of Python"] = hash(python)
    found["random numbers of NumPy"] = read(numbers)
    found["random numbers of PyTorch"] = _tensor(torch.get_rng_state())
    return found


def _tensor(value: torch.Tensor) -> tuple[Any, ...]:
    data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    # Large ones are not kept for every moment.
    return value.dtype, value.shape, data if len(data) < 4096 else hashlib.blake2b(data).digest()


def read(value: Any) -> bytes:
    """Return a state as bytes; what cannot be read is a mistake of the fuzzer."""
    return b"\0".join(_parts(value, 0))


def _parts(value: Any, depth: int) -> Iterator[bytes]:
    assert depth < 12, "a state that contains itself"
    kind = type(value).__name__.encode()
    if isinstance(value, torch.Tensor):
        dtype, shape, data = _tensor(value)
        yield from (str(dtype).encode(), str(shape).encode(), data)
        return
    yield kind
    if isinstance(value, (int, float, str, bytes, bytearray, type(None), complex)):
        yield repr(value).encode()
    elif isinstance(value, torch.Generator):
        yield value.get_state().numpy().tobytes()
    elif isinstance(value, random.Random):
        yield str(hash(value.getstate())).encode()
    elif isinstance(value, numpy.random.Generator):
        yield from _parts(value.bit_generator.state, depth + 1)
    elif isinstance(value, numpy.random.RandomState):
        yield from _parts(value.get_state(legacy=False), depth + 1)
    elif isinstance(value, numpy.ndarray | memoryview):
        yield value.tobytes()
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _parts(key, depth + 1)
            yield from _parts(each, depth + 1)
    elif isinstance(value, Set):
        yield from sorted(read(each) for each in value)
    elif isinstance(value, itertools.cycle):
        # It says where it is only by going on: three steps bring it back.
        yield repr([next(value) for _ in range(3)]).encode()
    elif isinstance(value, types.GeneratorType):
        yield repr(value.gi_frame and value.gi_frame.f_locals).encode()
    elif isinstance(value, itertools.count):
        yield repr(value).encode()
    elif hasattr(value, "__length_hint__"):
        yield repr(value.__length_hint__()).encode()
    elif hasattr(value, "getvalue"):
        yield repr(value.getvalue()).encode()
    elif hasattr(value, "__iter__") and hasattr(value, "__len__"):
        for each in value:
            yield from _parts(each, depth + 1)
    else:
        yield from _of_object(value, depth)


def _of_object(value: Any, depth: int) -> Iterator[bytes]:
    names = [*getattr(value, "__dict__", ())]
    for each in type(value).__mro__:
        names += [
            f"_{each.__name__}{name}" if name.startswith("__") and not name.endswith("__") else name
            for name in getattr(each, "__slots__", ())
            if name != "__weakref__"
        ]
    assert names, f"nobody can read a {type(value)}"
    for name in sorted(names):
        yield name.encode()
        yield from _parts(getattr(value, name), depth + 1)


def differences(found: Moment, expected: Moment) -> list[str]:
    """Return the names of what is not the same."""
    names = [*expected, *(name for name in found if name not in expected)]
    return [name for name in names if found.get(name) != expected.get(name)]
