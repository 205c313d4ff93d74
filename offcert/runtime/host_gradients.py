"""Data-parallel training whose gradients the host adds up while the backward pass still runs.

What moDNN proposes for several GPUs (Chen et al., TPDS 2019, §6.2), with processes of
``torch.distributed``: each device is a process, and so is the host. A gradient is sent as soon as
it is complete; the host adds those of all devices in the devices' order, whatever order they
arrive in, and sends the sum back while other gradients are on their way. So the sums are bitwise
those of adding the gradients up after the backward pass, device after device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from offcert.core.errors import InputError
from offcert.core.trace import require_integer
from offcert.runtime.torch_private import undispatched


class HostGradients(AbstractContextManager["HostGradients"]):
    """A device's side: sends gradients as they come, and gets their sums.

    Inside the context, after every backward pass of which the gradients count::

        with HostGradients(model.parameters(), host=2) as exchange:
            for batch in batches:
                *others, last = sub_batches(batch, 16)
                with exchange.kept():
                    for part in others:
                        part.scaled(loss_of(model, part.batch)).backward()
                last.scaled(loss_of(model, last.batch)).backward()
                exchange.finish()
                optimiser.step()
                optimiser.zero_grad()

    Every device makes the same update with the same sums, instead of getting the new weights: that
    is as much to send, and weights stay bitwise alike.

    Parameters
    ----------
    parameters : iterable of Parameter
        Parameters whose gradients are added up; the same, in the same order, on the host.
    host : int
        Rank of the process that runs `add_gradients`.
    group : ProcessGroup, optional
        Where ranks are counted; by default all processes.

    Raises
    ------
    InputError
        If no parameter requires a gradient.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], host: int, group: dist.ProcessGroup | None = None
    ) -> None:
        self._parameters = _training(parameters)
        self._host = require_integer(host, "host", 0)
        self._group = group
        self._keeping = False
        self._hooks: list[Any] = []
        self._sent: dict[int, tuple[Any, torch.Tensor]] = {}
        self._awaited: list[tuple[Any, torch.Tensor]] = []

    def __enter__(self) -> HostGradients:
        """Watch the gradients."""
        numbers = {id(each): number for number, each in enumerate(self._parameters)}

        def complete(parameter: torch.Tensor) -> None:
            if not self._keeping:
                self._send(numbers[id(parameter)])

        self._hooks = [
            each.register_post_accumulate_grad_hook(complete) for each in self._parameters
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Watch them no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep gradients on the device in a block: those of all sub-batches but the last."""
        before, self._keeping = self._keeping, True
        try:
            yield
        finally:
            self._keeping = before

    def finish(self) -> None:
        """Wait for the sums; they replace the gradients.

        A parameter that took no part counts with a gradient of zeros.

        Raises
        ------
        InputError
            If the backward pass was run several times, so that a gradient changed after it was
            sent; `kept` is for the passes before the last one.
        """
        for number, parameter in enumerate(self._parameters):
            if number not in self._sent:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self._send(number)
        for (sent, _), (received, total), parameter in zip(
            (self._sent[number] for number in range(len(self._parameters))),
            self._awaited,
            self._parameters,
            strict=True,
        ):
            sent.wait()
            received.wait()
            assert parameter.grad is not None
            parameter.grad.copy_(total.view_as(parameter.grad))
        self._sent.clear()
        self._awaited.clear()

    def _send(self, number: int) -> None:
        if number in self._sent:
            raise InputError(
                f"gradient {number} was sent already: all backward passes of a step but the last "
                "belong inside kept()"
            )
        # Buffers of the exchange are the host's memory: no mode that counts the device's sees them.
        if not self._awaited:
            # All sums can be received from now on, whichever is made first.
            for index, parameter in enumerate(self._parameters):
                with undispatched():
                    total = torch.empty(parameter.numel(), dtype=parameter.dtype)
                tag = len(self._parameters) + index
                work = dist.irecv(total, self._host, self._group, tag)
                self._awaited.append((work, total))
        gradient = self._parameters[number].grad
        assert gradient is not None
        # What is sent must not change meanwhile, and lie in one piece.
        with undispatched():
            sent = gradient.detach().reshape(-1).clone()
        self._sent[number] = dist.isend(sent, self._host, self._group, number), sent


def add_gradients(
    parameters: Iterable[nn.Parameter],
    devices: Sequence[int],
    steps: int,
    group: dist.ProcessGroup | None = None,
    *,
    mean: bool = True,
) -> None:
    """Be the host: add up the gradients of all devices, for some steps.

    Parameters
    ----------
    parameters : iterable of Parameter
        Of a model like the devices'; only shapes and types matter.
    devices : sequence of int
        Ranks of the processes whose gradients are added, in the order of the additions.
    steps : int
        For how many steps.
    group : ProcessGroup, optional
        Where ranks are counted.
    mean : bool
        Whether to divide each sum by the number of devices, as data-parallel training does.

    Raises
    ------
    InputError
        If there are no devices, or no parameter requires a gradient.
    """
    shapes = _training(parameters)
    if not devices:
        raise InputError("devices must not be empty")
    for _ in range(require_integer(steps, "steps", 0)):
        _add_once(shapes, devices, group, mean)


def _add_once(
    parameters: list[nn.Parameter],
    devices: Sequence[int],
    group: dist.ProcessGroup | None,
    mean: bool,
) -> None:
    arriving: list[list[tuple[Any, torch.Tensor]]] = []
    for number, parameter in enumerate(parameters):
        row = []
        for rank in devices:
            buffer = torch.empty(parameter.numel(), dtype=parameter.dtype)
            row.append((dist.irecv(buffer, rank, group, number), buffer))
        arriving.append(row)
    leaving: list[Any] = []
    # The last layers' gradients come first.
    for number in reversed(range(len(parameters))):
        (first, total), *others = arriving[number]
        first.wait()
        for work, buffer in others:
            work.wait()
            total.add_(buffer)
        if mean:
            total.div_(len(devices))
        tag = len(parameters) + number
        leaving += [dist.isend(total, rank, group, tag) for rank in devices]
    for work in leaving:
        work.wait()


def _training(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    found = [each for each in parameters if each.requires_grad]
    if not found:
        raise InputError("no parameter requires a gradient")
    return found
