"""Data-parallel training through accelerate: every process computes its share of each batch.

``accelerate launch --num_processes 4 -m interp.cli train position-coupling-6l8h --data-parallel``. All processes hold
the same parameters and draw the same batch; each computes every n-th row, and the mean of their gradients is the
gradient of the whole batch. The first process writes the run folder.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.training.run_folder import RunFolder


class Share:
    """One process out of ``size``, which computes rows ``rank``, ``rank + size``, ... of every batch."""

    rank, size = 0, 1

    def mean(self, x: Tensor) -> Tensor:
        """The mean over all processes, returned on each of them."""
        return x

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process, so that all stop at the same step."""
        return flag

    def folder(self, folder: RunFolder) -> RunFolder:
        return folder


class AccelerateShare(Share):
    def __init__(self, device: torch.device):
        from accelerate import Accelerator

        self._accelerator: Any = Accelerator(cpu=device.type == "cpu")
        self.rank, self.size = self._accelerator.process_index, self._accelerator.num_processes
        self.device = self._accelerator.device
        if self.size == 1:
            raise UserError(
                "--data-parallel needs several processes: "
                "accelerate launch --num_processes 2 -m interp.cli train MODEL --data-parallel"
            )

    def mean(self, x: Tensor) -> Tensor:
        return self._accelerator.reduce(x, reduction="mean")

    def any(self, flag: bool) -> bool:
        flags = torch.tensor([float(flag)], device=self.device)
        return bool(self._accelerator.reduce(flags, reduction="sum").item())

    def folder(self, folder: RunFolder) -> RunFolder:
        """The folder itself in the first process, once it is set up; in the others, one that only reads."""
        return folder if self.rank == 0 else _ReadOnlyFolder(folder.path)


class _ReadOnlyFolder(RunFolder):
    """The folder in the other processes, as only the first one writes."""

    def _nothing(self, *_: Any, **__: Any) -> None:
        return None

    def open(self, config: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    save_checkpoint = append_metrics = rewind = save_snapshot = save_accepted = forget_accepted = _nothing
