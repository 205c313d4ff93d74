"""Options behind the names of methods: what is read, refused, and passed on."""

import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from offcert.certification.method import NONE, written
from offcert.certification.methods import METHODS, method_called, solve
from offcert.certification.search_steps.descents import _PATIENCE
from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.persistent import persistent
from offcert.heuristics.combined.search import combined_plan
from offcert.heuristics.evictions.autoswap import autoswap
from offcert.heuristics.evictions.dynprog import dynprog
from offcert.heuristics.evictions.rules import tflms
from offcert.heuristics.evictions.vdnn import vdnn, vdnn_policy
from offcert.heuristics.joint.search import joint_search
from offcert.heuristics.orders.order_search import _OF_ORDERS
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.simulate import simulate

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dynprog": dynprog,
    "vdnn": vdnn,
    "vdnn-all": vdnn_policy,
    "vdnn-conv": vdnn_policy,
    "autoswap": autoswap,
    "tflms": tflms,
    "persistent": persistent,
    "joint-search": joint_search,
}
# What is tried in turn, or is said where the method is called and not in its signature.
ELSEWHERE = {"local-search", "order-search", "combined", "vdnn-tasks"}
BASE = cnn_chain(8, 2)
PROBLEM = BASE.with_memory(BASE.trace.least_memory)


def test_every_method_with_options_is_tested() -> None:
    assert {name for name, method in METHODS.items() if method.options} == set(
        FUNCTIONS
    ) | ELSEWHERE


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_and_defaults_are_those_of_the_function(name: str) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    for option in METHODS[name].options:
        default = parameters[option.name].default
        assert option.default == written(default)


def test_the_patience_of_annealing_is_the_default() -> None:
    (option,) = METHODS["local-search"].options
    assert option.default == str(_PATIENCE)
    (option,) = METHODS["order-search"].options
    assert option.default == str(_OF_ORDERS.patience)
    assert "slots" in inspect.signature(combined_plan).parameters


@pytest.mark.parametrize(
    ("text", "written_as"),
    [
        ("dynprog", "dynprog"),
        ("dynprog:slots=500", "dynprog"),
        ("dynprog:slots=0500", "dynprog"),
        ("dynprog: max_states = 7 :slots=2000", "dynprog:slots=2000:max_states=7"),
        ("dynprog:slots=none", "dynprog:slots=none"),
        ("vdnn:variants=half+all", "vdnn"),
        ("vdnn:variants=half", "vdnn:variants=half"),
        ("vdnn-conv:convolutions=3+0+3", "vdnn-conv:convolutions=0+3"),
        ("tflms:n_tensors=none", "tflms"),
        ("tflms:lb=2:n_tensors=0", "tflms:n_tensors=0:lb=2"),
        ("time-indexed-milp:solver=scipy:grid=8", "time-indexed-milp:grid=8:solver=scipy"),
        ("combined:slots=200+20+50+100", "combined"),
    ],
)
def test_a_choice_is_written_in_one_way(text: str, written_as: str) -> None:
    choice = method_called(text)
    assert choice.text == written_as
    assert method_called(written_as) == choice


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gredy:slots=1", r'method must be one of .*, not "gredy:slots=1"'),
        ("dynprog:slot=9", 'method dynprog has no option "slot", but slots, max_states; did you'),
        ("dynprog:slots", r"option slots of method dynprog needs a value"),
        ("dynprog:slots=1:slots=1", "option slots of method dynprog is given twice"),
        ("dynprog:slots=-1", 'dynprog must be an integer of at least 1 or none, not "-1"'),
        ("dynprog:slots=1e3", 'integer of at least 1 or none, not "1e3"'),
        ("dynprog:slots=²", "integer of at least 1 or none"),
        (f"dynprog:slots={'9' * 19}", "integer of at least 1 or none"),
        ("dynprog:max_states=none", 'max_states of method dynprog must be an integer .*"none"'),
        ("autoswap:trials=3", "trials of method autoswap must be an integer of at least 4"),
        ("autoswap:seed=3", 'autoswap has no option "seed", but trials'),
        ("vdnn:variants=third", "must be of all, half, with . between several"),
        ("vdnn-conv:convolutions=1+", "must be integers of at least 0, with . between several"),
        ("vdnn-tasks:policy=some", "must be one of none, all, conv, best"),
        ("stage-milp:solver=", "option solver of method stage-milp must be a name"),
        ("greedy:slots=9", 'method greedy has no options, so not "slots"'),
        ("greedy:", 'method greedy has no options, so not ""'),
    ],
)
def test_what_is_no_option_is_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        solve(PROBLEM, text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("dynprog:slots=200", lambda p: dynprog(p, 200)),
        ("dynprog:slots=none", lambda p: dynprog(p, None)),
        ("vdnn:variants=half", lambda p: vdnn(p, ("half",))),
        ("vdnn-conv:convolutions=0+2", lambda p: vdnn_policy(p, "conv", (0, 2))),
        ("tflms:n_tensors=1", lambda p: tflms(p, n_tensors=1)),
        ("autoswap:trials=4", lambda p: autoswap(p, 4)),
    ],
)
def test_the_function_gets_what_is_chosen(text: str, plan: Callable[..., Any]) -> None:
    problem = BASE.with_memory(BASE.memory_at(Fraction(9, 10)))
    certificate = solve(problem, text)
    assert certificate.method == text
    assert certificate.result.objective == simulate(problem, plan(problem)).makespan


def test_options_change_what_is_found() -> None:
    problem = BASE.with_memory(BASE.memory_at(Fraction(9, 10)))

    def found(text: str) -> int | None:
        return solve(problem, text).result.objective

    assert found("dynprog:slots=200") == 12052
    assert found("dynprog") == 11908
    assert found("tflms") == 12052
    assert found("tflms:lb=3") is None
    assert found("vdnn-conv:convolutions=0+2") == 12052
    assert found("vdnn-conv:convolutions=1+2+3") == 11908


def test_a_setting_behind_the_name_is_the_setting() -> None:
    named = solve(PROBLEM, "time-indexed-milp:grid=100000:solver=scipy", time_limit=1.0)
    assert named.method == "time-indexed-milp"
    assert (named.settings.grid, named.settings.solver) == (100000, "scipy")
    with pytest.raises(InputError, match="grid is given twice"):
        solve(PROBLEM, "time-indexed-milp:grid=5", grid=5)


def test_every_default_is_read_or_means_that_nothing_is_said() -> None:
    for name, method in METHODS.items():
        for option in method.takes:
            if option.default not in (NONE, "the model's"):
                assert written(option.read(option.default)) == option.default, name
            assert method_called(f"{name}:{option.name}={option.default}").text == name
