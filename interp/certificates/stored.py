"""Certificates of the zoo's entries: beside the weights, and a line on the card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interp.certificates.certificate import IN_WORDS, Certificate, parse_certificate
from interp.certificates.certify import check_certificate
from models import zoo
from models.errors import UserError

FILE = "certificate.json.gz"


def card_line(certificate: Certificate, name: str) -> str:
    """What the card of the entry ``name`` says of a certificate, under the label "Certified"."""
    a, b = certificate.witness
    return (
        f"**Certified** {IN_WORDS[certificate.arithmetic]}: all 10^20 pairs, smallest margin "
        f"{certificate.smallest_margin:.3f} logits at {a} + {b} (`interp certify {name}`; proof in `{FILE}`)."
    )


def store(entry: str | Path, certificate: Certificate) -> Path:
    """Put a certificate and its card line into an entry, once it was checked against the entry; returns the entry.

    Raises:
        UserError: no such entry, or a certificate that is not of status "certified" or does not hold for its model.
    """
    if certificate.status != "certified":
        raise UserError(
            f"Only certified models have their certificate on the card, and this one is {certificate.status}."
        )
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
    """The rung that an entry reached on all pairs, in the words of :data:`interp.results.Rung`; empty without one."""
    certificate = stored_certificate(entry)
    return "" if certificate is None else certificate.provenance.rung
