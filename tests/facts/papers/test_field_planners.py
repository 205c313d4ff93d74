"""Planners of today on small steps, and how what they lose is judged."""

from fractions import Fraction

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.questions.schedule.problem import Problem, Recompute
from papers.claims.evidence import EvidenceFile, EvidenceRow
from papers.claims.field import (
    FIELD,
    again_case,
    better_case,
    case_of,
    field_section,
    peak_case,
)
from papers.claims.judge import Outcome
from papers.field.carried import schedule_of, shortest
from papers.field.hand_chosen import core_attention, hand_chosen
from papers.field.planners import (
    AGAIN,
    LEAVES,
    PLANNERS,
    STAYS,
    Layer,
    Results,
    decisions,
    exactly,
    greedily,
    layers_for,
    outer,
)

BUDGETS = [part / 10 for part in range(11)]


def stack(depth: int) -> Problem:
    """Return layers of attention and its projection: 12 ticks, 6 and 4 bytes, and a sum of 2."""
    values, computations = [Value("in", 2, False), Value("embed", 2)], []
    computations.append(Computation("F:embed", 1, 0, (0,), (1,)))
    given, layers = 1, []
    for layer in range(depth):
        first = len(values)
        values += [Value(f"q{layer}", 6), Value(f"a{layer}", 4), Value(f"x{layer}", 2)]
        path = f"F:model.layers.{layer}.self_attn"
        names = f"{path}.q_proj", f"F:after model.layers.{layer}.self_attn.q_proj", f"{path}.o_proj"
        reads = given
        for name, duration, value in zip(names, (8, 3, 1), range(first, first + 3), strict=True):
            computations.append(Computation(name, duration, 0, (reads,), (value,)))
            reads = value
        layers.append((given, first, first + 1))
        given = first + 2
    values.append(Value("g", 1, False))
    computations.append(Computation("B:loss", 1, 0, (given,), (len(values) - 1,), False))
    for layer in reversed(range(depth)):
        gradient = len(values) - 1
        values.append(Value(f"g{layer}", 1, False))
        reads = (*layers[layer], gradient)
        of = tuple(1 + 3 * layer + place for place in range(3))
        written = (len(values) - 1,)
        computations.append(Computation(f"B:h.{layer}", 24, 0, reads, written, False, of=of))
    network = Network(computations, values)
    platform = Platform(10**6, Fraction(1), Link.DUPLEX)
    return Problem("stack", network, platform, recompute=Recompute.ANY)


STACK = stack(4)


def test_greedy_ranks_and_an_integer_program_fills() -> None:
    # By ticks for a byte the small one comes first, and then the others do not fit together.
    sizes, times = [4, 6, 6], [12, 15, 15]
    assert greedily(sizes, times, 12, 0) == [STAYS, STAYS, AGAIN]
    assert exactly(sizes, times, 12, 0) == [AGAIN, STAYS, STAYS]
    assert greedily(sizes, times, 4, 6) == [STAYS, LEAVES, AGAIN]
    assert sorted(exactly(sizes, times, 6, 6)) == [LEAVES, AGAIN, STAYS]
    assert exactly([], [], 1, 1) == []


def test_what_a_planner_may_decide() -> None:
    assert STACK.computed is not None
    results = Results.of(STACK.computed)
    # What goes into a layer, and what only the next layer reads, is not decided about.
    assert [layer.size for layer in layers_for(STACK, results)] == [10] * 4
    assert layers_for(STACK, results)[0] == Layer([1, 2], 10, 11, 12)


def test_the_outer_program_keeps_to_its_budget() -> None:
    assert STACK.computed is not None
    layers = layers_for(STACK, Results.of(STACK.computed))
    for budget in (1.0, 0.6, 0.3):
        parts = outer(STACK, layers, budget)
        assert parts is not None
        for number in range(4):
            there = sum(10 * part.stays for part in parts[:number]) + 10
            assert there <= 40 * budget + 1e-6
            assert sum(10 * p.leaves for p in parts[: number + 1]) <= 12 * (number + 1) + 1e-6
    # A layer does not fit into a fifth.
    assert outer(STACK, layers, 0.2) is None
    everything = outer(STACK, layers, 1.0)
    assert everything is not None
    assert all(part.stays + part.leaves > 1 - 1e-6 for part in everything)


@pytest.mark.parametrize("planner", PLANNERS)
def test_decisions_are_legal_and_fit_what_they_are_given(planner: str) -> None:
    peak = STACK.peak_memory
    found = list(decisions(STACK, planner, BUDGETS))
    assert found
    for memory in (peak, (peak + STACK.least_memory) // 2):
        limited = STACK.with_memory(memory)
        made = [each for each in (schedule_of(limited, d) for d in found) if each is not None]
        best = shortest(limited, found)
        assert best == min((each.makespan for each in made), default=None)
        assert best is None or best >= STACK.trace.compute_time
    assert shortest(STACK.with_memory(peak), found) == STACK.trace.compute_time


def test_core_attention_runs_again_by_hand() -> None:
    assert STACK.computed is not None
    assert [list(each) for each in core_attention(STACK.computed)] == [[2], [5], [8], [11]]
    decision = hand_chosen(STACK.computed, "core_attn")
    assert decision.execution.repeated == 4
    assert decision.execution.trace.compute_time == STACK.trace.compute_time + 4 * 3
    full = hand_chosen(STACK.computed, "full, uniform")
    # The last computation of a layer makes what is stored.
    assert full.execution.trace.compute_time == STACK.trace.compute_time + 4 * 11


def row(**figures: int | None) -> EvidenceRow:
    return EvidenceRow("planner-greedy", "case", figures)


def test_a_decision_is_judged_between_the_best_plan_and_the_bound() -> None:
    outcomes = [
        case_of(row(step=step, lower=1000, known=known)).outcome
        for step, known in ((1010, 1005), (1011, 1005), (1020, 1005), (1014, 1005), (None, 1005))
    ]
    holds, fails, undecided = Outcome.HOLDS, Outcome.FAILS, Outcome.OPEN
    assert outcomes == [holds, undecided, fails, undecided, fails]
    again = again_case(row(step=100, known=50))
    assert (again.outcome, again.text) == (fails, "at least 50.0 % of it in vain")
    assert again_case(row(step=0, known=0)).outcome is holds
    assert again_case(row(step=100, known=100)).outcome is undecided
    assert better_case(row(step=100, other=101)).outcome is holds
    assert better_case(row(step=100, other=100)).outcome is fails
    assert better_case(row(step=100, other=None)).outcome is holds
    assert better_case(row(step=None, other=None)).outcome is fails
    assert peak_case(row(peak=7, other=7)).outcome is holds
    assert peak_case(row(peak=8, other=7)).text == "+14.3 %"


def test_the_section_names_every_claim() -> None:
    text = field_section(EvidenceFile("field", "command", (), {}))
    for claim in FIELD:
        assert f"### {claim.key}\n" in text
        assert "**cannot be decided**" in text
