"""Plans in graphs that Inductor makes into kernels: right numbers, and why they are right."""

import shutil

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import offcert
from offcert.core.errors import InputError
from offcert.questions.schedule.plan import Plan
from offcert.runtime.compiled.operators import HOLD, OFFLOAD, pending_copies
from support.runtime.compiled_cases import (
    Graphs,
    everything,
    leaving,
    problem_for,
    problem_of,
    reference,
    same,
    step_of,
    train,
)


def apart(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Return the largest difference, as a part of the largest number."""
    largest = max(float(each.abs().max()) for each in expected)
    pairs = zip(found, expected, strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs) / largest


class Sum(nn.Module):
    """Saves a tensor as what one operator has made, and as what the next one was given."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.a(torch.tanh(self.c(x))))
        return F.relu(x + self.b(x))


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")
def test_numbers_differ_by_rounding_only() -> None:
    torch.manual_seed(0)
    model, batch = Sum(), torch.randn(2, 4, 8)
    compiled = leaving(problem_for(model, batch), strict=True, compiler="inductor")
    found = train(model, batch, compiled)
    # A wrong number is of the size of the numbers; a unit in the last place is 1e-7 of it.
    assert apart(found, train(model, batch)) < 1e-6
    assert compiled.report.carried
    assert pending_copies() == 0


def test_what_is_copied_and_what_lives_until_then_is_one_tensor() -> None:
    graphs, step = Graphs(), step_of("mlp")
    compiled = everything("mlp", graphs)
    assert same(train(step.model, step.batch, compiled), reference("mlp"))
    copies = [n for n in graphs.modules[0].graph.nodes if n.target is OFFLOAD]
    assert len(copies) == len(compiled.planned.moved)
    for copy in copies:
        [source], [wait] = copy.args, copy.users
        # Inductor computes what is cheap for each that takes it, but calls this only once.
        assert source.target is HOLD
        assert wait.args == (copy, None, source)


def test_no_other_compiler_has_a_name() -> None:
    with pytest.raises(InputError, match="compiler must be \"inductor\" or callable, not 'triton'"):
        offcert.backend(Plan(), problem_of("mlp"), compiler="triton")
