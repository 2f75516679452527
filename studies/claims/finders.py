"""Finders of our numbers for every paper, in the zoo and in stored results.

A finder is a function of a store and of the arguments that a row gives (:mod:`studies.claims.read`). It
returns our number, or raises :class:`~studies.claims.store.NotStored`.
"""

from __future__ import annotations

from dataclasses import replace

from interp.core.stats import holm
from studies.claims.rules import Ours, counted
from studies.claims.store import Store, pick

score, certified, grokked = Store.score, Store.certified, Store.grokked


def ranked(store: Store, experiment: str, label: str | list[str], base: str) -> Ours:
    """The chance that a seed of a sweep's variant gets further than a seed of the model that it changes, by rank.

    The p-value is corrected for all variants that were compared with the same seeds of that model. Of several labels,
    the one that gets furthest counts: a claim that all of them fail is as strong as its weakest part.
    """
    stored = store.experiment(experiment)
    labels = [label] if isinstance(label, str) else label
    compared = [row for row in stored["comparisons"] if row["a"] == base]
    rows = [pick(compared, f"No comparison of {one!r} with {base} is stored.", b=one) for one in labels]
    own = max(rows, key=lambda row: row["superiority"])
    corrected = holm([row["p_rank"] for row in compared])[compared.index(own)]
    variant, model = (pick(stored["sweeps"], f"No sweep {one!r} is stored.", label=one) for one in (own["b"], base))
    n, of = len(variant["seeds"]), len(model["seeds"])
    succeeded = sum(step is not None for step in model.get("first_perfect", ()))
    remark = f"the smallest of {len(compared)} comparisons counts {len(compared)} times"
    remark += f"; {succeeded} of {of} without succeed"
    against = "as many" if n == of else f"{of}"
    ours = counted(n, f"seeds of {own['b']}, against {against} without").with_value(own["superiority"], remark)
    return replace(ours, p=corrected, able=succeeded > 0)
