"""Borrowing a user's model: whatever a captured step does to it is undone.

Parameters and buffers can be replaced by fake tensors meanwhile, wherever the model's Python
objects hold them, so that no weight is copied.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

from offcert.runtime.capture.python_state import PythonState, Replace


@contextmanager
def borrowed(*objects: Any, replace: Replace | None = None) -> Iterator[None]:
    """Put back attributes, lists, dictionaries, sets and gradients as they were before the block.

    Parameters
    ----------
    *objects : object
        What is borrowed, with all that can be reached from there through attributes, containers,
        methods and closures.
    replace : callable, optional
        Gives the tensor that stands for another one in the block, in modules and in what can be
        reached from them.
    """
    state = PythonState(replace)
    for thing in objects:
        state.visit(thing)
    gradients = [(leaf, leaf.grad) for leaf in state.leaves.values()]
    try:
        for leaf, _ in gradients:
            leaf.grad = None
        yield
    finally:
        state.restore()
        for leaf, gradient in gradients:
            leaf.grad = gradient


@contextmanager
def python_state_kept(*objects: Any) -> Iterator[None]:
    """Put back attributes, lists, dictionaries and sets, but nothing that a step computes.

    Parameters
    ----------
    *objects : object
        As for `borrowed`.
    """
    state = PythonState(numbers=False)
    for thing in objects:
        state.visit(thing)
    try:
        yield
    finally:
        state.restore()


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put back the state of every generator of random numbers that models use without asking."""
    python = random.getstate()
    numbers = numpy.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        numpy.random.set_state(numbers)
