"""What is found out about a submission in the process where it runs: its weights, logits and answers, as data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.tasks.named.addition import PairAddition
from studies.adderboard.families import FAMILIES
from studies.adderboard.families.parts import Family
from studies.adderboard.framed_addition import framed_addition
from studies.adderboard.reading import Submission, float32_as_float64, run

#: Prompts on which logits are compared, each with no digit of its answer and with all but one.
COMPARED = ((31, 0), (0, 5), (9999999999, 1), (1234567890, 8765432109), (5050505050, 4949494949))
_PLAIN = (str, int, float, bool)


def describe(path: str, pairs: Sequence[Sequence[int]]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Run a submission, and return what it computes.

    Returns:
        tensors: "own/NAME", the effective weights as the file's numbers give them, and "own/logits", the outputs on
            :func:`compared_rows`; "wide/..." the same with float64 in place of float32, unless the file cannot do that.
            No weights if the architecture is not known.
        facts: family (None if it is not known), config, frame, metadata, free (how many numbers it holds as
            parameters), bits, answers to ``pairs``, and remarks.
    """
    submission = run(Path(path))
    task = framed_addition(submission.frame)
    family = next((family for family in FAMILIES if family.recognises(submission)), None)
    parameters = submission.parameters.values()
    facts: dict[str, Any] = {
        "family": None if family is None else family.name,
        "frame": asdict(submission.frame),
        "metadata": {str(k): v for k, v in submission.metadata.items() if isinstance(v, _PLAIN)},
        "free": sum(value.numel() for value in parameters),
        "bits": sum(value.numel() * value.element_size() * 8 for value in parameters),
        "answers": [submission.add(a, b) for a, b in pairs],
        "remarks": list(submission.remarks),
    }
    if re.search(r"^\s*(from|import) mlx", Path(path).read_text(encoding="utf-8"), re.MULTILINE):
        facts["remarks"].append("PyTorch's operations were used in place of those of mlx, which it imports.")
    tensors, facts["config"] = _computed(submission, family, task, "own")
    if family is not None:
        try:
            with float32_as_float64():
                again = run(Path(path))
                tensors |= _computed(again, family, task, "wide")[0]
        except Exception:  # whatever a file raises that insists on float32: it is compared as it is
            facts["remarks"].append("It does not run in float64, so that its logits were compared in float32.")
    return tensors, facts


def compared_rows(task: PairAddition) -> list[Tensor]:
    """Rows of tokens [1, pos]: the beginnings of ``COMPARED`` that logits are compared on."""
    lengths = task.query_positions[0] + 1, task.input_length
    return [row[:, :length] for row in task.encode(list(COMPARED)).split(1) for length in lengths]


def _computed(
    submission: Submission, family: Family | None, task: PairAddition, prefix: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(outputs on :func:`compared_rows`, with the weights if the family is known; its config)."""
    found = {"logits": torch.stack([submission.last_output(row) for row in compared_rows(task)])}
    config: dict[str, Any] = {}
    if family is not None:
        like = next((value.detach() for value in submission.parameters.values()), None)
        if like is None:
            raise UserError("it holds no numbers")
        like = like if like.dtype in (torch.float32, torch.float64) else like.float()
        config, weights = family.read(submission, like, task.input_length)
        found |= {name: value.detach().to(like.dtype) for name, value in weights.items()}
    return {f"{prefix}/{name}": value for name, value in found.items()}, config
