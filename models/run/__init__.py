"""The one fast forward: runs without hooks, and variants of them, by the same formulas.

A *run* is a lazy table (site, layer) -> activation of one batch (:class:`Run`). *Variants* are alternatives times
groups of positions, each computed from the first place where it differs (:class:`Variants`): patching, ablation, path
patching and interchange say which places differ and what they read. The hooked forward is the definition, the tests
compare this one with it, and a model whose config has a switch that the formulas do not know (:data:`KNOWN`), or which
is altered by hooks or otherwise, takes it everywhere (:func:`has_run`).

Scores are a run of which no activation is kept (:func:`logits_from`), decoding is a layer whose earlier keys and values
are given (:func:`greedy`), and problems that begin alike share what they begin with (:func:`logits_by_prefix`).

Nothing here knows what the positions mean: sites are named as hooks are, positions are numbers.
"""

from models.run.blocks import logits_by_formulas
from models.run.decoding import NOTHING, greedy
from models.run.formulas import KNOWN, Formulas, has_formulas, has_run
from models.run.groups import everywhere
from models.run.run import Frame, Run
from models.run.scoring import exact_match, hooked_logits, logits_at, logits_from, responses_right
from models.run.shared_prefixes import logits_by_prefix, numbers_kept, shares_prefixes
from models.run.variants import Variants

__all__ = [
    "KNOWN",
    "NOTHING",
    "Formulas",
    "Frame",
    "Run",
    "Variants",
    "everywhere",
    "exact_match",
    "greedy",
    "has_formulas",
    "has_run",
    "hooked_logits",
    "logits_at",
    "logits_by_formulas",
    "logits_by_prefix",
    "logits_from",
    "numbers_kept",
    "responses_right",
    "shares_prefixes",
]
