"""Questions to ask of a model, through hooks, cache, ``cfg`` and ``W_*`` only.

    interp.accuracy_by_chain(adder).figure()     how often it is right, by carry-chain length
    interp.stress_suites(adder).figure()         and on problems that uniform tests do not contain
    interp.attention_by_role(adder).figure()     where each answer digit looks
    interp.carry_units(adder).to_dataframe()     which MLP units detect the carry, and which carry
    interp.circle_fit(adder.W_E)                 what shape the embedding has
    interp.helix_fit(adder.W_pos[:10])           and the positions
    interp.fourier_spectrum(adder.W_E)

    interp.needed_attention(summer, summer.task.at(6, 5)).figure()    where heads look while adding many numbers
    interp.head_roles(summer)                    which constructed role each plays
    interp.pattern_substitution(summer)          whether the ideal pattern is enough
    interp.coupled_comparison(summer)            trained beside hand-built, head by head
    interp.attended_growth(summer).figure()      tokens attended to, over the number of operands
    interp.first_errors(summer).figure()         where the response goes wrong first
    interp.exact_match_grid(summer).figure()     how often it is right, by digits and operands
    interp.offset_sweep(summer, (6, 6)).figure() and by where its position ids start

Every probe returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``.
"""

from interp.accuracy import AccuracyByChain, accuracy_by_chain
from interp.attention import AttentionByRole, attention_by_role, compute_attention_by_role
from interp.carry import CarryUnits, carry_units, compute_carry_units
from interp.compare_coupled import CoupledComparison, compute_coupled_comparison, coupled_comparison
from interp.coupled_attention import NeededAttention, compute_needed_attention, needed_attention
from interp.coupled_causal import PatternSubstitution, compute_pattern_substitution, pattern_substitution
from interp.coupled_errors import FirstErrors, compute_first_errors, first_errors
from interp.coupled_growth import AttendedGrowth, attended_growth, compute_attended_growth
from interp.coupled_roles import HeadRoles, compute_head_roles, head_roles
from interp.coupled_writes import HeadWrites, compute_head_writes, head_writes
from interp.dynamics import GrokkingCurves, grokking_curves
from interp.embeddings import CircleFit, FourierSpectrum, circle_fit, fourier_spectrum
from interp.heatmap_panels import GridPanel, GridPanels
from interp.heatmaps import ExactMatchGrid, exact_match_grid
from interp.helices import HelixFit, helix_fit
from interp.offset_sweeps import GreedyAgreement, OffsetSweep, greedy_agreement, offset_sweep
from interp.results import Provenance, Result
from interp.stress import StressSuites, stress_suites

__all__ = [
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
    "Provenance",
    "Result",
]
