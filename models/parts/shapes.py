"""Names for the shapes that the forward pass is written in; dimensions as in TransformerLens."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch pos"]
PositionIds = Int[Tensor, "batch pos level"]
Stream = Float[Tensor, "batch pos d_model"]
#: The stream at some positions, the queries, also of single heads.
QueryStream = Float[Tensor, "*batch query d_model"]
PerQuery = Float[Tensor, "batch query head d_head"]
PerKey = Float[Tensor, "batch key head d_head"]
Places = Int[Tensor, " query"]
#: What is added to scores: for all problems alike, or for all heads alike.
ScoreBias = Float[Tensor, "*#problems #head query key"]
Scores = Float[Tensor, "batch head query key"]
