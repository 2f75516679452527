"""How results say things: lists of names, whole sentences, and the six controls.

listed(["a", "b", "c"])                  "a, b and c"
listed(names, most=2)                    "a, b and 3 more"
sentence("L0H0 copies most")             "L0H0 copies most."
CONTROLS["untrained"]                    "an untrained copy"

Counts ("2 pairs") and shares with their intervals are in :mod:`models.number_format`.
"""

from __future__ import annotations

from collections.abc import Iterable

#: The kinds of controls, as the columns of tables name them, and in words. Zero, mean and resample are the field's
#: three ablations; ``random`` is a thing of the same size and no meaning, such as a direction or a step.
CONTROLS = {
    "zero": "set to zero",
    "mean": "its mean",
    "resample": "another problem's",
    "random": "a random one",
    "shuffled": "shuffled",
    "untrained": "an untrained copy",
}


def listed(names: Iterable[object], most: int = 6) -> str:
    """Names as a list in words: all of them, or the first ``most`` and how many more there are; "none" for none."""
    texts = [str(name) for name in names]
    if not texts:
        return "none"
    if len(texts) > most:
        texts = [*texts[:most], f"{len(texts) - most:,} more"]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def sentence(text: str) -> str:
    """A clause as a sentence: with a capital and a full stop."""
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
