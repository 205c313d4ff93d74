"""Common parts of generators: knobs, seeds, and a source that says how to make a problem again."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import count
from typing import Any, ClassVar

from offcert.core.errors import InputError
from offcert.core.messages import meant, short_repr
from offcert.core.trace import require_integer
from offcert.questions.schedule.problem import Problem

Knob = int | Fraction | bool | str


# Stages, blocks or values of a problem; more would take minutes to draw. Arbitrary.
MOST = 100_000


def knob(
    default: Any,
    text: str,
    *,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a knob of a generator: its default, its help text, and what it may be."""
    limits = {"least": least, "most": most, "choices": choices}
    return field(default=default, metadata={"help": text, **limits})


@dataclass(frozen=True, kw_only=True)
class Generator(ABC):
    """Seeded problems of one kind; iterating yields those of seeds 0, 1, 2 and so on.

    Random numbers come from `random.Random` and all arithmetic is on integers and rationals, so
    the same knobs and seed give the same problem on every machine.
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    # A reduction dictates the memory, and has no such knob.
    takes_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for item in fields(self):
            value, least = getattr(self, item.name), item.metadata["least"]
            if isinstance(item.default, bool):
                if not isinstance(value, bool):
                    raise InputError(f"{item.name} must be true or false, not {short_repr(value)}")
            elif isinstance(item.default, Fraction):
                object.__setattr__(self, item.name, _rational(item.name, value, least))
            elif isinstance(item.default, int):
                number, most = require_integer(value, item.name, least), item.metadata["most"]
                if most is not None and number > most:
                    raise InputError(f"{item.name} must be at most {most}, not {number}")
            elif value not in item.metadata["choices"]:
                choices = item.metadata["choices"]
                names = ", ".join(f'"{choice}"' for choice in choices)
                hint = meant(str(value), choices)
                raise InputError(
                    f"{item.name} must be one of {names}, not {short_repr(value)}{hint}"
                )

    @abstractmethod
    def draw(self, seed: int) -> Problem:
        """Return the problem of a seed; its memory and source do not matter yet."""

    def problem(self, seed: int, memory: Fraction = Fraction(0)) -> Problem:
        """Return the problem of a seed.

        The limit is a part of the way from the least feasible memory (0) to the peak (1).
        Reductions dictate theirs and ignore it.
        """
        require_integer(seed, "seed", 0)
        drawn = self.draw(seed)
        source = {"generator": self.kind, "seed": seed, **self.knobs(), **(drawn.source or {})}
        if self.takes_memory:
            drawn = drawn.with_memory(drawn.memory_at(memory))
        return replace(drawn, source=source)

    def knobs(self) -> dict[str, Any]:
        """Return the knobs as JSON values; rationals as ``"a/b"``."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: str(value) if isinstance(value, Fraction) else value
            for name, value in values.items()
        }

    def __iter__(self) -> Iterator[Problem]:
        """Yield the problems of seeds 0, 1, 2, … at the least feasible memory, without end."""
        return map(self.problem, count())


def spread_around(rng: random.Random, middle: int, spread: Fraction) -> int:
    """Return a random integer between ``middle / spread`` and ``middle * spread``, at least 1."""
    low = -(-middle // spread)
    return rng.randint(max(1, low), max(1, int(middle * spread)))


def near(rng: random.Random, middle: int, percent: int, least: int = 0) -> int:
    """Return a random integer at most a percentage away from another one, and at least `least`."""
    slack = middle * min(percent, 100) // 100
    return max(least, rng.randint(middle - slack, middle + slack))


def _rational(name: str, value: Any, least: int | None) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise InputError(f"{name} must be a rational, not {short_repr(value)}")
    if value <= 0 or (least is not None and value < least):
        bound = "more than 0" if least is None else f"at least {least}"
        raise InputError(f"{name} must be {bound}, not {value}")
    return Fraction(value)
