"""The small picture of a model: its attention on one problem, as SVG."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from markupsafe import Markup

from models.tasks.characters import CharacterLanguage
from models.tasks.sequences import SequenceTask
from models.transformer.hooked import HookedModel
from models.transformer.part_names import in_block

LEVELS = ((0.1, 0.3), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))  # attention from, opacity
_GAP = 1  # cells between panels
TEXT = "We shall add the numbers."
SIZES = {1: (6,), 2: (2, 3)}  # of the problem, for tasks of many shapes, by the number of their sizes


def attention_pattern(model: HookedModel) -> tuple[Float[np.ndarray, "layer head query key"], str]:
    """The attention pattern of the positions that predict, for one problem (drawn with seed 0), and its text."""
    task = model.task
    if isinstance(task, CharacterLanguage):
        tokens, queries, words = task.encode(TEXT), range(len(TEXT)), f'"{TEXT}"'
    else:
        if isinstance(task, SequenceTask):
            task = task.at(*SIZES[len(task.shape)])
        problems = task.sample(1, torch.Generator().manual_seed(0))
        tokens, queries = task.encode(problems), task.query_positions
        words = task.problem_text(task.numbers(problems)[0])
        words = task.token_text(tokens[0].tolist()) if isinstance(task, SequenceTask) else words
    names = [in_block(layer, "attn.hook_pattern") for layer in range(model.cfg.n_layers)]
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, names_filter=names)
    return np.stack([cache[name][0].float().numpy() for name in names])[:, :, list(queries)], words


def attention_svg(pattern: Float[np.ndarray, "layer head query key"]) -> Markup:
    """Panels by layer (rows) and head (columns). Darker cells are attended to more; weights below 0.1 are not drawn."""
    layers, heads, queries, keys = pattern.shape
    width, height = heads * (keys + _GAP) - _GAP, layers * (queries + _GAP) - _GAP
    paths = []
    for i, (least, opacity) in enumerate(LEVELS):
        most = LEVELS[i + 1][0] if i + 1 < len(LEVELS) else np.inf
        chosen = (pattern >= least) & (pattern < most)
        steps = [
            f"M{head * (keys + _GAP) + key} {layer * (queries + _GAP) + query}h{length}v1h-{length}z"
            for layer, head, query in np.ndindex(layers, heads, queries)
            for key, length in _runs(chosen[layer, head, query])
        ]
        if steps:
            paths.append(f'<path opacity="{opacity}" d="{"".join(steps)}"/>')
    frames = "".join(
        f'<rect x="{head * (keys + _GAP)}" y="{layer * (queries + _GAP)}" width="{keys}" height="{queries}"/>'
        for layer, head in np.ndindex(layers, heads)
    )
    return Markup(
        f'<svg class="attention" viewBox="0 0 {width} {height}" width="{6 * width}" height="{6 * height}" '
        'aria-hidden="true" focusable="false" shape-rendering="crispEdges" fill="currentColor">'
        f"<g>{frames}</g>{''.join(paths)}</svg>"
    )


def _runs(row: np.ndarray) -> list[tuple[int, int]]:
    """(start, length) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0]))))
    return [(int(start), int(stop - start)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
