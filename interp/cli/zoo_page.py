"""The page docs/zoo.md, as ``interp list --markdown`` prints it: what the columns mean, and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ABOVE = """\
# The zoo

Every model that can be built, paper by paper. This page is the output of one command:

    interp list --markdown > docs/zoo.md

How to read the columns:

* **parameters** are the free numbers that a weight map takes. **Constants** are numbers in the code that act like
  weights, such as a spiral's period; they are listed for MicroAdder's family and the arc
  decoders (`models.registry.numbers_of("microadder-57")`). Numbers that only say where training begins are in the
  recipes.
  **Bits** are those of the free numbers as stored, in float32 or float16.
* **right (sampled)** is the score on the test set that the next column names. A score of 10,010 / 10,010 is sampled
  evidence: it bounds the error rate on such problems below 3.0 x 10^-4 with 95% confidence, and it says nothing about
  all inputs. "Constructed" means that nobody trained the model. AddLM's language models have a validation loss instead,
  in nats per character.
* **all inputs** says what is known of every input. "Certified with rounding" is a proof for every input that includes
  the rounding of every float32 operation; "certified in intervals" is a proof about the real numbers that the weights
  define; "exhaustive" is a count over every input; "refuted" names one that is answered wrongly. `interp certify NAME`
  makes them, or `interp attack NAME`, whose search finds wrong answers where no proof reaches. "Not judged" are models
  with too many inputs to run, that no proof covers and in which no search found a wrong answer. For adders of ten
  digits, every input means all 10^20 pairs.
* **runs of seeds** are the runs that were trained, and the next column says how many of them are perfect. A seed is
  perfect if its checkpoint, selected on validation problems that are disjoint from the test set, answers the whole test
  set. Each seed counts once, in the interval too; "again" says how many were perfect when the same seeds were run on a
  build that rounds differently, where others succeed, or none.
* **training time** is wall time for all seeds together, on one CPU thread of a shared machine. "Published numbers" are
  those of models that others trained. The arc decoders were selected on the test set itself, so that their scores bound
  no error rate.

"""

BELOW = """
ToyGPT's variants have the paper's budget of 1,000 iterations. Most of the nine have not learnt addition by then. The
NoPE, FIRE and RoPE models of Position Coupling have the size and the training budget of our other small models. With
that budget they fail even on the lengths they were trained on. The paper's models have 25 or 63 million parameters and
50,000 training steps.

Cards, learning curves of every seed and log-spaced snapshots are in `models/zoo/NAME/`.
"""

_HEADINGS = {"perfect seeds": "perfect on it (95% interval)"}  # columns with another heading on the page


def zoo_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The page as Markdown, with every column but the paper's."""
    names = [name for name in rows[0] if name != "paper"]
    lines = [[_HEADINGS.get(name, name) for name in names], ["---"] * len(names)]
    for row in rows:
        lines.append([f"{row[name]:,}" if name in ("parameters", "bits") else str(row[name]) for name in names])
    return ABOVE + "".join(f"| {' | '.join(line)} |\n" for line in lines) + BELOW
