"""The symmetry group of each weight map, which leaves a model's logits unchanged, to compare models' parameters.

symmetries_of(model)     the group of its weight map; UserError if it is not known here
"""

from __future__ import annotations

from models.errors import UserError
from models.families import MicroAdderWeights
from models.families.low_rank_adder import LowRankAdderWeights
from models.transformer import HookedModel
from models.weight_maps import DenseWeights, TiedDecoderWeights
from studies.population.symmetries.base import Parameters, Symmetries

__all__ = ["Parameters", "Symmetries", "symmetries_of"]


def symmetries_of(model: HookedModel) -> Symmetries:
    """The symmetries of a model's parameters.

    Raises:
        UserError: a model without free parameters, or with a weight map whose symmetries are not known here.
    """
    from studies.population.symmetries.decoder import DecoderSymmetries
    from studies.population.symmetries.low_rank import LowRankSymmetries
    from studies.population.symmetries.microadder import MicroAdderSymmetries

    weight_map = getattr(model, "weight_map", None)
    if weight_map is None or not list(weight_map.parameters()):
        raise UserError(f"This {type(model).__name__} has no free parameters, so that there is nothing to align.")
    if isinstance(weight_map, (DenseWeights, TiedDecoderWeights)):
        return DecoderSymmetries(weight_map)
    if isinstance(weight_map, LowRankAdderWeights):
        return LowRankSymmetries(weight_map)
    if isinstance(weight_map, MicroAdderWeights):
        return MicroAdderSymmetries(weight_map)
    raise UserError(
        f"No alignment is known here for {type(weight_map).__name__}; there is one for the weight maps of MicroAdder, "
        "the 456 family, ToyGPT and Position Coupling."
    )
