import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from fractions import Fraction
from math import ceil

import pytest

from offcert.cli import main
from offcert.core.errors import InputError
from offcert.runtime.hardware import HARDWARE, Hardware, OperationClass, hardware, roofline_ns
from offcert.runtime.hardware.files import write_hardware
from offcert.runtime.hardware.model import TYPES

TOY = Hardware("toy", 3 * 10**9, 2 * 10**9, 10**9, 1, overhead_ns=10, source="none")


def test_the_offloading_papers_machine():
    v100 = hardware("v100-pcie")
    assert v100.link_bandwidth == 12_200_000_000
    assert v100.memory == 15.75 * 2**30
    assert (v100.flops, v100.memory_bandwidth) == (14 * 10**12, 900 * 10**9)


@pytest.mark.parametrize("model", HARDWARE.values(), ids=HARDWARE)
def test_numbers_are_positive_integers_in_a_plausible_order(model):
    for field in fields(model):
        value = getattr(model, field.name)
        if field.name in ("name", "source"):
            assert isinstance(value, str)
            assert value
        elif field.name == "rates":
            assert value.keys() <= set(TYPES) - {"float32"}
            assert all(type(rate) is int for rate in value.values())
        elif field.name == "efficiency":
            # A type that a card has no rate for would never be looked up.
            types = {"float32", *model.rates}
            known = {f"{work}-{dtype}" for work in OperationClass for dtype in types}
            assert value.keys() <= set(OperationClass) | known
            assert all(0 < part < 1 for part in value.values())
        elif field.name == "kernels":
            assert value.keys() <= {"flash-2", "flash-3"}
            assert all(0 < part < 1 for part in value.values())
        elif field.name == "once":
            assert value is False
        elif field.name == "attention":
            assert value == "flash-2"
        elif field.name == "sustained":
            assert value == 1
        elif field.name == "link_both":
            # Each way is slower then, but more is moved than by turns.
            alone = model.link_rates(at_once=False)
            assert value is None or max(alone) < sum(value) <= sum(alone)
        elif field.name == "link_back":
            assert value is None or type(value) is int
        else:
            assert type(value) is int
            assert value > 0
    assert model.link_bandwidth < model.memory_bandwidth < model.flops
    assert "link: " in model.source
    assert hardware(model.name) is model
    half, tf32 = model.rate("float16"), model.rate("tf32")
    assert model.flops <= tf32 <= half
    assert model.rate("bfloat16") in (half, model.flops)
    assert model.rate("float8") in (half, model.flops) or 1.9 * half < model.rate("float8")


def test_all_promised_models_are_there():
    promised = {"v100-pcie", "v100-sxm2", "a100-40gb-pcie", "a100-80gb-sxm", "h100-sxm"}
    promised |= {"h100-pcie", "h200", "b200", "gh200", "mi300x", "a10", "l4", "l40s", "t4"}
    assert promised | {"rtx-3090", "rtx-4090", "rtx-5090"} <= set(HARDWARE)


def test_types_and_what_is_reached_by_hand():
    toy = replace(
        TOY,
        rates={"bfloat16": 12 * 10**9},
        efficiency={
            OperationClass.ATTENTION: Fraction(1, 3),
            OperationClass.TRAFFIC: Fraction(1, 2),
        },
    )
    assert roofline_ns(toy, 36, 0) == 12 + 10
    assert roofline_ns(toy, 36, 0, "bfloat16") == 3 + 10
    # It has no other tensor cores.
    assert roofline_ns(toy, 36, 0, "float16") == roofline_ns(toy, 36, 0, "tf32") == 12 + 10
    assert roofline_ns(toy, 36, 0, "bfloat16", OperationClass.ATTENTION) == 9 + 10
    assert roofline_ns(toy, 0, 36) == 36 + 10
    half = replace(toy, efficiency={"product": Fraction(1, 2), "product-bfloat16": Fraction(3, 4)})
    assert roofline_ns(half, 36, 0) == 24 + 10
    assert roofline_ns(half, 36, 0, "bfloat16") == 4 + 10
    assert toy.origin() == {
        "hardware": "toy",
        "efficiency": {"attention": str(1 / 3), "traffic": "0.5"},
    }
    assert TOY.origin() == {"hardware": "toy"}


def test_attention_is_that_of_the_kernel_that_is_named():
    """989.4 TFLOP/s, of which FlashAttention-2 reaches 35 %, and its successor 75 %."""
    second, third = (hardware("h100-sxm", attention=f"flash-{n}") for n in (2, 3))
    assert second is hardware("h100-sxm")
    flops = 10**12
    for model, part in ((second, 0.35), (third, 0.75)):
        found = roofline_ns(model, flops, 0, "bfloat16", OperationClass.ATTENTION)
        assert abs(found - (1e9 / (989.4 * part) + 2000)) < 1
        said = model.origin({model.attention: model.reached(OperationClass.ATTENTION)})
        assert (said["attention"], said["efficiency"]["attention"]) == (model.attention, str(part))
    assert "attention" not in second.origin()["efficiency"]
    lean = hardware("a100-80gb-sxm", attention="efficient")
    # No quicker than FlashAttention-2, which has no float32.
    assert lean.reached(OperationClass.ATTENTION, "float16") == Fraction("0.73")
    assert lean.reached(OperationClass.ATTENTION, "float32") == 1
    at_peak = hardware(third, peak=True)
    assert at_peak.reached(OperationClass.ATTENTION) == 1
    with pytest.raises(
        InputError, match=r"a100-80gb-sxm must be by flash-2, efficient, not \"flash-3\""
    ):
        hardware("a100-80gb-sxm", attention="flash-3")


def test_a_calibrated_card_by_hand(tmp_path):
    """Of an H100's 989.4 TFLOP/s products reach 0.803 at best, and 0.74 of that in training."""
    best, found = hardware("h100-sxm"), hardware("h100-sxm-calibrated")
    for work, part in ((OperationClass.PRODUCT, 0.803), (OperationClass.ATTENTION, 0.35)):
        took = roofline_ns(found, 10**12, 0, "bfloat16", work)
        assert abs(took - (1e9 / (989.4 * part * 0.74) + 2000)) < 1
    # Memory has no part in it.
    assert roofline_ns(found, 0, 10**9) == roofline_ns(best, 0, 10**9)
    assert found.origin()["sustained"] == "0.74"
    assert "sustained" not in best.origin()
    assert hardware(found.name) == found
    assert hardware(found, peak=True).sustained == 1
    write_hardware(tmp_path / "card.toml", found)
    assert hardware(str(tmp_path / "card.toml")).sustained == found.sustained
    (tmp_path / "card.toml").write_text("sustained = 1.5\n" + FILE)
    with pytest.raises(InputError, match=r"sustained must be at most 1, not 1\.5"):
        hardware(str(tmp_path / "card.toml"))
    with pytest.raises(InputError, match="hardware must be one of"):
        hardware("h1000-calibrated")


def test_links_by_hand():
    """Measured on a GH200: 297 GB/s to the host, 375 back; on an A100 both ways: 24 and 12."""
    assert hardware("gh200").link_rates(at_once=False) == (297 * 10**9, 375 * 10**9)
    a100 = hardware("a100-80gb-sxm")
    assert a100.link_rates(at_once=True) == (24 * 10**9, 12 * 10**9)
    assert a100.link_rates(at_once=False) == (24_400_000_000, 24_400_000_000)


FILE = """
name = "mine"
memory = "24GiB"
memory_bandwidth = 1.008e12
link_bandwidth = 25_000_000_000
link_back = 26e9
link_both = [24e9, 13e9]
overhead_ns = 2000
source = "measured by me"
[rates]
float32 = 82.6e12
bfloat16 = 165.2e12
[efficiency]
product = 0.85
"""


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    mine = hardware(str(path))
    assert (mine.name, mine.memory, mine.source) == ("mine", 24 * 2**30, "measured by me")
    assert (mine.rate("bfloat16"), mine.rate("float16")) == (165_200 * 10**9, 82_600 * 10**9)
    assert mine.reached(OperationClass.PRODUCT) == Fraction(85, 100)
    assert mine.reached(OperationClass.CONVOLUTION) == 1
    assert mine.link_rates(at_once=False) == (25 * 10**9, 26 * 10**9)
    assert mine.link_rates(at_once=True) == (24 * 10**9, 13 * 10**9)
    at_peak = hardware(str(path), peak=True)
    assert at_peak.reached(OperationClass.PRODUCT) == 1
    assert hardware(at_peak) is at_peak


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine"', "", 'the field "name" is missing'),
        ("float32 =", "float31 =", 'the field "rates.float32" is missing'),
        ("bfloat16 =", "bfloat17 =", 'the field "rates.bfloat17" is not known'),
        ("0.85", "1.5", "efficiency.product must be at most 1, not 1.5"),
        ("0.85", '"most"', 'efficiency.product must be an integer or a number, not "most"'),
        ("1.008e12", "0", "memory_bandwidth must be finite and more than 0, not 0"),
        ("1.008e12", "inf", "memory_bandwidth must be finite and more than 0, not inf"),
        ("[24e9, 13e9]", "[24e9]", "link_both must be two rates, out and back, not [24"),
        ("24GiB", "24", 'memory "24" needs a unit'),
        ("2000", "-1", "overhead_ns must be at least 0, not -1"),
        ("[rates]", "[rates", "is not valid TOML"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path, old, new, message):
    path = tmp_path / "bad.toml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        hardware(str(path))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_a_file_that_is_not_there():
    with pytest.raises(InputError, match=r"nowhere\.toml cannot be read: No such file"):
        hardware("nowhere.toml")


def test_models_are_immutable():
    with pytest.raises(FrozenInstanceError):
        TOY.flops = 1


@pytest.mark.parametrize(
    ("flops", "size", "expected"),
    [
        (3, 0, 11),  # 1 ns of computing
        (4, 0, 12),  # 4/3 ns, rounded up
        (3, 2, 11),  # both take 1 ns
        (3, 5, 13),  # traffic takes 2.5 ns
        (0, 1, 11),
        (0, 0, 0),  # no kernel, no overhead
    ],
)
def test_roofline_by_hand(flops, size, expected):
    assert roofline_ns(TOY, flops, size) == expected


def test_roofline_is_exact_where_floating_point_is_not():
    flops = 10**27 + 1
    exact = ceil(Fraction(flops * 10**9, TOY.flops)) + TOY.overhead_ns
    assert roofline_ns(TOY, flops, 0) == exact
    assert ceil(flops / TOY.flops * 10**9) + TOY.overhead_ns != exact


@pytest.mark.parametrize(("flops", "size"), [(-1, 0), (0, -1)])
def test_negative_work_is_refused(flops, size):
    with pytest.raises(InputError, match="-1"):
        roofline_ns(TOY, flops, size)


def test_unknown_name_gets_the_known_ones():
    with pytest.raises(InputError) as error:
        hardware("v100-pice")
    message = str(error.value)
    assert '"v100-pice"; did you mean v100-' in message
    assert all(name in message for name in HARDWARE)


def test_torch_is_not_imported():
    code = "import sys, offcert.runtime.hardware; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("card", HARDWARE.values(), ids=HARDWARE)
def test_a_card_that_is_written_is_read_back_with_the_same_rates(card, tmp_path):
    path = tmp_path / "card.toml"
    write_hardware(path, card)
    found = hardware(str(path))
    assert (found.name, found.memory, found.source) == (card.name, card.memory, card.source)
    for at_once in (False, True):
        assert found.link_rates(at_once=at_once) == card.link_rates(at_once=at_once)
    for dtype in TYPES:
        for work in OperationClass:
            expected = roofline_ns(card, 10**12, 10**6, dtype, work)
            assert roofline_ns(found, 10**12, 10**6, dtype, work) == expected


def test_a_card_that_is_too_small_is_said_to_be(tmp_path, capsys):
    """What gpt-tiny takes beside its trace, and the 52.13 KiB that it needs at least."""
    path = tmp_path / "mine.toml"
    path.write_text(FILE.replace("24GiB", "290KiB"))
    given = ["profile", "gpt-tiny", "--input", "2x8", "--hardware", str(path)]
    given += ["-o", str(tmp_path / "p.json"), "--recompute", "none"]
    assert main(given) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "  short of       device memory: 293.63 KiB needed, 290.00 KiB available; of these "
        "119.50 KiB for parameters"
    )


def test_the_device_at_hand_becomes_a_card(tmp_path, capsys):
    given = ["profile", "gpt-tiny", "--input", "1x8", "-o", str(tmp_path / "p.json")]
    given += ["--option", "layers=1"]
    path = tmp_path / "mine.toml"
    assert main([*given, "--measure", "--save-hardware", str(path)]) == 0
    mine = hardware(str(path))
    assert mine.source.startswith("measured with torch")
    assert set(mine.rates) == {"float64", "float16", "bfloat16"}
    assert mine.flops > 10**7
    assert not mine.efficiency
    capsys.readouterr()
    for wrong, said in (
        ([*given, "--save-hardware", str(path)], "--save-hardware goes with --measure"),
        ([*given, "--measure", "--save-hardware", "card"], "must be a file that ends in .toml"),
    ):
        assert main(wrong) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(InputError, match=r"must end in \.toml"):
        write_hardware(tmp_path / "card.json", mine)
