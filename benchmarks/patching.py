"""Activation patching sweeps: ours beside ``transformer_lens.patching``, the same numbers, side by side in one run.

Both get the clean cache, the corrupted tokens and a metric that reads one answer digit; ours are the variants of one
run themselves, without the checks and tables of :func:`interp.activation_patching`. Both sweep over all layers, which
for the one-layer models is the last layer. Rounds are interleaved, the ratio is that of the medians. Where a sweep has
more than MOST_RUN variants the reference runs a random sample of so many, and its time is scaled up.

What a patch changes must be computed: of L > 1 layers that bounds the ratio of a sweep of the stream by about
4 L / (L - 1) (see :mod:`models.run.variants`), which is printed next to it. A stock model that cannot be
copied repeats its own run for every patch, as the reference does, so that its bound is 1 where nothing can be stacked.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import models
from benchmarks.record import middle
from benchmarks.scoring import cpu_seconds
from interp.causal.metrics import Metric
from interp.causal.patching.patch_sites import SweepSite, get_site, parts_of, position_groups
from interp.causal.patching.patching_values import PatchSpec, plain_values
from models.run import Frame, Run, Variants, has_run
from models.tasks.task import Task
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps import DenseWeights

BATCHES = (1, 16, 256)
ROUNDS = 7
MOST_RUN = 48
SITES = {  # ours: (site, by), theirs
    ("resid_pre", "position"): "get_act_patch_resid_pre",
    ("resid_mid", "position"): "get_act_patch_resid_mid",
    ("attn_out", "position"): "get_act_patch_attn_out",
    ("mlp_out", "position"): "get_act_patch_mlp_out",
    ("head_out", "position"): "get_act_patch_attn_head_out_by_pos",
    ("q", "position"): "get_act_patch_attn_head_q_by_pos",
    ("k", "position"): "get_act_patch_attn_head_k_by_pos",
    ("v", "position"): "get_act_patch_attn_head_v_by_pos",
    ("pattern", "position"): "get_act_patch_attn_head_pattern_by_pos",
    ("pattern_dest_src", "position"): "get_act_patch_attn_head_pattern_dest_src_pos",
    ("head_out", "all"): "get_act_patch_attn_head_out_all_pos",
    ("q", "all"): "get_act_patch_attn_head_q_all_pos",
    ("k", "all"): "get_act_patch_attn_head_k_all_pos",
    ("v", "all"): "get_act_patch_attn_head_v_all_pos",
    ("pattern", "all"): "get_act_patch_attn_head_pattern_all_pos",
}


def two_layers() -> ArithmeticTransformer:
    """An untrained two-layer decoder of width 64 on the ten-digit task: 33 positions and two layers to sweep over."""
    task = models.tasks.TenDigitAddition()
    cfg = models.TransformerConfig(2, 64, 4, 16, 256, task.d_vocab, task.input_length + 1, normalization_type="LN")
    weights = DenseWeights(cfg)
    weights.initialise(torch.Generator().manual_seed(0))
    return ArithmeticTransformer(weights, task, "two layers")


SUBJECTS: dict[str, Callable[[], ArithmeticTransformer]] = {
    "microadder-57, 1 layer": lambda: models.load("microadder-57"),
    "adder-456, 1 layer": lambda: models.load("adder-456"),
    "width 64, 2 layers": two_layers,
    "toygpt-learned-pre, 4 layers": lambda: models.load("toygpt-learned-pre"),
}


def not_copied() -> Any:
    """An untrained stock model whose heads share keys and values, which our models do not express."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    task, bridge = models.tasks.TenDigitAddition(), cast(Any, TransformerBridge)
    shape = {"n_layers": 2, "d_model": 64, "n_heads": 4, "d_head": 16, "d_mlp": 256, "n_key_value_heads": 1}
    words = {"d_vocab": task.d_vocab, "n_ctx": task.input_length + 1, "act_fn": "gelu", "seed": 0}
    return bridge.boot_native(TransformerBridgeConfig(**shape, **words)).eval()


def reference(name: str) -> Callable[..., Tensor]:
    from transformer_lens import patching

    return getattr(patching, name)


def sampled(name: str, model: Any, n_pos: int) -> tuple[pd.DataFrame, int]:
    """Variants that the reference runs, as its ``index_df`` takes them, and how many there are."""
    cfg = model.cfg
    size = {"layer": cfg.n_layers, "pos": n_pos, "head": cfg.n_heads, "dest": n_pos, "src": n_pos}
    axes = ["layer", "pos"]
    if "head" in name:
        axes = ["layer", "head"] if name.endswith("all_pos") else ["layer", "pos", "head"]
    if "pattern" in name:
        axes = ["layer", "head", "dest", "src"][: 4 if "dest_src" in name else 2 if name.endswith("all_pos") else 3]
    every = pd.DataFrame(list(np.ndindex(*(size[axis] for axis in axes))), columns=axes)
    chosen = every if len(every) <= MOST_RUN else every.sample(MOST_RUN, random_state=0).sort_index()
    return chosen.reset_index(drop=True), len(every)


def swept(model: Any, base: Tensor, cache: Any, metric: Metric, site: str, by: str, layers: list[int]) -> np.ndarray:
    """The mean of the metric for every variant, [layer, part, group], by variants of one run that take activations of a
    cache; a pattern's parts are (head, source)."""
    (query,), kind, length = metric.positions or (0,), get_site(site, model.cfg), base.shape[1]
    groups = position_groups(length, by)
    n_parts = parts_of(kind, model.cfg) * (len(groups) if kind.by_source else 1)
    with torch.inference_mode():
        frame = Frame(model, [query], length if kind.pattern else None)
        run, found = Run(frame, base), torch.full((len(layers), n_parts, len(groups)), float("nan"))
        for into, layer in zip(found, layers, strict=True):

            def emit(parts: slice, which: list[int], logits: Tensor, into: Tensor = into) -> None:
                into[parts, which] = metric(logits, slice(0, len(base))).mean(-1)

            Variants(run, groups.places, emit).patched(kind.of_run, layer, at_rows(frame, cache, kind, layer))
        unpatched = metric(run.logits(), slice(0, len(base))).mean()
        return torch.where(found.isnan(), unpatched, found).numpy()  # what is after the query changes nothing


def at_rows(frame: Frame, cache: Any, site: SweepSite, layer: int) -> Tensor:
    """A cached activation at the rows that a run holds."""
    value, rows = cache[site.hook_name(layer)], frame.rows(layer)
    if site.name in ("resid_pre", "k", "v"):
        return value[:, : frame.n_pos]
    return value[:, :, rows, : frame.n_pos] if site.pattern else value[:, rows]


def by_hooks(
    model: Any, base: Tensor, source: Tensor, metric: Metric, site: str, by: str, layers: list[int], task: Task
) -> np.ndarray:
    """The same of a model that has no run, through its hooks, from the tokens of the other run."""
    how: Any = {"unpatched": False, "allow_equal": True}
    return (
        plain_values(model, PatchSpec.of(model, base, source, [metric], site, by, layers, task, None, **how))
        .patched[0]
        .mean(-1)
    )


def cell(
    model: Any, site: tuple[str, str], batch: int, task: Task | None = None, single: bool = False
) -> tuple[float, float, float]:
    """(their milliseconds, ours, largest difference relative to the largest number) of one sweep over all layers, or of
    a ``single`` patch: of the first layer, in tokens of one position. ``task`` is the model's own unless given."""
    name, task = SITES[site], task or cast(Task, model.task)
    generator = torch.Generator().manual_seed(0)
    clean, corrupted = (task.encode(task.sample(batch, generator)) for _ in range(2))
    query = task.query_positions[-1]
    if single:
        clean, corrupted, query = clean[:, query, None], corrupted[:, query, None], 0
    logit_diff = lambda logits: logits[..., 3] - logits[..., 7]  # noqa: E731
    metric = Metric("logit_diff", (query,), lambda logits, rows: logit_diff(logits[..., 0, :]))
    score = lambda logits: logit_diff(logits[:, query]).mean()  # noqa: E731
    _, cache = model.run_with_cache(clean)
    index, variants = sampled(name, model, clean.shape[1])
    if single:
        index, variants = index[:1], 1
    layers = [0] if single else list(range(model.cfg.n_layers))
    theirs = lambda: reference(name)(model, corrupted, cache, score, index_axis_names=None, index_df=index)  # noqa: E731
    if has_run(model):
        ours = lambda: swept(model, corrupted, cache, metric, *site, layers)  # noqa: E731
    else:
        ours = lambda: by_hooks(model, corrupted, clean, metric, *site, layers, task)  # noqa: E731
    there, here = theirs().double().numpy(), ours()  # [layer, part, group]
    at = {axis: index[axis].to_numpy() if axis in index else 0 for axis in ("layer", "head", "pos", "dest", "src")}
    part = at["head"] * clean.shape[1] + at["src"] if "src" in index else at["head"]
    here = here[at["layer"], part, at["dest"] if "dest" in index else at["pos"]]
    error = float(np.abs(here - there).max() / np.abs(there).max())
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        slow = cpu_seconds(theirs) * variants / len(index)
        n = 5 if slow < 0.2 else 1
        times.append((slow, sum(cpu_seconds(ours) for _ in range(n)) / n))
    return 1e3 * median(t for t, _ in times), 1e3 * median(t for _, t in times), error


@torch.no_grad()
def main() -> dict[str, float]:
    print("Activation patching, one CPU thread: times faster than transformer_lens.patching, by batch size")
    rows = []
    for subject, make in SUBJECTS.items():
        model = make()
        for site in SITES:
            for batch in BATCHES:
                slow, fast, error = cell(model, site, batch)
                rows.append((subject, f"{site[0]} by {site[1]}", batch, slow, fast, slow / fast, error))
        show(rows, subject)
        if (n := model.config.n_layers) > 1:
            print(f"Bound for the stream: about {4 * n / (n - 1):.1f}")
    model, subject = not_copied(), "a stock model that is not copied, 2 layers"
    for batch in BATCHES:
        for site in (("resid_pre", "position"), ("head_out", "all")):
            slow, fast, error = cell(model, site, batch, models.tasks.TenDigitAddition())
            rows.append((subject, f"{site[0]} by {site[1]}", batch, slow, fast, slow / fast, error))
        slow, fast, error = cell(model, ("resid_pre", "position"), batch, models.tasks.TenDigitAddition(), single=True)
        rows.append((subject, "resid_pre, one patch", batch, slow, fast, slow / fast, error))
    show(rows, subject)
    print(f"\nLeast of all cells: {min(row[5] for row in rows):.2f}")
    return ratios(rows)


def ratios(rows: list[tuple]) -> dict[str, float]:
    """The mean ratio of the sweeps by position, and of those by all, of each model and batch size. Sweeps over pairs of
    positions, which are some twenty times faster still, count apart."""
    groups: dict[str, list[float]] = {}
    for subject, site, batch, _, _, ratio, _ in rows:
        kind = site.partition(" by ")[2] or "one patch"
        if site.startswith("pattern_dest_src"):
            kind = "pair of positions"
        what = f"Patching {subject}, by {kind}" if kind != "one patch" else f"Patching {subject}, {kind}"
        groups.setdefault(f"{what}, batch {batch}: than transformer_lens.patching", []).append(ratio)
    return {name: middle(found) for name, found in groups.items()}


def show(rows: list[tuple], subject: str) -> None:
    """Print the ratios of one subject, batches in columns."""
    frame = pd.DataFrame(rows, columns=["model", "site", "batch", "theirs_ms", "ours_ms", "ratio", "error"])
    here = frame[frame.model == subject]
    wide = here.pivot(index="site", columns="batch", values="ratio").loc[list(dict.fromkeys(here.site))]
    print(f"\n{subject}: largest relative difference {here.error.max():.1e}")
    print(wide.to_string(float_format=lambda x: f"{x:.2f}"))
