"""Data-parallel training: two processes end where one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from models.errors import UserError
from models.families.position_coupling import SMALL
from models.tasks import MultiOperandAddition
from models.training import train
from models.training.data_parallel import Share
from models.training.run_folder import RunFolder
from models.training.sequence_objective import SequenceStream

NAME = "position-coupling-1l4h-d32-small"
FLAGS = [
    "--steps",
    "4",
    "--batch-size",
    "15",
    "--eval-every",
    "2",
    "--validation-size",
    "16",
    "--snapshots",
    "1",
    "--no-autocast",
]
ROOT = Path(__file__).resolve().parents[3]


def test_the_shares_of_a_batch_are_the_batch() -> None:
    class Half(Share):
        def __init__(self, rank: int):
            self.rank, self.size = rank, 2

    source, task = SMALL["addition"].training_set, MultiOperandAddition(4, 4)
    stream = lambda share: SequenceStream(task, source, 15, [0], torch.device("cpu"), share).batch(3)  # noqa: E731
    (whole,), (count,) = stream(Share())
    (first,), (half,) = stream(Half(0))
    (second,), _ = stream(Half(1))
    assert half * 2 == count
    for bucket, one, other in zip(whole, first, second, strict=True):
        joined = torch.cat((one.targets, other.targets))
        assert sorted(joined.tolist()) == sorted(bucket.targets.tolist())


@pytest.mark.slow
def test_two_processes_end_where_one_does(tmp_path: Path) -> None:
    command = ["train", NAME, "--device", "cpu", *FLAGS]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    # On CPUs accelerate's own launcher wants MPI; torchrun sets what its Accelerator reads.
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29531"]
    launch += ["-m", "interp.cli"]
    both = [*launch, *command, "--data-parallel", "--out", str(tmp_path / "two")]
    alone = [sys.executable, "-m", "interp.cli", *command, "--out", str(tmp_path / "one")]
    for arguments in (alone, both):
        done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    one, two = (RunFolder(tmp_path / name).load_checkpoint()[1]["theta"] for name in ("one", "two"))
    torch.testing.assert_close(two, one, rtol=1e-3, atol=1e-5)


def test_one_process_is_nothing_to_split(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="accelerate launch"):
        train(NAME, tmp_path / "run", device="cpu", data_parallel=True, progress=False)


def test_models_of_a_few_parameters_are_not_split(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="many seeds in one"):
        train("microadder-57", tmp_path / "run", data_parallel=True, progress=False)
