"""Every generator by its kind, and problems made again from what their source says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

from offcert.core.documents import parse_rational, show
from offcert.core.errors import InputError
from offcert.instances.checkpoint_instances import CheckpointChains, RecomputeNetworks
from offcert.instances.cnn import CnnChains, UniformChains
from offcert.instances.generator import Generator
from offcert.instances.layers import (
    DecoderTraces,
    MixedPrecisionTraces,
    TransformerTraces,
    UnetTraces,
)
from offcert.instances.three_partition import ThreePartition, three_partition
from offcert.instances.two_partition import (
    RecomputePartition,
    TwoPartition,
    recompute_partition,
    two_partition,
)
from offcert.questions.schedule.problem import Problem

KINDS: dict[str, type[Generator]] = {
    cls.kind: cls
    for cls in (
        CnnChains,
        TransformerTraces,
        UniformChains,
        UnetTraces,
        DecoderTraces,
        MixedPrecisionTraces,
        CheckpointChains,
        RecomputeNetworks,
        ThreePartition,
        TwoPartition,
        RecomputePartition,
    )
}


def generator(kind: str, knobs: Mapping[str, Any]) -> Generator:
    """Return the generator of a kind, its knobs as JSON values; those left out are defaults."""
    if kind not in KINDS:
        raise InputError(f"generator must be one of {', '.join(KINDS)}, not {show(kind)}")
    known = {item.name: item for item in fields(KINDS[kind])}
    values: dict[str, Any] = {}
    for name, value in knobs.items():
        if name not in known:
            raise InputError(f"generator {kind} has no knob {show(name)}")
        rational = isinstance(known[name].default, Fraction) and isinstance(value, str)
        values[name] = parse_rational(value, name) if rational else value
    return KINDS[kind](**values)


def reduced(kind: str, values: Sequence[int], transfers: str = "atomic") -> Problem:
    """Return the problem that a reduction makes of given values.

    The kind is one of those that take no memory; values are the numbers to divide; transfers are
    for 2-partition.
    """
    if kind == TwoPartition.kind:
        return two_partition(values, transfers)
    if kind == RecomputePartition.kind:
        return recompute_partition(values)
    return three_partition(values)


def from_source(source: Mapping[str, Any], memory: Fraction = Fraction(0)) -> Problem:
    """Make a problem again from its source: the same kind, knobs and seed, or the same values."""
    kind = source.get("generator")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"source.generator must be one of {', '.join(KINDS)}, not {show(kind)}")
    if "seed" not in source:
        return reduced(kind, source.get("values", ()), source.get("transfers", "atomic"))
    known = {item.name for item in fields(KINDS[kind])}
    knobs = {name: value for name, value in source.items() if name in known}
    return generator(kind, knobs).problem(source["seed"], memory)
