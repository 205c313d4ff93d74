"""The interval model in MiniZinc, for constraint solvers, and the data of a problem for it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from offcert.core.platform import Kind
from offcert.formulations.exported.cells import Cells, require_exportable
from offcert.questions.schedule.problem import Problem

# As a file, ``interval.mzn`` opens in MiniZinc.
MODEL = Path(__file__).with_name("interval.mzn").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Instance:
    """The integers of a problem, as the interval model takes them."""

    numbers: Mapping[str, int | Sequence[int]]  # By the names of the model's parameters.

    @classmethod
    def of(cls, problem: Problem, cells: Cells) -> Instance:
        """Return the numbers of a problem of whole transfers, times in cells."""
        require_exportable(problem)
        trace, length = problem.trace, cells.length
        moved = sorted({gap.tensor for gap in trace.gaps})
        idle = [
            [number for number, gap in enumerate(trace.gaps) if gap.before < o <= gap.after]
            for o in range(len(trace))
        ]
        size = trace.gap_size
        out, back = (
            [length(problem.platform.transfer_time(trace.tensors[v].size, kind)) for v in moved]
            for kind in Kind
        )
        durations = [length(duration) for duration in trace.durations]
        # In whole cells that are rounded up, each item adds less than one to the horizon.
        horizon = length(cells.horizon)
        if cells.keeps == "schedule":
            horizon += len(trace) + 2 * len(trace.gaps)
        return cls(
            {
                "grid": cells.grid,
                "horizon": horizon,
                "capacity": problem.platform.memory,
                "duplex": problem.platform.duplex,
                "last_ticks": trace.durations[-1],
                "operations": len(trace),
                "tensors": len(moved),
                "gaps": len(trace.gaps),
                "duration": durations,
                "held": [
                    total - sum(map(size, gaps))
                    for total, gaps in zip(trace.demand, trace.gaps_over, strict=True)
                ],
                "held_idle": [
                    total - sum(map(size, gaps))
                    for total, gaps in zip(trace.live_before, idle, strict=True)
                ],
                "number": moved,
                "size": [trace.tensors[v].size for v in moved],
                "writer": [trace.tensors[v].uses[0] + 1 for v in moved],
                "out_duration": out,
                "back_duration": back,
                "tensor": [moved.index(gap.tensor) + 1 for gap in trace.gaps],
                "before": [gap.before + 1 for gap in trace.gaps],
                "after": [gap.after + 1 for gap in trace.gaps],
            }
        )

    def dzn(self) -> Iterator[str]:
        """Yield the lines of a data file for the model."""
        for name, value in self.numbers.items():
            if isinstance(value, bool):
                yield f"{name} = {str(value).lower()};"
            elif isinstance(value, int):
                yield f"{name} = {value};"
            else:
                yield f"{name} = [{', '.join(map(str, value))}];"

    def tables(self) -> dict[str, str]:
        """Return the numbers as tables: of the platform, operations, tensors and gaps."""
        columns = {
            "operations": ("duration", "held", "held_idle"),
            "tensors": ("number", "size", "writer", "out_duration", "back_duration"),
            "gaps": ("tensor", "before", "after"),
        }
        alone = [name for name, value in self.numbers.items() if isinstance(value, int)]
        rows: dict[str, list[Sequence[object]]] = {
            "platform": [alone, [int(self.numbers[name]) for name in alone]]  # type: ignore[arg-type]
        }
        for table, names in columns.items():
            values: list[Sequence[int]] = [self.numbers[name] for name in names]  # type: ignore[misc]
            rows[table] = [names, *zip(*values, strict=True)]
        return {name: _csv(lines) for name, lines in rows.items()}


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
