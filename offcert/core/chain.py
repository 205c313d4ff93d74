"""`Chain`: the stages of a sequential network, as the papers describe them."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import cached_property

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.trace import Operation, Tensor, Trace, require_integer


@dataclass(frozen=True, init=False)
class Chain:
    """A chain of stages ``0..L``; ``F_i`` reads ``x_i`` and writes ``x_{i+1}``.

    ``B_i`` reads ``x_i``, ``x_{i+1}`` and ``y_{i+1}`` and writes ``y_i`` (offloading paper, §3.1).

    Parameters
    ----------
    forward, backward : sequence of int, length L+1
        Durations of ``F_i`` and ``B_i`` in ticks.
    activation, gradient : sequence of int, length L+2
        Bytes of ``x_i`` and ``y_i``.
    forward_workspace, backward_workspace : sequence of int, length L+1, optional
        Bytes taken only while ``F_i`` or ``B_i`` runs; zero by default.
    names : sequence of str, length L+1, optional
        Names of the stages; ``"0"``, ``"1"``, … by default.

    Raises
    ------
    InputError
        If a length does not fit, or a number is no integer or negative.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    activation: tuple[int, ...]
    gradient: tuple[int, ...]
    forward_workspace: tuple[int, ...]
    backward_workspace: tuple[int, ...]
    names: tuple[str, ...]

    def __init__(
        self,
        forward: Sequence[int],
        backward: Sequence[int],
        activation: Sequence[int],
        gradient: Sequence[int],
        forward_workspace: Sequence[int] | None = None,
        backward_workspace: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        stages = stage_count(forward)
        numbers = {
            "forward": forward,
            "backward": backward,
            "activation": activation,
            "gradient": gradient,
            "forward_workspace": [0] * stages if forward_workspace is None else forward_workspace,
            "backward_workspace": [0] * stages
            if backward_workspace is None
            else backward_workspace,
        }
        for name, values in numbers.items():
            expected = stages + 1 if name in ("activation", "gradient") else stages
            object.__setattr__(self, name, stage_numbers(name, values, expected, stages))
        object.__setattr__(self, "names", stage_names(names, stages))

    def __len__(self) -> int:
        """Return the number of stages, L+1."""
        return len(self.forward)

    def __repr__(self) -> str:
        return (
            f"<Chain: {len(self)} stages; forward {sum(self.forward)}, backward "
            f"{sum(self.backward)}, activations {sum(self.activation)}>"
        )

    def trace(self) -> Trace:
        """Return the chain as a trace.

        Returns
        -------
        Trace
            Operations ``F_0 … F_L B_L … B_0``; tensors ``x_0 … x_{L+1} y_{L+1} … y_0`` in this
            order, of which only the activations are evictable. ``x_i`` has one gap, from ``F_i``
            to ``B_i``. The same object every time: problems that differ in their limits share it.
        """
        return self._trace

    @cached_property
    def _trace(self) -> Trace:
        stages = len(self)
        operations = [
            Operation(f"F{i}", self.forward[i], self.forward_workspace[i]) for i in range(stages)
        ]
        operations += [
            Operation(f"B{i}", self.backward[i], self.backward_workspace[i])
            for i in reversed(range(stages))
        ]
        last = 2 * stages - 1
        tensors = []
        for i in range(stages + 1):
            # F_{i-1} writes, F_i and B_i read, B_{i-1} reads last; stage L+1 does not exist.
            uses = {i - 1} | ({i, last - i} if i < stages else set())
            uses |= {last - (i - 1)} if i > 0 else set()
            tensors.append(Tensor(f"x{i}", self.activation[i], tuple(sorted(uses))))
        for i in reversed(range(stages + 1)):
            # B_i writes, B_{i-1} reads; y_{L+1} appears with B_L.
            uses = ({last - i} if i < stages else set()) | ({last - (i - 1)} if i > 0 else set())
            tensors.append(Tensor(f"y{i}", self.gradient[i], tuple(sorted(uses)), evictable=False))
        return Trace(operations, tensors)


def stage_count(forward: object) -> int:
    """Return the number of stages, which is that of their forward operations."""
    stages = _length("forward", forward)
    if stages == 0:
        raise InputError("chain.forward must not be empty")
    return stages


def stage_numbers(
    name: str, values: Sequence[object], expected: int, stages: int
) -> tuple[int, ...]:
    """Return the numbers of a field of a chain."""
    _require_length(name, values, expected, stages)
    return tuple(
        require_integer(value, f"chain.{name}[{index}]", 0) for index, value in enumerate(values)
    )


def stage_names(names: Sequence[str] | None, stages: int) -> tuple[str, ...]:
    """Return the names of the stages; ``"0"``, ``"1"``, … without any."""
    labels = [str(stage) for stage in range(stages)] if names is None else names
    _require_length("names", labels, stages, stages)
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise InputError(f"chain.names[{index}] must be a string, not {short_repr(label)}")
    return tuple(labels)


def _require_length(name: str, values: Sequence[object], expected: int, stages: int) -> None:
    found = _length(name, values)
    if found != expected:
        raise InputError(
            f"chain.{name} must have {expected} entries for {stages} stages, not {found}"
        )


def _length(name: str, values: object) -> int:
    if not isinstance(values, Sized) or isinstance(values, str):
        raise InputError(f"chain.{name} must be a sequence, not {short_repr(values)}")
    return len(values)
