"""PyTorch's allocator on CUDA, and what the simulated device makes of it."""

import json
import os
import random
import subprocess
import sys

import pytest

from offcert_lab.engines.allocator import CachingAllocator

pytestmark = pytest.mark.cuda

_MIB = 2**20

# In a process of its own, in which nobody else has memory.
_PROGRAM = """
import json, sys, torch
torch.zeros(0, device="cuda")
held, readings = {}, []
assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
for number, size in enumerate(json.load(sys.stdin)):
    if size >= 0:
        held[number] = torch.empty(size, dtype=torch.uint8, device="cuda")
    else:
        del held[-1 - size]
    readings.append([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
print(json.dumps(readings))
"""


def _sizes():
    """Return bytes to take, and, below 0, whose to give back."""
    chance, rows, held = random.Random(0), [], []
    for number in range(600):
        if held and chance.random() < 0.48:
            rows.append(-1 - held.pop(chance.randrange(len(held))))
        else:
            top = chance.choice([2000, _MIB, 3 * _MIB, 10 * _MIB, 12 * _MIB, 40 * _MIB])
            rows.append(chance.randint(top // 2, top))
            held.append(number)
    return rows


def test_the_simulated_allocator_takes_what_pytorch_takes():
    # Other settings of the allocator are not simulated.
    environment = {key: value for key, value in os.environ.items() if "ALLOC_CONF" not in key}
    sizes = _sizes()
    answer = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(sizes),
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    simulated, held, readings = CachingAllocator(None, "simulated"), {}, []
    for number, size in enumerate(sizes):
        if size >= 0:
            held[number] = simulated.take(size)
        else:
            simulated.give_back(held.pop(-1 - size))
        reading = simulated.read()
        readings.append([reading.allocated, reading.reserved])
    assert json.loads(answer) == readings
