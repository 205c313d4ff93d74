"""Two processes of DistributedDataParallel under a plan reduce what plain ones reduce."""

import subprocess
import sys
from pathlib import Path

import torch

WORKER = Path(__file__).with_name("ddp_worker.py")


def test_gradients_are_those_of_plain_data_parallel_training(tmp_path):
    processes = [
        subprocess.Popen(
            [
                sys.executable, str(WORKER), str(rank), "2", str(tmp_path / "meeting"),
                str(tmp_path / f"{rank}.pt"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for found in (first, second):
        assert found["equal"]
        assert found["steps"] == {"planned": 4}
        assert found["follows"]
        assert found["moved"]
        assert found["hooks"] == 0
    # They have had different batches, so equal gradients have been reduced.
    assert first["gradients"] == second["gradients"]
