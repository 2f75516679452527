"""Certificates of the zoo's entries: beside the weights, and a line on the card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from interp.proofs.certificate import IN_WORDS, Certificate, parse_certificate
from interp.proofs.certify import check_certificate
from interp.proofs.constant_attention import BITS
from interp.proofs.verdict import Verdict
from models import zoo
from models.errors import UserError

FILE = "certificate.json.gz"
#: What a stored certificate gives away of its bounds and adds to its ranges (2^-34 at either end), see :func:`durable`.
SLACK, WIDER = 0.1, 2 ** (BITS - 34)


def card_line(certificate: Certificate, name: str) -> str:
    """What the card of the entry ``name`` says of a certificate, under the label "Certified"."""
    a, b = certificate.witness
    where = f"{certificate.smallest_margin:.3f} logits at {a} + {b} (`interp certify {name}`"
    words = IN_WORDS[certificate.arithmetic]
    if certificate.status != "certified":
        return f"**Tried** {words}, without a proof: no extreme pair is wrong, smallest margin {where})."
    of = "all eleven digits of " if certificate.targets == "digits" else ""
    return f"**Certified** {words}: {of}all 10^20 pairs, smallest margin {where}; proof in `{FILE}`)."


def durable(certificate: Certificate) -> Certificate:
    """The same certificate with a little less in its claims: lower bounds, wider ranges.

    A proof claims the very bounds and ranges that it came out with. Where another machine or a later version rounds an
    enclosure differently, by far less than this, it would no longer hold to the last digit.
    """
    classes = certificate.classes.copy(deep=True)
    classes["proved"] = classes.proved.copy(data=[float(f"{(1 - SLACK) * x:.5g}") for x in classes.proved.values])
    if "reach" in classes:
        classes["reach"] = classes.reach + np.array([-WIDER, WIDER])
    return replace(certificate, classes=classes)


def store(entry: str | Path, certificate: Verdict) -> Path:
    """Put a certificate and its card line into an entry, once it was checked against the entry; returns the entry.

    Raises:
        UserError: no such entry, another kind of verdict, or a certificate that is not of status "certified" or does
            not hold for its model.
    """
    if not isinstance(certificate, Certificate):
        raise UserError(f"Cards have a line for proofs of ten-digit adders, and this verdict is {certificate.method}.")
    if certificate.status != "certified" or certificate.targets != "all":
        raise UserError(
            "Only models that are certified on all tokens have their certificate on the card, and this one is "
            f"{certificate.status} ({certificate.targets})."
        )
    certificate = durable(certificate)
    check_certificate(certificate, zoo.load(entry))
    name = zoo.read_entry(entry)["model"]
    return zoo.set_card_bullet(entry, card_line(certificate, name), {FILE: certificate.to_bytes()})


def stored_certificate(entry: str | Path) -> Certificate | None:
    """The certificate beside an entry's weights, if there is one; its form is checked, its proof is not.

    Raises:
        UserError: no such entry, or a file that was changed.
    """
    if FILE not in zoo.read_entry(entry)["sha256"]:
        return None
    return parse_certificate(zoo.entry_file(entry, FILE), f"{FILE} of {entry}")


def all_pairs(entry: Any) -> str:
    """The rung that an entry reached on all pairs; empty without one."""
    certificate = stored_certificate(entry)
    return "" if certificate is None else certificate.provenance.rung
