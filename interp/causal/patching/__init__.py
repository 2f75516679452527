"""Activation patching sweeps: fast, labelled, with intervals, and checked against the model's own hooks."""

from interp.causal.patching.activation_patching import activation_patching
from interp.causal.patching.patch_sites import SITES
from interp.causal.patching.patching_result import PatchingSweep
from interp.causal.patching.patching_values import PatchMismatch
