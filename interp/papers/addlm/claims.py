"""AddLM's claims beside what was measured: ``interp reproduce addlm:claims``. Nothing is trained for it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch

import models
from interp.core.sections import Page, Section
from interp.papers.addlm.multiplications import count_multiplications
from interp.papers.addlm.runs import LossRow, cut, mean_best, mean_last, stored_rows
from interp.papers.studies import Settings, study
from models.addlm import TOP_K, model_name
from models.errors import UserError
from models.packing import packed_size
from models.parts.tropical import pair_scores

Claim = tuple[str, str, str]  # claim, what was measured, verdict

TEXT = """The paper's statements (summary, key result, ablation, architecture, open questions), what this project
measured, and a verdict in words. Losses are those of `interp reproduce addlm:ablation`, means over stored seeds at 0.82
million parameters and 2,000 steps; counts are those of a forward pass over 128 characters.

Related work: AdderNet (Chen et al., 2020), Adder Attention (Shu et al., NeurIPS 2021), Tropical Attention (NeurIPS
2025), BitNet b1.58 (Ma et al., 2024)."""


def losses() -> Iterator[Claim]:
    rows = [row for row in stored_rows() if row.trained == row.budget]
    names = {key: model_name("0.8m", suffix) for key, suffix in _FOUR.items()}
    best = {key: mean_best(rows, name) for key, name in names.items()}
    seeds = {key: sum(row.model == name for row in rows) for key, name in names.items()}
    if any(value != value for value in best.values()):
        raise UserError("The stored losses of AddLM are incomplete; run `interp reproduce addlm:ablation`.")
    counted = ", ".join(f"{key} {best[key]:.3f} ({seeds[key]} seeds)".replace("1 seeds", "1 seed") for key in best)
    gap, printed = best["AddLM"] / best["float"] - 1, 2.11 / 1.88 - 1
    yield (
        "0.82 M parameters: 1.88 for float, 2.11 for AddLM, a gap of 13.0%",
        f"{counted}: a gap of {gap:.1%}. The paper's own two numbers are {printed:.1%} apart.",
        f"AddLM is {'behind' if gap > 0 else 'ahead'} here, by {gap:.1%} with unscaled scores; 13.0% is an error of "
        "arithmetic.",
    )
    attention, ternary = best["L1"] - best["float"], best["ternary"] - best["float"]
    yield (
        "Removing multiplication from attention scores is essentially free (+0.031)",
        f"L1 with top {TOP_K} alone: {attention:+.3f} nats beside the float baseline.",
        "Holds." if attention < 0.05 else "Does not hold here.",
    )
    both = best["AddLM"] - best["float"]
    yield (
        "Almost all of the cost is the ternary weight constraint (+0.131 of +0.181)",
        f"Ternary weights alone {ternary:+.3f}, both {both:+.3f}.",
        ("Holds" if ternary > 4 * abs(attention) else "Does not hold here")
        + ("; with ternary weights, L1 attention is even a gain." if both < ternary else "."),
    )
    last = {key: mean_last(rows, name) for key, name in names.items()}
    yield (
        "AddLM beats the float transformer at 25 M parameters (1.60 to 1.68)",
        "Not measured: these runs want a GPU. At 0.82 M best and last losses are "
        f"{best['float']:.3f} and {last['float']:.3f} (float), {best['AddLM']:.3f} and {last['AddLM']:.3f} (AddLM).",
        "Open here. The paper compares last steps of a float model that it says overfits; best and last must be shown.",
    )
    yield from _variants()


_FOUR = {"float": "-float", "L1": "-l1", "ternary": "-ternary", "AddLM": ""}


def _beside(other: str) -> tuple[int, float, float] | None:
    """The last step that stored runs (lowest seeds) of AddLM and of another model measured; their losses there."""
    first: dict[str, LossRow] = {}
    for row in sorted(stored_rows(), key=lambda row: row.seed):
        first.setdefault(row.model, row)
    ours, its = first.get(model_name("0.8m")), first.get(other)
    if ours is None or its is None:
        return None
    step = max(set(ours.steps) & set(its.steps))
    return step, cut(ours, step).last, cut(its, step).last


def _variants() -> Iterator[Claim]:
    found = _beside(model_name("0.8m", "-max-plus"))
    if found is not None:
        step, reference, max_plus = found
        yield (
            "Does the true tropical product max_i (q_i + k_i) train? (open question)",
            f"After {step:,} steps, one seed: {max_plus:.3f}, beside {reference:.3f} with negative L1.",
            "It trains." if max_plus < reference + 0.5 else "It trains badly.",
        )
    found = _beside(model_name("0.8m", "-scaled"))
    if found is not None:
        step, reference, scaled = found
        yield (
            "Scores are -L1(q, k), without a scale (table of the architecture)",
            f"After {step:,} steps, one seed: {reference:.3f} unscaled, {scaled:.3f} divided by sqrt(d_head).",
            "The formula as printed does better there." if reference < scaled else "The scaled form does better there.",
        )


def counts() -> Iterator[Claim]:
    ours, twin = (count_multiplications(models.build(model_name("0.8m", suffix))) for suffix in ("", "-float"))
    left = ", ".join(f"{part} {n / ours.total:.0%}" for part, n in ours.products.items() if n / ours.total > 0.01)
    yield (
        "No real-number multiplications anywhere in the forward pass; only +, -, max and sign flips",
        f"{ours.share_removed(twin):.1%} of {twin.total:,} products are gone; of the {ours.total:,} left: {left}.",
        "Does not hold: softmax, values, norms, scales and head still multiply.",
    )
    model = models.build(model_name("0.8m"))
    sizes = {name: packed_size(model, name) for name in ("two-bit", "trits")}
    times = {name: 4 * size.ternary / size.ternary_bytes for name, size in sizes.items()}
    yield (
        "About 16 times smaller weights: 1.6 bits instead of 32",
        f"1.6 bits are {times['trits']:.1f} times smaller, 2 bits {times['two-bit']:.1f} times (half of that against "
        f"float16); the whole model with its float parts {sizes['trits'].times_smaller:.1f} and "
        f"{sizes['two-bit'].times_smaller:.1f} times.",
        "The two numbers belong to different packings.",
    )
    q, k = torch.randn(2, 64, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    least = torch.minimum(q[:, None], k).sum(-1)
    error = (pair_scores(q, k, "neg_l1") - (2 * least - q.sum(-1)[:, None] - k.sum(-1))).abs().max()
    same = (pair_scores(q, k, "neg_l1").argmax(1) == pair_scores(q, k, "max_plus").argmax(1)).sum()
    yield (
        "-L1 is a tropical attention score",
        "-L1 = 2 sum min(q, k) - sum q - sum k (largest difference on 4,096 random pairs of 32 coordinates, float64, "
        f"seed 0: {float(error):.0e}); the best key is the one of max_i (q_i + k_i) for {int(same)} of 64 queries.",
        "A name only: it is not the product of max-plus algebra.",
    )
    n = 4096
    scored, kept = n * (n + 1) // 2, sum(min(i + 1, TOP_K) for i in range(n))
    yield (
        "At T = 4,096, top-8 routing should drastically beat dense softmax",
        f"A head scores {scored:,} pairs at T = {n:,} whatever k is; top {TOP_K} keeps {kept:,} of them for "
        "softmax and values.",
        "Top-k does not remove the quadratic part: the scores.",
    )
    yield (
        "A ternary Triton kernel will be 10 to 30 times faster",
        "Not measured, and no speed is claimed here beyond what `python -m benchmarks` prints.",
        "Open. L1 scores cannot use matrix units.",
    )


def claims_table() -> pd.DataFrame:
    """Claim, measurement and verdict, one row each. Nothing is trained or drawn from the text."""
    return pd.DataFrame([*losses(), *counts()], columns=["claim", "measured", "verdict"])


@study("addlm:claims", "AddLM's claims")
def claims(settings: Settings) -> Page | None:
    """The table of claims, from stored losses and counts."""
    table = claims_table()
    data = {"claims": table.to_dict("records"), "rows": [row.to_dict() for row in stored_rows()]}
    title = "AddLM's claims, measured"
    sections = [Section("Claims and measurements", TEXT, tables=[table])]
    return Page(title, sections, data)
