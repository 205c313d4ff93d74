"""Problems of steps that nobody has captured: in between two captured ones, or beyond them.

See docs/theory/smaller-steps.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from offcert.core.errors import InputError
from offcert.questions.schedule.files import problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem

# How much more is foreseen of what varies with data. Arbitrary.
_MARGIN = Fraction(5, 4)


def between(small: Problem, large: Problem, share: Fraction) -> Problem:
    """Return the problem of a step between two captured ones, for a plan that steps may follow.

    Every size, duration and length of a shape is taken to change evenly from the one to the other,
    rounded up; so of products of lengths more is foreseen than there is. `share` says how far it is
    from the small one to the large one, from 0 to 1.
    """
    assert large.source is not None
    documents = _documents(small, large)
    told = large.source["capture"]
    for document in documents:
        capture = document["source"]["capture"]
        if "record" in capture:
            # What dies in the midst of operations may differ in kind: the larger step's bytes do.
            within = {"within": told["record"].get("within")}
            capture["record"] = capture["record"] | within

    def number(one: int, other: int) -> int:
        return one + math.ceil((other - one) * share)

    return _problem(_between(*documents, number, ""), large)


def varied(known: Problem, other: Problem) -> Problem:
    """Return the problem of steps whose sizes depend on data: of two that are called alike.

    What is the same in both stays; of what varies a quarter more than the most is foreseen, once it
    has exceeded what was. Nothing runs again in such steps. `known` may be such a problem; if it is
    foretold otherwise, or they differ in something else, an `InputError` is raised.
    """
    known, other = known.plain(), other.plain()
    assert known.source is not None
    foreseen = known.source.get("varied", False)
    if known.source["capture"].get("interpolated", False) is not foreseen:
        raise InputError("its sizes are those of steps that are called otherwise")
    if _structure(known) != _structure(other):
        raise InputError("steps differ in what they save, or in when it is used")
    documents = _documents(other, known)
    for document in documents:
        document["source"]["capture"].pop("interpolated", None)

    def number(one: int, before: int) -> int:
        if one <= before and foreseen:
            return before
        return math.ceil(max(one, before) * _MARGIN)

    found = _problem(_between(*documents, number, ""), known)
    return replace(found, source={**(found.source or {}), "varied": True})


def _structure(problem: Problem) -> Any:
    """Return which storages a step saves, and when its tensors are used, whatever their sizes."""
    assert problem.source is not None
    saved = [(row[0], row[2], row[4]) for row in problem.source["capture"]["saved"]]
    return saved, [tensor.uses for tensor in problem.trace.tensors]


def beyond(small: Problem, large: Problem, lengths: tuple[int, int, int]) -> Problem:
    """Return the problem of a step that is larger than two captured ones, of which it is foretold.

    What is a constant or a power of the length goes on as such. Of all else no more is known than
    two numbers: it is taken to be a constant and a square, or else a cube, which bounds every sum
    of lower powers. So more is foretold than there is. `lengths` are those of the two steps and the
    one that is asked for; what grows faster than a cube is an `InputError`.
    """

    def number(one: int, other: int) -> int:
        return grown(one, other, lengths)

    documents = _documents(small, large)
    for document in documents:
        record = document["source"]["capture"].get("record")
        if record is not None:
            # It may differ in kind: its bytes grow like a square of the length, as scores do.
            more = Fraction(lengths[2] ** 2, lengths[1] ** 2)
            document["source"]["capture"]["record"] = record | {"within": _scaled(large, more)}
    found = _problem(_between(*documents, number, ""), large)
    assert found.source is not None
    rows = [(each.source or {}).get("uncounted", {}).get("batch", 0) for each in (small, large)]
    batch = {"uncounted": {**found.source.get("uncounted", {}), "batch": number(*rows)}}
    return replace(found, source={**found.source, **batch})


def grown(small: int, large: int, lengths: tuple[int, int, int]) -> int:
    """Return the number that two numbers grow to, at most, rounded up; see `beyond`."""
    one, other, most = lengths
    if small >= large:
        return max(small, large)
    for power in (1, 2, 3):
        if large * one**power == small * other**power:
            return math.ceil(Fraction(large * most**power, other**power))
    for power in (2, 3):
        slope = Fraction(large - small, other**power - one**power)
        if slope * one**power <= small:
            return large + math.ceil(slope * (most**power - other**power))
    raise InputError(f"{small} bytes or ticks at length {one} grow to {large} at {other}")


def _scaled(problem: Problem, share: Fraction) -> dict[str, Any]:
    """Return the events within operations that a problem's step records, with more bytes."""
    assert problem.source is not None
    within = problem.source["capture"]["record"]["within"]
    makings = [[who, math.ceil(more * share), of] for who, more, of in within["makings"]]
    asks = [
        [who, saver, *(math.ceil(each * share) for each in sizes), of]
        for who, saver, *sizes, of in within["asks"]
    ]
    return {"makings": makings, "asks": asks}


def _documents(small: Problem, large: Problem) -> tuple[Any, Any]:
    """Return two problems as JSON values that differ in sizes and times, if in nothing else."""
    assert large.source is not None
    told = large.source["capture"]
    documents = problem_to_json(small), problem_to_json(large)
    for document in documents:
        capture = dict(document["source"]["capture"])
        # With data or without, it is the same step; numbers of nodes are only compared with it.
        capture |= {name: told[name] for name in ("tensors", "nodes")}
        document["source"] = {"capture": capture}
        document |= {"memory": large.platform.memory, "name": large.name}
    return documents


def _problem(found: Any, large: Problem) -> Problem:
    """Return the problem of a JSON value that was computed of two others."""
    assert large.source is not None
    found["source"]["capture"]["interpolated"] = True
    found["source"] = {**large.source, **found["source"]}
    _add_up(found)
    return problem_from_json(found)


def _between(small: Any, large: Any, number: Callable[[int, int], int], place: str) -> Any:
    if small == large and type(small) is type(large):
        return large
    if isinstance(small, dict) and isinstance(large, dict) and small.keys() == large.keys():
        return {n: _between(small[n], large[n], number, f"{place}.{n}") for n in large}
    if isinstance(small, list | tuple) and isinstance(large, list | tuple):
        if len(small) == len(large):
            pairs = enumerate(zip(small, large, strict=True))
            return [_between(a, b, number, f"{place}[{index}]") for index, (a, b) in pairs]
    elif type(small) is int and type(large) is int:
        return number(small, large)
    elif _is_number(small) and _is_number(large):
        # A whole number as an argument, such as the time step of a diffusion.
        return large
    raise InputError(f"steps differ in more than sizes and times: see {place.removeprefix('.')}")


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.removeprefix("-").isdecimal()


def _add_up(document: dict[str, Any]) -> None:
    """Let each tensor have the bytes of its storages, which were rounded one by one."""
    capture = document["source"]["capture"]
    if "network" in document:
        rows, tensors = capture["record"]["storages"], document["network"]["values"]
    else:
        rows, tensors = [(row[1], row[4]) for row in capture["saved"]], document["trace"]["tensors"]
    sizes: Counter[int] = Counter()
    for size, tensor in rows:
        if tensor is not None and tensor >= 0:
            sizes[tensor] += size
    for tensor, size in sizes.items():
        tensors[tensor]["size"] = size
