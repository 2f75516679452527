"""Equality of activations relative to their own scale."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-5, what: str = "") -> None:
    """Equal shapes, equal non-finite entries, and the others within ``tolerance`` of the largest magnitude.

    Goes into tuples, lists and dictionaries; things that are not tensors must be equal.
    """
    if isinstance(ours, (torch.Tensor, np.ndarray)):
        ours, theirs = torch.as_tensor(ours).detach().double(), torch.as_tensor(theirs).detach().double()
        assert ours.shape == theirs.shape, f"{what}: shape {list(ours.shape)} against {list(theirs.shape)}"
        finite = ours.isfinite()
        assert torch.equal(finite, theirs.isfinite()), f"{what}: different entries are finite"
        assert torch.equal(ours[~finite], theirs[~finite]), f"{what}: different infinities"
        if finite.any():
            scale = theirs[finite].abs().max().clamp(min=1e-6)
            worst = (ours[finite] - theirs[finite]).abs().max()
            assert worst <= tolerance * scale, f"{what}: off by {worst:.3g} at scale {scale:.3g}"
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs), f"{what}: keys {list(ours)} against {list(theirs)}"
        for key in ours:
            assert_same(ours[key], theirs[key], tolerance, f"{what}[{key!r}]")
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs), f"{what}: {len(ours)} against {len(theirs)} entries"
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, tolerance, f"{what}[{i}]")
    else:
        assert ours == theirs, f"{what}: {ours!r} against {theirs!r}"


def numbers_are_finite(text: str) -> bool:
    """Whether no number that is written in a text is NaN or infinite; words such as "dominant" are no numbers."""
    return re.search(r"(?<![A-Za-z])(nan|inf|infinity|NaN|-?∞)(?![A-Za-z])", text) is None
