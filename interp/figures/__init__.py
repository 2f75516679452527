"""Results as Plotly figures. They take result objects and never a model.

Every figure's title states the finding with numbers from the result; its subtitle says n, seed and how strong the
claim is. Colours are Okabe and Ito's, which hold up under colour blindness, and carry nothing that position, fill or
text does not carry too.
"""

from interp.figures.attention import attention_by_role, attention_pattern
from interp.figures.carry import carry_unit_ablation, carry_unit_activations
from interp.figures.embeddings import circle, fourier, helix
from interp.figures.heatmaps import accuracy_by_length, exact_match_panels, offset_sweep
from interp.figures.stress import stress_suites
from interp.papers.position_coupling.figures.attention import needed_attention_pattern, needed_attention_shares
from interp.papers.position_coupling.figures.causal import pattern_substitution
from interp.papers.position_coupling.figures.errors import first_errors
from interp.papers.position_coupling.figures.growth import attended_growth
from interp.papers.position_coupling.figures.roles import (
    coupled_comparison,
    coupled_difference,
    head_roles,
    head_writes,
)

__all__ = [
    "attention_by_role",
    "attention_pattern",
    "carry_unit_ablation",
    "carry_unit_activations",
    "needed_attention_pattern",
    "needed_attention_shares",
    "pattern_substitution",
    "first_errors",
    "attended_growth",
    "coupled_comparison",
    "coupled_difference",
    "head_roles",
    "head_writes",
    "circle",
    "fourier",
    "helix",
    "exact_match_panels",
    "accuracy_by_length",
    "offset_sweep",
    "stress_suites",
]
