"""Settings of PyTorch are those of the first run again, by whichever name they were set."""

import pytest
import torch
from torch import nn

from offcert.runtime.segments.alone import segmented
from offcert.runtime.segments.placed import PlacedProgram, PlacedSegment
from offcert.runtime.segments.settings import put, settings

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C, "_get_fp32_precision_getter"), reason="this PyTorch has older names only"
)


@pytest.fixture
def matmul():
    """Return the newer names for products, and let all be as before afterwards."""
    before = settings()
    yield torch.backends.cuda.matmul
    put(before, settings())
    assert settings() == before


def test_who_sets_precision_by_its_newer_name_may_run_segments_again(matmul):
    """PyTorch refuses to tell the older name then."""
    matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new"):
        torch.get_float32_matmul_precision()
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    with segmented(model, PlacedProgram([PlacedSegment("0")])):
        for _ in range(2):
            model(torch.ones(3, 4)).sum().backward()
    assert matmul.fp32_precision == "tf32"


@pytest.mark.parametrize("newer", [True, False])
def test_precision_is_put_back(matmul, newer):
    def change(value):
        if newer:
            matmul.fp32_precision = value
        else:
            torch.set_float32_matmul_precision({"tf32": "high", "ieee": "highest"}[value])

    change("tf32")
    first = settings()
    change("ieee")
    now = settings()
    assert first != now
    put(first, now)
    assert matmul.fp32_precision == "tf32"
    put(now, first)
    assert settings() == now
    assert matmul.fp32_precision == "ieee"
