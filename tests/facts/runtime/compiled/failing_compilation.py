"""Compiles what a plan refuses, and prints of each case the kind of error, and what it says."""

import torch
from test_compiled_traps import Net, compiled_for, loss_of

from support.runtime.compiled_cases import everything, step_of

SENTENCES = (
    "its shapes are dynamic",
    "follows a plan without mode",
    "follows a plan without options",
)
OPTIONS = {"mode": {"mode": "reduce-overhead"}, "options": {"options": {"a": 1}}}


def fail(case: str) -> None:
    """Compile and run; this raises."""
    if case == "strict":
        model, batch = Net(), torch.randn(4, 8)
        strict = compiled_for(model, batch, strict=True)
        loss_of(torch.compile(model, backend=strict, dynamic=True), batch).backward()
    else:
        step = step_of("mlp")
        torch.compile(step.model, backend=everything("mlp"), **OPTIONS[case])(step.batch)


for case in ("strict", *OPTIONS):
    torch._dynamo.reset()
    try:
        fail(case)
    except Exception as error:
        inner = getattr(error, "inner_exception", error)
        found = next((each for each in SENTENCES if each in str(error)), str(error))
        print(f"{case}: {type(inner).__name__}: {found}")
