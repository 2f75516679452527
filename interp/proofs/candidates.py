"""Certificates while a model trains: the judge that ``interp train NAME --certify`` hands to the loop."""

from __future__ import annotations

from dataclasses import dataclass

from interp.proofs.certificate import IN_WORDS, Certificate
from interp.proofs.certify import certify_one_layer
from interp.proofs.rungs import ArithmeticName
from interp.proofs.stored import FILE, card_line, durable
from models.errors import UserError
from models.registry import build
from models.training.judging import Verdict
from models.transformer import ArithmeticTransformer


@dataclass(frozen=True)
class Certifier:
    """Accepts what is certified in ``arithmetic``; what is refuted in floats is not tried in more than that.

    Cost of a candidate: that of :func:`certify` in floats, and for the few that pass once more in ``arithmetic``.
    """

    arithmetic: ArithmeticName

    @property
    def option(self) -> str:
        return f"--certify {self.arithmetic}"

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> Verdict:
        try:
            certificate = certify_one_layer(model, "float", width=None)
            if certificate.status != "refuted" and self.arithmetic != "float":
                certificate = certify_one_layer(model, self.arithmetic, width=None)
        except UserError as error:  # these weights are beyond every method; later ones may not be
            return Verdict(False, f"validated at 100%, and no verdict on all pairs: {error}")
        on_grid = self.arithmetic == "float" and certificate.status == "sampled" and "reach" in certificate.classes
        if certificate.status != "certified" and not on_grid:
            return Verdict(False, _turned_down(certificate))
        statement = certificate.finding()
        card = card_line(certificate, str(model.name_or_path))
        return Verdict(True, statement, card, {FILE: durable(certificate).to_bytes()})


def certifier_for(name: str, arithmetic: ArithmeticName) -> Certifier:
    """The judge for runs of a registered model, tried on untrained weights: what cannot be certified is refused now.

    Raises:
        UserError: no method judges models of that name.
    """
    certify_one_layer(build(name), "float", width=None)
    return Certifier(arithmetic)


def _turned_down(certificate: Certificate) -> str:
    if certificate.counterexample is not None:
        a, b, answer = certificate.counterexample
        return f"validated at 100% and yet wrong: {a} + {b} -> {'no number' if answer is None else answer}"
    why = certificate.obstacle or f"{certificate.open:,} of {len(certificate.cuts):,} classes could not be proved"
    return f"validated at 100% and undecided {IN_WORDS[certificate.arithmetic]}: {why}"
