"""The same problem with offloading, with recomputation, and with both, at the same bytes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

from offcert.campaign.cells import CellSettings, grid
from offcert.campaign.run import execute
from offcert.campaign.selection import Means, parse_means, variant
from offcert.campaign.standing import describe_rows
from offcert.campaign.storage import LATER, SUFFIXES, read_rows, write_rows
from offcert.campaign.table import CampaignTable, frame
from offcert.core.errors import InputError
from offcert.instances.checkpoint_instances import RecomputeNetworks
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert_lab.comparisons.curves import Quantity, curves_of
from offcert_lab.comparisons.points import by_problem, points_of
from support.problems.joint_certificates import chain_problem, network_problem

ALL = list(Means)
CHAIN = chain_problem()


def test_means_are_read_each_once() -> None:
    assert parse_means("offload, both,offload") == [Means.OFFLOAD, Means.BOTH]
    with pytest.raises(InputError, match=r'allow must be of .*, not "boht"; did you mean both\?'):
        parse_means("offload,boht")


def test_variants_open_exactly_what_they_say() -> None:
    found = {means: variant(CHAIN, means) for means in ALL}
    opened = {means: (str(p.recompute), p.offload) for means, p in found.items()}
    assert opened == {
        Means.OFFLOAD: ("none", True),
        Means.RECOMPUTE: ("any", False),
        Means.BOTH: ("any", True),
    }
    assert variant(CHAIN, Means.BOTH, Recompute.CHAIN).recompute is Recompute.CHAIN


def test_all_means_are_compared_at_the_same_bytes() -> None:
    cells = grid([CHAIN], ["certify"], ["0%", "50%", 41], allow=ALL)
    assert len(cells) == 9
    limits: dict[str, list[int]] = {}
    for cell in cells:
        row = cell.row({"status": "UNKNOWN", "seconds": 0.0})
        name = f"{row.get('recompute')} {row.get('offload')}"
        limits.setdefault(name, []).append(row["memory"])
    least, peak = CHAIN.least_memory, CHAIN.peak_memory
    same = [least, (least + peak) // 2, peak]
    assert limits == {"None None": same, "any no": same, "any yes": same}
    assert len({cell.key for cell in cells}) == 9
    # What cannot leave can still be computed again.
    problems = map(network_problem, range(20))
    network = next(each for each in problems if each.trace.least_memory > each.least_memory)
    first = grid([network], ["certify"], ["0%"], allow=[Means.OFFLOAD, Means.BOTH])
    assert {cell.point.problem.platform.memory for cell in first} == {network.least_memory}
    alone = grid([network], ["certify"], ["0%"], allow=[Means.OFFLOAD])
    assert alone[0].point.problem.platform.memory == network.trace.least_memory


@pytest.mark.parametrize(
    ("problem", "allow", "recompute", "message"),
    [
        (replace(CHAIN, minimise=Minimise.MEMORY), None, None, '"four" minimises memory'),
        (
            replace(cnn_chain(4, 0), network=cnn_chain(4, 0).trace),
            [Means.BOTH],
            None,
            "is a trace, which does not say what can run again",
        ),
        (
            RecomputeNetworks(blocks=2).problem(0),
            [Means.BOTH],
            Recompute.CHAIN,
            "is a network: --recompute chain is for chains",
        ),
    ],
)
def test_what_cannot_be_compared_is_named(
    problem: Problem, allow: list[Means] | None, recompute: Recompute | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        grid([problem], ["certify"], allow=allow, recompute=recompute)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    settings = CellSettings(time_limit=2.0)
    cells = grid([CHAIN], ["certify", "greedy"], ["40%", 41], settings, ALL)
    return [cell.row(execute(cell)[0]) for cell in cells]


def test_rows_say_what_was_allowed_and_methods_that_are_not_for_it_say_so(
    rows: list[dict[str, object]],
) -> None:
    with CampaignTable() as table:
        for row in rows:
            table.put(row)
        stored = list(table.rows.values())
    greedy = {
        (row["recompute"], row["offload"]): row for row in stored if row["method"] == "greedy"
    }
    assert greedy[None, None]["status"] in ("OPTIMAL", "FEASIBLE")
    assert greedy["any", "no"]["status"] == "NO_PLAN"
    assert "is for recompute none, not any" in str(greedy["any", "no"]["reason"])
    # A plan that moves is one where anything may run again, too; that proves nothing of it.
    assert greedy["any", "yes"]["makespan"] == greedy[None, None]["makespan"]
    text = describe_rows(stored)
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:3] == ["problem", "allowed", "memory"]
    assert {line[1] for line in lines[1:]} == {"offload", "recompute", "both"}
    assert {line[2] for line in lines[1:]} == {"30", "41"}


def test_curves_keep_the_means_apart(rows: list[dict[str, object]]) -> None:
    with CampaignTable() as table:
        for row in rows:
            table.put(row)
        points = points_of(frame(list(table.rows.values())))
    groups = by_problem(points)
    assert set(groups) == {"four", "four (recompute)", "four (both)"}
    # Where something runs again, Proposition 3 says nothing; at 30 of 41 bytes it says 11 there
    # and back, two bytes a tick.
    low = {name: group[0].prop3 for name, group in groups.items()}
    assert low["four (both)"] == low["four (recompute)"] == 20
    found = curves_of(groups["four (both)"], Quantity.SLOWDOWN)
    assert found.problem == "four (both)"
    assert found.best[-1] == 1.0
    assert all(level >= 1 for level in found.best)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tables_from_before_these_columns_are_read(
    suffix: str, tmp_path: Path, rows: list[dict[str, object]]
) -> None:
    with CampaignTable() as table:
        for row in rows:
            table.put(row)
        stored = [row for row in table.rows.values() if row["recompute"] is None]
    path = tmp_path / f"table{suffix}"
    write_rows(path, stored)
    _OLDER[suffix](path)
    assert not any(f'"{name}"' in path.read_bytes().decode("latin-1") for name in LATER)
    assert read_rows(path) == stored


def _without_columns(path: Path) -> None:
    frame = pandas.read_parquet(path, dtype_backend="numpy_nullable")
    frame.drop(columns=list(LATER)).to_parquet(path)


def _without_cells(path: Path) -> None:
    frame = pandas.read_csv(path, dtype=str, keep_default_na=False)
    frame.drop(columns=list(LATER)).to_csv(path, index=False)


def _without_fields(path: Path) -> None:
    text = path.read_text()
    for name in LATER:
        text = text.replace(f'"{name}":null,', "")
    path.write_text(text)


_OLDER: dict[str, Callable[[Path], None]] = {
    ".parquet": _without_columns,
    ".csv": _without_cells,
    ".json": _without_fields,
    ".jsonl": _without_fields,
}
