"""The figure of :class:`interp.papers.addlm.text_attention.TextAttention`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, hover
from interp.figures.panels import Panel, compose
from interp.papers.addlm.text_attention import TextAttention
from models.errors import UserError

_SHOWN = {" ": "␣", "\n": "⏎"}


@drawing(TextAttention)
def text_attention(result: TextAttention, layer: int = 0, head: int = 0, last: int = 40) -> go.Figure:
    """One head's pattern: rows are characters that look back, columns are the characters that they look at.

    Raises:
        UserError: a head that does not exist.
    """
    if layer not in result.pattern.layer.values or head not in result.pattern["head"].values:
        raise UserError(f"{result.model} has no L{layer}H{head}.")
    last = min(last, len(result.text))
    weight = result.pattern.sel(layer=layer, head=head).values[-last:, -last:]
    visible = np.tril(np.ones_like(weight, dtype=bool))
    letters = [_SHOWN.get(character, character) for character in result.text[-last:]]
    ticks = {"tickvals": list(range(last)), "ticktext": letters}
    panel = Panel(
        [
            cells(
                np.where(visible & (weight > 0), weight, np.nan), limits=(0, float(weight.max())), bar="weight",
                hoverongaps=False, **hover("weight {z:.3f}"),
            )
        ],
        x=ticks | {"title": "character looked at", "tickangle": 0},
        y=ticks | {"title": "character that looks back"},
    )  # fmt: skip
    shown = slice(len(result.text) - last, None)
    kept = result.kept.sel(layer=layer, head=head).isel(query=shown).values
    effective = float(result.effective.sel(layer=layer, head=head).isel(query=shown).mean())
    title = (
        f"L{layer}H{head} of {result.model} keeps {_count(kept)} keys, and weighs them like {effective:.1f} equal ones"
    )
    note = f"The last {last} of {len(result.text)} characters; grey: no weight at all. ␣ is a space, ⏎ a new line"
    return compose([panel], title, result.provenance, note=note, width=880, height=860, plot_bgcolor=theme.LIGHT)


def _count(kept: np.ndarray) -> str:
    return str(kept.min()) if kept.min() == kept.max() else f"{kept.min()} to {kept.max()}"
