"""The most that the verifier of joint bounds can be made to prove, whatever the multipliers.

What it proves is concave in the multipliers: it adds up the cheapest value of every share, whose
price is linear in them. So the multipliers that prove most are found by a linear program, whose
coefficients are read off the verifier itself, fact by fact. That it never exceeds the optimum is a
test of the facts that no finder of ours has to know of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations, product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from offcert.proofs.joint_document import PLACES, JointCases, JointWeights, Place
from offcert.questions.schedule.problem import Problem
from offcert.verification.joint.model import JointModel, Weighing, _NoFactError
from offcert.verification.joint.room import Cuts, States, rooms
from offcert.verification.joint.verifier import least
from offcert.verification.limits import UNLIMITED

# Multipliers are rounded to this part of a tick; nothing is proved by more than `_MOST` of them.
_OVER, _MOST = 1000, 100
# A share, or how much of a state has left by a boundary; None is the constant.
_Price = tuple[str, int, int] | None


def most_proved(
    problem: Problem,
    moments: Sequence[int],
    pick: Callable[[int], int] | None = None,
    without: Collection[str] = (),
) -> int:
    """Return the largest bound that any multipliers prove with all spans between some moments.

    Parameters
    ----------
    problem : Problem
        A tiny one.
    moments : sequence of int
        Where it is cut.
    pick : callable, optional
        Of so many runs again, returns which is decided: multipliers are for two cases then, and
        what they prove is the least of both.
    without : collection of str
        Families of facts that have no multipliers.
    """
    network = problem.computed
    assert network is not None
    spans = [(i, j) for i, j in combinations(range(len(moments) + 2), 2) if j > i + 1]
    cuts = Cuts(moments, spans, len(network))
    states = States(network, problem.offload)
    room = rooms(states, cuts, problem.platform.memory, whole=True)
    model = JointModel(problem, states, cuts, room)
    base = _prices(_weighed(model, {}, 1))
    facts = {place: fact for place, fact in offered_facts(model) if place[0] not in without}
    spans_and_runs = product(range(len(cuts.spans)), range(len(network)))
    again = [(span, number) for span, number in spans_and_runs if model.again(number, span)]
    if pick is None or not again:
        cases = JointCases((_weights(_best(model, base, facts, {}), _OVER),), (0,))
    else:
        node = again[pick(len(again))]
        leaves = [_best(model, base, facts, {("again", *node): runs}) for runs in (0, 1)]
        cases = JointCases(tuple(_weights(leaf, _OVER) for leaf in leaves), (node, 0, 1))
    return least(model, cases, UNLIMITED.begin())


def _weights(rows: dict[tuple[str, Place], int], over: int) -> JointWeights:
    families: dict[str, dict[Place, int]] = {family: {} for family in PLACES}
    for (family, place), weight in rows.items():
        families[family][place] = weight
    return JointWeights(over, families)


def _weighed(model: JointModel, rows: dict[tuple[str, Place], int], over: int) -> Weighing:
    return model.weigh(_weights(rows, over))


def _prices(weighing: Weighing) -> dict[_Price, float]:
    """Return constant and prices in ticks."""
    common = weighing.model.common
    found: dict[_Price, float] = {None: weighing.constant / common}
    found |= {share: price / common for share, price in weighing.prices.items()}
    for value, row in weighing.leaving.items():
        found |= {("left", value, b): price / common for b, price in enumerate(row)}
    return found


def offered_facts(model: JointModel) -> Iterator[tuple[tuple[str, Place], dict[_Price, float]]]:
    """Yield what each fact that the verifier accepts adds to the prices."""
    cuts, network = model.cuts, model.states.network
    ranges = {
        "span": len(cuts.spans),
        "value": len(network.values),
        "computation": len(network),
        "boundary": cuts.windows + 1,
        "window": cuts.windows,
    }
    empty = JointWeights(1, {family: {} for family in PLACES})
    links = ("out", "in") if model.duplex else ("link",)
    base = _prices(_weighed(model, {}, 1))
    for family, parts in PLACES.items():
        if parts == ("window",) and family not in links:
            continue
        for place in np.ndindex(*(ranges[part] for part in parts)):
            if family in links:
                found = _prices(_weighed(model, {(family, place): 1}, 1))
                yield (
                    (family, place),
                    {key: price - base.get(key, 0) for key, price in found.items()},
                )
                continue
            weighing = Weighing(model, empty, "")
            try:
                getattr(weighing, f"_{family}")(place, 1)
            except (_NoFactError, IndexError):
                continue
            yield (family, place), _prices(weighing)


def _best(
    model: JointModel,
    base: dict[_Price, float],
    facts: dict[tuple[str, Place], dict[_Price, float]],
    decided: dict[_Price, int],
) -> dict[tuple[str, Place], int]:
    """Return the multipliers that prove most if some shares are decided, rounded."""
    names = list(facts)
    by_price: dict[_Price, dict[int, float]] = defaultdict(dict)
    for column, name in enumerate(names):
        for key, amount in facts[name].items():
            by_price[key][column] = amount
    known = set(by_price) | set(base)
    free = known - set(decided) - {None}
    shares = [key for key in free if key is not None and key[0] != "left"]
    states = sorted({key[1] for key in known if key is not None and key[0] == "left"})
    rows: list[tuple[dict[int, float], float]] = []
    # The cheapest value of each share: 0, or its price; and of each state the cheapest boundary.
    for column, share in enumerate(shares, start=len(names)):
        rows.append(_at_most(column, [share], by_price, base))
    for column, state in enumerate(states, start=len(names) + len(shares)):
        for first in _boundaries(model, state):
            later = [("left", state, b) for b in range(first, model.cuts.windows + 1)]
            rows.append(_at_most(column, later, by_price, base))
    for window in range(model.cuts.windows):
        link = {
            c: 1.0
            for c, (_, place) in enumerate(names)
            if PLACES[names[c][0]] == ("window",) and place == (window,)
        }
        if not model.cuts.single(window):
            rows.append((link, 1.0))
    count = len(names) + len(shares) + len(states)
    certain = {None: 1, **decided}
    gains = np.array(
        [
            sum(by_price[key].get(c, 0.0) * value for key, value in certain.items())
            for c in range(len(names))
        ]
    )
    objective = -np.concatenate([gains, np.ones(count - len(names))])
    entries = [(row, c, x) for row, (terms, _) in enumerate(rows) for c, x in terms.items()]
    places, columns, values = zip(*entries, strict=True)
    matrix = csr_array((values, (places, columns)), shape=(len(rows), count))
    limits = [(0.0, _MOST)] * len(names) + [(None, 0.0)] * (count - len(names))
    found = linprog(objective, A_ub=matrix, b_ub=[most for _, most in rows], bounds=limits)
    assert found.status == 0, found.message
    rounded = {name: round(found.x[c] * _OVER) for c, name in enumerate(names)}
    return {name: weight for name, weight in rounded.items() if weight > 0}


def _at_most(
    column: int,
    keys: Sequence[_Price],
    by_price: dict[_Price, dict[int, float]],
    base: dict[_Price, float],
) -> tuple[dict[int, float], float]:
    """Return the row that says that a column is at most the sum of some prices."""
    terms = defaultdict(float, {column: 1.0})
    for key in keys:
        for fact, amount in by_price[key].items():
            terms[fact] -= amount
    return terms, sum(base.get(key, 0.0) for key in keys)


def _boundaries(model: JointModel, state: int) -> list[int]:
    """Return the boundaries from which the verifier lets a state have left."""
    weighing = Weighing(model, JointWeights(1, {family: {} for family in PLACES}), "")
    found = []
    for boundary in range(model.cuts.windows + 1):
        row = [0] * (model.cuts.windows + 1)
        row[boundary] = -1
        if boundary:
            row[boundary - 1] = 1
        if weighing.cheapest_growth(state, row) < 0:
            found.append(boundary)
    return found
