"""A hand-built model on one sequence, in its own terms: what each part writes into which named dimension.

The residual stream of a construction has named dimensions (``model.weight_map.dims``: NUM, PRE_SUM, ...), and

    stream after the last layer[pos, name] = sum over stages of written[stage, name, pos]

where the stages are token embedding, position embedding, and then the heads and the MLP of every layer. This gives
Tables 4 to 23 in the appendix of Position Coupling (ICLR 2025) for any sequence; ``offsets`` are where its position ids
start, 4 and 2 in the paper's example.

Limits: one sequence, in the model's own arithmetic, and only constructions without norms, in which the stream adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from interp.core.drawings import drawing
from interp.core.probe import named_dimensions, probe, task_of
from interp.core.results import Provenance
from interp.core.table_result import Measure, TableResult
from interp.core.views import Grid, Picture
from interp.core.wording import listed
from models import ArithmeticTransformer
from models.errors import UserError, known_name
from models.tasks import MultiOperandAddition
from models.transformer import HookedModel, head_name, layer_part, model_name, require_unaltered

NOTHING = 1e-4  # smaller values count as zero, as float32 rounding and softmax at temperature 16 leave such residues


KEYS = ("stage", "dim", "pos")
MEASURES = (Measure("value"),)


@dataclass(frozen=True, eq=False, kw_only=True)
class ResidualByDimension(TableResult):
    """What each stage writes on one sequence.

    ``table.value`` [stage, dim, pos], with coordinate ``named`` along dim (a name has several dims if it is a code or
    has one dim per digit) and ``token`` along pos; ``pattern`` [layer, head, query, key]; ``tokens`` and ``predicted``
    (the token with the largest logit after each position); ``ids``: the position ids of each token, empty for a model
    without them; ``first``: the position of "=", from which on predictions count.
    """

    pattern: xr.DataArray
    tokens: tuple[str, ...]
    predicted: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    first: int

    @property
    def right(self) -> tuple[bool, ...]:
        """Whether each token from "=" on predicts the next one; the last token does not count."""
        pairs = zip(self.predicted[self.first : -1], self.tokens[self.first + 1 :], strict=True)
        return tuple(predicted == token for predicted, token in pairs)

    def writers(self) -> dict[str, list[str]]:
        """The stages that write into each name."""
        size = abs(self.table["value"]).max("pos").groupby("named").max()
        names = dict.fromkeys(self.table["named"].values.tolist())
        return {name: size.stage.values[size.sel(named=name).values > NOTHING].tolist() for name in names}

    def to_dataframe(self) -> pd.DataFrame:
        """One row per stage, single dimension and token that it writes to; zeros are left out."""
        frame = super().to_dataframe()
        return frame[frame["value"].abs() > NOTHING]


def as_fraction(value: float) -> str:
    """A number as the paper prints weights: 0.25 as "1/4", 11.0 as "11", zero as ""; others with two decimals."""
    if abs(value) <= NOTHING:
        return ""
    near = Fraction(value).limit_denominator(99)
    return str(near) if abs(float(near) - value) <= NOTHING else f"{value:.2f}"


@probe(
    "What is in a construction's residual stream, by named dimension?",
    needs=[task_of(MultiOperandAddition), named_dimensions()],
)
def residual_by_dimension(
    model: ArithmeticTransformer, tokens: str | Int[Tensor, "1 pos"], *, offsets: Sequence[int] | None = None
) -> ResidualByDimension:
    """Read a construction on one sequence; see the module. Cost: one forward pass.

    Args:
        model: a model whose weight map names its dimensions (the hand-built ones of Position Coupling).
        tokens: the whole sequence up to the last token that is read, as text ("$057+048=000>750>501") or as tokens.
        offsets: the first position id of each level; by default 1.

    Raises:
        UserError: a model without named dimensions, with norms, or with hooks or other changes; a text that its task
            cannot read, no "=" in it, or offsets beyond the position tables.
    """
    weight_map: Any = model.weight_map  # of a construction, which names its dimensions
    dims, labels = weight_map.dims, weight_map.dim_labels
    if model.config.normalization_type is not None:
        raise UserError("The stream of a model with norms does not add up by stages.")
    require_unaltered(model, "A named stream")
    task: Any = model.task
    read: Tensor = task.tokenise(tokens) if isinstance(tokens, str) else tokens
    texts = tuple(task.vocabulary[token] for token in read[0].tolist())
    if "=" not in texts:
        raise UserError(f"There is no '=' in {''.join(texts)!r}, after which a response could begin.")
    ids = _position_ids(model, read, offsets)
    moved: dict[str, Any] = {} if ids is None else {"position_ids": ids}
    with torch.no_grad():
        logits, cache = model.run_with_cache(read, **moved)
    stages, parts = ["tokens"], [cache["hook_embed"][0]]
    if "hook_pos_embed" in cache:
        stages.append("positions")
        parts.append(cache["hook_pos_embed"][0])
    n_layers, n_heads = model.config.n_layers, model.config.n_heads
    for layer in range(n_layers):
        by_head = torch.einsum("phd,hdm->hpm", cache["z", layer][0], model.W_O[layer])
        stages += [head_name(layer, head) for head in range(n_heads)] + [layer_part(layer, "mlp")]
        parts += [*by_head, cache["mlp_out", layer][0]]
    names = [name for name, where in dims.items() for _ in range(where.stop - where.start)]
    value = torch.stack(parts).double().detach().numpy().transpose(0, 2, 1)
    pattern = torch.stack([cache["pattern", layer][0] for layer in range(n_layers)]).double().numpy()
    found = ResidualByDimension(
        "",
        xr.Dataset(
            {"value": (KEYS, value)},
            {"stage": stages, "dim": list(labels), "named": ("dim", names), "pos": np.arange(len(texts)),
             "token": ("pos", list(texts))},
        ),
        Provenance(1, None, "sequence"),
        KEYS,
        MEASURES,
        pattern=xr.DataArray(
            pattern,
            dims=("layer", "head", "query", "key"),
            coords={"layer": np.arange(n_layers), "head": np.arange(n_heads)},
        ),
        tokens=texts,
        predicted=tuple(task.vocabulary[token] for token in logits[0].argmax(-1).tolist()),
        ids=() if ids is None else tuple(tuple(row) for row in ids[0].tolist()),
        first=texts.index("="),
    )  # fmt: skip
    writers = found.writers()
    once = sum(len(by) == 1 for by in writers.values())
    return found.saying(
        f"{model_name(model)} on {''.join(texts)}: {once} of {len(writers)} named dimensions are written by one part "
        f"alone, and {sum(found.right)} of {len(found.right)} next tokens are right."
    )


def _position_ids(model: HookedModel, tokens: Tensor, offsets: Sequence[int] | None) -> Tensor | None:
    """The task's ids, shifted to start at ``offsets``; None for a model without ids."""
    if model.config.positional_embedding_type != "coupled":
        if offsets is not None:
            raise UserError("This model has no position ids that could be moved.")
        return None
    ids = model.task.position_ids(tokens)
    if offsets is None:
        return ids
    if len(offsets) != ids.shape[-1] or min(offsets) < 1:
        raise UserError(f"There must be {ids.shape[-1]} offsets from 1 on, not {tuple(offsets)}.")
    ids = torch.where(ids > 0, ids + torch.tensor(list(offsets)) - 1, 0)
    for level, limit in enumerate(getattr(model.weight_map, "position_limits", ())):
        if (highest := int(ids[..., level].max())) > limit:
            raise UserError(f"Offset {offsets[level]} needs id {highest}; level {level + 1} has ids up to {limit}.")
    return ids


@drawing(ResidualByDimension)
def residual_by_dimension_view(
    result: ResidualByDimension, stages: Sequence[str] | None = None, response_only: bool = True
) -> Picture:
    """A panel per stage: rows are the dimensions that it writes, columns the tokens with their position ids.

    Raises:
        UserError: a stage that does not exist, or stages that write nothing.
    """
    known: list[str] = result.table["stage"].values.tolist()
    asked = known if stages is None else list(stages)
    first = result.first if response_only else 0
    tokens = [f"<b>{token}</b>" for token in result.tokens[first:]]
    if result.ids:
        ids = [",".join(map(str, each)) for each in result.ids[first:]]
        tokens = [f"{token}<br>{each}" for token, each in zip(tokens, ids, strict=True)]
    views = []
    for stage in asked:
        values = result.table["value"].sel(stage=known_name("stage", stage, known)).isel(pos=slice(first, None))
        shown = values[(abs(values) > NOTHING).any("pos").values]
        if not shown.size:
            continue
        largest = abs(values).groupby("named").max(...).sel(named=shown.named).values[:, None]
        text = [[as_fraction(value) for value in row] for row in shown.values]
        grid = Grid(
            title=stage, values=shown.values / largest, rows=shown.dim.values, columns=tokens, colours="signed",
            limit=1.0, text=text,
        )  # fmt: skip
        views.append(grid)
    if not views:
        raise UserError(f"{', '.join(asked)} writes nothing on this sequence.")
    if asked == known:
        right = np.full(len(tokens), np.nan)
        right[result.first - first :] = [*np.where(result.right, 1.0, -1.0), 1.0]
        said = [token if known else "" for token, known in zip(result.predicted[first:], right == right, strict=True)]
        grid = Grid(
            "token read", title="next token: right or wrong", values=right[None], rows=["next token"],
            columns=tokens, colours="signed", limit=1.0, text=[said],
        )  # fmt: skip
        views.append(grid)
    under = ", above their position ids" if result.ids else ""
    note = f"Columns: the tokens read{under}. Each name has its own scale"
    return Picture(
        views, columns=1, title="" if asked == known else f"What {listed(asked)} write", note=note, shared="x"
    )


@drawing(ResidualByDimension, "patterns")
def named_patterns(result: ResidualByDimension) -> Picture:
    """One panel per head: rows predict the next token from "=" on, columns are the tokens that can be attended to."""
    queries = np.arange(result.first, len(result.tokens))
    names = [f"{result.tokens[q]} → {result.predicted[q]}" for q in queries]
    writers = result.writers()
    views = []
    for row in result.pattern:
        for weight in row:
            name = head_name(int(weight.layer), int(weight["head"]))
            filled = ", ".join(dim for dim, by in writers.items() if name in by) or "nothing"
            beside = "" if len(views) % 2 else "token read → token predicted"
            hidden = np.arange(len(result.tokens)) > queries[:, None]
            shares = np.where(hidden, np.nan, weight.values[queries])
            grid = Grid(
                "token attended to", beside, f"{name} fills {filled}", values=shares, rows=names,
                columns=list(result.tokens), grey=hidden,
                text=[[as_fraction(value) for value in line] for line in weight.values[queries]],
            )  # fmt: skip
            views.append(grid)
    return Picture(views, columns=2, title="Which tokens each head attends to", note="Grey: not visible")
