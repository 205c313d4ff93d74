"""`CheckpointChain`: the chain of the papers about recomputation, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from offcert.core.chain import Chain, stage_count, stage_names, stage_numbers
from offcert.core.computations import Computation, Value
from offcert.core.errors import InputError
from offcert.core.network import Network

# The numbers of a chain by name, and how many more of each there are than stages. By definition.
CHECKPOINT_CHAIN_FIELDS = {
    "forward": 0,
    "backward": 0,
    "output": 1,
    "saved": 0,
    "gradient": 1,
    "forward_workspace": 0,
    "backward_workspace": 0,
}


@dataclass(frozen=True)
class CheckpointChain:
    """A sequence of stages of which each can run forward again (combined paper, Table 1).

    Stage `i`, from 0 to L, reads ``a_i`` and writes ``a_{i+1}``; run so that its backward operation
    can follow, it also keeps what lies between, so that ``saved[i]`` bytes (``a_{i+1}`` among them)
    are what its backward operation needs beside ``a_i`` and the gradient of its output. The papers
    count stages from 1: their ``a^i``, their ``ā^i`` and their ``δ^i`` are ``output[i]``,
    ``saved[i - 1]`` and ``gradient[i]`` here.

    Parameters
    ----------
    forward, backward : sequence of int, length L+1
        Ticks of ``F_i`` and ``B_i``.
    output : sequence of int, length L+2
        Bytes of ``a_0 … a_{L+1}``; ``a_0`` is the input of the network.
    saved : sequence of int, length L+1, optional
        Bytes of all that stage `i` keeps for its backward operation, its output among it; by
        default the output alone.
    gradient : sequence of int, length L+2, optional
        Bytes of the gradients of ``a_0 … a_{L+1}``; by default those of ``a``.
    forward_workspace, backward_workspace : sequence of int, length L+1, optional
        Bytes taken only while ``F_i`` or ``B_i`` runs; zero by default.
    names : sequence of str, length L+1, optional
        Names of the stages; ``"0"``, ``"1"``, … by default.

    Raises
    ------
    InputError
        If a length does not fit, a number is no integer or negative, or less is saved than the
        output.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    output: tuple[int, ...]
    saved: tuple[int, ...]
    gradient: tuple[int, ...]
    forward_workspace: tuple[int, ...]
    backward_workspace: tuple[int, ...]
    names: tuple[str, ...]

    def __init__(
        self,
        forward: Sequence[int],
        backward: Sequence[int],
        output: Sequence[int],
        saved: Sequence[int] | None = None,
        gradient: Sequence[int] | None = None,
        forward_workspace: Sequence[int] | None = None,
        backward_workspace: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        stages = stage_count(forward)
        zeros = [0] * stages
        numbers: dict[str, Sequence[int]] = {
            "forward": forward,
            "backward": backward,
            "output": output,
            "saved": output[1:] if saved is None else saved,
            "gradient": output if gradient is None else gradient,
            "forward_workspace": zeros if forward_workspace is None else forward_workspace,
            "backward_workspace": zeros if backward_workspace is None else backward_workspace,
        }
        for name, more in CHECKPOINT_CHAIN_FIELDS.items():
            checked = stage_numbers(name, numbers[name], stages + more, stages)
            object.__setattr__(self, name, checked)
        for stage in range(stages):
            if self.saved[stage] < self.output[stage + 1]:
                raise InputError(
                    f"chain.saved[{stage}] must be at least the output of the stage, "
                    f"{self.output[stage + 1]}, not {self.saved[stage]}"
                )
        object.__setattr__(self, "names", stage_names(names, stages))

    @classmethod
    def of(cls, chain: Chain) -> CheckpointChain:
        """Return a chain of the offloading paper, whose stages keep nothing but their output."""
        return cls(
            chain.forward,
            chain.backward,
            chain.activation,
            None,
            chain.gradient,
            chain.forward_workspace,
            chain.backward_workspace,
            chain.names,
        )

    def __len__(self) -> int:
        """Return the number of stages, L+1."""
        return len(self.forward)

    def __repr__(self) -> str:
        return (
            f"<CheckpointChain: {len(self)} stages; forward {sum(self.forward)}, backward "
            f"{sum(self.backward)}, outputs {sum(self.output)}, saved {sum(self.saved)}>"
        )

    @property
    def extra(self) -> tuple[int, ...]:
        """For each stage, bytes that it saves beside its output."""
        return tuple(
            saved - output for saved, output in zip(self.saved, self.output[1:], strict=True)
        )

    def network(self) -> Network:
        """Return the chain as a network.

        Returns
        -------
        Network
            Computations ``F_0 … F_L B_L … B_0``; values ``a_0 … a_{L+1}``, what the stages keep
            beside it (``e_0 … e_L``), and the gradients ``d_0 … d_{L+1}``, which cannot leave. Of a
            forward operation that keeps its output only (``F_ck``, ``F_∅``), what lies between
            takes no memory. The same object every time.
        """
        return self._network

    @cached_property
    def _network(self) -> Network:
        stages = len(self)
        first_extra, first_gradient = stages + 1, 2 * stages + 1
        values = [Value(f"a{i}", size) for i, size in enumerate(self.output)]
        values += [Value(f"e{i}", size) for i, size in enumerate(self.extra)]
        values += [Value(f"d{i}", size, evictable=False) for i, size in enumerate(self.gradient)]
        computations = [
            Computation(
                f"F{i}",
                self.forward[i],
                self.forward_workspace[i],
                reads=(i,),
                writes=(i + 1, first_extra + i),
                lean=self.forward_workspace[i],
            )
            for i in range(stages)
        ]
        for i in reversed(range(stages)):
            gradient = first_gradient + i
            last = i == stages - 1
            computations.append(
                Computation(
                    f"B{i}",
                    self.backward[i],
                    self.backward_workspace[i],
                    reads=(i, i + 1, first_extra + i, *(() if last else (gradient + 1,))),
                    # The gradient of the network's output appears with the last stage's.
                    writes=(gradient, gradient + 1) if last else (gradient,),
                    repeatable=False,
                    of=(i,),
                )
            )
        return Network(computations, values)
