"""Questions to ask of a model, through hooks, cache, ``cfg`` and ``W_*`` only.

    interp.accuracy_by_chain(adder).figure()     how often it is right, by carry-chain length
    interp.stress_suites(adder).figure()         and on problems that uniform tests do not contain
    interp.attention_by_role(adder).figure()     where each answer digit looks
    interp.carry_units(adder).to_dataframe()     which MLP units detect the carry, and which carry
    interp.circle_fit(adder.W_E)                 what shape the embedding has
    interp.helix_fit(adder.W_pos[:10])           and the positions
    interp.fourier_spectrum(adder.W_E)

    interp.named_stream(built, "$12+34=00>21>64").figure()   a construction's residual stream by named dimension
    interp.sum_units(built).figure()             the one number from which its MLP makes a digit

    interp.needed_attention(summer, summer.task.at(6, 5)).figure()    where heads look while adding many numbers
    interp.head_roles(summer)                    which constructed role each plays
    interp.pattern_substitution(summer)          whether the ideal pattern is enough
    interp.coupled_comparison(summer)            trained beside hand-built, head by head
    interp.attended_growth(summer).figure()      tokens attended to, over the number of operands
    interp.first_errors(summer).figure()         where the response goes wrong first
    interp.exact_match_grid(summer).figure()     how often it is right, by digits and operands
    interp.offset_sweep(summer, (6, 6)).figure() and by where its position ids start

    interp.compare(adder, other).figure()        two models of one format: heads, units and circuits beside each other
    interp.compare_models([adder, summer]).figure()   models of any formats: one row a model, one column a question
    interp.swap_components(adder, other).figure()    what survives when one's parts replace the other's
    interp.mode_connectivity(adder, seed).figure()   two seeds: the loss on the straight line between them, aligned
    interp.seed_distances([adder, seed, other])  and how far apart their parameters and answers are
    interp.explore(adder, other)                 in Jupyter: type a problem, step through the answer, ablate by a click
    interp.papers.headlines.table().figure()     every headline number of the five papers, ours, and how to make it

    interp.certify(adder)                        right on all 10^20 pairs: a proof, or a pair that is wrong
    interp.accuracy_bounds(adder).figure()       and on what share of them, between two exact numbers
    interp.attack(model).figure()                where no proof reaches: a search along gradients

    pairs = problem_pairs(adder.task, "carry", column=4, n=256)   from models.tasks: clean and corrupted problems
    interp.activation_patching(adder, pairs, "resid_pre").figure()   which activation carries the difference
    interp.path_patching(adder, pairs).figure()  along which edge
    interp.smallest_circuit(adder, pairs).figure()   and which edges are enough
    interp.component_ablation(adder).figure()    what breaks without a head, a unit, an attention edge
    interp.parameter_ablation(adder).figure()    or without a parameter, or two
    interp.double_dissociation(adder)            which unit is needed for which signal
    interp.which_algorithm(adder).figure()       which symbolic algorithm its answers follow
    interp.causal_scrubbing(adder, chained_claims())  and whether that hypothesis keeps the loss
    interp.logit_lens(adder).figure()            what each stream would answer
    interp.logit_attribution(adder).figure()     who writes the answer, by role and unit
    interp.linear_probes(adder).figure()         what can be read where
    interp.training_dynamics("adder-456").figure()   and when in training all of this came

:mod:`interp.causal.patching`, :mod:`interp.causal.edges`, :mod:`interp.causal.circuits`, :mod:`interp.causal.ablation`,
:mod:`interp.causal.interchange` and :mod:`interp.probes.lens` have the rest of the causal toolkit.

Every probe returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``.
"""

from inspect import isfunction

from interp.core import own_models as _own_models  # isort: skip  # noqa: F401  before all that imports models

from interp.causal.ablation import (
    ComponentAblation,
    DoubleDissociation,
    ParameterAblation,
    component_ablation,
    double_dissociation,
    parameter_ablation,
)
from interp.causal.circuits import Circuit, smallest_circuit
from interp.causal.edges import EdgeAttribution, PathPatching, edge_attribution, path_patching
from interp.causal.interchange import (
    CausalScrubbing,
    InterchangeSweep,
    WhichAlgorithm,
    causal_scrubbing,
    chained_claims,
    interchange_sweep,
    which_algorithm,
)
from interp.causal.patching import PatchingSweep, activation_patching, patch_sweep
from interp.compare.across import compare_models
from interp.compare.alignment import Alignment, align
from interp.compare.compare import compare
from interp.compare.connectivity import ModeConnectivity, mode_connectivity
from interp.compare.result import Comparison
from interp.compare.seeds import SeedDistances, seed_distances
from interp.compare.swaps.result import Swaps
from interp.compare.swaps.swaps import swap_components
from interp.compare.table import ModelTable
from interp.core.results import Provenance, Result
from interp.papers.headlines import Headlines
from interp.papers.position_coupling.attention import NeededAttention, compute_needed_attention, needed_attention
from interp.papers.position_coupling.causal import (
    PatternSubstitution,
    compute_pattern_substitution,
    pattern_substitution,
)
from interp.papers.position_coupling.comparison import CoupledComparison, compute_coupled_comparison, coupled_comparison
from interp.papers.position_coupling.errors import FirstErrors, compute_first_errors, first_errors
from interp.papers.position_coupling.growth import AttendedGrowth, attended_growth, compute_attended_growth
from interp.papers.position_coupling.named_stream import NamedStream, named_stream
from interp.papers.position_coupling.roles import HeadRoles, compute_head_roles, head_roles
from interp.papers.position_coupling.sum_units import SumUnits, sum_units
from interp.papers.position_coupling.writes import HeadWrites, compute_head_writes, head_writes
from interp.probes.accuracy import AccuracyByChain, accuracy_by_chain
from interp.probes.attention import AttentionByRole, attention_by_role, compute_attention_by_role
from interp.probes.carry import CarryUnits, carry_units, compute_carry_units
from interp.probes.dynamics import GrokkingCurves, TrainingDynamics, grokking_curves, training_dynamics
from interp.probes.embeddings import CircleFit, FourierSpectrum, circle_fit, fourier_spectrum
from interp.probes.heatmaps.grid import ExactMatchGrid, exact_match_grid
from interp.probes.heatmaps.offset_sweeps import GreedyAgreement, OffsetSweep, greedy_agreement, offset_sweep
from interp.probes.heatmaps.panels import GridPanel, GridPanels
from interp.probes.helices import HelixFit, helix_fit
from interp.probes.lens import LinearProbes, LogitAttribution, LogitLens, linear_probes, logit_attribution, logit_lens
from interp.probes.stress import StressSuites, stress_suites
from interp.proofs import AccuracyBounds, Certificate, accuracy_bounds, certify
from interp.proofs.attacks import Attack, attack
from interp.site.explorer import explore
from models.questions import question

__all__ = [
    "compare",
    "Comparison",
    "compare_models",
    "ModelTable",
    "explore",
    "align",
    "Alignment",
    "mode_connectivity",
    "ModeConnectivity",
    "seed_distances",
    "SeedDistances",
    "swap_components",
    "Swaps",
    "certify",
    "Certificate",
    "accuracy_bounds",
    "AccuracyBounds",
    "attack",
    "Attack",
    "smallest_circuit",
    "Circuit",
    "component_ablation",
    "ComponentAblation",
    "double_dissociation",
    "DoubleDissociation",
    "parameter_ablation",
    "ParameterAblation",
    "training_dynamics",
    "TrainingDynamics",
    "edge_attribution",
    "EdgeAttribution",
    "path_patching",
    "PathPatching",
    "causal_scrubbing",
    "chained_claims",
    "CausalScrubbing",
    "interchange_sweep",
    "InterchangeSweep",
    "which_algorithm",
    "WhichAlgorithm",
    "linear_probes",
    "LinearProbes",
    "logit_attribution",
    "LogitAttribution",
    "logit_lens",
    "LogitLens",
    "activation_patching",
    "patch_sweep",
    "PatchingSweep",
    "exact_match_grid",
    "ExactMatchGrid",
    "GridPanel",
    "GridPanels",
    "offset_sweep",
    "OffsetSweep",
    "greedy_agreement",
    "GreedyAgreement",
    "accuracy_by_chain",
    "AccuracyByChain",
    "grokking_curves",
    "GrokkingCurves",
    "attention_by_role",
    "compute_attention_by_role",
    "AttentionByRole",
    "carry_units",
    "compute_carry_units",
    "CarryUnits",
    "circle_fit",
    "CircleFit",
    "helix_fit",
    "HelixFit",
    "fourier_spectrum",
    "FourierSpectrum",
    "named_stream",
    "NamedStream",
    "sum_units",
    "SumUnits",
    "needed_attention",
    "compute_needed_attention",
    "NeededAttention",
    "head_roles",
    "compute_head_roles",
    "HeadRoles",
    "pattern_substitution",
    "compute_pattern_substitution",
    "PatternSubstitution",
    "first_errors",
    "compute_first_errors",
    "FirstErrors",
    "attended_growth",
    "compute_attended_growth",
    "AttendedGrowth",
    "coupled_comparison",
    "compute_coupled_comparison",
    "CoupledComparison",
    "head_writes",
    "compute_head_writes",
    "HeadWrites",
    "stress_suites",
    "StressSuites",
    "Headlines",
    "Provenance",
    "Result",
]

# A question is checked where it is asked (models.questions); modules of this package call each other unchecked.
for _name in __all__:
    if isfunction(_asked := globals()[_name]):
        globals()[_name] = question(_asked)
del _name, _asked
