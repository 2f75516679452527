"""Questions to ask of a model, through hooks, cache, ``cfg`` and ``W_*`` only.

    adder = models.load("microadder-57")
    interp.probes(adder)                         what can be asked of it, with a line each

    interp.attention_by_role(adder).figure()     where each answer digit looks
    interp.carry_units(adder).to_dataframe()     which neurons detect the carry, and which carry it
    interp.certify(adder)                        right on all 10^20 pairs: a proof, or a pair that is wrong
    interp.compare(adder, other).figure()        two models of one format, part by part
    interp.explore(adder, other)                 in Jupyter: type a problem, step through the answer, ablate by a click

    pairs = problem_pairs(adder.task, "carry", column=4, n=256)   from models.tasks: clean and corrupted problems
    interp.activation_patching(adder, pairs, site="resid_pre").figure()

Every probe returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``. All registered probes
are names of this package, those of single papers (:mod:`interp.papers`) and one's own (:mod:`interp.core.probe`) too.

Rooms, each of which knows those before it alone: :mod:`interp.core`; :mod:`interp.probes` (look, do not touch),
:mod:`interp.causal` (touch), :mod:`interp.proofs`; :mod:`interp.compare`; :mod:`interp.figures`;
:mod:`interp.papers`; :mod:`interp.site`; :mod:`interp.cli`.
"""

from typing import Any

from interp.core import own_models as _own_models  # isort: skip  # noqa: F401  before all that imports models
from interp.causal.ablation import component_ablation, double_dissociation, parameter_ablation
from interp.causal.circuits import smallest_circuit
from interp.causal.edges import edge_attribution, path_patching
from interp.causal.interchange import causal_scrubbing, chained_claims, interchange_sweep, which_algorithm
from interp.causal.patching import activation_patching, patch_sweep
from interp.compare.across import compare_models
from interp.compare.alignment import align
from interp.compare.connectivity import mode_connectivity
from interp.compare.seeds import seed_distances
from interp.compare.swaps.swaps import swap_components
from interp.core import probe as _registry
from interp.core.probe import probe
from interp.core.results import Provenance, Result
from interp.probes.accuracy import accuracy_by_chain
from interp.probes.attention import attention_by_role
from interp.probes.carry import carry_units
from interp.probes.dynamics import grokking_curves, training_dynamics
from interp.probes.embeddings import circle_fit, fourier_spectrum
from interp.probes.heatmaps.grid import exact_match_grid
from interp.probes.heatmaps.offset_sweeps import greedy_agreement, offset_sweep
from interp.probes.helices import helix_fit
from interp.probes.lens import linear_probes, logit_attribution, logit_lens
from interp.probes.stress import stress_suites
from interp.proofs import accuracy_bounds, certify
from interp.proofs.attacks import attack
from interp.site.explorer import explore

__all__ = [
    "probe",
    "Result",
    "Provenance",
    "accuracy_by_chain",
    "stress_suites",
    "attention_by_role",
    "carry_units",
    "circle_fit",
    "helix_fit",
    "fourier_spectrum",
    "linear_probes",
    "logit_attribution",
    "logit_lens",
    "exact_match_grid",
    "offset_sweep",
    "greedy_agreement",
    "grokking_curves",
    "training_dynamics",
    "activation_patching",
    "patch_sweep",
    "path_patching",
    "edge_attribution",
    "smallest_circuit",
    "component_ablation",
    "parameter_ablation",
    "double_dissociation",
    "which_algorithm",
    "interchange_sweep",
    "causal_scrubbing",
    "chained_claims",
    "certify",
    "accuracy_bounds",
    "attack",
    "compare_models",
    "align",
    "mode_connectivity",
    "seed_distances",
    "swap_components",
    "explore",
]

# A probe's arguments are checked where it is asked; modules of this package call each other unchecked.
globals().update({name: _registry.known(name) for name in __all__ if _registry.known(name) is not None})
_registry.make_callable("interp.probes", _registry.probes)
_registry.make_callable("interp.compare", _registry.find_probe("compare").ask)


def __getattr__(name: str) -> Any:
    """A registered probe that is not imported yet."""
    if not name.startswith("_") and (found := _registry.registered().get(name)) is not None:
        return found.ask
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
