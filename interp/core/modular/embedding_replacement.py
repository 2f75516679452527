"""Whether a model needs what its embeddings look like: its answers with other embeddings in their place.

Geometry does not say what is computed. A probe that finds a circle or a frequency in the embeddings therefore also says
how many answers stay right when the embeddings are reduced to it, and when it is taken out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core import runs
from interp.core.batches import right_tokens
from interp.core.places import Place
from interp.core.results import Provenance
from interp.core.samples import draw
from interp.core.stats import Proportion, proportion
from models.tasks import Task
from models.transformer import HookedModel

N = 512  # problems of a test
EMBED = "hook_embed"


@dataclass(frozen=True)
class EmbeddingTest:
    """Whole answers right (teacher forced) of the model as it is, and by the name of what its embeddings became."""

    clean: Proportion
    replaced: Mapping[str, Proportion]
    seed: int

    def clause(self) -> str:
        """The shares with their intervals as a clause: "98.1% [96.5%, 99.1%] of 512 answers are right, ..."."""
        found = "".join(f", {share} {name}" for name, share in self.replaced.items())
        return f"{self.clean} of {self.clean.n:,} answers are right{found}"


def embedding_test(
    model: HookedModel,
    task: Task,
    tokens: Sequence[int],
    rows: Mapping[str, Float[Tensor, "token d_model"]],
    seed: int = 0,
) -> EmbeddingTest:
    """Right answers with each of ``rows`` in place of the embeddings of ``tokens`` at every position, on 512 problems.

    What follows the embedding (position embeddings, a scale) is not touched: the difference of old and new rows is
    added at ``hook_embed``. The unembedding stays as it is, also where it is tied.
    """
    sample = draw(task, None, N, seed)
    right, queries = task.targets(sample.problems), list(task.query_positions)
    old = model.W_E.detach()
    ids = list(tokens)

    def share(new: Tensor | None) -> Proportion:
        replaced = []
        if new is not None:
            shift = torch.zeros_like(old).index_copy(0, torch.tensor(ids, device=old.device), new.to(old) - old[ids])
            moved = lambda value, rows: value + shift.to(value)[sample.tokens[rows].to(value.device)]  # noqa: E731
            replaced = [Place(EMBED, None).put(moved)]
        logits = runs.run(model, sample.tokens, replaced, queries)
        return proportion(right_tokens(logits, right).all(1).numpy())

    return EmbeddingTest(share(None), {name: share(new) for name, new in rows.items()}, seed)


def all_rows(n: int, resamples: int, seed: int) -> Provenance:
    return Provenance(n, seed, f"rows, control of {resamples:,} relabellings", strength="exhaustive")
