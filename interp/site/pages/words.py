"""Text as a page shows it: words instead of names from the code, and powers of ten as in print.

Stored sentences keep their original names and numbers.
"""

from __future__ import annotations

import re

from models.transformer import with_part_names

_STREAM = re.compile(r"\bblocks\.(\d+)\.hook_resid_(pre|mid|post)\b")
_SUBLAYER = re.compile(r"\bblocks\.(\d+)\.hook_(attn|mlp)_out\b")
_HOOK = re.compile(r"\bblocks\.(\d+)\.(?:attn\.|mlp\.)?hook_(q|k|v|z|pattern|result|pre|post)\b")
_HOOKS = {
    "q": "queries", "k": "keys", "v": "values", "z": "heads' outputs", "pattern": "pattern", "result": "heads' outputs",
    "pre": "neurons' inputs", "post": "neurons",
}  # fmt: skip
_NAMES = {
    "logit_diff": "the logit difference", "resid_pre": "the residual stream", "resid_mid": "the stream after attention",
    "resid_post": "the stream after the layer", "attn_out": "attention's output", "mlp_out": "the MLP's output",
    "exact_match": "exact match", "chain_length": "chain length", "digit_sum": "digit sum",
    "previous_sum": "previous sum", "carry_in": "carry in", "carry_out": "carry out",
    "ten-digit-addition-delimited": "ten-digit addition between delimiters",
    "ten-digit-addition-unended": "ten-digit addition without an end token", "ten-digit-addition": "ten-digit addition",
    "padded-addition": "ten-digit addition of padded numbers", "two-digit-addition": "two-digit addition",
    "multi-operand-addition": "sums of many numbers", "tinyshakespeare": "the characters of Shakespeare's plays",
}  # fmt: skip
_NAME = re.compile(rf"(?:\bthe )?(?<![\w.])({'|'.join(_NAMES)})(?![\w(])")
_FLOAT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)(?!\w)")
_POWER = re.compile(r"( x )?\b10\^(-?\d+)")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_HEADING = re.compile(r"(?<=[a-z]{2})_(?=[a-z])")  # not in d_model


def as_read(text: str) -> str:
    """A sentence without names from code: "the logit difference" for ``logit_diff``, "2.4 × 10⁻⁷" for ``2.4e-07``."""
    text = _SUBLAYER.sub(r"L\1.\2", _STREAM.sub(r"L\1 \2", with_part_names(text)))
    text = _HOOK.sub(lambda found: f"L{found[1]} {_HOOKS[found[2]]}", text)
    text = _NAME.sub(lambda found: _NAMES[found[1]], text)
    text = _FLOAT.sub(_float, text)
    return _POWER.sub(lambda found: f"{' × ' if found[1] else ''}10{found[2].translate(_RAISED)}", text)


def heading(name: object) -> str:
    """A column's name as a heading: ``smallest_margin`` becomes "smallest margin"."""
    return as_read(_HEADING.sub(" ", str(name)))


def _float(found: re.Match[str]) -> str:
    exponent = int(found[2])
    return found[1] if exponent == 0 else f"{found[1]} x 10^{exponent}"
