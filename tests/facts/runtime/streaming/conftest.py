import pytest

from support.runtime.stream_steps import On


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.cuda)])
def on(request):
    """A kind of device; without a GPU, CUDA is skipped."""
    return On(request.param)
