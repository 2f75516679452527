"""What ternary matrices hold: the latent weights that training changes, and the -1, 0 and 1 that the model uses.

A latent entry w of a matrix with mean magnitude m acts as

    -1 if w/m < -1/2,     0 if |w/m| <= 1/2,     +1 if w/m > 1/2,     times m

so that w/m and the two thresholds determine it. ``zeros`` would be 0.250 if the latent entries were uniform, as they
are drawn, and 0.310 if they were normal (the share of |w| below half of its mean, ``2 Phi(0.5 sqrt(2/pi)) - 1``).

``pile`` is how much denser latent entries lie within 0.05 of a threshold than 0.1 to 0.3 away from one: 1 without any
effect of the cut. Straight-through training is known to push weights back and forth across thresholds (Nagel et al.,
2022).
The control is a model whose weights are free floats of the same shape, cut as if they were latent (``as_if``).

Exhaustive: all entries of all constrained matrices. Source: AddLM, architecture; BitNet b1.58, equations 1 to 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.views import Bars, Curves, Line, Picture, Series
from models.errors import UserError
from models.transformer import model_name
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.ternary import TERNARY, TernaryWeights, ternarise, ternary_matrices

REACH = 4.0  # range of the histogram, in mean magnitudes
BINS = 160
THRESHOLD = 0.5
NEAR, BESIDE = 0.05, (0.1, 0.3)  # distances from a threshold
UNIFORM, NORMAL = 0.25, 0.3101  # shares of zeros without structure


@dataclass(frozen=True, eq=False)
class TernaryEntries(Result):
    """``table`` over (layer, kind): shares ``minus``, ``zeros``, ``plus``, ``scale`` (the mean magnitude m) and ``n``
    entries. ``histogram`` [kind, bin]: how many latent entries lie around each multiple of the scale, up to 4 times.
    ``as_if``: whether the model's own weights are floats, and these are what they would be if cut."""

    model: str
    table: xr.Dataset
    histogram: xr.DataArray
    pile: float
    as_if: bool
    provenance: Provenance

    def share(self, of: str = "zeros") -> float:
        """Share of "minus", "zeros" or "plus" among all entries."""
        return float((self.table[of] * self.table.n).sum() / self.table.n.sum())

    def sentence(self) -> str:
        table = self.table
        lean = float(abs(table.plus - table.minus).max())
        verb = "would be" if self.as_if else "are"
        return (
            f"{self.share():.1%} of the {int(table.n.sum()):,} ternary entries of {self.model} {verb} 0 "
            f"({float(table.zeros.min()):.1%} to {float(table.zeros.max()):.1%} by matrix; {UNIFORM:.1%} as drawn, "
            f"{NORMAL:.1%} for a normal distribution), and +1 and -1 differ by at most {lean:.1%} in a matrix. "
            f"Latent weights lie {self.pile:.2f} times as densely at the thresholds as next to them."
        )


def ternary_entries(model: ArithmeticTransformer, as_if: bool = False) -> TernaryEntries:
    """The entries of all ternary matrices of a model.

    Args:
        as_if: cut the matrices of a float model as if they were latent weights, for comparison.

    Raises:
        UserError: a model without ternary weights (with ``as_if``: with them, or of another family).
    """
    latent = {name.replace("/", "."): p.detach().double().numpy() for name, p in model.weight_map.named_parameters()}
    if as_if:
        if not isinstance(model.weight_map, TernaryWeights) or model.weight_map.is_ternary:
            raise UserError("Only AddLM's float models can be cut as if they were ternary.")
        cut = {key: p.detach() for key, p in model.weight_map.named_parameters()}
        cut = {key.replace("/", "."): p for key, p in cut.items() if key.rsplit("/", 1)[1] in TERNARY}
        matrices = {key: ternarise(p) for key, p in cut.items()}
    else:
        matrices = ternary_matrices(model)
    places = {key: (int(key.split(".")[1]), key.rsplit(".", 1)[1]) for key in matrices}
    layers, kinds = sorted({layer for layer, _ in places.values()}), list(dict.fromkeys(k for _, k in places.values()))
    shape = (len(layers), len(kinds))
    found = {name: np.zeros(shape) for name in ("minus", "zeros", "plus", "scale")}
    n = np.zeros(shape, dtype=int)
    edges = np.linspace(-REACH, REACH, BINS + 1)
    counts = np.zeros((len(kinds), BINS), dtype=int)
    at_threshold = beside = 0
    for key, (layer, kind) in places.items():
        at = (layers.index(layer), kinds.index(kind))
        values, scale = matrices[key].values.numpy(), float(matrices[key].scale)
        for name, value in (("minus", -1), ("zeros", 0), ("plus", 1)):
            found[name][at] = (values == value).mean()
        found["scale"][at], n[at] = scale, values.size
        relative = latent[key] / scale
        counts[at[1]] += np.histogram(relative, edges)[0]
        away = np.abs(np.abs(relative) - THRESHOLD)
        at_threshold += int((away < NEAR).sum())
        beside += int(((away >= BESIDE[0]) & (away < BESIDE[1])).sum())
    axes, coords = ("layer", "kind"), {"layer": layers, "kind": kinds}
    return TernaryEntries(
        model_name(model),
        xr.Dataset({name: (axes, value) for name, value in found.items()} | {"n": (axes, n)}, coords=coords),
        xr.DataArray(counts, dims=("kind", "bin"), coords={"kind": kinds, "bin": (edges[1:] + edges[:-1]) / 2}),
        at_threshold / NEAR / max(1.0, beside / (BESIDE[1] - BESIDE[0])),
        as_if,
        Provenance(int(n.sum()), None, f"entries of {len(matrices)} matrices", "exhaustive"),
    )


@drawing(TernaryEntries)
def ternary_entries_view(result: TernaryEntries) -> Picture:
    """All latent weights over their matrix's scale, by what they act as, and zeros by layer."""
    x, counts = result.histogram.bin.values, result.histogram.sum("kind").values
    density = counts / float(result.table.n.sum()) / float(x[1] - x[0])
    acts = np.where(np.abs(x) <= THRESHOLD, 0, np.sign(x))
    histogram = [
        Series(f"{sign}: {result.share(of):.1%}", x, np.where(acts == value, density, 0.0))
        for value, sign, of in ((-1, "-1", "minus"), (0, "0", "zeros"), (1, "+1", "plus"))
    ]
    layers = result.table.layer.values
    kinds = result.table.kind.values.tolist()
    zeros = [Series(str(kind), layers, result.table.zeros.sel(kind=kind).values) for kind in kinds]
    levels = [Line(UNIFORM, "uniform (as drawn)"), Line(NORMAL, "normal")]
    scale = "latent weight / mean magnitude of its matrix"
    views = [
        Bars(scale, "density", "latent weights, and what they act as", series=histogram, stacked=True),
        Curves("layer", "", "share of zeros by layer", series=zeros, lines=levels),
    ]
    least, most = float(result.table.zeros.min()), float(result.table.zeros.max())
    title = (
        f"{result.share():.1%} of the entries of {result.model} {'would be' if result.as_if else 'are'} zeros "
        f"({least:.1%} to {most:.1%} by matrix); at the thresholds latent weights lie {result.pile:.2f} times as "
        "densely as next to them"
    )
    note = f"Entries within {THRESHOLD} of their matrix's mean magnitude act as 0; the others by their sign alone"
    return Picture(views, columns=1, title=title, note=note)
