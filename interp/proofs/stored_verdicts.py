"""Stored verdicts on registered models: a trained model's next to its weights, for its card, the others in one file.

A wrong answer that ``interp attack`` found is a verdict too: it refutes, and anybody can ask the model again.

Constructed models have no entry. What is proved of them is stored in one file, and the two verdicts on hand-built sums
whole, since pages draw their margins by size. ``python -m interp.proofs.stored_verdicts`` computes both again in some
minutes.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import models
from interp.core.stored_data import DATA
from interp.proofs.attacks.gradient_attack import Attack, task_text
from interp.proofs.certify import certified_at_best, certify, parse_certificate
from interp.proofs.columns.column_evidence import PairEvidence
from interp.proofs.columns.column_method import check_one_layer
from interp.proofs.columns.column_rule import SUMS
from interp.proofs.columns.per_operator import OperatorEvidence
from interp.proofs.listed.domain_evidence import SmallDomainEvidence
from interp.proofs.listed.exhaustive import LARGEST_SPACE, ExhaustiveEvidence, size_text
from interp.proofs.listed.prefix_method import PrefixEvidence
from interp.proofs.verdict.class_table import MachineEvidence
from interp.proofs.verdict.recheck import require_model
from interp.proofs.verdict.time_limit import MINUTES
from interp.proofs.verdict.verdict import IN_WORDS, ArithmeticName, Verdict
from interp.proofs.verdict.wrong_answers import wrong_answer
from models import ArithmeticTransformer, UserError, zoo
from models.families.hand_built.position_coupling_addition import NAME as HAND_BUILT_SUMS
from models.registry import constructed
from models.tasks import LIMIT, adds_pairs_below
from models.zoo.entry_writer import change_entry

FILE = "certificate.json.gz"
ALL_PAIRS = "all pairs of ten-digit numbers"
CONSTRUCTED = DATA / "constructed_verdicts.json"
SUMS_OF_ALL_SIZES = DATA / "hand_built_certificates.json"


def facts(verdict: Verdict) -> dict[str, Any]:
    """The facts of a verdict that an entry's config keeps, for its card."""
    margin = verdict.smallest_margin if math.isfinite(verdict.smallest_margin) else None  # of classes that are open
    found: dict[str, Any] = {"status": verdict.status, "smallest_margin": margin, "file": FILE}
    if 2 * verdict.seconds > 60 * MINUTES:  # for the card's command: twice what it took
        found["minutes"] = math.ceil(2 * verdict.seconds / 60)
    if isinstance(verdict.evidence, PairEvidence):
        found |= {"arithmetic": IN_WORDS[verdict.arithmetic]}
        found |= {"targets": verdict.targets, "witness": list(verdict.witness)}
        if verdict.rule != SUMS:
            found |= {"pairs": verdict.rule.all_pairs, "at": verdict.rule.problem(*verdict.witness)}
        if verdict.counterexample is not None:
            found["counterexample"] = str(verdict.counterexample)
            found["share"] = "" if verdict.accuracy is None else verdict.accuracy.wrong()
        return found
    if isinstance(verdict.evidence, ExhaustiveEvidence):
        n, right, domain = verdict.score.n, verdict.score.correct, f"all {verdict.score.n:,} {verdict.what}"
        found |= {"arithmetic": "by running every problem", "share": f"wrong on {n - right:,} of {domain}"}
    else:
        domain = verdict.domain
        found |= {"arithmetic": IN_WORDS[verdict.arithmetic]}
    if verdict.counterexample is not None:
        found["counterexample"] = str(verdict.counterexample)
    return found | {"domain": domain, "witness": verdict.witness}


def store(entry: str | Path, verdict: Verdict | Attack) -> Path:
    """Put a verdict into an entry, if it is about the entry's weights; returns the entry.

    A ten-digit adder's claims are proved once more; other proofs take minutes and are not repeated. Of an attack the
    first wrong answer is kept, if the entry's model gives it again.

    Raises:
        UserError: no such entry, a verdict that is undecided or sampled, an attack that found nothing, or one that does
            not hold for the entry's model.
    """
    model = zoo.load(entry)
    if isinstance(verdict, Attack):
        return change_entry(entry, certificate=refutation(verdict, model))
    targets = getattr(verdict, "targets", "all")
    storable = isinstance(verdict.evidence, PairEvidence | SmallDomainEvidence | OperatorEvidence | MachineEvidence)
    if not storable or verdict.status not in ("certified", "refuted") or targets != "all":
        raise UserError(
            "A card has the verdict on a model that is certified on all tokens or refuted, and "
            f"this one is {verdict.status} ({targets})."
        )
    if isinstance(verdict.evidence, PairEvidence):
        check_one_layer(verdict, model)
    else:
        require_model(verdict, model, model.task)
    return change_entry(entry, certificate=facts(verdict), extra_files={FILE: verdict.to_bytes()})


def refutation(attack: Attack, model: ArithmeticTransformer) -> dict[str, Any]:
    """The facts of an attack's first wrong answer that an entry's config keeps, found again by running the model.

    The answer is the number, or where that is right and the scratchpad is not, the whole response.

    Raises:
        UserError: the attack found nothing wrong, was on another task or shape, or the model gives the right answer.
    """
    task = model.task
    if not attack.wrong:
        raise UserError("A card has the verdict on a model that is proved or refuted; this attack found nothing wrong.")
    if attack.task != task_text(task):
        raise UserError(f"A card is about {task_text(task)}, and this attack was on {attack.task}.")
    wrong = attack.wrong[0]
    text = task.problem_text(wrong.problem)
    again = wrong_answer(model, task, task.as_problems([text]))
    if again is None:
        raise UserError(f"The entry's model answers {text} rightly.")
    number = wrong.predicted is not None and wrong.predicted >= 0 and wrong.predicted != wrong.expected
    said = wrong.predicted if number else again.predicted
    return {"status": "refuted", "method": "attack", "problem": text, "counterexample": f"{text} -> {said}"}


def stored_verdict(entry: str | Path) -> Verdict | None:
    """The verdict on an entry, from the file next to its weights. Its form is checked, its proof is not.

    Raises:
        UserError: no such entry, or a file that was changed.
    """
    if FILE not in zoo.read_entry(entry)["sha256"]:
        return None
    return parse_certificate(zoo.entry_file(entry, FILE), f"{FILE} of {entry}")


def stored_certificate(entry: str | Path) -> Verdict | None:
    """:func:`stored_verdict` for a ten-digit adder or subtractor; None for other models."""
    found = stored_verdict(entry)
    return found if found is not None and isinstance(found.evidence, PairEvidence) else None


def all_pairs(entry: Any) -> str:
    """The strength of evidence that a ten-digit adder is right on all pairs, such as "certified with rounding".

    It is empty without a certificate, and for a model that is refuted: there is no evidence that it is right.
    """
    certificate = stored_certificate(entry)
    return certificate.provenance.strength if certificate is not None and certificate.status == "certified" else ""


def on_all_inputs(name: str) -> str:
    """What is known of a registered model on all inputs, in a few words.

    It is one of

        certified with rounding           the strength of a proof, with the domain if that is not all pairs
        exhaustive: 9,897 of 10,000       how many of all problems are right, where all were run
        refuted: 12 + 34 -> 47            a problem that is answered wrongly, and the wrong answer
        not judged: no proof for ...      a stored model without a verdict, and how many problems it would be about

    and empty for a model that is not stored, and for a model of text, whose score is a loss.
    """
    if name not in zoo.zoo_names():  # not trained yet, or constructed
        found = json.loads(CONSTRUCTED.read_text()).get(name)
        if found is None:
            return ""
        return found["evidence"] if found["domain"] == ALL_PAIRS else f"{found['evidence']}, {found['domain']}"
    entry = zoo.read_entry(name)
    whole = entry["score"].get("all")
    if whole is not None:
        return f"exhaustive: {whole['correct']:,} of {whole['n']:,}"
    found = stored_verdict(name)
    if found is not None and isinstance(found.evidence, ExhaustiveEvidence):
        return f"exhaustive: {found.score.correct:,} of {found.score.n:,} {found.what}"
    if "counterexample" in (known := entry.get("certificate", {})):
        return f"refuted: {known['counterexample']}"
    if found is not None and isinstance(found.evidence, PrefixEvidence | OperatorEvidence | MachineEvidence):
        return f"{found.provenance.strength}, {found.domain}"
    if found is not None:
        return all_pairs(name)
    return "" if "loss" in entry["score"] else _not_judged(name)


def _not_judged(name: str) -> str:
    size = zoo.load(name).task.domain.size
    if size <= LARGEST_SPACE:
        return f"not judged yet: {size_text(size)} problems can be run"
    return f"not judged: no proof for {size_text(size)} problems, too many to run"


def judge_constructed(name: str) -> dict[str, Any]:
    """The strongest possible verdict on a constructed model, at its own size.

    Raises:
        UserError: no method judges it.
    """
    model = models.build(name)
    if name == HAND_BUILT_SUMS:
        found = hand_built_sums()
    else:
        found = certified_at_best(model) if adds_pairs_below(model.task) == LIMIT else certify(model)
    evidence = found.provenance.strength if found.status == "certified" else found.status
    domain = ALL_PAIRS if adds_pairs_below(model.task) == LIMIT else found.provenance.source
    return {
        "evidence": evidence,
        "domain": domain.removeprefix("parts of a proof for "),
        "smallest_margin": float(found.smallest_margin),
    }


@cache
def hand_built_sums(arithmetic: ArithmeticName = "float32") -> Verdict:
    """The stored verdict on the hand-built addition of up to 30 operands of up to 30 digits, one part for each size.

    Its margins, in logits, are rounded down to four digits, so that they are bounds still.

    Raises:
        UserError: "float", or a file that was changed.
    """
    stored = json.loads(SUMS_OF_ALL_SIZES.read_text())
    if arithmetic not in stored:
        raise UserError(f"There is no stored verdict in {arithmetic!r}; there are {' and '.join(stored)}.")
    return Verdict.from_dict(stored[arithmetic], SUMS_OF_ALL_SIZES.name)


def judge_hand_built_sums(arithmetic: ArithmeticName) -> Verdict:
    """Prove again what :func:`hand_built_sums` reads. It takes a minute or two."""
    found = certify(models.build(HAND_BUILT_SUMS), arithmetic=arithmetic)
    return found.replace(parts=tuple(replace(part, margin=_rounded_down(part.margin)) for part in found.parts))


def _rounded_down(margin: float | None) -> float | None:
    return None if margin is None else math.floor(margin * 1e4) / 1e4


def main() -> None:
    """Judge every constructed model and store the verdicts."""
    arithmetics: tuple[ArithmeticName, ...] = ("interval", "float32")
    sums = {arithmetic: judge_hand_built_sums(arithmetic).to_dict() for arithmetic in arithmetics}
    SUMS_OF_ALL_SIZES.write_text(json.dumps(sums).replace("}, {", "},\n{") + "\n")
    hand_built_sums.cache_clear()
    found = {name: judge_constructed(name) for name in sorted(constructed())}
    CONSTRUCTED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
