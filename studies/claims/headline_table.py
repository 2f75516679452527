"""The headline numbers of all papers (``headlines.toml`` in each paper's folder) as one table."""

from __future__ import annotations

from interp.core.results import Provenance
from models.errors import unknown_name
from studies.claims.headline import Headline
from studies.claims.headlines_result import Headlines
from studies.claims.read import read_headlines
from studies.claims.store import Store
from studies.papers import PAPERS

#: Experiments and figures that no row names, with the reason.
BESIDE: dict[str, str] = {
    "microadder:ladder": "trains rungs to a fifth of their steps; counts and scores are here without it",
    "adder-456:table1": "counts parameters, which hold by construction",
    "adder-456:table4": "counts parameters, which hold by construction",
    "adder-456:stress": "the paper has uniform test problems alone",
    "position-coupling:window": "the paper's heads see all ids",
    "position-coupling:grid-window": "the paper's heads see all ids",
    "addlm:top-k": "the paper chose 16 keys and compares no other number",
}


def registered(paper: str | None = None) -> tuple[Headline, ...]:
    """All headlines, or one paper's, in the order of the papers.

    Raises:
        UserError: no such paper, with the closest match.
    """
    if paper is not None and paper not in PAPERS:
        raise unknown_name("paper", paper, PAPERS)
    return tuple(headline for key in PAPERS if paper in (None, key) for headline in read_headlines(key))


def table(paper: str | None = None, store: Store | None = None) -> Headlines:
    """Every fact that the papers claim of behaviour and training, ours, and the command that computes it.

    There is one row per independent fact: what several sentences or tables of a paper repeat is one row, and sizes and
    constants that hold by construction have none (the zoo has them). Nothing is trained: ours are read from the zoo and
    from stored results, or measured on stored models (some seconds in all, one thread). Numbers that are not stored are
    "not measured".

    Args:
        paper: one of :data:`PAPERS`; all of them by default.
        store: where stored results lie; those of this package by default.

    Raises:
        UserError: no such paper, or a stored file that was changed.
    """
    rows = tuple(headline.evaluate(store or Store()) for headline in registered(paper))
    return Headlines(rows, Provenance(len(rows), None, "facts; the evidence for each is in the table"))
