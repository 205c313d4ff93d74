"""Megatron-LM's hand-chosen modules: what selective and full recomputation run again.

Its words for parts of a layer are put to networks as Hugging Face builds them. Core attention is
what lies between the projections of queries, keys and values and that of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offcert.certification.other_ways import Decision, layers_of, segmented
from offcert.core.network import Network
from offcert_lab.plans.patterns import called, forward_pass, stretches_of

Stretches = Callable[[Network], Sequence[range]]


def core_attention(network: Network) -> list[range]:
    """Return the computation before each projection of attention's output."""
    return [
        range(index - 1, index)
        for index in forward_pass(network)
        if called(network.computations[index].name)[1].endswith(".o_proj")
        and network.computations[index - 1].name.startswith("F:after ")
    ]


def _modules(*patterns: str) -> Stretches:
    return lambda network: stretches_of(network, patterns, "modules")


# Words of `recompute_modules`, and of `recompute_granularity` and `recompute_method`. Given by
# Megatron-LM. Its words for mixtures of experts and for latent attention name nothing in networks
# without these; which rows of a batch an expert gets, no capture on fake tensors knows.
HAND_CHOSEN: dict[str, Stretches] = {
    "core_attn": core_attention,
    "layernorm": _modules("*layernorm"),
    "mlp": _modules("mlp"),
    "core_attn, layernorm, mlp": lambda network: sorted(
        [*core_attention(network), *_modules("*layernorm", "mlp")(network)], key=min
    ),
    "full, block, half of the layers": lambda network: layers_of(network)[
        : len(layers_of(network)) // 2
    ],
    "full, uniform": layers_of,
}


def hand_chosen(network: Network, words: str) -> Decision:
    """Return the decision that runs some modules again, each as a checkpoint."""
    return Decision(words, segmented(network, HAND_CHOSEN[words](network)))
