"""PyTorch's solvers for the activation memory budget beside `offcert.budget_solver`.

python benchmarks/budget.py --models mlp residual gpt --budgets 0.3 0.6

Each network is divided by PyTorch's partitioner at each budget by each solver, and once more by
ours with the limit that the peak is at most that of PyTorch's. *again* is what runs again, by
PyTorch's estimator (FLOPs, at least 1 an operator); *peak* what the tensors of both passes take
beside the inputs, node by node. Operators run once, on random numbers, and nothing is timed.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop as as_it_is
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

import offcert
from offcert.core.units import Units, format_size
from offcert.runtime import zoo
from offcert.runtime.compiled.joint_graph import peak_of
from offcert.runtime.compiled.nodes import launches
from offcert.training.saved_choice import operator_times

_BYTES = Units("ns", "B")


def _mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = [each for _ in range(6) for each in (nn.Linear(256, 256), nn.GELU())]
    return nn.Sequential(*layers), torch.randn(512, 256)


def _residual() -> tuple[nn.Module, torch.Tensor]:
    return zoo.build("resnet18"), torch.randn(4, 3, 64, 64)


def _gpt() -> tuple[nn.Module, torch.Tensor]:
    options = {
        "layers": 2,
        "heads": 4,
        "width": 128,
        "vocabulary": 512,
        "context": 128,
        "dropout": 0.0,
    }
    return zoo.build("gpt", **options), torch.randint(0, 512, (4, 128))


def _llama() -> tuple[nn.Module, torch.Tensor]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 128, "intermediate_size": 352, "vocab_size": 512}
    shape = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**sizes, **shape, use_cache=False, attn_implementation="sdpa")
    return LlamaForCausalLM(config), torch.randint(0, 512, (4, 128))


MODELS = {"mlp": _mlp, "residual": _residual, "gpt": _gpt, "llama": _llama}


@dataclass(frozen=True)
class Cost:
    """The cost of a division: of the operators that run again, and bytes at the peak."""

    again: int
    peak: int


def divided(name: str, ways: Sequence[tuple[float, Any]]) -> list[Cost]:
    """Return the costs of a network's divisions, each at a budget by a solver."""
    found: list[Cost] = []

    def divide(joint: Any, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> Any:
        for budget, solver in ways:
            chosen: dict[str, Any] = {"activation_memory_budget": budget}
            chosen["activation_memory_budget_solver"] = solver
            with config.patch(**chosen):
                pair = min_cut_rematerialization_partition(
                    copy.deepcopy(joint), inputs, num_fwd_outputs=num_fwd_outputs, **options
                )
            forward, backward = (each.graph for each in pair)
            first = {node.name for node in forward.nodes if launches(node)}
            again = [node for node in backward.nodes if launches(node) and node.name in first]
            cost = sum(operator_times(again).values())
            found.append(Cost(cost, peak_of(forward, backward, num_fwd_outputs)))
        return pair

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        compilers: dict[str, Any] = {"fw_compiler": as_it_is, "bw_compiler": as_it_is}
        table = select_decomp_table()
        return aot_autograd(**compilers, partition_fn=divide, decompositions=table)(module, inputs)

    torch.manual_seed(0)
    torch._dynamo.reset()
    model, batch = MODELS[name]()
    torch.compile(model, backend=backend, dynamic=False)(batch)
    return found


def rows(name: str, budget: float, time_limit: float) -> list[list[str]]:
    """Return the rows of a table for one network and budget."""
    found = []
    for solver in ("dp", "greedy"):
        (cost,) = divided(name, [(budget, solver)])
        found.append([name, f"{budget:g}", solver, f"{cost.again}", _size(cost.peak), ""])
        ours = offcert.budget_solver(peak=cost.peak, time_limit=time_limit)
        (cost,) = divided(name, [(1e-6, ours)])
        kept = _size(cost.peak) if ours.reports[0].kept else f"{_size(cost.peak)} (too much)"
        found.append([name, f"peak of {solver}", "offcert", f"{cost.again}", kept, ""])
    ours = offcert.budget_solver(time_limit=time_limit)
    (cost,) = divided(name, [(budget, ours)])
    bound = f"{ours.reports[0].bound}" if ours.reports else "not asked"
    found.append([name, f"{budget:g}", "offcert", f"{cost.again}", _size(cost.peak), bound])
    return found


def _size(count: int) -> str:
    return format_size(count, _BYTES)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.2, 0.5])
    parser.add_argument("--time-limit", type=float, default=60.0)
    given = parser.parse_args(arguments)
    print("| network | limit | solver | again | peak | at least |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    for name in given.models:
        for budget in given.budgets:
            for row in rows(name, budget, given.time_limit):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
