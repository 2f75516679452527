"""Activation patching sweeps: fast, labelled, with intervals, and checked against the model's own hooks."""

from interp.causal.patching.result import PatchingSweep
from interp.causal.patching.sites import SITES
from interp.causal.patching.sweep import activation_patching, patch_sweep
from interp.causal.patching.values import PatchMismatch
