"""Activation patching sweeps: fast, labelled, with intervals, and checked against the model's own hooks."""

from interp.patching.sites import SITES
from interp.patching.sweep import PatchingSweep, activation_patching, patch_sweep
from interp.patching.values import PatchMismatch

__all__ = ["SITES", "PatchMismatch", "PatchingSweep", "activation_patching", "patch_sweep"]
