"""Cards as people and CUDA spell them, and the card and the memory where nobody names them."""

from dataclasses import replace

import pytest
import torch

from offcert.core.errors import InputError
from offcert.runtime.hardware import HARDWARE, choice, hardware
from offcert.runtime.hardware.choice import at_hand, choose
from offcert.runtime.hardware.files import spelled, suggested

GIB = 2**30
MEANT = {
    "RTX 4090": "rtx-4090",
    "rtx_4090": "rtx-4090",
    "4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "a100": "a100-80gb-sxm",
    "A100-80GB": "a100-80gb-sxm",
    "NVIDIA A100-SXM4-80GB": "a100-80gb-sxm",
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
    "h100": "h100-sxm",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "H200 141GB": "h200",
    "Tesla V100-SXM2-16GB": "v100-sxm2",
    "Tesla T4": "t4",
    "AMD Instinct MI300X": "mi300x",
    # Other cards, whose names have a word more, or another memory; and words that are no card's.
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,
    "NVIDIA GeForce RTX 3090 Ti": None,
    "NVIDIA A100 80GB PCIe": None,
    "Tesla V100-SXM2-32GB": None,
    "NVIDIA A10G": None,
    "24GB": None,
    "rtx": None,
    "": None,
}


@pytest.mark.parametrize("name", MEANT)
def test_a_card_is_found_by_its_usual_names_and_by_no_others(name: str) -> None:
    card = spelled(name)
    assert (card.name if card else None) == MEANT[name]
    if card is not None:
        assert hardware(name) is card
    else:
        with pytest.raises(InputError, match="hardware must be one of"):
            hardware(name)


@pytest.mark.parametrize("name", HARDWARE)
def test_every_card_has_its_own_name(name: str) -> None:
    assert spelled(name) is spelled(name.upper().replace("-", " ")) is HARDWARE[name]


@pytest.mark.parametrize(
    ("size", "name"),
    [
        (24 * GIB, "rtx-4090"),
        (23.6 * GIB, "rtx-4090"),
        (32 * GIB, "rtx-5090"),
        (48 * GIB, "l40s"),
        (80 * GIB, "h100-sxm"),
        (141 * 10**9, "h200"),
        (20 * GIB, None),
        (16 * GIB, None),
        (2**28, None),
    ],
)
def test_a_size_of_memory_suggests_a_card_or_none(size: float, name: str | None) -> None:
    card = suggested(int(size))
    assert (card.name if card else None) == name


def test_what_is_given_is_taken_and_what_is_not_is_said() -> None:
    card = HARDWARE["rtx-4090"]
    both = choose(card, 10 * GIB)
    assert (both.card, both.memory, both.notes) == (card, 10 * GIB, ())
    # Half a gibibyte and a 32nd of 24.
    named = choose(card, None)
    assert named.memory == 24 * GIB - GIB // 2 - 24 * GIB // 32
    assert named.notes == (
        "of its 24.00 GiB, 512.00 MiB are for the context of CUDA and a 32nd for fragmentation, "
        "both assumed: device memory says otherwise",
    )
    sized = choose(None, 24 * GIB)
    assert (sized.card, sized.memory) == (card, 24 * GIB)
    assert sized.notes == ("rtx-4090 is suggested by 24.00 GiB: hardware names another",)


def test_a_card_that_nothing_says_is_asked_for() -> None:
    said = r"no CUDA device here, and 256.00 MiB suggest none; name one of v100-pcie, .*, or a file"
    with pytest.raises(InputError, match=said):
        choose(None, 2**28)
    with pytest.raises(InputError, match="there is no CUDA device here; name one of"):
        choose(None, None)


def test_the_device_at_hand_goes_before_what_memory_suggests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert at_hand() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA L4")
    found = choose(None, 80 * GIB)
    assert (found.card.name, found.memory) == ("l4", 80 * GIB)
    assert found.notes == ("l4 is the card here: hardware names another",)
    # One that nobody knows is measured.
    mine = replace(HARDWARE["l4"], name="NVIDIA A10G")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A10G")
    monkeypatch.setattr("offcert.runtime.hardware.choice.measured_card", lambda: mine)
    assert choose(None, None).card is mine
    assert choose(None, None).notes[0].startswith("NVIDIA A10G is the card here, measured now")
    assert at_hand() is None


@pytest.mark.parametrize("allowed", [False, True])
def test_products_are_measured_without_changing_how_others_are_made(allowed: bool) -> None:
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, allowed
    try:
        for asked in (False, True):
            with choice._by_tf32(asked):
                assert matmul.allow_tf32 is asked
            assert matmul.allow_tf32 is allowed
    finally:
        matmul.allow_tf32 = before


def test_products_of_a_cpu_do_not_ask_how_a_card_makes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch raises there where a program has set the precision by its newer names."""
    monkeypatch.setattr(torch.backends.cuda, "matmul", None)
    for name in ("float32", "bfloat16"):
        assert choice._products(torch.device("cpu"), name) > 0
