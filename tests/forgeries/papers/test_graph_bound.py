"""Bounds on graphs: proved, tight, and forgeries are refused unless they happen to be true."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.questions.selection.graph import CheckpointGraph
from papers.checkpoint_graphs.least import least_selection
from papers.checkpoint_graphs.networks import reforwarding_network
from papers.checkpoint_graphs.packing import packing_bound
from papers.checkpoint_graphs.random_graphs import shortcut_path
from papers.claims.selection_certificate import (
    Case,
    HeavySet,
    LimitProof,
    Packing,
    PackingBound,
    packing_bound_from_json,
)
from papers.claims.selection_check import graph_bound_fault
from support.oracles.graphs import optimum, random_graphs

PATH = shortcut_path(4)


def bound(value: int, *limits: tuple[int, Case | Packing]) -> PackingBound:
    return PackingBound(value, tuple(LimitProof(limit, cases) for limit, cases in limits))


def sets(*rows: tuple[int, ...], multiplier: Fraction | int = 1) -> Packing:
    return Packing(tuple(HeavySet(row, Fraction(multiplier)) for row in rows))


# Four in a row, one byte each: with components of one byte two are stored, so 3 in any case.
GOOD = bound(3, (2, sets((1, 2, 3))), (1, sets((1, 2), (3, 4))), (0, sets((1,), (2,), (3,), (4,))))


def test_a_bound_by_hand() -> None:
    assert optimum(PATH) == 3
    assert graph_bound_fault(PATH, GOOD) is None
    # Two sets for components of one byte: 2 + 1, and with 0 they still count: 2 + 0.
    assert graph_bound_fault(PATH, replace(GOOD, limits=GOOD.limits[:2])) == (
        "components of 0 bytes are not covered by any limit"
    )


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        (bound(4, *[(p.limit, p.cases) for p in GOOD.limits]), "components of 3 bytes are not cov"),
        (bound(3, (2, sets((1, 2)))), "a set of 2 bytes may be a component"),
        (bound(3, (2, sets((1, 2, 4)))), "a set with vertex 1 is not connected"),
        (bound(3, (2, sets((1, 2, 3), (2, 3, 4)))), "vertex 2 has 1 bytes and is charged 2"),
        (bound(3, (2, sets((1, 2, 3), multiplier=Fraction(3, 2)))), "vertex 1 has 1 bytes and is"),
        (bound(3, (2, sets((1, 2, 3), multiplier=-1))), "the multiplier -1 is not positive"),
        (bound(3, (2, sets((0, 1, 2, 3)))), "is no set of inner vertices"),
        (bound(3, (2, sets((3, 4, 5)))), "is no set of inner vertices"),
        (bound(3, (2, sets((1, 1, 2, 3)))), "is no set of inner vertices"),
        (bound(3, (2, sets(()))), "is no set of inner vertices"),
        (bound(3, (2, Case(0, sets(), sets()))), "vertex 0 cannot be decided"),
        (bound(3, (2, Case(1, Case(1, sets(), sets()), sets()))), "vertex 1 cannot be decided"),
        (bound(3, (2, Case(2, sets((1, 2, 3)), sets()))), "vertex 2 is stored already"),
        (bound(3, (2, Case(2, sets(), sets()))), "components of 2 bytes are not covered"),
        (bound(3), "components of 2 bytes are not covered by any limit"),
    ],
)
def test_forgeries_are_refused_with_the_place(forged: PackingBound, said: str) -> None:
    fault = graph_bound_fault(PATH, forged)
    assert fault is not None
    assert said in fault


def test_cases_by_hand() -> None:
    """A triangle of three bytes: at limit 1 two are stored, which no packing alone says."""
    triangle = CheckpointGraph([0, 1, 1, 1, 0], [(0, 1), (1, 2), (1, 3), (2, 3), (3, 4)])
    alone = sets((1, 2), (1, 3), (2, 3), multiplier=Fraction(1, 2))
    at_zero = sets((1,), (2,), (3,))
    # 3/2 bytes are two, as all sizes are whole.
    good = bound(3, (2, sets((1, 2, 3))), (1, alone), (0, at_zero))
    assert graph_bound_fault(triangle, good) is None
    divided = Case(1, stored=sets((2, 3)), left_out=sets((1, 2), (1, 3)))
    assert graph_bound_fault(triangle, replace(good, limits=(
        good.limits[0], LimitProof(1, divided), good.limits[2]))) is None  # fmt: skip
    # What is left out altogether and too heavy cannot be.
    impossible = Case(1, sets((2, 3)), Case(2, sets((1, 3)), sets((1, 2))))
    assert graph_bound_fault(triangle, replace(good, limits=(
        good.limits[0], LimitProof(1, impossible), good.limits[2]))) is None  # fmt: skip


@pytest.mark.slow
def test_bounds_are_optimal_on_small_graphs() -> None:
    divided = 0
    for graph in random_graphs(90, first=2000):
        best = least_selection(graph).selection
        found = packing_bound(graph, best)
        assert graph_bound_fault(graph, found) is None
        assert found.value == best.objective == optimum(graph)
        assert packing_bound_from_json(found.to_json()) == found
        divided += any(isinstance(each.cases, Case) for each in found.limits)
    assert divided > 0


@pytest.mark.slow
def test_a_bad_selection_does_not_make_a_bad_bound() -> None:
    for graph in random_graphs(3, first=3000):
        found = packing_bound(graph, arbitrary_graph_solver(graph).selection, max_relaxations=20)
        assert graph_bound_fault(graph, found) is None
        assert found.value <= optimum(graph)


@pytest.mark.slow
def test_the_optimum_of_a_network_is_proved() -> None:
    graph = reforwarding_network("resnet18", 256)
    best = least_selection(graph).selection
    found = packing_bound(graph, best)
    assert graph_bound_fault(graph, found) is None
    assert found.value == best.objective


@pytest.mark.slow
def test_what_is_still_accepted_after_a_forgery_is_true() -> None:
    """Every number of a proof is changed at random; the checker may only accept what holds."""
    rng = random.Random(11)
    accepted = refused = 0
    for graph in random_graphs(40, most=7, first=4000):
        best = optimum(graph)
        honest = packing_bound(graph, least_selection(graph).selection)
        for _ in range(25):
            forged = forge(rng, honest)
            if graph_bound_fault(graph, forged) is None:
                assert forged.value <= best, (graph, forged)
                accepted += 1
            else:
                refused += 1
    assert accepted > 50
    assert refused > 200


def forge(rng: random.Random, honest: PackingBound) -> PackingBound:
    if not honest.limits or rng.random() < 0.3:
        return replace(honest, value=honest.value + rng.choice((1, 2, 5, -1)))
    limits = list(honest.limits)
    place = rng.randrange(len(limits))
    kind = rng.randrange(3)
    if kind == 0:
        limits[place] = replace(limits[place], limit=limits[place].limit + rng.choice((1, -1, 4)))
    elif kind == 1:
        del limits[place]
    else:
        limits[place] = replace(limits[place], cases=forge_cases(rng, limits[place].cases))
    return PackingBound(honest.value + rng.choice((0, 0, 1)), tuple(limits))


def forge_cases(rng: random.Random, cases: Case | Packing) -> Case | Packing:
    if isinstance(cases, Case):
        if rng.random() < 0.3:
            return replace(cases, vertex=cases.vertex + rng.choice((1, -1)))
        side = rng.choice(("stored", "left_out"))
        return replace(cases, **{side: forge_cases(rng, getattr(cases, side))})
    if not cases.sets:
        return Packing((HeavySet((1, 2), Fraction(1)),))
    rows = list(cases.sets)
    place = rng.randrange(len(rows))
    row = rows[place]
    vertices = list(row.vertices)
    if rng.random() < 0.5:
        vertices[rng.randrange(len(vertices))] += rng.choice((1, -1))
        rows[place] = HeavySet(tuple(vertices), row.multiplier)
    else:
        rows[place] = HeavySet(row.vertices, row.multiplier * rng.choice((2, Fraction(3, 2), -1)))
    return Packing(tuple(rows))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("value"), 'the field "value" is missing'),
        (lambda d: d.update(format="x"), "format must be"),
        (lambda d: d["limits"][0].pop("limit"), r'the field "limits\[0\].limit" is missing'),
        (lambda d: d["limits"][0].update(cases=3), r"limits\[0\].cases must be an object"),
        (
            lambda d: d["limits"][0]["cases"]["sets"][0].update(multiplier="1/0"),
            r"limits\[0\].cases.sets\[0\].multiplier must not have a denominator of 0",
        ),
        (lambda d: d.update(more=1), 'the field "more" is not known'),
    ],
)
def test_bad_documents_are_refused(edit, message: str) -> None:
    document = GOOD.to_json()
    edit(document)
    with pytest.raises(InputError, match=message):
        packing_bound_from_json(document)
