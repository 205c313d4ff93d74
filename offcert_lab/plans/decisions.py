"""Decisions of other programs, read from files: which results stay, run again or leave."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

from offcert.certification.other_ways import (
    Decision,
    gaps_away,
    layers_of,
    plain_execution,
    segmented,
    turn,
)
from offcert.core.documents import Fields, show
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.messages import cut, meant
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert_lab.plans.patterns import (
    called,
    computations_named,
    entering_leave,
    forward_pass,
    is_called,
    saving,
    stretches_of,
    strings_of,
    values_entering,
)

SAVES = ("MUST_SAVE", "PREFER_SAVE")
AGAIN = ("MUST_RECOMPUTE", "PREFER_RECOMPUTE")
LEAVES = ("MUST_CPU_OFFLOAD",)
POLICIES = (*SAVES, *AGAIN, *LEAVES)
# Bytes below which torchtune's offloading leaves a tensor where it is. Given by torchtune.
_TORCHTUNE_LEAST = 1024


def decision_of(network: Network, document: Any) -> Decision:
    """Return the decision that a JSON value describes; docs/formats/plans.md lists the kinds.

    Raises
    ------
    InputError
        One sentence that names the field that is missing, wrong or unknown, or a name that no
        computation has.
    """
    fields = Fields(document)
    kind = fields.get("plan", str)
    if kind not in _READERS:
        known = ", ".join(_READERS)
        raise InputError(f"plan must be one of {known}, not {show(kind)}{meant(kind, _READERS)}")
    name = fields.optional("name", str) or kind
    found = _READERS[kind](network, fields)
    fields.finish()
    return replace(found, name=name)


def _saved(network: Network, fields: Fields) -> Decision:
    return saving(
        network, computations_named(network, strings_of(fields, "names"), "names"), set(), ""
    )


def _policies(network: Network, fields: Fields) -> Decision:
    """Policies by pattern, the first that matches; within layers alone, if that is said."""
    table: dict[str, Any] = fields.get("policies", dict)
    usual = fields.optional("default", str) or "PREFER_RECOMPUTE"
    within = fields.optional("within", str)
    if within not in (None, "layers"):
        raise InputError(f'within must be "layers", or left out, not {show(within)}')
    for pattern, policy in {**table, "default": usual}.items():
        if policy not in POLICIES:
            known = ", ".join(POLICIES)
            raise InputError(
                f"the policy of {show(pattern)} must be one of {known}, not {show(policy)}"
            )
    computations_named(network, list(table), "policies")
    inside = set(forward_pass(network))
    entering: set[int] = set()
    if within is not None:
        stack = layers_of(network)
        inside = {index for rows in stack for index in rows}
        # A checkpoint saves what goes into it, whatever the policies say.
        entering = {network.writer[value] for value in values_entering(network, stack)} - {-1}
    saved, left = (set(forward_pass(network)) - inside) | entering, set()
    for index in inside:
        name = network.computations[index].name
        policy = next((p for pattern, p in table.items() if is_called(name, pattern)), usual)
        if policy in LEAVES:
            left.add(index)
        if policy not in AGAIN:
            saved.add(index)
    return saving(network, saved, left, "")


def _modules(network: Network, fields: Fields) -> Decision:
    stretches = stretches_of(network, strings_of(fields, "modules"), "modules")
    if fields.optional("offload", bool):
        return entering_leave(network, stretches, stretches)
    return Decision("", segmented(network, stretches))


def _trainer(network: Network, fields: Fields) -> Decision:
    again = fields.get("gradient_checkpointing", bool)
    return Decision(
        "", segmented(network, layers_of(network)) if again else plain_execution(network)
    )


def _torchtune(network: Network, fields: Fields) -> Decision:
    again = fields.optional("enable_activation_checkpointing", bool)
    leaves = fields.optional("enable_activation_offloading", bool)
    # Without streams of their own, copies keep operators waiting. Given by torchtune.
    waits = fields.optional("activation_offloading_use_streams", bool) is False
    if again and leaves:
        stack = layers_of(network)
        return replace(entering_leave(network, stack, stack, _TORCHTUNE_LEAST), wait=waits)
    execution = segmented(network, layers_of(network)) if again else plain_execution(network)
    if not leaves:
        return Decision("", execution)
    large = [value.size >= _TORCHTUNE_LEAST for value in network.values]
    away = gaps_away(network, execution, lambda v: v >= 0 and large[v])
    return Decision("", execution, away, wait=waits)


# Fields of DeepSpeed's section that change neither what runs again nor what leaves one device: how
# parts of a checkpoint lie on several devices or in one buffer, when to wait, what to print.
_DEEPSPEED_ASIDE = (
    "partition_activations",
    "contiguous_memory_optimization",
    "number_checkpoints",
    "synchronize_checkpoint_boundary",
    "profile",
)


def _deepspeed(network: Network, fields: Fields) -> Decision:
    """DeepSpeed's section: layers are checkpoints; what goes into them may leave, awaited."""
    section = Fields(fields.get("activation_checkpointing", dict), "activation_checkpointing")
    leaves = section.optional("cpu_checkpointing", bool)
    for name in _DEEPSPEED_ASIDE:
        section.optional(name, (bool, int, type(None)))
    section.finish()
    stack = layers_of(network)
    if leaves:
        return replace(entering_leave(network, stack, stack), wait=True)
    return Decision("", segmented(network, stack))


def _save_on_cpu(network: Network, fields: Fields) -> Decision:
    execution = plain_execution(network)
    return Decision("", execution, gaps_away(network, execution, lambda value: True), wait=True)


# Megatron-LM's words for parts of its layers, and their modules' names. Given by Megatron-LM; the
# first is what selective recomputation is about if nothing is said.
_MEGATRON = {
    "core_attn": "core_attention",
    "layernorm": "*layernorm",
    "attn_norm": "input_layernorm",
}


def _megatron(network: Network, fields: Fields) -> Decision:
    """Megatron-LM: layers in chunks or the first ones, or parts of them; inputs that leave."""
    granularity = fields.optional("recompute_granularity", (str, type(None)))
    method = fields.optional("recompute_method", (str, type(None)))
    count = fields.integer("recompute_num_layers", 1) if fields.has("recompute_num_layers") else 1
    parts = [_MEGATRON["core_attn"]]
    if fields.has("recompute_modules"):
        parts = [_MEGATRON.get(each, each) for each in strings_of(fields, "recompute_modules")]
    if granularity not in (None, "full", "selective"):
        raise InputError(
            f'recompute_granularity must be "full" or "selective", not {show(granularity)}'
        )
    stretches: list[range] = []
    if granularity == "full":
        stack = layers_of(network)
        if method == "block":
            stretches = stack[:count]
        elif method in (None, "uniform"):
            chunks = [stack[first : first + count] for first in range(0, len(stack), count)]
            stretches = [range(chunk[0].start, chunk[-1].stop) for chunk in chunks]
        else:
            raise InputError(f'recompute_method must be "uniform" or "block", not {show(method)}')
    elif granularity == "selective":
        stretches = stretches_of(network, parts, "recompute_modules")
    moved = strings_of(fields, "offload_modules") if fields.has("offload_modules") else []
    moved = [_MEGATRON.get(each, each) for each in moved]
    part = _fraction(fields, "offload_fraction")
    groups = stretches_of(network, moved, "offload_modules") if moved else []
    return entering_leave(network, stretches, groups[: ceil(part * len(groups))])


def _fraction(fields: Fields, name: str) -> Fraction:
    value = fields.optional(name, (int, float))
    part = Fraction(1) if value is None else Fraction(str(value))
    if not 0 <= part <= 1:
        raise InputError(f"{fields.path(name)} must be from 0 to 1, not {show(value)}")
    return part


def _transformer_engine(network: Network, fields: Fields) -> Decision:
    """The activations of the first layers leave."""
    stack = layers_of(network)
    count = fields.integer("num_layers", 0)
    if count > len(stack):
        raise InputError(
            f"num_layers must be at most {len(stack)}, as there are layers, not {count}"
        )
    first = {index for rows in stack[:count] for index in rows}
    execution = plain_execution(network)
    away = gaps_away(network, execution, lambda value: network.writer[value] in first)
    return Decision("", execution, away)


# The products and attentions that torchtitan's selective checkpointing saves, by their operators.
# Given by torchtitan (distributed/activation_checkpoint.py), version 0.1.
_TITAN = ("mm", "addmm", "bmm", "_scaled_dot_product_*attention", "max")


def _torchtitan(network: Network, fields: Fields) -> Decision:
    mode = fields.get("mode", str)
    option = fields.optional("selective_ac_option", str) or "op"
    for name in ("preserve_rng_state", "early_stop"):
        # What comes out is the same: which random numbers, and where a segment may stop.
        fields.optional(name, bool)
    if mode not in ("none", "full", "selective"):
        raise InputError(f'mode must be "none", "full" or "selective", not {show(mode)}')
    if mode == "none":
        return Decision("", plain_execution(network))
    stack = layers_of(network)
    if mode == "full":
        return Decision("", segmented(network, stack))
    if option.isdecimal() and int(option) > 0:
        return Decision("", segmented(network, stack[:: int(option)]))
    if option != "op":
        raise InputError(f'selective_ac_option must be "op" or a number, not {show(option)}')
    saved = set(forward_pass(network)) - {index for rows in stack for index in rows}
    saved |= {network.writer[value] for value in values_entering(network, stack)} - {-1}
    chosen = 0
    for rows in stack:
        products = 0
        for index in rows:
            name = network.computations[index].name
            if any(is_called(name, operator) for operator in _TITAN):
                # Of products every second one runs again.
                product = called(name)[2] in ("mm", "addmm")
                products += product
                if not product or products % 2:
                    saved.add(index)
                    chosen += 1
    if not chosen:
        raise InputError(
            "selective_ac_option op needs a problem of operators: profile --clock operators"
        )
    return saving(network, saved, set(), "")


def _sequence(network: Network, fields: Fields) -> Decision:
    """A sequence of computations by name or number, as rockmate's schedules are of operations."""
    values: list[Any] = fields.get("runs", list)
    numbers = {each.name: index for index, each in enumerate(network.computations)}
    runs = []
    for place, value in enumerate(values):
        number = numbers.get(value) if isinstance(value, str) else value
        if (
            isinstance(number, bool)
            or not isinstance(number, int)
            or not 0 <= number < len(network)
        ):
            raise InputError(
                f"runs[{place}] must be a computation's name or number, not {show(value)}"
            )
        runs.append(number)
    return Decision("", _of_runs(network, runs))


_ROTOR = re.compile(r"(F_?(?:all|e|ck|c|none|n|∅)|B|L|Loss)[ _]?(\d+)?", re.IGNORECASE)


def _rotor(network: Network, fields: Fields) -> Decision:
    """Rotor's sequence for a chain: forward operations by what they keep, and backward ones."""
    count = len(network)
    runs = []
    for place, text in enumerate(strings_of(fields, "sequence")):
        match = _ROTOR.fullmatch(text.strip())
        if match is None or (match[2] is None and not match[1].lower().startswith("l")):
            raise InputError(
                f'sequence[{place}] must be such as "F_all 3", "F_ck 3", "F_none 3", "B 3" or '
                f'"Loss", not {show(text)}'
            )
        if match[1].lower().startswith("l"):
            continue
        stage = int(match[2])
        if 2 * stage >= count:
            raise InputError(
                f"sequence[{place}]: there are stages 0 to {count // 2 - 1}, not {stage}"
            )
        runs.append(count - 1 - stage if match[1].upper() == "B" else stage)
    return Decision("", _of_runs(network, runs))


def _poet(network: Network, fields: Fields) -> Decision:
    """POET's matrices: in stage t computation i runs where R[t][i] is 1; pages leave."""
    rows = _matrix(fields, "R", len(network))
    runs = [index for row in rows for index, value in enumerate(row) if value]
    execution = _of_runs(network, runs)
    if not fields.has("page_out"):
        return Decision("", execution)
    paged = {
        index
        for row in _matrix(fields, "page_out", len(network))
        for index, v in enumerate(row)
        if v
    }
    away = gaps_away(network, execution, lambda value: network.writer[value] in paged)
    return Decision("", execution, away)


def _matrix(fields: Fields, name: str, width: int) -> list[list[int]]:
    rows: list[Any] = fields.get(name, list)
    for place, row in enumerate(rows):
        if (
            not isinstance(row, list)
            or len(row) != width
            or any(value not in (0, 1) for value in row)
        ):
            raise InputError(
                f"{name}[{place}] must be a list of {width} times 0 or 1, a computation each"
            )
    return rows


def _of_runs(network: Network, runs: Sequence[int]) -> Execution:
    """Return the execution of a sequence; what nobody reads before it is made again is not kept."""
    missing = set(range(turn(network), len(network))) - set(runs)
    if missing:
        name = cut(network.computations[min(missing)].name)
        raise InputError(f"computation {min(missing)} ({name}) never runs")
    return Strategy(runs).without_unread(network).expand(network)


_READERS: Mapping[str, Callable[[Network, Fields], Decision]] = {
    "saved": _saved,
    "policies": _policies,
    "checkpointed-modules": _modules,
    "save_on_cpu": _save_on_cpu,
    "trainer": _trainer,
    "torchtune": _torchtune,
    "deepspeed": _deepspeed,
    "megatron": _megatron,
    "transformer-engine": _transformer_engine,
    "torchtitan": _torchtitan,
    "sequence": _sequence,
    "rotor": _rotor,
    "poet": _poet,
}
KINDS = tuple(_READERS)
