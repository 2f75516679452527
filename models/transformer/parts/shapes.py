"""Names for the shapes in the forward pass; dimensions are named as in TransformerLens."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch pos"]
PositionIds = Int[Tensor, "batch pos level"]
Stream = Float[Tensor, "batch pos d_model"]
#: The residual stream at some positions (the queries), perhaps with a head axis.
QueryStream = Float[Tensor, "*batch query d_model"]
PerQuery = Float[Tensor, "batch query head d_head"]
PerKey = Float[Tensor, "batch key head d_head"]
Places = Int[Tensor, " query"]
#: What is added to scores; it may be shared by all problems, or by all heads.
ScoreBias = Float[Tensor, "*#problems #head query key"]
Scores = Float[Tensor, "batch head query key"]
