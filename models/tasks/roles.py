"""Names of places relative to one target, which tasks give in ``relative_roles`` and everything else uses.

The *own* column of an answer digit is the one that the digit stands in, the *previous* one the column before it. The
previous output is the answer digit that was written last: the query's own token. Tasks whose columns have other parts
(running sums, products, bits) name these in the same way.
"""

from __future__ import annotations

OWN, PREVIOUS, OUTPUT = "own operands", "previous operands", "previous output"
DELIMITERS, REST = "delimiters", "rest"
#: The places of a column of two operands; every key up to the query is in one of them.
PLACES = (OWN, PREVIOUS, OUTPUT, DELIMITERS, REST)

#: What earlier versions called them, in stored results.
_EARLIER = {
    "attention: own column": f"attention: {OWN}",
    "attention: previous column": f"attention: {PREVIOUS}",
    "attention: written digit": f"attention: {OUTPUT}",
    "attention: elsewhere": f"attention: {REST}",
    "attention on previous column": f"attention on {PREVIOUS}",
    "attention on written digit": f"attention on {OUTPUT}",
    "attention on elsewhere": f"attention on {REST}",
    " on own column": f" on {OWN}",
    "own digits": OWN,
    "digits below": PREVIOUS,
}


def with_places(text: str) -> str:
    """A stored text with this version's names of places."""
    for earlier, name in _EARLIER.items():
        text = text.replace(earlier, name)
    return text
