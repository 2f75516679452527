"""AddLM's circuits as integers: OV matrices and their composition.

A ternary weight is one scale times -1, 0 and 1, so a head's OV circuit is ``s_V s_O`` times an integer matrix

    M = T_V T_O   [d_model, d_model],   |entries| <= d_head,   rank <= d_head

and V-composition of an earlier head's output into a later head's values is an integer matrix as well, ``M_1 M_2``.
They are computed in int64. The gain of the norm between two heads is a diagonal of floats. If it were folded in, the
matrices would no longer be integers, so it is kept separate, and compositions leave it out: they are about the weights,
and say nothing about the norm's effect on a given input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.views import Grid, Picture
from models.errors import UserError
from models.transformer import model_name
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.part_names import head_name, in_block
from models.weight_maps.ternary import ternary_matrices

_PRIME = 2_147_483_647  # entries modulo this fit into int64 products


@dataclass(frozen=True, eq=False)
class IntegerCircuits(Result):
    """``values[layer, head]`` is M of that head and ``scale[layer]`` is ``s_V s_O``, a float64 product of two float32
    numbers, which is exact: ``OV = scale * values`` without rounding."""

    model: str
    values: Int[Tensor, "layer head d_model d_model"]
    scale: tuple[float, ...]
    ranks: tuple[tuple[int, ...], ...]  # over the rationals, proven; see integer_rank
    provenance: Provenance

    def sentence(self) -> str:
        ranks = sorted({rank for layer in self.ranks for rank in layer})
        low, high = int(self.values.min()), int(self.values.max())
        text = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        n = self.values.shape[0] * self.values.shape[1]
        return f"The {n} OV circuits of {self.model} are integer matrices with entries in [{low}, {high}] and {text}."

    def to_dataframe(self) -> pd.DataFrame:
        rows = []
        for layer, heads in enumerate(self.values):
            for head, matrix in enumerate(heads):
                zero = float((matrix == 0).double().mean())
                rows.append(
                    (head_name(layer, head), int(matrix.min()), int(matrix.max()), self.ranks[layer][head], zero)
                )
        return pd.DataFrame(rows, columns=["head", "smallest", "largest", "rank", "share of zeros"])


def integer_circuits(model: ArithmeticTransformer) -> IntegerCircuits:
    """All OV circuits of a ternary model. Raises UserError for a model without ternary weights."""
    ternary, cfg = ternary_matrices(model), model.config
    pairs = [(ternary[in_block(i, "attn.W_V")], ternary[in_block(i, "attn.W_O")]) for i in range(cfg.n_layers)]
    values = torch.stack([v.values.long() @ o.values.long() for v, o in pairs])
    scale = tuple(float(v.scale.double() * o.scale.double()) for v, o in pairs)
    ranks = tuple(tuple(integer_rank(matrix) for matrix in layer) for layer in values)
    n = values.shape[0] * values.shape[1]
    provenance = Provenance(n, None, "heads, integers", "exhaustive")
    return IntegerCircuits(model_name(model), values, scale, ranks, provenance)


def integer_rank(matrix: Int[Tensor, "row column"]) -> int:
    """A lower bound of the rank, by elimination modulo the prime 2^31 - 1; the rank itself unless that divides a minor.

    Where it reaches an upper bound (an OV circuit's d_head), the rank is proven.
    """
    rows = matrix.numpy().astype(np.int64) % _PRIME
    rank = 0
    for column in range(rows.shape[1]):
        below = np.flatnonzero(rows[rank:, column])
        if not len(below):
            continue
        pivot = rank + int(below[0])
        rows[[rank, pivot]] = rows[[pivot, rank]]
        rows[rank] = rows[rank] * pow(int(rows[rank, column]), -1, _PRIME) % _PRIME
        factors = rows[rank + 1 :, column].copy()
        rows[rank + 1 :] = (rows[rank + 1 :] - factors[:, None] * rows[rank] % _PRIME) % _PRIME
        rank += 1
        if rank == len(rows):
            break
    return rank


@dataclass(frozen=True, eq=False)
class ValueComposition(Result):
    """V-composition scores of every earlier head into every later one, next to shuffled matrices of the same integers.

    ``score = |M_1 M_2|_F / (|M_1|_F |M_2|_F)`` (Elhage et al., 2021); numerator and denominator are square roots of
    integers. ``table`` holds ``score``, and ``chance`` and ``spread``: mean and standard deviation over ``resamples``
    shuffles of the rows of the later head's T_V, which keep every row but not what it reads.
    """

    model: str
    table: xr.Dataset  # (early, late)
    resamples: int
    provenance: Provenance

    def _excess(self) -> pd.DataFrame:
        frame = self.to_dataframe()
        return frame.assign(deviations=(frame["score"] - frame["chance"]) / frame["spread"])

    def sentence(self) -> str:
        frame = self._excess().sort_values("deviations")
        last = frame.iloc[-1]
        above = int((frame["deviations"] > 4).sum())
        return (
            f"{above} of {len(frame)} pairs of heads compose more than 4 standard deviations above shuffled weights, "
            f"most {last['early']} into {last['late']} ({last['score']:.3f}; shuffled {last['chance']:.3f})."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per pair."""
        return self.table.to_dataframe().dropna().reset_index()


def value_composition(model: ArithmeticTransformer, resamples: int = 20, seed: int = 0) -> ValueComposition:
    """Scores of all pairs of heads in different layers. Cost: ``1 + resamples`` products of d_model^3 per pair.

    Raises:
        UserError: a model without ternary weights or with one layer.
    """
    circuits = integer_circuits(model)
    layers, heads = circuits.values.shape[:2]
    if layers < 2:
        raise UserError("A model of one layer has no later heads for values to compose into.")
    generator = np.random.default_rng(seed)
    # Products of float64 are exact here: sums of integers below 2^53.
    matrices = circuits.values.double().flatten(0, 1).numpy()
    norms = np.sqrt((matrices**2).sum((1, 2)))
    names = [head_name(i, h) for i in range(layers) for h in range(heads)]
    found = np.full((3, len(names), len(names)), np.nan)
    for late in range(heads, len(names)):
        shuffled = [matrices[late][generator.permutation(len(matrices[late]))] for _ in range(resamples)]
        for early in range(late // heads * heads):
            size = norms[early] * norms[late]
            chance = [np.sqrt(((matrices[early] @ other) ** 2).sum()) / size for other in shuffled]
            score = np.sqrt(((matrices[early] @ matrices[late]) ** 2).sum()) / size
            found[:, early, late] = score, np.mean(chance), np.std(chance, ddof=1)
    coords = {"early": names, "late": names}
    parts = zip(("score", "chance", "spread"), found, strict=True)
    table = xr.Dataset({name: (("early", "late"), values) for name, values in parts}, coords)
    provenance = Provenance(resamples, seed, "shuffles a pair of heads")
    return ValueComposition(circuits.model, table, resamples, provenance)


@drawing(IntegerCircuits)
def integer_circuit_view(result: IntegerCircuits, layer: int = 0, head: int = 0) -> Picture:
    """The integers of one OV circuit, rows by what is read and columns by what is written."""
    matrix = result.values[layer, head].numpy()
    x, y = "residual dimension written", "residual dimension read"
    title = (
        f"The OV circuit of {head_name(layer, head)} is {result.scale[layer]:.3g} times integers in "
        f"[{matrix.min()}, {matrix.max()}], rank {result.ranks[layer][head]}"
    )
    return Picture([Grid(x, y, values=matrix, unit="entry", colours="signed")], title=title)


@drawing(ValueComposition)
def value_composition_view(result: ValueComposition) -> Picture:
    """How far every pair's score deviates from shuffled weights."""
    table = result.table
    names = table.early.values.tolist()
    heads = sum(name.startswith("L0") for name in names)
    pairs = slice(None, -heads), slice(heads, None)
    z = ((table["score"] - table["chance"]) / table["spread"]).values[pairs]
    grid = Grid(
        "later head (values)", "earlier head (output)", values=z, rows=names[:-heads], columns=names[heads:],
        unit="standard deviations", colours="signed", said={"score": table["score"].values[pairs]},
    )  # fmt: skip
    note = "Colour: standard deviations from shuffles of the later head's rows; white: not a pair"
    return Picture([grid], title=result.sentence().split(", most")[0].rstrip("."), note=note)
