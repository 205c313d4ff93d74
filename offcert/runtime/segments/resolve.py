"""From the names in a placed program to modules; what cannot run again is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.segments.keeper import Tick
from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment
from offcert.runtime.segments.state import ModuleStates
from offcert.runtime.watch.guard import SegmentProof
from offcert.runtime.watch.hooks import is_compiled
from offcert.runtime.watch.sharded import Sharded, states_of

Told = Callable[[SegmentProof], None]


@dataclass(slots=True)
class Part:
    """A segment, as the modules of a model.

    `number` segments of the program come before it, and it lies in `depth` others. A run of
    children has positions of its `first` and `last`, and `inner` runs of the same container; an
    outermost segment what is `kept` in it, by the events after which it is.
    """

    name: str
    states: ModuleStates
    proof: SegmentProof
    number: int = 0
    depth: int = 0
    first: int = 0
    last: int = 0
    inner: list[Part] = field(default_factory=list)
    kept: dict[Tick, Kept] = field(default_factory=dict)


@dataclass(slots=True)
class LineMember:
    """A call of a line: path and number, the module, and the state of all modules in it."""

    path: str
    call: int
    module: nn.Module
    states: ModuleStates


@dataclass(slots=True)
class LinePart(Part):
    """A segment that is a line; what its modules remember, each of its `members` says itself."""

    members: list[LineMember] = field(default_factory=list)


@dataclass(slots=True)
class Lookup:
    """A placed program, looked up by the paths and numbers of calls.

    `calls` are segments that are calls of modules, `runs` those of a container's children (the
    outermost ones), `lines` by their first modules, the outermost first. Of the `modules` and
    `containers` calls are segments; events of those that are `watched` say what is kept.
    """

    calls: dict[tuple[str, int], Part] = field(default_factory=dict)
    runs: dict[tuple[str, int], list[Part]] = field(default_factory=dict)
    lines: dict[tuple[str, int], list[LinePart]] = field(default_factory=dict)
    modules: dict[str, nn.Module] = field(default_factory=dict)
    containers: dict[str, nn.Sequential] = field(default_factory=dict)
    watched: dict[str, nn.Module] = field(default_factory=dict)
    segments: int = 0

    @property
    def proofs(self) -> list[SegmentProof]:
        """The proofs of all segments."""
        found: list[SegmentProof] = []
        waiting: list[Part] = list(self.calls.values())
        waiting += [part for row in self.runs.values() for part in row]
        waiting += [part for row in self.lines.values() for part in row]
        while waiting:
            part = waiting.pop()
            found.append(part.proof)
            waiting += part.inner
        return found


def resolve(root: nn.Module, program: PlacedProgram, told: Told | None = None) -> Lookup:
    """Return the modules of a model that a placed program speaks of.

    `told` hears of the proof of a segment that turns out not to make the same again.
    """
    lookup = Lookup()
    resolver = _Resolver(root, lookup, told)
    for segment in program.segments:
        resolver.add(segment, None)
    return lookup


class _Resolver:
    def __init__(self, root: nn.Module, lookup: Lookup, told: Told | None) -> None:
        self.told = told
        self.sharded = Sharded(root.modules())
        self.modules = dict(root.named_modules(remove_duplicate=False))
        self.lookup = lookup
        # A module that is called by several names has the first of them.
        self.name_of = {id(module): path for path, module in root.named_modules()}
        # The innermost line of each call.
        self.line_of: dict[tuple[str, int], LinePart] = {}

    def add(self, segment: PlacedSegment, outer: tuple[PlacedSegment, Part] | None) -> None:
        module = self._module(segment.path)
        part: Part
        if segment.line:
            part = self._line(segment, outer)
        elif segment.children is None:
            part = self._call(segment, module)
        else:
            part = self._run(segment, module, outer)
        part.depth = 0 if outer is None else outer[1].depth + 1
        part.number, self.lookup.segments = self.lookup.segments, self.lookup.segments + 1
        if outer is None:
            inside = [each for one in segment.nested() for each in one.kept]
            part.kept = {(each.kind, each.path, each.call): each for each in inside}
            if inside:
                self._watch(segment)
        for inner in segment.inner:
            self.add(inner, (segment, part))

    def _module(self, path: str) -> nn.Module:
        module = self.modules.get(path)
        if module is None:
            raise InputError(f"the model has no module {path}, which is to run again")
        known = self.name_of[id(module)]
        if known != path:
            raise InputError(f"{path} is {known}: it must be named so")
        return module

    def _call(self, segment: PlacedSegment, module: nn.Module) -> Part:
        if not segment.path:
            raise InputError("the model itself cannot run again as one segment, only parts of it")
        inside = list(_named(segment.path, module))
        part = self._part(segment, inside, (segment.path,))
        self.lookup.calls[segment.path, segment.call] = part
        self.lookup.modules[segment.path] = module
        return part

    def _line(self, segment: PlacedSegment, outer: tuple[PlacedSegment, Part] | None) -> LinePart:
        if "" in dict(segment.line):
            raise InputError("the model itself cannot run again as a call in a line")
        members = []
        for path, call in segment.line:
            module = self._module(path)
            states = self._states(segment, list(_named(path, module)))
            members.append(LineMember(path, call, module, states))
            self.lookup.modules[path] = module
        name = str(segment)
        paths = tuple(path for path, _ in segment.line)
        proof = SegmentProof(name, paths, self.told)
        part = LinePart(name, ModuleStates(name, []), proof, members=members)
        above = set() if outer is None else set(outer[0].line)
        for each in segment.line:
            if above and each not in above:
                raise InputError(f"{segment} is no part of {outer[0] if outer else ''}")
            other = self.line_of.get(each)
            if other is not None and (outer is None or other is not outer[1]):
                raise InputError(f"{part.name} and {other.name} overlap")
            self.line_of[each] = part
        self.lookup.lines.setdefault(segment.line[0], []).append(part)
        return part

    def _run(
        self,
        segment: PlacedSegment,
        module: nn.Module,
        outer: tuple[PlacedSegment, Part] | None,
    ) -> Part:
        name = segment.path or "the model"
        assert segment.children is not None
        if (
            not isinstance(module, nn.Sequential)
            or type(module).forward is not nn.Sequential.forward
            or "forward" in module.__dict__
        ):
            raise InputError(
                f"{segment} cannot run again as one segment: {name} is a "
                f"{type(module).__name__}, whose own code calls its children"
            )
        names = list(module._modules)
        for child in segment.children:
            if child not in names:
                raise InputError(f"{name} has no child {child}, which is to run again")
        first, last = (names.index(child) for child in segment.children)
        if last < first:
            raise InputError(f"{segment} cannot run again: they come in the other order")
        above = f"{segment.path}." if segment.path else ""
        children = {above + child: module._modules[child] for child in names[first : last + 1]}
        rows = [_named(path, each) for path, each in children.items() if each is not None]
        part = self._part(segment, list(chain.from_iterable(rows)), tuple(children))
        part.first, part.last = first, last
        self._put(segment, part, outer)
        self.lookup.containers[segment.path] = module
        return part

    def _put(
        self, segment: PlacedSegment, part: Part, outer: tuple[PlacedSegment, Part] | None
    ) -> None:
        """Add a run to those that it must not overlap."""
        key = segment.path, segment.call
        beside = self.lookup.runs.setdefault(key, [])
        if outer is not None and outer[0].children and (outer[0].path, outer[0].call) == key:
            beside = outer[1].inner
            if part.first < outer[1].first or part.last > outer[1].last:
                raise InputError(f"{segment} is no part of {outer[0]}")
        for other in beside:
            if part.first <= other.last and other.first <= part.last:
                raise InputError(f"{part.name} and {other.name} overlap")
        beside.append(part)
        beside.sort(key=lambda each: each.first)

    def _part(
        self,
        segment: PlacedSegment,
        inside: list[tuple[str, nn.Module]],
        paths: tuple[str, ...],
    ) -> Part:
        states, name = self._states(segment, inside), str(segment)
        return Part(name, states, SegmentProof(name, paths, self.told))

    def _states(self, segment: PlacedSegment, inside: list[tuple[str, nn.Module]]) -> ModuleStates:
        """Return the state of some modules, unless one of them cannot run again."""
        for path, module in inside:
            if isinstance(module, torch.jit.ScriptModule):
                raise InputError(f"{segment} cannot run again: {path} is a script module")
            if states_of([module]):
                raise InputError(
                    f"{segment} cannot run again: {path} is sharded by fully_shard (FSDP2), and "
                    "processes would gather it in another order; parts of it can"
                )
            if is_compiled(module):
                raise InputError(f"{segment} cannot run again: {path} is compiled")
        return ModuleStates(str(segment), inside, self.sharded)

    def _watch(self, segment: PlacedSegment) -> None:
        for path, _ in segment.line or ((segment.path, 0),):
            for each in self.modules[path].modules():
                self.lookup.watched[self.name_of[id(each)]] = each
        for kept in (each for one in segment.nested() for each in one.kept):
            if kept.path not in self.lookup.watched:
                raise InputError(f"{segment} has no module {kept.path}, whose results are to stay")


def _named(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, each in module.named_modules():
        yield (f"{path}.{name}" if path and name else path or name), each
