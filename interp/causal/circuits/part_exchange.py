"""Whether two circuits do the same with the parts that both have: what a part writes in one is put into the other."""

from __future__ import annotations

from itertools import permutations

import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from interp.causal.edges import EdgeExperiment
from interp.causal.edges.edge_graph import EMBED, POS_EMBED

COLUMNS = ["from", "into", "part", "answers_stay", "logit_diff", "logit_diff_own"]


@torch.no_grad()
def exchange_parts(experiment: EdgeExperiment, masks: Bool[Tensor, "circuit edge"]) -> pd.DataFrame:
    """One row per ordered pair of circuits and part (head or MLP) that both have: an interchange of one part between
    two circuits that give the same answers. Do they compute it in the same way?

    ``answers_stay``: share of the pairs in which the second circuit's largest logit stays where it was, with what the
    part writes taken from the first circuit's run on the same pair; ``logit_diff`` and ``logit_diff_own``: the mean of
    the experiment's first metric with and without that. A pair of circuits without a common part has one row of NaN.
    """
    graph, masked = experiment.graph, experiment.masked
    if not len(masks):
        return pd.DataFrame(columns=COLUMNS)
    tokens, rows = experiment.tokens, slice(None)
    embeddings = masked.embeddings(tokens).expand(len(masks), -1, -1, -1, -1)
    table, other = masked.table(masks), experiment.replacement[:, rows]
    written, logits, _ = masked.run_from_stage([embeddings], 0, table, other)
    stages = [stage for stage in range(graph.n_stages - 1) if graph.reads(stage)]
    sizes = [part.shape[1] for part in written]
    stage_and_place = {  # of what every sender writes
        graph.senders[sum(sizes[:index]) + place]: (index, place)
        for index, size in enumerate(sizes)
        for place in range(size)
    }

    def run_with_part(circuit: int, part: str, donor: int) -> Tensor:
        """The circuit's logits with what the part writes taken from another circuit's run."""
        index, place = stage_and_place[part]
        so_far = [each[circuit : circuit + 1] for each in written[: index + 1]]
        where = (torch.arange(sizes[index]) == place)[:, None, None, None]
        so_far[index] = torch.where(where, written[index][donor : donor + 1], so_far[index])
        return masked.run_from_stage(so_far, stages[index - 1] + 1, table[circuit : circuit + 1], other)[1]

    senders = [{edge.sender for edge in graph.kept(mask)} - {EMBED, POS_EMBED} for mask in masks]
    own = experiment.judge(logits, rows)[0].mean(-1)
    found = []
    for one, two in permutations(range(len(masks)), 2):
        shared = [part for part in graph.senders if part in senders[one] & senders[two]]
        if not shared:
            found.append((one, two, "", float("nan"), float("nan"), float(own[two])))
        for part in shared:
            changed = run_with_part(two, part, one)
            stays = (changed[0].argmax(-1) == logits[two].argmax(-1)).all(-1)
            now = experiment.judge(changed, rows)[0].mean()
            found.append((one, two, part, float(stays.double().mean()), float(now), float(own[two])))
    return pd.DataFrame(found, columns=COLUMNS)
