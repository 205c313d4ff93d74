"""The methods that make one plan: those that papers compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcert.certification.method import Effort, Method
from offcert.certification.option import NONE, Option, number, numbers, word, words
from offcert.certification.search import Search
from offcert.certification.search_steps.descents import descend_sequential
from offcert.certification.warm import compiling
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate

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


def _greedy(problem: Problem) -> Plan:
    from offcert.heuristics.evictions.rules import greedy

    return greedy(problem)


def _least_cover(problem: Problem) -> Plan:
    from offcert.heuristics.evictions.rules import least_cover_plan

    return least_cover_plan(problem)


def _descend_dynprog(search: Search, effort: Effort) -> None:
    from offcert.heuristics.evictions.dynprog import dynprog

    search.begin("dynprog")
    options: dict[str, Any] = dict(effort.options)
    search.offer(simulate(search.problem, dynprog(search.problem, **options)))


def _vdnn(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.evictions.vdnn import vdnn

    return vdnn(problem, **options)


def _vdnn_all(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.evictions.vdnn import vdnn_policy

    return vdnn_policy(problem, "all", **options)


def _vdnn_conv(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.evictions.vdnn import vdnn_policy

    return vdnn_policy(problem, "conv", **options)


def _tflms(problem: Problem, **options: Any) -> Plan:
    from offcert.heuristics.evictions.rules import tflms

    return tflms(problem, **options)


def _descend_autoswap(search: Search, effort: Effort) -> None:
    from offcert.heuristics.evictions.autoswap import autoswap

    search.begin("autoswap")
    options: dict[str, Any] = dict(effort.options)
    search.offer(simulate(search.problem, autoswap(search.problem, seed=effort.seed, **options)))


def _modnn(search: Search, effort: Effort) -> None:
    from offcert.heuristics.modnn.scheduler import modnn

    search.begin("modnn")
    search.offer(simulate(search.problem, modnn(search.problem)))


def _vdnn_tasks(search: Search, effort: Effort) -> None:
    from offcert.heuristics.modnn.vdnn_tasks import best_vdnn, vdnn_tasks

    search.begin("vdnn-tasks")
    policy = effort.options.get("policy")
    problem = search.problem
    found = vdnn_tasks(problem, policy=str(policy)) if policy else best_vdnn(problem)
    search.offer(found.schedule)


_CONVOLUTIONS = Option(
    "convolutions",
    "stages that are convolutions, by number from 0: 0+3+5; none: those whose names say so",
    numbers(0),
    NONE,
)

SEQUENTIAL = Method(
    run=descend_sequential,
    summary="evict just before an operation needs room",
    network="any trace",
)


@compiling("plans")
def warm_dynprog() -> None:
    """Compile the dynamic program of the offloading paper."""
    from offcert.heuristics.evictions.dynprog import dynprog
    from offcert.instances.cnn import cnn_chain

    chain = cnn_chain(8, 0)
    dynprog(chain.with_memory((chain.trace.least_memory + chain.trace.peak_memory) // 2))


PLAN_METHODS = {
    "sequential": SEQUENTIAL,
    "greedy": _plan_method(_greedy, "GREEDY of the offloading paper, §4.2"),
    "least-cover": _plan_method(
        _least_cover,
        "evict as little as whole tensors allow where most has to be absent",
        "traces with an ordered schedule",
    ),
    "dynprog": Method(
        run=_descend_dynprog,
        summary="DYNPROG of the offloading paper, §5.3",
        warm=(warm_dynprog,),
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
    "modnn": Method(run=_modnn, summary="Algorithm 1 of the moDNN paper, §5.2"),
    "vdnn-tasks": Method(
        run=_vdnn_tasks,
        summary="the original vDNN, with its waiting, as the moDNN paper compares with it",
        network="task graphs: operations are called FP, BP1 and BP2 of a layer",
        options=(
            Option(
                "policy",
                "what leaves: none (nothing), all, conv (of convolutions), or the best of them",
                word("none", "all", "conv", "best"),
                "best",
            ),
        ),
    ),
}
