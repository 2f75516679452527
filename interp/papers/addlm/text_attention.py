"""Where heads look in a line of text, with its characters as labels: at sixteen keys in AddLM, at all in a float model.

For each query's row, ``kept`` counts the keys that take part (weights above zero: the best top_k and ties with the last
of them) and ``effective`` is ``exp(entropy)``. This is for one text, teacher-forced; :mod:`interp.papers.addlm.heads`
has the same numbers over many windows, with intervals and ablations.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch
import xarray as xr

from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from models.errors import UserError
from models.tasks.characters import text_tokens
from models.transformer import ArithmeticTransformer


@dataclass(frozen=True, eq=False)
class TextAttention(Result):
    """``pattern`` [layer, head, query, key], ``kept`` and ``effective`` [layer, head, query], and the characters."""

    model: str
    text: str
    pattern: xr.DataArray
    kept: xr.DataArray
    effective: xr.DataArray
    provenance: Provenance

    def sentence(self) -> str:
        late = self.effective.isel(query=slice(len(self.text) // 2, None)).mean("query")
        return (
            f"In the second half of this text a head of {self.model} keeps up to {int(self.kept.max())} keys, "
            f"{float(late.min()):.1f} to {float(late.max()):.1f} of them effectively."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer, head and query."""
        frame = xr.Dataset({"kept": self.kept, "effective": self.effective}).to_dataframe().reset_index()
        return frame.assign(character=[self.text[query] for query in frame["query"]], n=1)


def text_attention(model: ArithmeticTransformer, text: str) -> TextAttention:
    """Read a character model on one text. Cost: one forward pass.

    Raises:
        UserError: characters that the model does not have, or more of them than it has positions.
    """
    if len(text) > model.config.n_ctx:
        raise UserError(f"The text has {len(text)} characters; the model reads {model.config.n_ctx} at most.")
    tokens = text_tokens([text])
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern"))
    layers = range(model.config.n_layers)
    pattern = torch.stack([cache["pattern", layer][0] for layer in layers]).double()
    dims, coords = ("layer", "head", "query"), {"layer": list(layers), "head": list(range(model.config.n_heads))}
    entropy = -torch.special.xlogy(pattern, pattern).sum(-1)
    return TextAttention(
        model_name(model),
        text,
        xr.DataArray(pattern.numpy(), dims=(*dims, "key"), coords=coords),
        xr.DataArray((pattern > 0).sum(-1).numpy(), dims=dims, coords=coords),
        xr.DataArray(entropy.exp().numpy(), dims=dims, coords=coords),
        Provenance(1, None, f"text of {len(text)} characters"),
    )
