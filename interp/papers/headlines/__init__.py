"""The reproduction table: every headline number of the five papers, ours, and the command that makes it.

    interp.papers.headlines.table()                  all of them, judged
    interp.papers.headlines.table("microadder")      one paper's
    interp headlines --markdown               the same from the command line

The numbers of the papers are quotes, in a file ``headlines.toml`` a paper (:mod:`interp.papers.headlines.read`). Each
row names the function that finds ours in the zoo and in stored results, or counts at once; where nothing is stored, a
row says "not measured". Verdicts follow from both numbers by the rule that a row names
(:mod:`interp.papers.headlines.rules`):

    reproduced     as printed or as claimed, beyond the stated uncertainty
    compatible     not told apart, but too uncertain to confirm it
    differs        told apart

each "at a smaller scale" where ours is a smaller model, shorter training or another size than the paper's; "not
testable" and "not run" say why, the first where no run of this project could settle the claim; "not measured" says what
is missing.
"""

from interp.papers.headlines.headline import Headline, Row
from interp.papers.headlines.result import Headlines
from interp.papers.headlines.store import NotStored, Store
from interp.papers.headlines.table import PAPERS, registered, table

__all__ = ["table", "registered", "Headlines", "Headline", "Row", "Store", "NotStored", "PAPERS"]
