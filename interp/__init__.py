"""Tools that ask questions of a model; they use only its hooks, cache, ``cfg`` and ``W_*``.

    adder = models.load("microadder-57")
    interp.probes(adder)                         what can be asked of it, one line each

    interp.attention_by_role(adder).figure()     where each answer digit looks
    interp.carry_units(adder).to_dataframe()     which neurons detect the carry, and which carry it
    interp.certify(adder)                        right on all 10^20 pairs: a proof, or a pair that is wrong
    interp.compare(adder, other).figure()        two models of one format, part by part
    interp.explore(adder, other)                 in Jupyter: any problem, step by step, any part removed
    interp.save_figure(result, "figure.svg")     also .pdf, .png, .html and .json
    interp.dark(result)                          its figure on a dark ground, for dark notebooks and slides

    pairs = problem_pairs(adder.task, "carry", column=4, n=256)   from models.tasks: clean and corrupted problems
    interp.activation_patching(adder, pairs, site="resid_pre").figure()

Every probe returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``. All registered probes
are names of this package, including those of single papers (:mod:`interp.papers`) and your own
(:mod:`interp.core.probe`).

The subpackages, each of which imports only earlier ones: :mod:`interp.core`; :mod:`interp.probes` (which only
observe), :mod:`interp.causal` (which intervene), :mod:`interp.proofs`; :mod:`interp.compare`; :mod:`interp.figures`;
:mod:`interp.papers`; :mod:`interp.site`; :mod:`interp.cli`.
"""

import ast
import sys
from difflib import get_close_matches
from importlib import import_module
from inspect import getsource, isfunction
from typing import TYPE_CHECKING, Any

from interp.core import own_models as _own_models  # noqa: F401  before anything imports models

if TYPE_CHECKING:
    from interp.causal.ablation import component_ablation as component_ablation
    from interp.causal.ablation import parameter_ablation as parameter_ablation
    from interp.causal.circuits import smallest_circuit as smallest_circuit
    from interp.causal.edges import edge_attribution as edge_attribution
    from interp.causal.edges import path_patching as path_patching
    from interp.causal.interchange import causal_scrubbing as causal_scrubbing
    from interp.causal.interchange import chained_claims as chained_claims
    from interp.causal.interchange import interchange_sweep as interchange_sweep
    from interp.causal.interchange import which_algorithm as which_algorithm
    from interp.causal.patching import activation_patching as activation_patching
    from interp.causal.patching import patch_sweep as patch_sweep
    from interp.compare.across import compare_models as compare_models
    from interp.compare.alignment import align as align
    from interp.compare.connectivity import mode_connectivity as mode_connectivity
    from interp.compare.seeds import seed_distances as seed_distances
    from interp.compare.swaps.swaps import swap_components as swap_components
    from interp.core.probe import probe as probe
    from interp.core.results import Provenance as Provenance
    from interp.core.results import Result as Result
    from interp.figures.dark import dark as dark
    from interp.figures.save import save_figure as save_figure
    from interp.probes.attention import attention_by_role as attention_by_role
    from interp.probes.carry import carry_units as carry_units
    from interp.probes.curves import learning_curves as learning_curves
    from interp.probes.dynamics import training_dynamics as training_dynamics
    from interp.probes.embeddings import circle_fit as circle_fit
    from interp.probes.embeddings import fourier_spectrum as fourier_spectrum
    from interp.probes.heatmaps.grid import exact_match_grid as exact_match_grid
    from interp.probes.heatmaps.offset_sweeps import greedy_agreement as greedy_agreement
    from interp.probes.heatmaps.offset_sweeps import offset_sweep as offset_sweep
    from interp.probes.helices import helix_fit as helix_fit
    from interp.probes.lens import linear_probes as linear_probes
    from interp.probes.lens import logit_attribution as logit_attribution
    from interp.probes.lens import logit_lens as logit_lens
    from interp.probes.score import accuracy_by_chain as accuracy_by_chain
    from interp.probes.score import score as score
    from interp.probes.stress import stress_suites as stress_suites
    from interp.probes.written_number import written_number as written_number
    from interp.proofs import accuracy_bounds as accuracy_bounds
    from interp.proofs import certify as certify
    from interp.proofs.attacks import attack as attack
    from interp.proofs.decompile import decompile as decompile
    from interp.site.explorer import explore as explore

_ROOMS = ("core", "probes", "causal", "proofs", "compare", "figures", "papers", "site", "cli")
#: The module of each name imported above; it is imported when one of its names is first used.
_HOME = {
    alias.name: str(each.module)
    for block in ast.parse(getsource(sys.modules[__name__])).body
    if isinstance(block, ast.If)
    for each in block.body
    if isinstance(each, ast.ImportFrom)
    for alias in each.names
}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """A public name, a subpackage, or any other registered probe. Probes check their arguments when they are called."""
    if name in _ROOMS:
        return import_module(f"interp.{name}")
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from interp.core.probe import known, registered
    from models.questions import question

    if name in _HOME:
        found = getattr(import_module(_HOME[name]), name)
        if isfunction(found) and name != "probe":
            found = known(name) or question(found)
    else:
        registered()
        found = known(name)
    if found is None:
        near = get_close_matches(name, [*_HOME, *registered()], 1)
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Every registered probe is listed, which imports the modules of all of them."""
    from interp.core.probe import registered

    return sorted({*globals(), *__all__, *_ROOMS, *registered()})
