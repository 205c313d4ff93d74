"""Other people's plans on a step whose times are worked out by hand."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import offcert
from offcert.cli import main
from offcert.core.computations import Computation, Value
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.problem import Problem
from offcert_lab.plans.decisions import KINDS, decision_of
from offcert_lab.plans.plan_audit import Audit, audit


def stack(depth: int, link: Link = Link.DUPLEX) -> Problem:
    """Return layers of a product, 10 ticks and 8 bytes, and what makes 2 bytes of it in 2 ticks.

    The backward computation of each, 20 ticks, reads what its layer was given and the product. The
    embedding and the loss take 1 tick each, so computing takes 2 + 32 a layer. The link moves two
    bytes a tick.
    """
    values = [Value("in", 2, False), Value("embed", 2)]
    computations = [Computation("F:embed:embedding", 1, 0, (0,), (1,))]
    given, layers = 1, []
    for layer in range(depth):
        values += [Value(f"fc{layer}", 8), Value(f"act{layer}", 2)]
        product, out = len(values) - 2, len(values) - 1
        computations += [
            Computation(f"F:h.{layer}.fc:mm", 10, 0, (given,), (product,)),
            Computation(f"F:h.{layer}.act:gelu", 2, 0, (product,), (out,)),
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


STACK = stack(4)
COMPUTING = 2 + 4 * 32


def audited(document: dict[str, Any], problem: Problem = STACK, seconds: float = 0.2) -> Audit:
    found = audit(problem, document, time_limit=seconds)
    assert found.faults == ()
    assert found.bound <= found.step
    return found


LAYERS_AGAIN = {"plan": "trainer", "gradient_checkpointing": True}


@pytest.mark.parametrize(
    ("document", "again"),
    [
        ({"plan": "trainer", "gradient_checkpointing": False}, 0),
        # Of each layer the product runs again; what makes the next layer's input does not.
        (LAYERS_AGAIN, 4),
        ({"plan": "torchtune", "enable_activation_checkpointing": True}, 4),
        ({"plan": "checkpointed-modules", "modules": ["h.*"]}, 4),
        ({"plan": "checkpointed-modules", "modules": ["fc"]}, 4),
        ({"plan": "checkpointed-modules", "modules": ["h.1", "h.2"]}, 2),
        ({"plan": "torchtitan", "mode": "none"}, 0),
        ({"plan": "torchtitan", "mode": "full"}, 4),
        ({"plan": "torchtitan", "mode": "selective", "selective_ac_option": "2"}, 2),
        # Of the layers' products, one each, the first of each is saved.
        ({"plan": "torchtitan", "mode": "selective"}, 0),
        # Sections as configurations have them, with fields that change nothing here.
        (
            {
                "plan": "torchtitan",
                "mode": "selective",
                "selective_ac_option": "2",
                "preserve_rng_state": False,
                "early_stop": True,
            },
            2,
        ),
        (
            {
                "plan": "deepspeed",
                "activation_checkpointing": {
                    "partition_activations": True,
                    "contiguous_memory_optimization": True,
                    "cpu_checkpointing": False,
                    "number_checkpoints": None,
                    "profile": False,
                },
            },
            4,
        ),
        ({"plan": "megatron", "recompute_granularity": "full"}, 4),
        (
            {
                "plan": "megatron",
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 3,
            },
            3,
        ),
        (
            {
                "plan": "megatron",
                "recompute_granularity": "selective",
                "recompute_modules": ["fc"],
            },
            4,
        ),
        ({"plan": "saved", "names": ["gelu", "embedding"]}, 4),
        ({"plan": "policies", "policies": {"mm": "MUST_RECOMPUTE"}, "default": "MUST_SAVE"}, 4),
        ({"plan": "policies", "policies": {"gelu": "PREFER_SAVE"}, "within": "layers"}, 4),
        ({"plan": "policies", "policies": {"h.0.*": "MUST_SAVE"}, "within": "layers"}, 3),
    ],
)
def test_products_that_run_again(document: dict[str, Any], again: int) -> None:
    found = audited(document)
    products = [e for e in found.losses if e.what == "again" and "mm" in e.name]
    others = [e for e in found.losses if e.what == "again" and "mm" not in e.name]
    assert len(products) == again
    assert {each.ticks for each in products} <= {10}
    assert not others
    assert found.step == COMPUTING + 10 * again
    assert found.link_busy == 0.0


def test_what_is_on_the_way_runs_again_too() -> None:
    """Products are saved and nothing else: three activations are made of them, 2 ticks each.

    The first layer was given the embedding, 1 tick.
    """
    found = audited({"plan": "saved", "names": ["aten.mm.default"]})
    assert sorted(each.ticks for each in found.losses) == [1, 2, 2, 2]
    assert found.step == COMPUTING + 7


def test_a_chunk_of_layers_runs_again_as_one() -> None:
    """Two layers a chunk: the first activation of each runs again, 2 ticks, and both products."""
    chunks = {"plan": "megatron", "recompute_granularity": "full", "recompute_method": "uniform"}
    found = audited({**chunks, "recompute_num_layers": 2})
    assert found.step == COMPUTING + 2 * (10 + 2 + 10)
    assert found.peak < audited({"plan": "trainer", "gradient_checkpointing": False}).peak
    assert found.peak > audited(LAYERS_AGAIN).peak


@pytest.mark.slow
def test_the_same_plan_as_a_sequence_and_as_matrices() -> None:
    """A checkpointed step, run by run; POET's matrix has a stage for each first run."""
    network = STACK.computed
    assert network is not None
    runs = list(decision_of(network, LAYERS_AGAIN).execution.runs)
    expected = audited(LAYERS_AGAIN)
    names = [network.computations[run].name for run in runs]
    stages: list[list[int]] = []
    pending: list[int] = []
    for run in runs:
        pending.append(run)
        # A run that goes back begins another row: rows are in the network's order.
        if len(pending) > 1 and pending[-2] > pending[-1]:
            stages.append(pending[:-1])
            pending = pending[-1:]
    stages.append(pending)
    matrix = [[int(index in row) for index in range(len(network))] for row in stages]
    for document in (
        {"plan": "sequence", "runs": runs},
        {"plan": "sequence", "runs": names},
        {"plan": "poet", "R": matrix},
    ):
        found = audited(document)
        assert (found.step, found.peak, found.again) == (expected.step, expected.peak, 4)


def test_rotor_on_a_chain() -> None:
    """Stages 0 and 1 run again, once each, before their backward operations."""
    chain = offcert.Chain([3, 4, 5], [6, 7, 8], [1, 2, 2, 1], [0, 0, 0, 0])
    problem = Problem("chain", chain, Platform(100, 1))
    every = ["F_all 0", "F_all 1", "F_all 2", "Loss", "B 2", "B 1", "B 0"]
    assert audited({"plan": "rotor", "sequence": every}, problem).step == 3 + 4 + 5 + 6 + 7 + 8
    again = ["F_ck 0", "F_ck 1", "F_all 2", "Loss", "B 2", "F_none 0", "F_all 1", "B 1", "B 0"]
    found = audited({"plan": "rotor", "sequence": again}, problem)
    assert found.step == 33 + 3 + 4
    assert found.again == 2


def test_waiting_is_found_and_named() -> None:
    """One layer: the embedding leaves once the product has read it, the product after the gelu.

    2 and 8 bytes take 1 and 4 ticks, and as long to come back, one after the other.
    """
    one = stack(1)
    found = audited({"plan": "save_on_cpu"}, one)
    assert found.moved == 10
    assert found.step == 34 + 1 + 4 + (1 + 4)
    assert {(each.name, each.tensor, each.ticks) for each in found.losses} == {
        ("F:h.0.act:gelu", "embed", 1),
        ("B:loss", "fc0", 4),
        ("B:h.0", "fc0", 5),
    }
    beside = audited({"plan": "torchtune", "enable_activation_offloading": True}, one)
    # Nothing has 1024 bytes.
    assert (beside.moved, beside.step) == (0, 34)


def test_deepspeed_waits_for_what_goes_into_its_layers() -> None:
    """Of each layer its input, 2 bytes: one tick out and one back, and its product again."""
    section = {"cpu_checkpointing": True, "partition_activations": True}
    found = audited({"plan": "deepspeed", "activation_checkpointing": section})
    assert (found.moved, found.again) == (4 * 2, 4)
    beside = {"plan": "checkpointed-modules", "modules": ["h.*"], "offload": True}
    assert found.step > audited(beside).step >= COMPUTING + 4 * 10


def test_torchtune_waits_without_streams() -> None:
    large = stack(2)
    network = large.computed
    assert network is not None
    values = [replace(value, size=1024 * value.size) for value in network.values]
    grown = Network(network.computations, values)
    problem = replace(large, network=grown, platform=replace(large.platform, memory=10**9))
    both = {"enable_activation_checkpointing": False, "enable_activation_offloading": True}
    streams, none = (
        audited({"plan": "torchtune", **both, "activation_offloading_use_streams": use}, problem)
        for use in (True, False)
    )
    assert streams.moved == none.moved > 0
    assert none.step > streams.step


def test_megatron_says_core_attention_by_its_own_word() -> None:
    with pytest.raises(InputError, match=r"recompute_modules\[0\] names no module"):
        audit(STACK, {"plan": "megatron", "recompute_granularity": "selective"}, time_limit=0.1)


def test_what_leaves_is_what_the_fields_say() -> None:
    """Of four layers, what the first two save: a product of 8 bytes each and what enters them."""
    found = audited({"plan": "transformer-engine", "num_layers": 2})
    assert found.moved == 2 * (8 + 2)
    offloaded = {"plan": "policies", "policies": {"mm": "MUST_CPU_OFFLOAD", "*": "MUST_SAVE"}}
    assert audited(offloaded).moved == 4 * 8
    entering = {"plan": "checkpointed-modules", "modules": ["h.*"], "offload": True}
    found = audited(entering)
    assert found.moved == 4 * 2
    assert found.again == 4
    part = {"plan": "megatron", "offload_modules": ["fc"], "offload_fraction": 0.5}
    assert audited(part).moved == 2 * 2


def test_where_everything_can_run_again_there_is_no_backward_pass_to_save_for() -> None:
    rows = [Computation("a", 1, writes=(0,)), Computation("b", 1), Computation("c", 1, reads=(0,))]
    problem = Problem("all", Network(rows, [Value("x", 4)]), Platform(4, Fraction(1)))
    found = audit(problem, {"plan": "save_on_cpu"}, time_limit=1.0)
    assert (found.faults, found.step, found.moved) == ((), 3, 0)


@pytest.mark.slow
def test_the_distance_is_to_what_is_proved_at_the_same_peak() -> None:
    """With room for everything, the plan that computes all layers again is worse by all of that."""
    found = audited(LAYERS_AGAIN, seconds=2.0)
    assert found.best is not None
    assert found.bound <= found.best <= found.step
    plain = audited({"plan": "trainer", "gradient_checkpointing": False})
    assert (plain.step, plain.bound, plain.distance) == (COMPUTING, COMPUTING, 0.0)
    assert plain.fits
    tight = audited(LAYERS_AGAIN, replace(STACK, platform=Platform(3, 1)))
    assert not tight.fits


def test_a_sequence_that_is_no_execution() -> None:
    network = STACK.computed
    assert network is not None
    with pytest.raises(offcert.InputError, match="reads"):
        audit(STACK, {"plan": "sequence", "runs": [1, 0, *range(2, len(network))]}, time_limit=0.1)


def test_traces_say_nothing_of_what_can_run_again() -> None:
    trace = replace(cnn_chain(4, 0), network=cnn_chain(4, 0).trace)
    with pytest.raises(offcert.InputError, match="does not say what is computed from what"):
        audit(trace, {"plan": "save_on_cpu"}, time_limit=0.1)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be a JSON object"),
        ({"plan": "trainr"}, 'plan must be one of .*, not "trainr"; did you mean trainer'),
        ({"plan": "trainer"}, "gradient_checkpointing"),
        ({**LAYERS_AGAIN, "more": 1}, '"?more'),
        ({"plan": "saved", "names": ["conv"]}, r'names\[0\] names no computation: "conv"'),
        ({"plan": "saved", "names": [1]}, r"names\[0\] must be a string, not 1"),
        (
            {"plan": "policies", "policies": {"mm": "SAVE"}},
            "must be one of MUST_SAVE",
        ),
        ({"plan": "policies", "policies": {"mm": "MUST_SAVE"}, "within": "x"}, "within must be"),
        ({"plan": "checkpointed-modules", "modules": ["x"]}, r'modules\[0\] names no module: "x"'),
        ({"plan": "torchtitan", "mode": "some"}, 'mode must be "none"'),
        ({"plan": "torchtitan", "mode": "selective", "selective_ac_option": "0"}, "must be"),
        ({"plan": "megatron", "recompute_granularity": "some"}, 'must be "full" or "selective"'),
        ({"plan": "megatron", "offload_modules": ["fc"], "offload_fraction": 2}, "from 0 to 1"),
        ({"plan": "transformer-engine", "num_layers": 5}, "at most 4, as there are layers, not 5"),
        ({"plan": "rotor", "sequence": ["F 1"]}, r"sequence\[0\] must be such as"),
        ({"plan": "rotor", "sequence": ["B 9"]}, r"there are stages 0 to"),
        ({"plan": "poet", "R": [[1]]}, r"R\[0\] must be a list of 14 times 0 or 1"),
        ({"plan": "sequence", "runs": [99]}, r"runs\[0\] must be a computation's name or number"),
        ({"plan": "sequence", "runs": [0]}, r"computation 9 \(B:loss\) never runs"),
    ],
)
def test_documents_that_are_no_plans(document: Any, message: str) -> None:
    with pytest.raises(offcert.InputError, match=message):
        audit(STACK, document, time_limit=0.1)


@pytest.mark.slow
def test_one_table_for_several_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = tmp_path / "problem.json"
    offcert.write_problem(problem, STACK)
    plans = []
    for number, document in enumerate([LAYERS_AGAIN, {"plan": "save_on_cpu", "name": "mine"}]):
        path = tmp_path / f"plan{number}.json"
        path.write_text(json.dumps(document))
        plans += ["--plan", str(path)]
    arguments = ["audit", str(problem), *plans, "--time-limit", "0.2"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[2].startswith("trainer  ")
    assert lines[3].startswith("mine  ")
    assert "F:h.3.fc:mm (run 2) runs again" in text
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["plans"]
    assert rows[0]["step"] == COMPUTING + 40
    assert rows[1]["proved_distance"] == (170 - rows[1]["proved_bound"]) / 170
    bad = tmp_path / "bad.json"
    bad.write_text('{"plan": "saved", "names": ["x"]}')
    assert main(["audit", str(problem), "--plan", str(bad)]) == 2
    assert f'{bad}: names[0] names no computation: "x"' in capsys.readouterr().err


def test_the_page_lists_every_kind() -> None:
    page = (Path(__file__).parents[3] / "docs/formats/plans.md").read_text()
    assert [
        line.split("`")[1]
        for line in page.splitlines()
        if line.startswith("| `") and "| `plan`" not in line
    ] == list(KINDS)
