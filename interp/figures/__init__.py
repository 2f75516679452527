"""Results as Plotly figures. They take result objects and never a model.

Every figure's title states the finding with numbers from the result; its subtitle says n, seed and how strong the
claim is. Colours are Okabe and Ito's, which hold up under colour blindness, and carry nothing that position, fill or
text does not carry too.
"""

from interp.figures.attention import attention_by_role, attention_pattern
from interp.figures.carry import carry_unit_ablation, carry_unit_activations
from interp.figures.embeddings import circle, fourier, helix

__all__ = [
    "attention_by_role",
    "attention_pattern",
    "carry_unit_ablation",
    "carry_unit_activations",
    "circle",
    "fourier",
    "helix",
]
