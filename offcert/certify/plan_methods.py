"""The methods that make one plan: the offloading paper's comparison, for ``offcert solve``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcert.certify.effort import Effort
from offcert.certify.method import Method
from offcert.certify.option import NONE, Option, number, numbers, words
from offcert.certify.search import Search
from offcert.certify.warm import warm_dynprog
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.simulate import simulate

# For which networks.
CHAINS = "chains, and traces with a forward and a backward operation a stage"
SINGLE_GAPS = "traces whose tensors have at most one gap each"


def _plan_method(
    function: Callable[..., Plan],
    summary: str,
    network: str = SINGLE_GAPS,
    options: tuple[Option, ...] = (),
) -> Method:
    """Return the method that simulates the plan of a deterministic function."""

    def run(search: Search, effort: Effort) -> None:
        name = function.__name__.strip("_").removesuffix("_plan")
        search.begin(name.replace("_", "-"))
        search.offer(simulate(search.problem, function(search.problem, **effort.options)))

    return Method(run=run, summary=summary, network=network, options=options)


def sequential_plan(problem: Problem) -> Plan:
    """Return the plan that works whenever any does."""
    from offcert.heuristics.sequential import sequential

    return sequential(problem)


def _greedy(problem: Problem) -> Plan:
    from offcert.heuristics.greedy import greedy

    return greedy(problem)


def _descend_dynprog(search: Search, effort: Effort) -> None:
    from offcert.heuristics.dynprog import dynprog

    search.begin("dynprog")
    with search.untimed():
        warm_dynprog()
    options: dict[str, Any] = dict(effort.options)
    search.offer(simulate(search.problem, dynprog(search.problem, **options)))


def _vdnn(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.vdnn import vdnn

    return vdnn(problem, **options)


def _vdnn_all(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.vdnn import vdnn_policy

    return vdnn_policy(problem, "all", **options)


def _vdnn_conv(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.vdnn import vdnn_policy

    return vdnn_policy(problem, "conv", **options)


def _tflms(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.tflms import tflms

    return tflms(problem, **options)


def _descend_autoswap(search: Search, effort: Effort) -> None:
    from offcert.heuristics.autoswap import autoswap

    search.begin("autoswap")
    options: dict[str, Any] = dict(effort.options)
    search.offer(simulate(search.problem, autoswap(search.problem, seed=effort.seed, **options)))


_CONVOLUTIONS = Option(
    "convolutions",
    "stages that are convolutions, by number from 0: 0+3+5; none: those whose names say so",
    numbers(0),
    NONE,
)

PLAN_METHODS = {
    "sequential": _plan_method(
        sequential_plan, "evict just before an operation needs room", "any trace"
    ),
    "greedy": _plan_method(_greedy, "GREEDY of the offloading paper, §4.2"),
    "dynprog": Method(
        run=_descend_dynprog,
        summary="DYNPROG of the offloading paper, §5.3",
        network=CHAINS,
        options=(
            Option(
                "slots",
                "into how many slots memory is divided; none: nothing is rounded",
                number(1, or_none=True),
                "500",
            ),
            Option("max_states", "the most states that a stage may have", number(1), "2000000"),
        ),
    ),
    "vdnn": _plan_method(
        _vdnn,
        "VDNN as the offloading paper defines it, §6.1",
        CHAINS,
        (
            Option(
                "variants",
                "which activations above a threshold leave: all, half of them, or the better",
                words("all", "half"),
                "all+half",
            ),
        ),
    ),
    "vdnn-all": _plan_method(
        _vdnn_all, "the original vDNN, offloading every layer", CHAINS, (_CONVOLUTIONS,)
    ),
    "vdnn-conv": _plan_method(
        _vdnn_conv,
        "the original vDNN, offloading convolutions",
        f"{CHAINS} with named layers",
        (_CONVOLUTIONS,),
    ),
    "autoswap": Method(
        run=_descend_autoswap,
        summary="AUTOSWAP: priority scores, weights by optimisation",
        reads=("seed",),
        network=SINGLE_GAPS,
        options=(Option("trials", "weights that are tried", number(4), "100"),),
    ),
    "tflms": _plan_method(
        _tflms,
        "TFLMS, the best of its two parameters",
        options=(
            Option("n_tensors", "tensors that leave; none: the best number", number(0), NONE),
            Option(
                "lb",
                "operations ahead of its reader at which a tensor starts to come back; none: the "
                "best number",
                number(1),
                NONE,
            ),
        ),
    ),
}
