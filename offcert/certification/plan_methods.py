"""The methods that make one plan: those that papers compare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from offcert.certification.method import NONE, Effort, Method, Option, number, numbers, word, words
from offcert.certification.search import Search
from offcert.certification.search_steps.descents import descend_sequential
from offcert.certification.warm import compiling
from offcert.heuristics.evictions.autoswap import autoswap
from offcert.heuristics.evictions.dynprog import dynprog
from offcert.heuristics.evictions.rules import greedy, least_cover_plan, tflms
from offcert.heuristics.evictions.vdnn import vdnn, vdnn_policy
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.simulate import simulate

# For which networks.
CHAINS = "chains, and traces with a forward and a backward operation a stage"
SINGLE_GAPS = "traces whose tensors have at most one gap each"


def _simulated(
    name: str, plan_of: Callable[..., Plan], search: Search, effort: Effort, **given: Any
) -> None:
    """Offer the schedule of a heuristic's plan."""
    search.begin(name)
    search.offer(simulate(search.problem, plan_of(search.problem, **effort.options, **given)))


def _plan_method(
    name: str, plan_of: Callable[..., Plan], summary: str, network: str = SINGLE_GAPS, **row: Any
) -> Method:
    """Return the method of a heuristic that makes one plan, without random choices."""
    run = partial(_simulated, name, plan_of)
    return Method(run=run, summary=summary, network=network, **row)


def _autoswap(search: Search, effort: Effort) -> None:
    _simulated("autoswap", autoswap, search, effort, seed=effort.seed)


def _modnn(search: Search, effort: Effort) -> None:
    from offcert.heuristics.modnn.scheduler import modnn

    _simulated("modnn", modnn, search, effort)


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
    from offcert.instances.cnn import cnn_chain

    chain = cnn_chain(8, 0)
    dynprog(chain.with_memory((chain.trace.least_memory + chain.trace.peak_memory) // 2))


PLAN_METHODS = {
    "sequential": SEQUENTIAL,
    "greedy": _plan_method("greedy", greedy, "GREEDY of the offloading paper, §4.2"),
    "least-cover": _plan_method(
        "least-cover",
        least_cover_plan,
        "evict as little as whole tensors allow where most has to be absent",
        "traces with an ordered schedule",
    ),
    "dynprog": _plan_method(
        "dynprog",
        dynprog,
        "DYNPROG of the offloading paper, §5.3",
        CHAINS,
        warm=(warm_dynprog,),
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
        "vdnn",
        vdnn,
        "VDNN as the offloading paper defines it, §6.1",
        CHAINS,
        options=(
            Option(
                "variants",
                "which activations above a threshold leave: all, half of them, or the better",
                words("all", "half"),
                "all+half",
            ),
        ),
    ),
    "vdnn-all": _plan_method(
        "vdnn-all",
        partial(vdnn_policy, policy="all"),
        "the original vDNN, offloading every layer",
        CHAINS,
        options=(_CONVOLUTIONS,),
    ),
    "vdnn-conv": _plan_method(
        "vdnn-conv",
        partial(vdnn_policy, policy="conv"),
        "the original vDNN, offloading convolutions",
        f"{CHAINS} with named layers",
        options=(_CONVOLUTIONS,),
    ),
    "autoswap": Method(
        run=_autoswap,
        summary="AUTOSWAP: priority scores, weights by optimisation",
        reads=("seed",),
        network=SINGLE_GAPS,
        options=(Option("trials", "weights that are tried", number(4), "100"),),
    ),
    "tflms": _plan_method(
        "tflms",
        tflms,
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
