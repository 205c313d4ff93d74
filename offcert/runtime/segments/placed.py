"""`PlacedProgram`: which calls of which modules run again, by the names of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offcert.core.carried.ranges import Called
from offcert.core.errors import InputError


@dataclass(frozen=True, order=True)
class Kept:
    """Operators whose results stay, so that they do not run again: from an event to the next one.

    The module at `path` is entered or left (`kind`) in its numbered call. `operators` are the
    numbers of those that compute something, None for all; `unread` which of the results of all
    operators nobody needs again: they do not stay, and stand-ins are handed out in their place.
    """

    kind: str
    path: str
    call: int = 0
    operators: tuple[int, ...] | None = None
    unread: tuple[int, ...] = ()


def called(name: str, call: int) -> str:
    """Name a call for people."""
    return name if call == 0 else f"call {call + 1} of {name}"


@dataclass(frozen=True)
class PlacedSegment:
    """A segment by modules: a call, a run of an `nn.Sequential`'s children, or a line of calls.

    `path` is that of the module, of the container if `children` (the first and the last) are named,
    or of the first module of a `line`, of whose calls each takes what the one before returned.
    `kept` and `inner` segments are inside of it, `kept` at any depth.
    """

    path: str
    call: int = 0
    children: tuple[str, str] | None = None
    kept: tuple[Kept, ...] = ()
    inner: tuple[PlacedSegment, ...] = ()
    line: tuple[Called, ...] = ()

    def __post_init__(self) -> None:
        if not self.line:
            return
        if len(self.line) == 1 or self.line[0] != (self.path, self.call) or self.children:
            raise InputError(f"a line of at least two calls must begin with {self.path}")

    def __str__(self) -> str:
        """Name it for people."""
        if self.line:
            return f"{called(*self.line[0])} to {called(*self.line[-1])}"
        name = self.path or "the model"
        if self.children is not None:
            first, last = self.children
            name = f"children {first} to {last} of {name}"
        return called(name, self.call)

    def nested(self) -> Iterator[PlacedSegment]:
        """Yield the segment and those inside, at any depth."""
        yield self
        for each in self.inner:
            yield from each.nested()


@dataclass(frozen=True)
class PlacedProgram:
    """The program of `offcert.core.program.Program`, in terms of a model's modules.

    What is in none of its outermost segments runs once; a call that is a segment twice is an
    `InputError`.
    """

    segments: tuple[PlacedSegment, ...]

    def __init__(self, segments: Iterable[PlacedSegment] = ()) -> None:
        object.__setattr__(self, "segments", tuple(segments))
        seen = set()
        for segment in self.nested():
            key = (segment.path, segment.call, segment.children, segment.line)
            if key in seen:
                raise InputError(f"{segment} is a segment twice")
            seen.add(key)

    def __bool__(self) -> bool:
        """Whether anything runs again."""
        return bool(self.segments)

    def __repr__(self) -> str:
        inside = list(self.nested())
        kept = sum(len(segment.kept) for segment in inside)
        return f"<PlacedProgram: {len(inside)} segments, in which {kept} events keep results>"

    def nested(self) -> Iterator[PlacedSegment]:
        """Yield all segments, at any depth."""
        for each in self.segments:
            yield from each.nested()


NOTHING_AGAIN = PlacedProgram()
