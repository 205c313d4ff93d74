"""Steps of models with many equal layers: a few of them are recorded, and stand for all.

Layers are equal if their modules, parameters and settings are, but for the number of the layer. A
step is recorded with a few of them, and once more with one period more; only if the first
recording, with the period repeated once, is the second one in everything that a capture is made of,
is it repeated as often as the whole model asks for. Otherwise the whole step is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from offcert.runtime.capture.moments import Life, Seen
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.recording import NotRepeatingError, Recording, Repeat
from offcert.runtime.capture.stretch import stretched
from offcert.runtime.watch.sharded import Parts
from offcert.runtime.watch.signature import flags

# Layers at either end that are not repeated, so that those that are have neighbours like them.
# Assumed.
_MARGIN = 2
# Part of the layers that two recordings must leave out: with less, recording all is as quick.
# Assumed.
_WORTH = 0.3

Record = Callable[[], tuple[Recorder, int]]


def repeated(root: nn.Module, record: Record) -> tuple[Recording, int] | None:
    """Return the recording of a step of a model with equal layers, if it has enough of them.

    Returns
    -------
    tuple of Recording and int, or None
        None if there are too few layers, or the recordings are not those of equal ones.
    """
    found = _layers(root)
    if found is None:
        return None
    path, container, period = found
    count = len(container._modules)
    # What is made for layers of one kind is saved first, and dies, in the first of that kind.
    first = _MARGIN if period == 1 else max(_MARGIN, period)
    fewest = first + period + _MARGIN
    kept = fewest + (count - fewest) % period
    if 2 * kept + period > (1 - _WORTH) * count:
        return None
    try:
        # Tensors of one recording have to be gone before the next one.
        small, size = _with(root, container, kept, record)
        larger, _ = _with(root, container, kept + period, record)
        repeat = Repeat(path, kept, first, period, 1)
        if _said(stretched(small, repeat)) != _said(larger):
            return None
        whole = stretched(small, replace(repeat, times=(count - kept) // period))
    except NotRepeatingError:
        return None
    more = (count - kept) // period
    nodes = [
        few if few < 0 or many < 0 else few + more * (many - few)
        for few, many in zip(small.nodes, larger.nodes, strict=True)
    ]
    told = flags(Parts(root))
    calls = [[*call[:2], *told] for call in whole.calls]
    return replace(whole, nodes=nodes, calls=calls), size


def _with(
    root: nn.Module, container: nn.Module, count: int, record: Record
) -> tuple[Recording, int]:
    with _fewer(container, count):
        recorder, size = record()
        told = flags(Parts(root))
    if any(call[2:] != told for call in recorder.calls):
        raise NotRepeatingError("the step changes which modules or parameters train")
    return Recording.of(recorder), size


@contextmanager
def _fewer(container: nn.Module, count: int) -> Iterator[None]:
    """Leave a container its first modules only."""
    whole = dict(container._modules)
    container._modules.clear()
    container._modules.update(list(whole.items())[:count])
    try:
        yield
    finally:
        container._modules.clear()
        container._modules.update(whole)


def _layers(root: nn.Module) -> tuple[str, nn.Module, int] | None:
    """Return the container with the most parameters that repeats something, and its period."""
    found = [
        (sum(each.numel() for each in module.parameters()), path, module)
        for path, module in root.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module) > 2 * _MARGIN
    ]
    for _, path, module in sorted(found, key=lambda each: (-each[0], each[1])):
        numbered = list(module._modules) == [str(index) for index in range(len(module))]
        period = _period(_looks(root, module))
        if numbered and period is not None:
            return path, module, period
    return None


def _period(looks: Sequence[Any]) -> int | None:
    """Return after how many layers they repeat, if they do at least twice."""
    for period in range(1, len(looks) // 2 + 1):
        if all(one == other for one, other in zip(looks, looks[period:], strict=False)):
            return period
    return None


def _looks(root: nn.Module, container: nn.ModuleList | nn.Sequential) -> list[dict[Any, Any]]:
    """Return all that is known of each layer without running it, but for its number."""
    count = len(container)
    looks = [
        _settings(layer) | {name: value[index] for name, value in _listed(root, count)}
        for index, layer in enumerate(container)
    ]
    numbers = [
        key
        for key in looks[0]
        if all(type(look.get(key)) is int and look[key] == n for n, look in enumerate(looks))
    ]
    return [{key: look[key] for key in look if key not in numbers} for look in looks]


def _settings(layer: nn.Module) -> dict[Any, Any]:
    plain = (int, float, str, bool, tuple, type(None))
    found: dict[Any, Any] = {}
    for path, module in layer.named_modules():
        found[path] = type(module), module.extra_repr(), _tensors(module)
        for name, value in vars(module).items():
            if isinstance(value, plain):
                found[path, name] = value
    return found


def _tensors(module: nn.Module) -> list[tuple[Any, ...]]:
    held = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    return [
        (name, tuple(each.shape), each.stride(), each.dtype, each.requires_grad)
        for name, each in held
    ]


def _listed(root: nn.Module, count: int) -> list[tuple[str, Any]]:
    """Return the settings of a configuration that are lists with an entry for each layer."""
    config = getattr(root, "config", None)
    text = getattr(config, "get_text_config", None)
    settings = vars(text() if callable(text) else config) if config is not None else {}
    return [
        (name, value)
        for name, value in sorted(settings.items())
        if isinstance(value, list | tuple) and len(value) == count
    ]


def _said(recording: Recording) -> Any:
    """Return all that a capture is made of, but for the nodes, in a form that can be compared."""
    number_of = {id(life): number for number, life in enumerate(recording.lives)}
    last = len(recording.moments) - 1
    others: dict[Any, int] = {}

    def storage(key: Any) -> Any:
        if isinstance(key, Life):
            return "counted", number_of.get(id(key))
        return None if key is None else ("older", others.setdefault(key, len(others)))

    def seen(each: Seen) -> Any:
        return each.moment, storage(each.storage), each.size, each.dtype, each.shape

    return (
        [
            (m.event, m.backward, m.live, m.module, m.peak, m.launches, m.duration)
            for m in recording.moments
        ],
        [
            (
                life.record.size,
                life.record.born,
                last if life.record.died is None else min(life.record.died, last),
                sorted(life.touched),
                sorted(life.held),
                life.saved_at,
                sorted(life.changed),
            )
            for life in recording.lives
        ],
        [(s.moment, s.size, s.dtype, s.shape, storage(s.life)) for s in recording.saved],
        recording.unpacked,
        [seen(each) for each in recording.packed],
        [seen(each) for each in recording.made],
        [(moment, [seen(each) for each in found]) for moment, found in recording.given],
        recording.only_once,
        recording.lines.found,
        [call[:2] for call in recording.calls],
        recording.autocast,
        recording.backward_passes,
    )
