"""Questions to ask of a model, through hooks, cache, ``cfg`` and ``W_*`` only.

    interp.accuracy_by_chain(adder).figure()     how often it is right, by carry-chain length
    interp.attention_by_role(adder).figure()     where each answer digit looks
    interp.carry_units(adder).to_dataframe()     which MLP units detect the carry, and which carry
    interp.circle_fit(adder.W_E)                 what shape the embedding has
    interp.helix_fit(adder.W_pos[:10])           and the positions
    interp.fourier_spectrum(adder.W_E)

Every probe returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``.
"""

from interp.accuracy import AccuracyByChain, accuracy_by_chain
from interp.attention import AttentionByRole, attention_by_role, compute_attention_by_role
from interp.carry import CarryUnits, carry_units, compute_carry_units
from interp.dynamics import GrokkingCurves, grokking_curves
from interp.embeddings import CircleFit, FourierSpectrum, circle_fit, fourier_spectrum
from interp.helices import HelixFit, helix_fit
from interp.results import Provenance, Result

__all__ = [
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
    "Provenance",
    "Result",
]
