"""The same cells on a Dask cluster give the same rows, crashes included."""

from dataclasses import replace
from typing import Any

import pytest
from distributed import Client

from offcert.campaign import run as module
from offcert.campaign.cells import CellSettings, grid
from offcert.campaign.pool import Failure, PoolTask
from offcert.campaign.run import run
from offcert.campaign.table import CampaignTable
from offcert.core.errors import OffcertError
from offcert.instances.cnn import cnn_chain
from offcert_lab.cluster import dask as cluster
from support.workers import campaign_workers
from support.workers.campaign_workers import DOOMED
from support.workers.pool_workers import square


@pytest.mark.slow
def test_a_cluster_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "execute", campaign_workers.work)
    problem = replace(cnn_chain(8, 0), name=DOOMED)
    least = problem.trace.least_memory
    cells = grid([problem], ["greedy", "dynprog", "segfault"], [least - 1, least, least + 1])
    cells += grid([problem], ["certify"], [least], CellSettings(time_limit=5.0))
    with CampaignTable() as table:
        here = run(cells, table, jobs=2)
    with (
        Client(
            processes=True,
            n_workers=1,
            threads_per_worker=1,
            dashboard_address=None,
        ) as client,
        CampaignTable() as table,
    ):
        before = set(client.scheduler_info()["workers"])
        there = run(cells, table, scheduler=client.scheduler.address)
        # Not one worker had to be started again.
        assert set(client.scheduler_info()["workers"]) == before
    for one, other in zip(here.rows, there.rows, strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}
    assert here.failed == there.failed == 1
    assert {row["status"] for row in there.rows} >= {"FAILED", "INFEASIBLE", "OPTIMAL", "NO_PLAN"}


def test_a_task_apart_answers_for_every_item() -> None:
    preload = ("offcert.campaign",)
    answers = cluster.work_apart(square, PoolTask((2, -1, 3), 60.0), 0, preload)
    assert answers[0] == 4
    assert answers[1].reason == "the process ended with exit code 3"
    assert answers[2] == 9
    [program] = cluster._idle[preload]
    assert cluster.work_apart(square, PoolTask((5,), 60.0), 0, preload) == [25]
    assert cluster._idle[preload] == [program]
    # One that died meanwhile is no longer asked.
    program._process.kill()
    program._process.wait()
    assert cluster.work_apart(square, PoolTask((6,), 60.0), 0, preload) == [36]
    [other] = cluster._idle[preload]
    assert other.end() == 0


def test_a_program_that_dies_fails_what_it_owes(monkeypatch: pytest.MonkeyPatch) -> None:
    # What cannot be loaded there ends the program itself, not one of its processes.
    monkeypatch.setattr(cluster.sys, "path", [])
    answers = cluster.work_apart(square, PoolTask((2, 3), 60.0), 0, ("nothing",))
    assert [answer.reason for answer in answers] == ["the process ended with exit code 1"] * 2


class _Refused:
    """A future whose task the cluster gave up on."""

    def __init__(self, status: str) -> None:
        self.status = status

    def exception(self) -> Exception:
        return RuntimeError("worker was lost")

    def result(self) -> Any:
        raise AssertionError


def test_what_the_cluster_gives_up_on_has_failed() -> None:
    answers = cluster._answers(_Refused("error"), PoolTask((1, 2), 60.0))
    reason = "the cluster gave up: RuntimeError: worker was lost"
    assert answers == [Failure(reason, 0.0)] * 2
    # Where nobody is left to say anything, nothing is known about the cells.
    for status in ("cancelled", "lost"):
        with pytest.raises(OffcertError, match="scheduler is lost"):
            cluster._answers(_Refused(status), PoolTask((1, 2), 60.0))
