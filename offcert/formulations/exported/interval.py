"""The interval model in MiniZinc, for constraint solvers, and the data of a problem for it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from offcert.core.platform import Kind
from offcert.formulations.common.grid import idle_demand
from offcert.formulations.exported.cells import Cells, require_exportable
from offcert.questions.schedule.problem import Problem

MODEL = """\
% Operations run one after the other, in their order. A tensor that leaves does so once, after the
% operation that writes it; a gap of it is a stretch between two uses. In a gap that is evicted the
% tensor gives its bytes back when it has left and the operation before the gap has ended, and takes
% them again when its return starts. One transfer at a time uses the link (or one each way).
include "cumulative.mzn";
include "disjunctive.mzn";

int: grid;                          % ticks of a cell; all times below are in cells
int: horizon;
int: capacity;
bool: duplex;
int: last_ticks;                    % how long the last operation lasts, in ticks
int: operations;
int: tensors;
int: gaps;
set of int: OPERATION = 1..operations;
set of int: TENSOR = 1..tensors;
set of int: GAP = 1..gaps;
array[OPERATION] of int: duration;
array[OPERATION] of int: held;      % bytes while it runs, but for gaps that it lies in
array[OPERATION] of int: held_idle; % the same in the idle time before it
array[TENSOR] of int: number;       % by which the problem knows it, from 0
array[TENSOR] of int: size;
array[TENSOR] of 0..operations: writer; % 0: it is there at the start
array[TENSOR] of int: out_duration;
array[TENSOR] of int: back_duration;
array[GAP] of TENSOR: tensor;
array[GAP] of 0..operations: before;    % the use before it, 0: none
array[GAP] of OPERATION: after;         % the use after it

array[OPERATION] of var 0..horizon: start;
array[TENSOR] of var bool: leaves;
array[TENSOR] of var 0..horizon: out;
array[GAP] of var bool: evicted;
array[GAP] of var 0..horizon: back;

function var int: ended(int: o) = if o = 0 then 0 else start[o] + duration[o] endif;
array[GAP] of var int: released =
  [ max(out[tensor[g]] + out_duration[tensor[g]], ended(before[g])) | g in GAP ];
array[GAP] of var int: gone =
  [ if evicted[g] then released[g] else start[after[g]] endif | g in GAP ];
array[GAP] of var int: again = [ if evicted[g] then back[g] else start[after[g]] endif | g in GAP ];

constraint forall(o in 2..operations)(start[o] >= ended(o - 1));
constraint forall(v in TENSOR)(
  leaves[v] = exists(g in GAP where tensor[g] = v)(evicted[g]) /\\
  (leaves[v] -> out[v] >= ended(writer[v])) /\\ (not leaves[v] -> out[v] = 0));
constraint forall(g in GAP)(
  (evicted[g] -> back[g] >= released[g] /\\
    back[g] + back_duration[tensor[g]] <= start[after[g]]) /\\
  (not evicted[g] -> back[g] = 0));

array[TENSOR] of var int: out_takes = [ out_duration[v] * bool2int(leaves[v]) | v in TENSOR ];
array[GAP] of var int: back_takes = [ back_duration[tensor[g]] * bool2int(evicted[g]) | g in GAP ];
constraint if duplex then disjunctive(out, out_takes) /\\ disjunctive(back, back_takes)
  else disjunctive(out ++ back, out_takes ++ back_takes) endif;

array[OPERATION] of var 0..horizon: idle = [ start[o] - ended(o - 1) | o in OPERATION ];
array[GAP] of var 0..horizon: stays = [ gone[g] - ended(before[g]) | g in GAP ];
array[GAP] of var 0..horizon: waits = [ start[after[g]] - again[g] | g in GAP ];
constraint cumulative(
  start ++ [ ended(o - 1) | o in OPERATION ] ++ [ ended(before[g]) | g in GAP ] ++ again,
  duration ++ idle ++ stays ++ waits,
  held ++ held_idle ++ [ size[tensor[g]] | g in GAP ] ++ [ size[tensor[g]] | g in GAP ],
  capacity);
% What lasts no cell is in no stretch of time, and needs its bytes all the same.
constraint forall(o in OPERATION where duration[o] = 0)(
  held[o] + sum(g in GAP where before[g] < o /\\ o < after[g])(
    size[tensor[g]] * bool2int(not evicted[g] \\/ gone[g] > start[o] \\/ again[g] < start[o]))
  <= capacity);

solve minimize start[operations];

output ["% objective \\(start[operations] * grid + last_ticks) ticks\\nkind,name,start\\n"] ++
  [ "compute,\\(o - 1),\\(start[o] * grid)\\n" | o in OPERATION ] ++
  [ if fix(leaves[v]) then "offload,\\(number[v]),\\(out[v] * grid)\\n" else "" endif
    | v in TENSOR ] ++
  [ if fix(evicted[g]) then "prefetch,\\(number[tensor[g]]),\\(back[g] * grid)\\n" else "" endif
    | g in GAP ];
"""


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
        spanning = [
            [number for number, gap in enumerate(trace.gaps) if gap.before < o < gap.after]
            for o in range(len(trace))
        ]
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
                    for total, gaps in zip(trace.demand, spanning, strict=True)
                ],
                "held_idle": [
                    total - sum(map(size, gaps))
                    for total, gaps in zip(idle_demand(trace), idle, strict=True)
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
        """Return the same as tables: of the platform, operations, tensors and gaps."""
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
