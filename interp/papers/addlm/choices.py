"""What keeps the ten-digit adder of two layers from a proof about all pairs: ``interp reproduce addlm:choices``.

Each head attends to its eight best keys. A proof about many pairs at once has to know which keys those are. The first
table counts how many different sets of keys are chosen among random pairs, at each target: by one head (the mean over
heads), and by all heads of a layer together. A proof about one pair meets only one of them, and succeeds; the second
table counts for how many pairs of a sample it does.
"""

from __future__ import annotations

import time
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.problems import draw
from interp.core.runs import passes
from interp.core.sections import Section
from interp.papers.studies import Made, Settings, shows, study
from interp.proofs.prefix_leads import lead_bounds
from models.evaluation import Rate
from models.zoo import load

MODEL, SEED = "addlm-adder-ten-digit", 0
PAIRS, PROVED = 20_000, 200

COUNTED = """Where all pairs make the same few choices, a proof can go through them one by one. Where nearly every pair
makes its own, it has to run the pairs. Pairs are drawn uniformly, with seed 0; keys that tie with the last of the best
are chosen as well."""

ENCLOSED = """The first pairs of the same sample, each enclosed by itself: over the reals, and with every rounding of
float32, in every choice of keys that rounding leaves open (64 cases at most). This is no proof about the pairs that
were not drawn: the interval is Clopper and Pearson's, 95%."""


def choice_counts(masks: Bool[Tensor, "pair head target key"]) -> tuple[list[float], list[int]]:
    """By target, the number of different sets of keys of one head (the mean over heads), and of all heads together."""
    alone = [[len(head.unique(dim=0)) for head in target.unbind(1)] for target in masks.unbind(2)]
    return [sum(heads) / len(heads) for heads in alone], [len(x.flatten(1).unique(dim=0)) for x in masks.unbind(2)]


def choice_rows(model: HookedModel, problems: Int[Tensor, "pair operand"]) -> list[dict[str, Any]]:
    """One row per layer and target. Cost: one forward pass."""
    task, layers = model.task, range(model.cfg.n_layers)
    names = [f"blocks.{layer}.attn.hook_top_k_mask" for layer in layers]
    queries, found = list(task.query_positions), [[] for _ in layers]
    for _, _, kept in passes(model, task.encode(problems), keep=names):
        for masks, name in zip(found, names, strict=True):
            masks.append(kept[name][:, :, queries].bool().cpu())
    rows = []
    for layer, masks in enumerate(found):
        for role, one, together in zip(task.target_roles, *choice_counts(torch.cat(masks)), strict=True):
            rows.append({"layer": layer, "target": role.label, "one head": one, "all heads": together})
    return rows


def proof_rows(model: HookedModel, problems: Int[Tensor, "pair operand"]) -> list[dict[str, Any]]:
    """One row per arithmetic: how many pairs, and how many of their tokens, are proved right."""
    rows = []
    for arithmetic in ("interval", "float32"):
        start = time.process_time()
        low, _ = lead_bounds(model, problems, arithmetic)
        seconds = (time.process_time() - start) / len(low)
        right, tokens = int((low > 0).all(1).sum()), int((low > 0).sum())
        rows.append(
            {"arithmetic": arithmetic, "pairs": len(low), "right": right, "tokens": low.numel(), "right tokens": tokens}
            | {"CPU-seconds a pair": round(seconds, 4)}
        )
    return rows


@study("addlm:choices", "Which keys the ten-digit adder chooses")
def choices(settings: Settings) -> Made:
    """Run random pairs through the stored adder, and prove some of them."""
    model = load(MODEL)
    problems = draw(model.task, None, settings.problems or PAIRS, SEED).problems
    settings.say(f"Choices of {len(problems):,} pairs ...")
    rows = choice_rows(model, problems)
    settings.say("Proofs ...")
    return Made({"n": len(problems), "choices": rows, "proofs": proof_rows(model, problems[:PROVED])})


@shows("addlm:choices")
def show_choices(data: Any) -> list[Section]:
    sets, proofs = pd.DataFrame(data["choices"]), pd.DataFrame(data["proofs"])
    rates = [Rate(row["pairs"], row["right"]).interval for row in data["proofs"]]
    proofs.insert(3, "95% interval", [f"{low:.4f} to {high:.4f}" for low, high in rates])
    return [
        Section(f"Different sets of keys among {data['n']:,} pairs", COUNTED, tables=[sets]),
        Section("Pairs proved one by one", ENCLOSED, tables=[proofs]),
    ]
