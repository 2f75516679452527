"""The reproduction table: every headline number of the five papers, ours, and the command that computes it.

    studies.claims.table()                  all of them, judged
    studies.claims.table("microadder")      one paper's
    python -m studies headlines --markdown    the same from the command line

The numbers of the papers are quotes, in one file ``headlines.toml`` per paper (:mod:`studies.claims.read`).
Each row names the function that finds ours in the zoo and in stored results, or counts it directly; if nothing is
stored, a row says "not measured". Verdicts follow from both numbers by the rule that a row names
(:mod:`studies.claims.rules`):

    reproduced     as printed or as claimed, beyond the stated uncertainty
    compatible     as printed or as claimed by our estimate, but too uncertain to confirm it
    differs        told apart
    undecided      our measurement is too uncertain to say either, or untrained models give the same

A verdict is "at a smaller scale" if ours is a smaller model, a shorter training or another size than the paper's. "Not
testable" means that no run of this project could settle the claim; this and "not run" say why. "Not measured" says what
is missing.
"""

from studies.claims.headline import Headline, Row
from studies.claims.headline_table import registered, table
from studies.claims.headlines_result import Headlines
from studies.claims.store import NotStored, Store

__all__ = ["table", "registered", "Headlines", "Headline", "Row", "Store", "NotStored"]
