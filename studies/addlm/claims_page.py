"""AddLM's claims next to what was measured: ``python -m studies reproduce addlm:claims``. It trains nothing.

The claims are the paper's headline numbers; claims without a number come with counts of our own.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from interp.core.sections import Section, records
from models.families.addlm import TOP_K, model_name
from models.number_format import small
from models.transformer.parts.tropical import pair_scores
from studies.addlm.multiplications import beside_twin
from studies.claims import Headlines, table
from studies.runs.study import Made, Settings, shows, study

TEXT = """The paper's statements (summary, key result, ablation, architecture, open questions), what this project
measured, and the verdict. `python -m studies headlines --paper addlm` has the rule and the command of each.

Related work: AdderNet (Chen et al., 2020), Adder Attention (Shu et al., NeurIPS 2021), Tropical Attention (NeurIPS
2025), BitNet b1.58 (Ma et al., 2024)."""
LONG = 4096  # tokens, in the paper's open questions


def claims_table(found: Headlines | None = None) -> pd.DataFrame:
    """One row per claim: the printed number, ours, verdict and remarks. Nothing is trained, and no text is read."""
    return (found or table("addlm")).to_dataframe()[["claim", "printed", "ours", "verdict", "remarks"]]


def counts() -> pd.DataFrame:
    """The counts for claims that have no number."""
    q, k = torch.randn(2, 64, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    least = torch.minimum(q[:, None], k).sum(-1)
    error = (pair_scores(q, k, "neg_l1") - (2 * least - q.sum(-1)[:, None] - k.sum(-1))).abs().max()
    same = (pair_scores(q, k, "neg_l1").argmax(1) == pair_scores(q, k, "max_plus").argmax(1)).sum()
    scored, kept = LONG * (LONG + 1) // 2, sum(min(i + 1, TOP_K) for i in range(LONG))
    rows = [
        (
            "-L1 is a tropical attention score",
            "-L1 = 2 sum min(q, k) - sum q - sum k (largest difference on 4,096 random pairs of 32 coordinates, "
            f"float64, seed 0: {small(float(error), 1)}); the best key is the one of max_i (q_i + k_i) for {int(same)} "
            "of 64 queries. It is not the product of max-plus algebra.",
        ),
        (
            f"At T = {LONG:,}, top-8 routing should drastically beat dense softmax",
            f"A head scores {scored:,} pairs at T = {LONG:,} whatever k is; top {TOP_K} keeps {kept:,} of them for "
            "softmax and values. Top-k does not remove the quadratic part: the scores.",
        ),
    ]
    return pd.DataFrame(rows, columns=["claim", "counted"])


@study("addlm:claims", "AddLM's claims")
def claims(settings: Settings) -> Made:
    """The table of claims, from stored losses and counts."""
    found = table("addlm")
    tables = {"table": claims_table(found), "products": beside_twin(model_name("0.8m")), "counted": counts()}
    data = {"claims": found.to_dict()["rows"]} | {name: records(each) for name, each in tables.items()}
    return Made(data, "AddLM's claims, measured")


@shows("addlm:claims")
def show_claims(data: Any) -> list[Section]:
    stated, products, counted = (pd.DataFrame(data[name]) for name in ("table", "products", "counted"))
    return [
        Section("Claims and measurements", TEXT, tables=[stated]),
        Section("Multiplications", "Of one forward pass over 128 characters, by part.", tables=[products]),
        Section("Counted", tables=[counted]),
    ]
