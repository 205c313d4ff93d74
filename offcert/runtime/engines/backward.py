"""Streams in backward passes, as autograd's engine chooses them.

It runs each node in the stream that was current when the node was made, lets that wait for the
streams in which the node's gradients were computed, records these gradients for it, and lets the
caller's stream wait at the end for all streams in which gradients were accumulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from offcert.runtime.engines.recorder import Recorder
from offcert.runtime.simulated.streams import SimulatedEvent

# Before the audit, which puts another one in its place.
_RUN: Callable[..., Any] = torch.autograd.graph._engine_run_backward
# The number that autograd gives to all nodes that accumulate gradients, and more. Given by PyTorch.
_ACCUMULATES = 2**63


def run_with(recorder: Recorder) -> Callable[..., Any]:
    """Return the function that runs backward passes, for a recorder."""

    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        roots = [_root(each) for each in outputs]
        nodes = _nodes(roots)
        streams = _streams(recorder, nodes)
        if recorder.one_stream or set(streams.values()) <= {recorder.stream}:
            return _RUN(outputs, *args, **kwargs)
        return _Pass(recorder, roots, nodes, streams).run(outputs, *args, **kwargs)

    return run


def _root(output: Any) -> Any:
    if not isinstance(output, torch.Tensor):
        return output.node
    return torch.autograd.graph.get_gradient_edge(output).node


def _nodes(roots: Iterable[Any]) -> list[Any]:
    found, stack = [], [root for root in roots if root is not None]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        found.append(node)
        stack += [after for after, _ in node.next_functions if after is not None]
    return found


def _streams(recorder: Recorder, nodes: list[Any]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    first: dict[Any, int] = {}
    for node in nodes:
        number = node._sequence_nr()
        if number < _ACCUMULATES:
            found[node] = recorder.stream_of(number)
            for after, _ in node.next_functions:
                if after is not None:
                    first[after] = min(first.get(after, number), number)
    for node in nodes:
        if node not in found:
            # The node was made when its parameter was first used.
            found[node] = recorder.stream_of(first.get(node, 0))
    return found


class _Pass:
    """One backward pass in several streams."""

    def __init__(
        self, recorder: Recorder, roots: list[Any], nodes: list[Any], streams: dict[Any, int]
    ) -> None:
        self.recorder = recorder
        self.nodes = nodes
        self.streams = streams
        self.caller = recorder.stream
        begin = recorder.machine.record(self.caller)
        self.before: dict[Any, list[SimulatedEvent]] = {node: [] for node in nodes}
        for root in roots:
            self.before[root].append(begin)
        self.leaves: list[SimulatedEvent] = []

    def run(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        handles = []
        for node in self.nodes:
            handles.append(node.register_prehook(self._begins(node)))
            handles.append(node.register_hook(self._ended(node)))
        try:
            return _RUN(outputs, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
            self.recorder.stream = self.caller
            for event in self.leaves:
                self.recorder.machine.wait(self.caller, event)

    def _begins(self, node: Any) -> Callable[..., None]:
        def begins(gradients: Any) -> None:
            stream = self.streams[node]
            self.recorder.stream = stream
            for event in self.before[node]:
                if event.stream.index != stream:
                    self.recorder.machine.wait(stream, event)
            for gradient in gradients:
                if gradient is not None:
                    self.recorder.life(gradient).recorded.add(stream)

        return begins

    def _ended(self, node: Any) -> Callable[..., None]:
        def ended(*gradients: Any) -> None:
            event = self.recorder.machine.record(self.streams[node])
            for after, _ in node.next_functions:
                if after in self.before:
                    self.before[after].append(event)
            if not any(after is not None for after, _ in node.next_functions):
                self.leaves.append(event)

        return ended
