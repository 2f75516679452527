"""Stored verdicts on registered models: a trained model's next to its weights, for its card, the others in one file.

Constructed models have no entry; their verdicts are stored in one file, which ``python -m interp.proofs.stored``
recomputes in some minutes. ``interp train NAME --certify`` gives the training loop a :class:`Certifier` as its judge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
from interp.core.stored_data import DATA
from interp.proofs.certificate import Certificate
from interp.proofs.certify import certify_one_layer, check_one_layer
from interp.proofs.methods import certified_at_best, certify, parse_certificate
from interp.proofs.small_domain import ProvedVerdict, task_of
from interp.proofs.verdict import IN_WORDS, ArithmeticName, Verdict
from models import zoo
from models.errors import UserError
from models.registry import build, constructed
from models.tasks.addition import FixedWidthAddition
from models.tasks.multi_addition import MultiOperandAddition
from models.training import judging
from models.transformer import ArithmeticTransformer

FILE = "certificate.json.gz"
Provable = Certificate | ProvedVerdict
ALL_PAIRS = "all pairs of ten-digit numbers"
CONSTRUCTED = DATA / "constructed_verdicts.json"


def facts(certificate: Provable) -> dict[str, Any]:
    """The facts of a certificate that an entry's config keeps, for its card."""
    found = {
        "status": certificate.status,
        "arithmetic": IN_WORDS[certificate.arithmetic],
        "smallest_margin": certificate.smallest_margin,
        "file": FILE,
    }
    if isinstance(certificate, Certificate):
        found |= {"targets": certificate.targets, "witness": list(certificate.witness)}
        if certificate.counterexample is not None:
            a, b, answer = certificate.counterexample
            found["counterexample"] = f"{a} + {b} -> {'no number' if answer is None else answer}"
            found["share"] = "" if certificate.accuracy is None else certificate.accuracy.wrong()
        return found
    return found | {"domain": certificate.domain, "witness": certificate.witness}


def store(entry: str | Path, certificate: Verdict) -> Path:
    """Put a certificate into an entry, if it is about the entry's weights; returns the entry.

    A ten-digit adder's claims are proved once more; other proofs take minutes and are not repeated.

    Raises:
        UserError: no such entry, another kind of verdict, one that is undecided or sampled, or that does not hold for
            the entry's model.
    """
    if not isinstance(certificate, Provable):
        raise UserError(f"Cards have a line for proofs about all problems, and this verdict is {certificate.method}.")
    targets = certificate.targets if isinstance(certificate, Certificate) else "all"
    refuted = certificate.status == "refuted" and isinstance(certificate, Certificate)
    if (certificate.status != "certified" and not refuted) or targets != "all":
        raise UserError(
            "A card has the verdict on a model that is certified on all tokens, or on an adder that is refuted, and "
            f"this one is {certificate.status} ({targets})."
        )
    model = zoo.load(entry)
    if isinstance(certificate, Certificate):
        check_one_layer(certificate, model)
    else:
        task_of(certificate, model, None)
    return zoo.change_entry(entry, certificate=facts(certificate), extra_files={FILE: certificate.to_bytes()})


def stored_verdict(entry: str | Path) -> Verdict | None:
    """The verdict on an entry, from the file next to its weights. Its form is checked, its proof is not.

    Raises:
        UserError: no such entry, or a file that was changed.
    """
    if FILE not in zoo.read_entry(entry)["sha256"]:
        return None
    return parse_certificate(zoo.entry_file(entry, FILE), f"{FILE} of {entry}")


def stored_certificate(entry: str | Path) -> Certificate | None:
    """:func:`stored_verdict` for a ten-digit adder; None for other models."""
    found = stored_verdict(entry)
    return found if isinstance(found, Certificate) else None


def all_pairs(entry: Any) -> str:
    """The strength of evidence that an entry reached on all pairs; empty without a certificate."""
    certificate = stored_certificate(entry)
    return "" if certificate is None or certificate.status == "refuted" else certificate.provenance.rung


def on_all_inputs(name: str) -> str:
    """The strength of evidence on all inputs in a few words, with the domain if it is not all pairs; may be empty."""
    if name not in zoo.zoo_names():  # not trained yet, or constructed
        found = json.loads(CONSTRUCTED.read_text()).get(name)
        if found is None:
            return ""
        return found["evidence"] if found["domain"] == ALL_PAIRS else f"{found['evidence']}, {found['domain']}"
    whole = zoo.read_entry(name)["score"].get("all")
    if whole is not None:
        return f"exhaustive: {whole['correct']:,} of {whole['n']:,}"
    found = stored_verdict(name)
    if isinstance(found, ProvedVerdict):
        return f"{found.provenance.rung}, {found.domain}"
    if found is not None and found.status == "refuted":
        return f"refuted: {facts(found)['counterexample']}"
    return all_pairs(name)


def judge_constructed(name: str) -> dict[str, Any]:
    """The strongest possible verdict on a constructed model, at its own size.

    Raises:
        UserError: no method judges it.
    """
    from interp.proofs.coupled_grid import load_certified_grids

    model = models.build(name)
    if isinstance(model.task, MultiOperandAddition):  # every size has a proof of its own, made by coupled_grid
        grid = load_certified_grids()["float32"]
        operands, digits = grid.margins.shape
        sizes = f"all sizes to {operands} operands of {digits} digits"
        return {"evidence": "certified with rounding", "domain": sizes, "smallest_margin": float(grid.margins.min())}
    found = certified_at_best(model) if isinstance(model.task, FixedWidthAddition) else certify(model)
    evidence = found.provenance.rung if found.status == "certified" else found.status
    domain = ALL_PAIRS if isinstance(model.task, FixedWidthAddition) else found.provenance.source
    return {
        "evidence": evidence,
        "domain": domain.removeprefix("parts of a proof for "),
        "smallest_margin": float(found.smallest_margin),
    }


# ---- while a model trains


@dataclass(frozen=True)
class Certifier:
    """Accepts models that are certified in ``arithmetic``. A model that is refuted in floats is not tried further.

    Cost per candidate: that of :func:`certify` in floats and, for the few that pass, once more in ``arithmetic``.
    """

    arithmetic: ArithmeticName

    @property
    def option(self) -> str:
        return f"--certify {self.arithmetic}"

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> judging.Verdict:
        try:
            certificate = certify_one_layer(model, "float", width=None)
            if certificate.status != "refuted" and self.arithmetic != "float":
                certificate = certify_one_layer(model, self.arithmetic, width=None)
        except UserError as error:  # these weights are beyond every method; later ones may not be
            return judging.Verdict(False, f"validated at 100%, and no verdict on all pairs: {error}")
        if certificate.status not in ("certified", "sampled"):  # sampled: in floats, where nothing is proved
            return judging.Verdict(False, _turned_down(certificate))
        files = {FILE: certificate.to_bytes()}
        return judging.Verdict(True, certificate.finding(), facts(certificate), files)


def certifier_for(name: str, arithmetic: ArithmeticName) -> Certifier:
    """The judge for runs of a registered model. It is tried on untrained weights, to refuse what cannot be certified.

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


def main() -> None:
    """Judge every constructed model and store the verdicts."""
    found = {name: judge_constructed(name) for name in sorted(constructed())}
    CONSTRUCTED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
