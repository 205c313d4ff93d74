"""The methods of the moDNN paper's comparison, for ``offcert solve``."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.method import Method
from offcert.certify.option import Option, word
from offcert.certify.search import Search
from offcert.core.simulate import simulate


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


MODNN_METHODS = {
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
