"""Simulating orders and rules on several devices."""

from __future__ import annotations

import pytest

from offcert.core.errors import InputError, PlanError
from offcert.heuristics.devices import RULES, best_by_rules, fifo, improve
from offcert.heuristics.orders.local_search import local_search
from offcert.questions.devices.problem import (
    DevicesProblem,
    devices_from_json,
    devices_to_json,
    read_devices_problem,
    write_devices_problem,
)
from offcert.questions.devices.schedule import DeviceMove, DevicesPlan, check_devices
from offcert.questions.devices.simulate import dispatch, simulate_devices
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.simulate import simulate
from support.problems.devices import random_devices, three_layers, tiny_devices


def plan_of(problem: DevicesProblem) -> Plan:
    """Return a plan for one device; whole problems need one that leaves enough."""
    return local_search(problem.step, time_limit=0.05, seed=0)


@pytest.mark.slow
def test_alone_a_device_is_simulated_as_ever() -> None:
    for seed in range(15):
        problem = random_devices(seed).with_devices(1)
        plan = plan_of(problem)
        expected = simulate(problem.step, plan)
        uses = [DeviceMove(0, move) for move in plan.moves]
        assert simulate_devices(problem, DevicesPlan(uses, [])).steps[0] == expected
        ruled = dispatch(problem, [plan], fifo(problem))
        assert check_devices(problem, ruled) == []


@pytest.mark.slow
def test_rules_make_valid_schedules_and_their_orders_no_longer_ones() -> None:
    moved = 0
    for seed in range(20):
        problem = random_devices(seed)
        plan = plan_of(problem)
        moved += len(plan.moves)
        for rule in RULES.values():
            schedule = dispatch(problem, [plan] * problem.devices, rule(problem))
            assert check_devices(problem, schedule) == []
            again = simulate_devices(problem, DevicesPlan.of(problem, schedule))
            assert check_devices(problem, again) == []
            assert again.makespan <= schedule.makespan
    assert moved > 50


def test_the_search_only_improves() -> None:
    better = 0
    for seed in (0, 41, 54):
        problem = tiny_devices(seed)
        found = best_by_rules(problem, [plan_of(problem)])
        assert found is not None
        improved = improve(problem, found[0], time_limit=5, steps=150)
        assert check_devices(problem, improved) == []
        assert improved.makespan <= found[0].makespan
        better += improved.makespan < found[0].makespan
    assert better


def test_plans_that_are_stuck_or_incomplete_are_refused() -> None:
    problem = three_layers()
    plan = DevicesPlan.of(problem, dispatch(problem, [Plan()] * 2, fifo(problem)))
    with pytest.raises(PlanError, match="comes later"):
        simulate_devices(problem, DevicesPlan(reversed(plan.transfers), plan.additions))
    with pytest.raises(PlanError, match="each of the 12 transfers"):
        simulate_devices(problem, DevicesPlan(plan.transfers[1:], plan.additions))
    with pytest.raises(PlanError, match="each of the 6 additions"):
        simulate_devices(problem, DevicesPlan(plan.transfers, plan.additions[1:]))


def test_documents(tmp_path) -> None:
    for seed in range(5):
        problem = random_devices(seed)
        document = devices_to_json(problem)
        assert devices_to_json(devices_from_json(document)) == document
    path = tmp_path / "problem.json"
    write_devices_problem(path, problem)
    assert devices_to_json(read_devices_problem(path)) == document
    for change in ({"version": 2}, {"devices": "two"}, {"colour": 1}):
        with pytest.raises(InputError):
            devices_from_json(document | change)
    with pytest.raises(InputError, match=r"accumulation\.place"):
        devices_from_json(document | {"accumulation": document["accumulation"] | {"place": "x"}})
