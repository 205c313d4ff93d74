"""Where in the graphs each operation of a plan begins."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence, Set
from difflib import SequenceMatcher

from torch import fx

from offcert.runtime.compiled.graph_pair import CallKey, GraphPair, NodeCalls, is_backward, launches
from offcert.runtime.compiled.planned import Planned
from offcert.runtime.compiled.report import NOWHERE
from offcert.runtime.watch.events import END, ENTER, INPUT, LEAVE, OUTPUT, Event

# Operators that have another name once in-place changes are taken out of the program.
_SAME = {
    "native_batch_norm": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "miopen_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_functional": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "_batch_norm_with_update_functional": "batch_norm",
}


class Anchors:
    """The positions at which the operations of a plan begin, as far as the graphs show them.

    An operation that they do not show (of the loss outside of what is compiled, for example) begins
    where the next one does that they show: what has to be there before it comes later, which takes
    no more memory than planned.

    Attributes
    ----------
    found : list of int or None
        The position at which each operation begins, if the graphs show it.
    elsewhere : set of str
        The modules that the plan calls more often than the graphs: which of the calls theirs are
        cannot be told, as Dynamo counts them in each graph anew.
    """

    def __init__(self, planned: Planned, pair: GraphPair, calls: NodeCalls) -> None:
        self.elsewhere = set() if planned.by_operators else _elsewhere(planned, pair, calls)
        if planned.by_operators:
            found = _by_operators(planned, pair, calls)
        else:
            found = _by_modules(planned, pair, calls, self.elsewhere)
        self._planned = planned
        # The modules that compute something, or hold one that does.
        self._computing = {
            event.path[:end]
            for event in planned.events
            if event.kind == ENTER
            for end in _ends(event.path)
        }
        self._line = pair
        self._take(found)
        if any(planned.of):
            known = _by_gradients(self, planned, pair, calls)
            self._take([f if k is None else k for f, k in zip(found, known, strict=True)])

    def _take(self, found: Sequence[int | None]) -> None:
        self.found = _in_order(found, self._planned.again)
        self._shown = [n for n, place in enumerate(self.found) if place is not None]

    def begins(self, operation: int) -> int:
        """Return the position before which everything that an operation needs has to be there."""
        place = bisect_right(self._shown, operation - 1)
        if place == len(self._shown):
            return self._line.backward_end
        position = self.found[self._shown[place]]
        assert position is not None
        return position

    def nodes(self, operation: int) -> Sequence[fx.Node]:
        """Return the nodes of a forward operation; none if it is not in these graphs.

        With them come those of operations around it that the graphs do not tell from it.
        """
        if self.found[operation] is None and not self._may_be_hidden(operation):
            return ()
        place = bisect_right(self._shown, operation) - 1
        begin = 0 if place < 0 else self.found[self._shown[place]]
        end: int | None = self._line.forward_end
        if place + 1 < len(self._shown):
            end = self.found[self._shown[place + 1]]
        assert begin is not None
        assert end is not None
        return self._line.nodes[begin : min(end, self._line.forward_end)]

    def _may_be_hidden(self, operation: int) -> bool:
        """Whether nodes of the graphs may belong to an operation whose beginning they do not show.

        What follows a module that computes nothing does not show when it begins. Nor does what
        follows one of the graph before this one, at the beginning of this one.
        """
        first = self._shown[0] if self._shown else len(self.found)
        if operation < first:
            return operation + 1 == first and not self._is_call(operation)
        return self._planned.by_operators or not (
            self._is_call(operation) or self._planned.events[operation].path in self._computing
        )

    def _is_call(self, operation: int) -> bool:
        """Whether an operation is the beginning of a call, whose nodes would show it."""
        event = self._planned.events[operation]
        return event.kind == ENTER or event.path in self.elsewhere

    def why_no_nodes(self, operation: int) -> str | None:
        """Return why there are no nodes of a forward operation, if so."""
        if self.nodes(operation):
            return None
        path = self._planned.events[operation].path
        if path in self.elsewhere:
            return (
                f"{path} is called again in another graph, and which call is which cannot be told"
            )
        return NOWHERE


def _ends(path: str) -> Iterable[int]:
    """Yield the positions in a path where the names of modules around it end, and its own."""
    return (place for place in range(len(path) + 1) if path[place : place + 1] in (".", ""))


def _in_order(found: Sequence[int | None], again: Sequence[bool]) -> list[int | None]:
    """Return the positions of the longest row that increases; what runs again goes in between.

    A node out of its place must not displace all that come after it.
    """
    once = [None if twice else place for place, twice in zip(found, again, strict=True)]
    kept: list[int | None] = [None] * len(found)
    for number in _longest(once):
        kept[number] = once[number]
    low = 0
    for number, place in enumerate(found):
        if kept[number] is not None:
            low = max(low, kept[number] or 0)
        elif again[number] and place is not None:
            high = next((p for p in kept[number + 1 :] if p is not None), place)
            if low <= place <= high:
                kept[number] = low = place
    return kept


def _longest(row: Sequence[int | None]) -> list[int]:
    """Return where the members of a longest non-decreasing subsequence stand; None is left out."""
    ends: list[int] = []
    where: list[int] = []
    before: dict[int, int] = {}
    for number, value in enumerate(row):
        if value is None:
            continue
        length = bisect_right(ends, value)
        if length:
            before[number] = where[length - 1]
        ends[length : length + 1] = [value]
        where[length : length + 1] = [number]
    found = []
    number = where[-1] if where else -1
    while number >= 0:
        found.append(number)
        number = before.get(number, -1)
    return found[::-1]


class _Stretch:
    """First and last positions of the calls of modules among some nodes."""

    def __init__(self, positions: Iterable[int], pair: GraphPair, calls: NodeCalls) -> None:
        self.first: dict[CallKey, int] = {}
        self.last: dict[CallKey, int] = {}
        for position in positions:
            for call in (CallKey("", 0), *calls.stack(pair.nodes[position])):
                self.first.setdefault(call, position)
                self.last[call] = position


def _elsewhere(planned: Planned, pair: GraphPair, calls: NodeCalls) -> set[str]:
    """Return the modules that the plan calls more often than a graph that calls them."""
    wanted = {CallKey(event.path, event.call) for event in planned.events if event.path}
    there = {call for node in pair.nodes[: pair.border] for call in calls.stack(node)}
    seen = {call.path for call in there}
    return {call.path for call in wanted - there if call.path in seen}


def _by_modules(
    planned: Planned, pair: GraphPair, calls: NodeCalls, elsewhere: Set[str]
) -> list[int | None]:
    """Return positions from the first and last nodes of each call of a module."""
    work = [p for p, node in enumerate(pair.nodes) if node.op == "call_function"]
    behind = [p for p in work if p >= pair.border]
    forward = _Stretch((p for p in work if p < pair.border), pair, calls)
    backward = _Stretch((p for p in behind if is_backward(pair.nodes[p])), pair, calls)
    rerun = _Stretch((p for p in behind if not is_backward(pair.nodes[p])), pair, calls)

    def position(event: Event, again: bool) -> int | None:
        call = CallKey(event.path, event.call)
        if event.path in elsewhere:
            return None
        if event.kind in (ENTER, LEAVE):
            stretch = rerun if again else forward
            if event.kind == ENTER:
                return stretch.first.get(call)
            return None if call not in stretch.last else stretch.last[call] + 1
        if event.kind == OUTPUT:
            return backward.first.get(call)
        if event.kind == INPUT and call in backward.last:
            return backward.last[call] + 1
        return pair.backward_end if event.kind == END else None

    return [
        position(event, again) for event, again in zip(planned.events, planned.again, strict=True)
    ]


def _by_gradients(
    anchors: Anchors, planned: Planned, pair: GraphPair, calls: NodeCalls
) -> list[int | None]:
    """Return positions of those operations of which is known whose gradients they compute.

    The nodes of an operator and of its gradient have one number, from autograd. An operation begins
    where the first of these stands that no operation before it has computed. (Events do not tell:
    the gradient of what a module was given is complete when that of others is, too, who were given
    the same.)
    """
    operation_of: dict[Hashable, int] = {}
    for operation in sorted({each for row in planned.of for each in row}):
        for node in anchors.nodes(operation):
            operation_of.setdefault(_number(node, calls), operation)
    first: dict[int, int] = {}
    for position in range(pair.backward_begin, pair.backward_end):
        node = pair.nodes[position]
        if is_backward(node):
            owner = operation_of.get(_number(node, calls))
            if owner is not None:
                first.setdefault(owner, position)
    done: set[int] = set()
    found: list[int | None] = []
    for row in planned.of:
        found.append(
            min((first[each] for each in row if each in first and each not in done), default=None)
        )
        done.update(row)
    return found


def _number(node: fx.Node, calls: NodeCalls) -> Hashable:
    """Return a key that an operator shares with its gradient only."""
    return node.meta.get("seq_nr"), calls.stack(node)


def _by_operators(planned: Planned, pair: GraphPair, calls: NodeCalls) -> list[int | None]:
    """Return positions from the names of operators in a row, and of the modules they run in."""
    work = [p for p, node in enumerate(pair.nodes) if launches(node)]
    found: list[int | None] = [None] * len(planned.names)
    for side in "FB":
        rows = [n for n, name in enumerate(planned.names) if name.startswith(f"{side}:")]
        places = [p for p in work if (p >= pair.border) == (side == "B")]
        # In a backward pass, the clock names modules by the gradients that came by last.
        wanted = [_operator(planned.names[n], side == "F") for n in rows]
        there = [_target(pair.nodes[p], calls if side == "F" else None) for p in places]
        matcher = SequenceMatcher(None, wanted, there, autojunk=False)
        for block in matcher.get_matching_blocks():
            for step in range(block.size):
                found[rows[block.a + step]] = places[block.b + step]
    return found


def _operator(name: str, with_module: bool) -> tuple[str, str]:
    _, module, name = name.split(":", 2)
    name = name.partition(" ")[0].removesuffix("_")
    return (module if with_module and module != "model" else "", _SAME.get(name, name))


def _target(node: fx.Node, calls: NodeCalls | None) -> tuple[str, str]:
    packet = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", "")
    name = str(packet).removesuffix("_")
    stack = calls.stack(node) if calls is not None else ()
    return (stack[-1].path if stack else "", _SAME.get(name, name))
