"""CP-SAT in a thread: whatever it does, nobody has to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from ortools.sat.python import cp_model

from offcert.formulations.common import cpsat
from offcert.formulations.common.children import threads_left_behind
from offcert.formulations.common.cpsat import OverrunError, run_cpsat
from offcert.formulations.common.linear_solvers import CPSAT
from offcert.formulations.models import interval_cpsat, time_indexed
from support.problems.random_instances import cnn_chain, problem_on, seeded


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A solver that takes no notice of anything until this event; and nobody is patient."""
    monkeypatch.setattr(cpsat, "OVERRUN", 0.2)
    monkeypatch.setattr(cpsat, "STOPPING", 0.2)
    event = threading.Event()

    def stuck(self: Any, model: Any, callback: Any = None) -> Any:
        event.wait()
        if callback is not None:
            callback.on_solution_callback()
        return cp_model.UNKNOWN

    monkeypatch.setattr(cp_model.CpSolver, "solve", stuck)
    yield event
    event.set()


def small() -> tuple[cp_model.CpModel, Any]:
    model = cp_model.CpModel()
    x = model.new_int_var(0, 9, "x")
    model.add(2 * x >= 7)
    model.minimize(x)
    return model, x


def test_solutions_and_bounds_come_as_they_are_found() -> None:
    model, x = small()
    values: list[int] = []
    bounds: list[float] = []
    end = run_cpsat(
        cp_model.CpSolver(),
        model,
        30.0,
        on_solution=lambda value: values.append(value(x)),
        on_bound=bounds.append,
    )
    assert (end.status, end.interrupted) == (cp_model.OPTIMAL, False)
    assert values[-1] == 4
    assert max(bounds) == 4


@pytest.mark.slow
def test_a_solver_that_takes_no_notice_of_its_limit_is_left(freed: threading.Event) -> None:
    model, _ = small()
    heard: list[object] = []
    with pytest.raises(OverrunError, match=r"did not end within its time limit of 0\.1 s"):
        run_cpsat(cp_model.CpSolver(), model, 0.1, on_solution=heard.append)
    assert threads_left_behind()
    thread = next(thread for thread in threading.enumerate() if thread.name == "CP-SAT")
    freed.set()
    thread.join()
    assert not threads_left_behind()
    # Nobody listens to it any more.
    assert heard == []


def interrupt() -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("stop", "error"), [(interrupt, KeyboardInterrupt), (lambda: True, OverrunError)]
)
def test_one_that_cannot_be_stopped_is_left_too(
    stop: Callable[[], bool], error: type[BaseException], freed: threading.Event
) -> None:
    model, _ = small()
    with pytest.raises(error):
        run_cpsat(cp_model.CpSolver(), model, 60.0, stop=stop)


@pytest.mark.slow
@pytest.mark.usefixtures("freed")
@pytest.mark.parametrize(
    "solve", [interval_cpsat.solve, partial(time_indexed.solve, solver=CPSAT, grid=100)]
)
def test_the_models_then_return_what_is_known(solve: Callable[..., Any]) -> None:
    problem = problem_on(seeded(3), cnn_chain(seeded(4), 4), "stuck")
    problem = problem.with_memory(problem.trace.least_memory)
    # Long enough for the model to be built on a machine that does much else.
    outcome = solve(problem, time_limit=1.0)
    assert outcome.lower_bound >= problem.trace.compute_time
    assert outcome.details["error"].startswith("OverrunError: CP-SAT did not end")
