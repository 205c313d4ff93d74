"""Ways that others use, as plans: legal, and worked out by hand on a stack of small layers."""

import importlib
import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from offcert.certification.other_ways import examined, module_of
from offcert.core.computations import Computation, Value
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Problem

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("planned_ways")


def stack(depth: int, link: Link = Link.DUPLEX) -> Problem:
    """Return layers of a product, 10 ticks and 8 bytes, and what makes 2 bytes of it in 2 ticks.

    The backward computation of each, 20 ticks, reads what its layer was given and the product.
    """
    values = [Value("in", 2, False), Value("embed", 2)]
    computations = [Computation("F:embed", 1, 0, (0,), (1,))]
    given, layers = 1, []
    for layer in range(depth):
        values += [Value(f"fc{layer}", 8), Value(f"act{layer}", 2)]
        product, out = len(values) - 2, len(values) - 1
        computations += [
            Computation(f"F:h.{layer}.fc", 10, 0, (given,), (product,)),
            Computation(f"F:after h.{layer}.fc", 2, 0, (product,), (out,)),
        ]
        layers.append((given, product))
        given = out
    values.append(Value("g", 1, False))
    gradient = len(values) - 1
    computations.append(Computation("B:loss", 1, 0, (given,), (gradient,), False))
    for layer in reversed(range(depth)):
        reads = (*layers[layer], gradient)
        values.append(Value(f"g{layer}", 1, False))
        gradient = len(values) - 1
        both = (1 + 2 * layer, 2 + 2 * layer)
        computations.append(Computation(f"B:h.{layer}", 20, 0, reads, (gradient,), False, of=both))
    return Problem("stack", Network(computations, values), Platform(10**6, Fraction(2), link))


def test_layers_are_the_stretches_that_names_say(planned: ModuleType) -> None:
    network = stack(3).computed
    assert planned.layers(network) == [range(1, 3), range(3, 5), range(5, 7)]
    for name, path in (
        ("F:h.0.attn.c_attn", "h.0.attn.c_attn"),
        ("F:after layer1.0.bn3", "layer1.0.bn3"),
        ("F:layer1.0.relu #2", "layer1.0.relu"),
    ):
        assert module_of(name) == path


# Computing takes 1 + 2 * 12 + 1 + 2 * 20 = 66 ticks. Of 20 bytes that are saved, 8 are a product's.
@pytest.mark.parametrize(
    ("name", "step", "host", "again"),
    [
        ("plain", 66, 0, 0),
        # 20 bytes at 2 a tick out, and the same back, while nothing runs.
        ("save_on_cpu", 66 + 10 + 10, 20, 0),
        # Both products run again; what comes after them is not needed.
        ("checkpoint all", 66 + 2 * 10, 0, 2),
        ("checkpoint every 2nd", 66 + 10, 0, 1),
        ("checkpoint, products kept", 66, 0, 0),
        # What goes into the layers, 2 bytes each, is waited for for a tick each.
        ("offloaded checkpoints", 66 + 2 * 10 + 2 * 1, 4, 2),
        # Within 15 bytes: a product and both small ones. Within 10: without the embedding, which
        # is computed again. Within 5: no product.
        ("memory budget 0.75", 66 + 10, 0, 1),
        ("memory budget 0.5", 66 + 10 + 1, 0, 2),
        ("memory budget 0.25", 66 + 2 * 10, 0, 2),
    ],
)
def test_every_way_is_legal_and_takes_what_it_takes_by_hand(
    name: str, step: int, host: int, again: int, planned: ModuleType
) -> None:
    found = {way.name: way for way in planned.ways(stack(2), r"fc$")}
    assert len(found) == 9
    row = planned.measured(found[name])
    assert (row["step"], row["host"], row["again"]) == (step, host, again)
    # The loss finds both products, what the layers were given, its input, and makes a gradient.
    assert row["peak"] <= 2 * 8 + 2 * 2 + 2 + 1
    assert (row["peak"] == 23) == (name in ("plain", "checkpoint, products kept"))


def test_on_a_simplex_link_both_directions_take_turns(planned: ModuleType) -> None:
    for link in Link:
        found = {way.name: way for way in planned.ways(stack(3, link), r"fc$")}
        for way in found.values():
            planned.measured(way)
        # Out beside the operators, back one after the other: no turn has to be waited for here.
        assert planned.measured(found["offloaded checkpoints"])["step"] == 98 + 3 * 10 + 3


def test_what_is_not_legal_is_refused(planned: ModuleType) -> None:
    way = next(iter(planned.ways(stack(2), r"fc$")))
    early = planned.Schedule([0] * 8, way.schedule.ends, [])
    named = planned.Decision("early", way.execution)
    wrong = planned.Way(named, examined(way.problem, way.execution, early))
    with pytest.raises(InputError, match="early is not legal: operation 1"):
        planned.measured(wrong)


def test_the_table_has_bounds_and_says_whether_offloading_helps(
    planned: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = importlib.import_module("ways")
    monkeypatch.setattr(planned, "BUDGETS", ())
    write_problem(tmp_path / "p.json", stack(1).with_bandwidth(Fraction(1, 10)))
    output = tmp_path / "ways.json"
    command.main([str(tmp_path / "p.json"), "--time-limit", "1", "-o", str(output)])
    (document,) = json.loads(output.read_text())
    rows = {row["way"]: row for row in document["rows"]}
    for row in rows.values():
        assert row["bound"] <= row["certified"] <= row["step"]
        assert row["distance"] == (row["step"] - row["bound"]) / row["step"]
    assert rows["plain"]["distance"] == 0
    # A plan for less memory is one for more.
    ordered = sorted(rows.values(), key=lambda row: (row["peak"], -row["certified"]))
    assert all(one["certified"] >= two["certified"] for one, two in pairwise(ordered))
    # Bytes take ten ticks each: at the peak of checkpoints nothing that moves is worth it.
    assert document["offloading"]["saves"] == 0
    text = capsys.readouterr().out
    assert "| save_on_cpu | " in text
    assert "offloading cannot help: recomputing alone takes " in text
