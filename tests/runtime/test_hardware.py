import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction
from math import ceil

import pytest

from offcert.core.errors import InputError
from offcert.runtime.hardware import HARDWARE, Hardware, hardware, roofline_ns

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
        else:
            assert type(value) is int
            assert value > 0
    assert model.link_bandwidth < model.memory_bandwidth < model.flops
    assert "link: effective" in model.source
    assert hardware(model.name) is model


def test_all_promised_models_are_there():
    promised = {"v100-pcie", "v100-sxm2", "a100-40gb-pcie", "a100-80gb-sxm", "h100-sxm"}
    assert promised | {"rtx-4090", "t4"} <= set(HARDWARE)


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
        hardware("v100")
    message = str(error.value)
    assert '"v100"; did you mean v100-' in message
    assert all(name in message for name in HARDWARE)


def test_torch_is_not_imported():
    code = "import sys, offcert.runtime.hardware; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
