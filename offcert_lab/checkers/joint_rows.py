"""Joint bounds as programs: the facts of `docs/theory/joint.md` as rows, and what weights prove.

Variables are named as there: ``present_B_V`` (of value V, at boundary B), ``there_S_V``,
``back_S_V`` and ``again_S_C`` (in span S; C is a computation), ``left_B_V``, and ``length_W``, the
ticks of window W. Rows have the names of facts and of their places in proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import pairwise, product

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.formulations.joint.room import Grid, contents, rooms
from offcert.proofs.joint_document import PLACES, JointWeights, Place, read
from offcert.proofs.kinds.multipliers import JointProof
from offcert.questions.schedule.problem import Problem, Transfers
from offcert_lab.checkers.row_building import RowBuilding, Share
from offcert_lab.checkers.vipr import LEAST, Argument, CaseLeaf, Elimination, Node

Terms = list[tuple[int | Fraction, Share]]
Sum = tuple[Terms, int]


class JointFacts:
    """The facts about executions of a problem, cut somewhere, as rows of a program.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    proof : JointProof
        Where executions are cut, and whether values are whole.

    Raises
    ------
    InputError
        If there are no such moments or spans.
    """

    def __init__(self, problem: Problem, proof: JointProof) -> None:
        network = problem.computed
        if network is None:
            raise InputError("nothing is known of what is computed from what")
        if proof.whole and problem.offload and problem.transfers is not Transfers.ATOMIC:
            raise InputError(f"details.whole must be false with {problem.transfers} transfers")
        _require_grid(proof, 2 * len(network) - 1)
        self.problem, self.network = problem, network
        joined = tuple((begin, end) for begin, end in proof.spans)
        self.grid = Grid(network, proof.moments, joined)
        self.known = contents(network, problem.offload)
        self.rooms = rooms(self.known, self.grid, problem.platform.memory, proof.whole)
        values = network.values
        self.movable = [problem.offload and values[base].evictable for base in self.known.stored]
        self.needed = [
            frozenset(v for c in self.grid.runs(span) for v in self.known.reads[c])
            for span in range(len(self.grid.spans))
        ]
        self.building = RowBuilding()
        self.rows: dict[tuple[str, Place], int] = {}
        self.compute: list[int] = []
        self.grown: dict[tuple[int, int], int] = {}
        self._add_time()

    def made(self, value: int, span: int) -> bool:
        """Return whether a value was made before a span begins."""
        return 2 * self.known.maker[value] < self.grid.at[self.grid.spans[span][0]]

    def runs_again(self, computation: int, span: int) -> bool:
        """Return whether a computation whose first run is over may run in a span."""
        alone = span < self.grid.windows and self.grid.single(span)
        over = 2 * computation < self.grid.at[self.grid.spans[span][0]]
        return (
            0 <= computation < len(self.network)
            and self.network.computations[computation].repeatable
            and over
            and not alone
        )

    def again(self, computation: int, span: int) -> Share:
        """Return the share of a computation that runs again in a span."""
        return ("again", span, computation) if self.runs_again(computation, span) else 0

    def back(self, value: int, span: int) -> Share:
        """Return the share of a value that comes back in a span."""
        return ("back", span, value) if self.movable[value] and self.made(value, span) else 0

    def left(self, value: int, boundary: int) -> Share:
        """Return the share of a value that has left by a boundary."""
        begun = 2 * self.known.maker[self.known.stored[value]] + 1 < self.grid.at[boundary]
        return ("left", boundary, value) if boundary and begun and self.movable[value] else 0

    def used(self, boundary: int, *, outputs: bool = False) -> frozenset[int]:
        """Return the values that the first run at a moment uses.

        With `outputs`, those that it may discard are left out.
        """
        running, known = self.grid.running(boundary), self.known
        made = frozenset(known.makes[running])
        if outputs and self.discards(boundary):
            made = frozenset(v for v in made if known.stored[v] != v)
        return made | frozenset(known.reads[running])

    def discards(self, boundary: int) -> bool:
        """Return whether a moment is the end of a run that takes less if it discards."""
        lean = self.network.computations[self.grid.running(boundary)].lean is not None
        return lean and self.grid.at[boundary] % 2 == 1

    def present(self, value: int, boundary: int) -> Share:
        """Return the share of a value that is present at a boundary."""
        if boundary == 0 or value in self.used(boundary, outputs=True):
            return 1
        if value in self.rooms[boundary - 1].too_large:
            return 0
        return "present", boundary, value

    def there(self, value: int, span: int) -> Share:
        """Return the share of a value that is on the device at some time in a span."""
        if not self.made(value, span) or value in self.needed[span]:
            return 1
        return "there", span, value

    # Rows that every proof has.

    def _add_time(self) -> None:
        add, grid, network = self.building.row, self.grid, self.network
        lengths = [("length", window) for window in range(grid.windows)]
        self.total = add("total", [(1, ("makespan",)), *((-1, length) for length in lengths)])
        for window, length in enumerate(lengths):
            terms: Terms = [(1, length)]
            terms += [
                (-each.duration, self.again(number, window))
                for number, each in enumerate(network.computations)
            ]
            single = grid.single(window)
            self.compute.append(
                add(f"compute_{window}", terms, grid.duration(window), equal=single)
            )
        for value, window in product(range(len(network.values)), range(1, grid.windows)):
            before, after = self.left(value, window), self.left(value, window + 1)
            if not isinstance(before, int):
                self.grown[window + 1, value] = add(
                    f"grown_{window + 1}_{value}", [(1, after), (-1, before)]
                )

    # Rows for facts.

    def fact(self, family: str, place: Place) -> int:
        """Return the number of the row of a fact.

        Raises
        ------
        InputError
            If there is no such fact.
        """
        if (family, place) not in self.rows:
            found = self._stated(family, place)
            if found is None:
                where = ", ".join(map(str, place))
                raise InputError(f"proof.{family}: there is no fact about {where}")
            name = "_".join(map(str, (family, *place)))
            self.rows[family, place] = self.building.row(name, *found)
        return self.rows[family, place]

    def every_place(self) -> Iterator[tuple[str, Place]]:
        """Yield all facts there are, by family and place."""
        sizes = {
            "span": range(len(self.grid.spans)),
            "value": range(len(self.network.values)),
            "computation": range(len(self.network)),
            "boundary": range(self.grid.windows),
            "window": range(self.grid.windows),
        }
        for family, parts in PLACES.items():
            for place in product(*(sizes[part] for part in parts)):
                if (family, place) in self.rows or self._stated(family, place) is not None:
                    yield family, place

    def _stated(self, family: str, place: Place) -> Sum | None:
        """Return terms and least of a fact, or None if there is no such fact."""
        if PLACES[family] == ("window",):
            return self._link(family, place[0])
        if PLACES[family] == ("boundary",):
            return self._memory(family, place[0])
        span, *about = place
        if span >= len(self.grid.spans):
            return None
        if family in ("inputs", "runs"):
            if not self.runs_again(about[0], span):
                return None
            return self._inputs(span, *about) if family == "inputs" else self._divided(span, about)
        if about[0] >= len(self.network.values):
            return None
        stated: dict[str, Callable[[int, int], Sum | None]] = {
            "available": self._available,
            "origin": self._origin,
            "kept": self._kept,
            "returned": self._returned,
            "returns": self._returns,
        }
        if family in ("left", "returned", "returns") and not self.movable[about[0]]:
            return None
        if family == "left":
            return self._left(span, about[0])
        return stated[family](span, about[0]) if self.made(about[0], span) else None

    def _available(self, span: int, value: int) -> Sum:
        begin = self.grid.spans[span][0]
        return [
            (1, self.present(value, begin)),
            (1, self.back(value, span)),
            (1, self.again(self.known.maker[value], span)),
            (-1, self.there(value, span)),
        ], 0

    def _origin(self, span: int, value: int) -> Sum:
        begin = self.grid.spans[span][0]
        return [
            (1, self.present(value, begin)),
            (1, self.left(value, begin)),
            (1, self.again(self.known.maker[value], span)),
            (-1, self.there(value, span)),
        ], 0

    def _inputs(self, span: int, computation: int, value: int) -> Sum | None:
        if value not in self.known.reads[computation]:
            return None
        return [(1, self.there(value, span)), (-1, self.again(computation, span))], 0

    def _kept(self, span: int, value: int) -> Sum | None:
        end = self.grid.spans[span][1]
        if end >= self.grid.windows:
            return None
        return [(1, self.there(value, span)), (-1, self.present(value, end))], 0

    def _left(self, span: int, value: int) -> Sum:
        begin, end = self.grid.spans[span]
        moment, known = self.grid.at[begin], self.known
        terms: Terms = [(-1, self.left(value, end)), (1, self.left(value, begin))]
        maker = known.maker[known.stored[value]]
        if 2 * maker >= moment:
            return terms, -1 if 2 * maker + 1 < self.grid.at[end] else 0
        states = [
            state
            for state in known.up_to(value)
            if 2 * known.maker[state] < moment
            and (state == value or 2 * known.latest[state] >= moment)
        ]
        terms += [(1, self.present(state, begin)) for state in states]
        return [*terms, (1, self.again(maker, span))], 0

    def _returned(self, span: int, value: int) -> Sum:
        end = self.grid.spans[span][1]
        return [(1, self.left(value, end)), (-1, self.back(value, span))], 0

    def _returns(self, span: int, value: int) -> Sum:
        windows = range(*self.grid.spans[span])
        parts = [(1, self.back(value, window)) for window in windows]
        return [*parts, (-1, self.back(value, span))], 0

    def _divided(self, span: int, about: list[int]) -> Sum:
        windows = range(*self.grid.spans[span])
        parts = [(1, self.again(about[0], window)) for window in windows]
        return [*parts, (-1, self.again(about[0], span))], 0

    def _link(self, family: str, window: int) -> Sum | None:
        platform, size = self.problem.platform, self.known.size
        if window >= self.grid.windows or platform.duplex is (family == "link"):
            return None
        out, back = (1 / platform.rate(kind) for kind in Kind)
        terms: Terms = [(1, ("length", window))]
        for value in range(len(size)):
            if family != "in":
                terms.append((-size[value] * out, self.left(value, window + 1)))
                terms.append((size[value] * out, self.left(value, window)))
            if family != "out":
                terms.append((-size[value] * back, self.back(value, window)))
        return terms, 0

    def _memory(self, family: str, boundary: int) -> Sum | None:
        if not 0 < boundary < self.grid.windows:
            return None
        room = self.rooms[boundary - 1]
        most = room.most if family == "memory" else room.kept
        if most is None:
            return None
        used = self.used(boundary, outputs=family == "outputs")
        moment = self.grid.at[boundary]
        terms: Terms = [
            (-size, self.present(value, boundary))
            for value, (size, maker) in enumerate(
                zip(self.known.size, self.known.maker, strict=True)
            )
            if 2 * maker < moment and value not in used
        ]
        return terms, -most

    # A proof's weights of the rows.

    def weights(self, listed: JointWeights) -> dict[int, Fraction]:
        """Return the weights of rows that a proof lists."""
        found: dict[int, Fraction] = {}
        for family, rows in listed.rows.items():
            for place, weight in rows.items():
                row = self.fact(family, place)
                # Of memory, multipliers are for as many bytes as the limit has.
                per = 1 if PLACES[family] != ("boundary",) else max(self.problem.platform.memory, 1)
                found[row] = Fraction(weight, listed.over * per * self.building.factor[row])
        return found

    def steps(self) -> Iterator[Elimination]:
        """Yield the eliminations of variables: lengths, then values that left, then the rest."""
        columns = self.building.columns
        yield Elimination(0, self.total, None)
        for window, row in enumerate(self.compute):
            yield Elimination(
                columns["length", window], row, row if self.grid.single(window) else None
            )
        left = sorted(share[1:] for share in columns if share[0] == "left")
        for boundary, value in reversed(left):
            grown = self.grown.get((int(boundary), int(value)))
            yield Elimination(columns["left", boundary, value], LEAST if grown is None else grown)
        for share, column in columns.items():
            if share[0] in ("present", "there", "back", "again"):
                yield Elimination(column)


def _require_grid(proof: JointProof, end: int) -> None:
    for index, (one, two) in enumerate(pairwise((-1, *proof.moments, end))):
        if two <= one:
            place = f"details.moments[{min(index, len(proof.moments) - 1)}]"
            raise InputError(f"{place} must be above the one before and below {end}")
    last = len(proof.moments) + 1
    for index, span in enumerate(proof.spans):
        if len(span) != 2 or not span[0] + 2 <= span[1] <= last:
            raise InputError(
                f"details.spans[{index}] must be two boundaries, at most {last}, with another one "
                f"between them, not {list(span)}"
            )


def joint_argument(
    problem: Problem, value: int, proof: JointProof, every: bool = False
) -> Argument:
    """Return the program and the proof of a joint bound.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    value : int
        The bound, in ticks.
    proof : JointProof
        The proof of the bound.
    every : bool
        Whether the program has every fact, not only those that the proof weighs.

    Raises
    ------
    InputError
        If the proof names what is not there.
    """
    facts = JointFacts(problem, proof)
    cases = read(proof.proof)
    weights = [facts.weights(listed) for listed in cases.multipliers]
    nodes: list[Node] = []
    for index, node in enumerate(cases.nodes):
        if isinstance(node, int):
            if node >= len(weights):
                raise InputError(f"proof.tree[{index}] must be below {len(weights)}, not {node}")
            nodes.append(CaseLeaf(weights[node]))
            continue
        span, computation, *others = node
        if others:
            raise InputError(f"proof.tree[{index}] counts runs again, which is not exported")
        if span >= len(facts.grid.spans) or not facts.runs_again(computation, span):
            raise InputError(
                f"proof.tree[{index}]: computation {computation} does not run again in span {span}"
            )
        nodes.append(facts.building.column("again", span, computation))
    for family, place in list(facts.every_place()) if every else ():
        facts.fact(family, place)
    program = facts.building.program(_comments(problem, facts), ("again",), ("length",))
    return Argument(program, value, tuple(nodes), tuple(facts.steps()))


def _comments(problem: Problem, facts: JointFacts) -> Iterable[str]:
    at = [*("end of" if m % 2 else "start of" for m in facts.grid.moments)]
    moments = ", ".join(
        f"{word} computation {moment // 2}"
        for word, moment in zip(at, facts.grid.moments, strict=True)
    )
    spans = " ".join(f"{begin}-{end}" for begin, end in facts.grid.spans)
    return (
        f"{problem.name}: facts about every execution, in ticks and bytes (docs/theory/joint.md)",
        f"boundaries: beginning, {moments}{', ' if moments else ''}end",
        f"spans, by their boundaries: {spans}",
    )
