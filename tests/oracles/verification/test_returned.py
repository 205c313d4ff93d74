"""Forced returns: what is cut out of every schedule, and what is left."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.ladder import certify
from offcert.core.errors import MethodError
from offcert.core.platform import Link, Platform
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.large_tensors import (
    METHOD,
    forced_returns,
    large_tensors_bound,
    without_forced_returns,
)
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.document import verify
from offcert.verification.findings import recheck
from offcert.verification.fractional import with_returned_apart
from support.oracles.schedules import brute_force
from support.seeds import by_seeds


def residual(rng: random.Random) -> Problem:
    """Return a step of eight operations with tensors that are read twice on the way back."""
    sizes = [rng.randint(1, 6) for _ in range(3)]
    spikes = [rng.randint(0, 6) for _ in range(8)]
    operations = [Operation(f"o{i}", rng.randint(0, 4), spikes[i]) for i in range(8)]
    tensors = [
        Tensor("x", sizes[0], (0, rng.choice([3, 4]), 6)),
        Tensor("y", sizes[1], (1, 5, 7)),
        Tensor("z", sizes[2], (rng.choice([1, 2]), 4)),
    ]
    trace = Trace(operations, tensors)
    memory = trace.least_memory + rng.randint(0, 2)
    return Problem("residual", trace, Platform(memory, Fraction(rng.choice([1, 2]), 1)))


@pytest.mark.slow
@by_seeds(0, 300, 30)
def test_finder_and_verification_leave_the_same_and_no_schedule_is_shorter(seeds: range) -> None:
    forced = 0
    for seed in seeds:
        problem = residual(random.Random(seed))
        rest, ticks = with_returned_apart(problem)
        try:
            found, found_ticks = without_forced_returns(problem)
        except MethodError:
            assert ticks == 0
            assert rest.trace == problem.trace
            continue
        forced += 1
        assert found_ticks == ticks > 0
        assert [(t.size, t.uses, t.evictable) for t in found.trace.tensors] == [
            (t.size, t.uses, t.evictable) for t in rest.trace.tensors
        ]
        optimum, least = brute_force(problem), brute_force(rest)
        assert optimum is not None
        assert least is not None
        assert least + ticks <= optimum, seed
        bound = large_tensors_bound(found, 1)
        bound = replace(bound, method=f"{METHOD}-returns", value=bound.value + ticks)
        assert bound.value <= optimum
        assert recheck(bound, problem) is None
        assert recheck(replace(bound, value=optimum + 1), problem) is not None
        assert "but the computation gives" in str(recheck(replace(bound, value=ticks - 1), problem))
    assert forced >= 4


def strait(link: Link = Link.SIMPLEX) -> Problem:
    tensors = [
        Tensor("x", 6, (0, 5, 7)),
        Tensor("y", 4, (1, 8)),
        Tensor("z", 9, (3, 4), evictable=False),
        Tensor("spike", 5, (6,), evictable=False),
    ]
    trace = Trace([Operation(f"o{i}", 2) for i in range(9)], tensors)
    return Problem("strait", trace, Platform(10, Fraction(1), link))


def test_a_tensor_is_split_where_nothing_else_is_enough() -> None:
    problem = strait()
    assert forced_returns(problem) == [1]
    rest, ticks = without_forced_returns(problem)
    assert ticks == 6
    assert [tensor.uses for tensor in rest.trace.tensors] == [
        (0, 5),
        (1, 8),
        (3, 4),
        (6,),
        (7,),
    ]
    with pytest.raises(MethodError):
        without_forced_returns(problem.with_memory(11))
    with pytest.raises(MethodError):
        without_forced_returns(strait(Link.DUPLEX))


def test_such_bounds_hold_for_atomic_transfers_on_a_simplex_link_only() -> None:
    bound = Bound(f"{METHOD}-returns", 7, Evidence.PROVED, {"smallest": 1})
    assert "duplex" in str(recheck(bound, strait(Link.DUPLEX)))
    relaxed = replace(strait(), transfers=Transfers.INTERRUPTIBLE)
    assert "interruptible" in str(recheck(bound, relaxed))


def test_certificates_of_long_traces_name_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offcert.certification.rung.MOST_OPERATIONS", 5)
    certificate = certify(strait(), time_limit=2)
    methods = {bound.method: bound.value for bound in certificate.result.bounds}
    assert methods[f"{METHOD}-returns"] > methods.get(METHOD, 0)
    assert verify(certificate.to_json()).valid
