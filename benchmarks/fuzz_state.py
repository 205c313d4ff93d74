"""Random modules with random kinds of state, trained with parts that run again, and plainly.

    python benchmarks/fuzz_state.py --count 5000 -o out/fuzz-state.json

State is wherever Python has a place for it, and read or changed by whoever can. Each program is
trained plainly, and then so that parts of it run again; all of it is compared, bit by bit, around
every backward pass and every step: losses, gradients, parameters, buffers, each state, the random
generators. A program is

- *same*: nothing differs, and nobody said a word;
- *both raised*: nothing differs before plain training raises, as the other one does;
- *told*: nothing differs, and something was refused or warned of;
- *raised*: training raised where plain training did not; nothing differed before, and no gradient
  was wrong then;
- *warned*: something differs, and a warning about running again came before;
- *silent*: something differs.

The last is a failure, and so is a fuzzer that sees nothing run again. ``--program N`` runs one
program alone and says what differs; ``--kinds`` picks kinds of state by parts of their names.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from state_compare import differences
from state_doors import DOORS, counted
from state_loops import LOOPS, Turn, train
from state_models import BATCH, KINDS, WIDTH, Drawn, draw

from offcert.core.documents import write_json
from offcert.core.errors import OffcertError
from offcert.runtime.watch.guard import OffloadWarning

SAME, TOLD, RAISED, WARNED, SILENT = "same", "told", "raised", "warned", "silent"
BOTH = "both raised"
VERDICTS = (SAME, BOTH, TOLD, RAISED, WARNED, SILENT)


@dataclass(frozen=True)
class Program:
    """A model, a loop, and a way in which parts run again."""

    drawn: Drawn
    door: str
    loop: str
    steps: int
    to_none: bool
    adds: bool
    seed: str

    @property
    def kinds(self) -> list[str]:
        """The kinds of state in the program, without pure ones."""
        names = {name for names in self.drawn.kinds for name in names}
        return sorted(name for name in names if not KINDS[name].pure) or ["pure"]


@dataclass
class Outcome:
    """The outcome of one program.

    Attributes
    ----------
    again : int
        How often something ran again in the last step.
    what : list of str
        What was said, or differs.
    """

    verdict: str
    again: int = 0
    what: list[str] = field(default_factory=list)


def program_of(
    seed: int,
    number: int,
    kinds: list[str],
    loops: list[str] | None = None,
    doors: list[str] | None = None,
) -> Program:
    """Draw a program."""
    chance = random.Random(f"program {seed} {number}")
    drawn = draw(chance, kinds)
    loop = "plain" if chance.random() < 0.4 else chance.choice(list(LOOPS))
    door = chance.choice(("by hand", "by hand", "by certificate", "on the way"))
    loop, door = chance.choice(loops or [loop]), chance.choice(doors or [door])
    steps = 12 if drawn.late else {"by hand": 4}.get(door, 6)
    to_none, adds = chance.random() < 0.6, chance.random() < 0.15
    return Program(drawn, door, loop, steps, to_none, adds, f"plan {seed} {number}")


def turn(program: Program) -> tuple[Turn, list[torch.Tensor]]:
    """Return a new model with its optimiser, and the batches."""
    model, layers = program.drawn.build()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    generator = torch.Generator().manual_seed(program.drawn.seed)
    batches = [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(program.steps)]
    return Turn(model, layers, optimiser), batches


def run(program: Program) -> Outcome:
    """Train plainly and with parts that run again, and compare."""
    plain, batches = turn(program)
    loop = LOOPS[program.loop]
    refused: Exception | None = None
    with warnings.catch_warnings(action="ignore"):
        try:
            train(plain, loop, batches, program.to_none, program.adds)
        except Exception as error:
            refused = error
    try:
        enter = DOORS[program.door](random.Random(program.seed), program.drawn)
    except OffcertError as error:
        return Outcome(TOLD, what=[f"no plan: {error}"])
    ours, batches = turn(program)
    said: list[tuple[int, str]] = []
    steps = [0]
    raised: Exception | None = None
    with counted() as again, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        def hear() -> None:
            ours_ = [each for each in caught if issubclass(each.category, OffloadWarning)]
            said.extend((len(ours.moments), str(each.message)) for each in ours_[len(said) :])

        ours.hear, ours.tell = hear, lambda: steps.append(again.begun)
        training: Any = None
        try:
            with enter(ours.model) as training:
                train(ours, loop, batches, program.to_none, program.adds)
        except Exception as error:
            raised = error
        hear()
    ran = steps[-1] - steps[-2] if len(steps) > 1 else 0
    outcome = judge(program, plain, ours, said, raised, refused)
    for each in (*plain.layers, *ours.layers):
        each.end()
    outcome.again = ran
    named = getattr(training, "refused", None)
    if named and outcome.verdict == SAME:
        outcome.verdict = TOLD
        outcome.what += [f"{name}: {reason}" for name, reason in dict(named).items()]
    return outcome


def judge(
    program: Program,
    plain: Turn,
    ours: Turn,
    said: list[tuple[int, str]],
    raised: Exception | None,
    refused: Exception | None,
) -> Outcome:
    """Return the verdict."""
    for number, (found, expected) in enumerate(zip(ours.moments, plain.moments, strict=False)):
        differing = differences(found, expected)
        if differing:
            before = [text for place, text in said if place <= number and "again" in text]
            verdict = WARNED if before else SILENT
            where = f"moment {number} of {len(plain.moments)}"
            return Outcome(verdict, what=[where, *differing, *before])
    if raised is not None:
        what = [f"{type(raised).__name__}: {raised}", _where(raised)]
        wrong = [] if refused is not None else wrong_gradients(ours, plain)
        if wrong:
            return Outcome(SILENT, what=["raised too late", *wrong, *what])
        same = refused is not None and type(refused) is type(raised)
        return Outcome(BOTH if same else RAISED, what=what)
    if refused is not None:
        # Plain training raised, and ours went on: nobody trained something else unasked.
        return Outcome(SILENT, what=[f"plain training raised {refused!r}"])
    if len(ours.moments) != len(plain.moments):
        return Outcome(SILENT, what=["the loop ran another way"])
    texts = [text for _, text in said]
    return Outcome(TOLD if texts else SAME, what=texts)


def wrong_gradients(ours: Turn, plain: Turn) -> list[str]:
    """Return gradients at an exception that are neither those before nor those after."""
    ours.note()
    now, at = ours.moments.pop(), len(ours.moments)
    near = plain.moments[max(at - 1, 0) : at + 1]
    names = [name for name in now if name.startswith("gradient")]
    return [
        f"wrong {name}"
        for name in names
        if near and all(now[name] != each.get(name) for each in near)
    ]


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in frames[:-4:-1])


@dataclass
class Found:
    """The counts and faults of all programs together.

    Attributes
    ----------
    counts : Counter
        Of programs, by verdict and otherwise.
    by_kind : dict
        Verdicts of the programs with each kind of state.
    failures : list of dict
        Programs that differ.
    """

    counts: Counter[str] = field(default_factory=Counter)
    by_kind: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, number: int, program: Program, outcome: Outcome) -> None:
        """Take note of a program."""
        self.counts.update(["programs", outcome.verdict])
        ran = outcome.again > 0
        self.counts["in which something ran again at last"] += ran
        if program.kinds == ["pure"]:
            self.counts["of pure kinds"] += 1
            self.counts["of pure kinds, in which something ran again at last"] += ran
        for name in (*program.kinds, f"loop: {program.loop}", f"door: {program.door}"):
            row = self.by_kind.setdefault(name, Counter())
            row.update([outcome.verdict, *(["ran again"] if ran else [])])
        if outcome.verdict in (SILENT, WARNED, RAISED):
            what = {"door": program.door, "loop": program.loop, "what": outcome.what[:8]}
            row_ = {"program": number, "verdict": outcome.verdict, "kinds": program.kinds, **what}
            self.failures.append(row_)

    @property
    def failed(self) -> bool:
        """Whether something differs in silence, or the fuzzer has not seen what it is to see."""
        pure = self.counts["of pure kinds"]
        ran = self.counts["of pure kinds, in which something ran again at last"]
        return self.counts[SILENT] > 0 or 2 * ran < pure


def fuzz(
    found: Found,
    numbers: range,
    seed: int,
    kinds: list[str],
    loops: list[str] | None = None,
    doors: list[str] | None = None,
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Run programs; stop at an interrupt."""
    try:
        for number in numbers:
            program = program_of(seed, number, kinds, loops, doors)
            found.add(number, program, run(program))
            tell()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)


def table(found: Found) -> list[str]:
    """Return the verdicts by kind of state, loop and door."""
    names = (*VERDICTS, "ran again")
    rows = [f"{'':32}" + "".join(f"{name:>13}" for name in names)]
    rows += [
        f"{name:32}" + "".join(f"{row[each]:13}" for each in names)
        for name, row in sorted(found.by_kind.items())
    ]
    return rows


def _document(found: Found, seed: int, seconds: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "torch": str(torch.__version__),
        "counts": dict(found.counts),
        "by_kind": {name: dict(row) for name, row in sorted(found.by_kind.items())},
        "cpu_milliseconds_a_program": round(1000 * seconds / max(found.counts["programs"], 1), 1),
        "failures": found.failures,
    }


def _picked(asked: list[str] | None, names: list[str]) -> list[str] | None:
    if asked is None:
        return None
    exact = set(asked) & set(names)
    parts = [each for each in asked if each not in exact]
    found = [name for name in names if name in exact or any(each in name for each in parts)]
    if not found:
        raise SystemExit(f"none of {', '.join(names)} is called {' or '.join(asked)}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run programs, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--count", type=int, default=5000, help="programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", type=int, help="only this one; say what differs")
    parser.add_argument("--kinds", nargs="+", help="only these kinds of state, by parts of names")
    parser.add_argument("--loops", nargs="+", help="only these loops")
    parser.add_argument("--doors", nargs="+", help="only these ways")
    parser.add_argument("--alone", action="store_true", help="each kind alone, in so many programs")
    parser.add_argument("-o", "--output", help="JSON file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found, began = Found(), time.process_time()
    kinds = _picked(options.kinds, list(KINDS)) or list(KINDS)
    loops, doors = _picked(options.loops, list(LOOPS)), _picked(options.doors, list(DOORS))

    def tell() -> None:
        programs = found.counts["programs"]
        if sys.stderr.isatty():
            silent = found.counts[SILENT]
            print(f"\r{programs} programs, {silent} silent ", end="", file=sys.stderr, flush=True)
        if options.output and programs % 100 == 0:
            write_json(options.output, _document(found, options.seed, time.process_time() - began))

    numbers = range(options.count)
    if options.program is not None:
        numbers = range(options.program, options.program + 1)
        print(program_of(options.seed, options.program, kinds, loops, doors))
    for each in [[kind] for kind in kinds] if options.alone else [kinds]:
        fuzz(found, numbers, options.seed, each, loops, doors, tell)
    seconds = time.process_time() - began
    if options.output:
        write_json(options.output, _document(found, options.seed, seconds))
    print("\n".join(table(found)))
    print(f"\n{found.counts['programs']} programs in {seconds:.0f} s of CPU time")
    for what, number in found.counts.items():
        print(f"  {what}: {number}")
    shown = [row for row in found.failures if row["verdict"] == SILENT or len(numbers) == 1]
    for row in shown[:20]:
        print(
            f"  program {row['program']} ({', '.join(row['kinds'])}; {row['loop']}; {row['door']})"
        )
        print(f"    {row['verdict']}: {'; '.join(row['what'])}")
    return 1 if found.failed else 0


if __name__ == "__main__":
    # Also where a shell has started it in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise SystemExit(main())
