"""The page of one model: facts, accuracy, certificate, training, probes, numbers, card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from markupsafe import Markup

import models
from interp.figures.proofs import certified_margins
from interp.probes.curves import learning_curves
from interp.proofs.coupled_grid import load_certified_grids
from interp.proofs.methods import certified_at_best, certify
from interp.proofs.stored_certificates import all_pairs, on_all_inputs, stored_certificate
from interp.proofs.verdict import Verdict
from interp.site.gallery import facts as say
from interp.site.gallery.papers import PAPERS as PAGES
from interp.site.gallery.papers import paper_path
from interp.site.gallery.pictures import attention_pattern, attention_svg
from interp.site.gallery.probe_cells import SMALL, chain_part, parameter_part, probe_parts
from interp.site.gallery.render import Link, Part, code, commands, markdown, page, paragraph, table
from interp.site.gallery.shape_scores import shape_scores
from interp.site.pages import figure_data
from models.evaluation import Score, score
from models.hand_built.position_coupling_addition import NAME as HAND_BUILT
from models.registry import PAPERS, get_spec
from models.tasks.addition import FixedWidthAddition
from models.tasks.sequences import SequenceTask
from models.tasks.two_digit import TwoDigitAddition
from models.transformer import ArithmeticTransformer


@dataclass(frozen=True)
class Made:
    """A page, and its row in the index."""

    html: bytes
    row: dict[str, Any] | None = None


def path_of(name: str) -> str:
    return f"model/{name}.html"


def paper_of(name: str) -> str:
    """The paper that a model belongs to; models without a paper are listed under the first one, MicroAdder."""
    return get_spec(name).paper or PAPERS[0]


def model_page(name: str, links: Sequence[Link], views: Sequence[Link] = ()) -> Made:
    """The page of a zoo entry or of a constructed model, and its row. ``views``: the site's views that show it.

    Raises:
        UserError: an unknown model, or a file of its entry that was changed.
    """
    spec, trained = get_spec(name), name in models.zoo_names()
    model = models.load(name) if trained else models.build(name)
    n = sum(p.numel() for p in model.parameters())
    pattern, pictured = attention_pattern(model)
    row = say.Row(
        name, path_of(name), paper_of(name), "trained" if trained else "constructed", model.task.name, n,
        str(attention_svg(pattern)),
    )  # fmt: skip
    entry = models.zoo.read_entry(name) if trained else None
    numbers = [parameter_part(model)] if 0 < n <= SMALL else []
    if entry is not None:
        row, sentence, facts, parts = _trained(name, model, entry, row)
    else:
        row, sentence, facts, parts = _constructed(model, row)
    facts = [
        ("Parameters", f"{n:,}" if n else "none: every weight is constructed"),
        ("Task", model.task.name),
        ("Architecture", say.architecture(model.config)),
        ("Source", spec.source),
        *facts,
        *([("Step by step", _linked(views))] if views else []),
        ("In Python", code(f'models.{"load" if trained else "build"}("{name}")')),
    ]
    learned = spec.recipe is not None
    parts = [*parts, *probe_parts(model, learned), *numbers]
    if entry is not None and "card.md" in entry["sha256"]:
        card = markdown(models.zoo.entry_file(name, "card.md").decode())
        parts.append(Part("card", "Card", [Markup("<div class='card'>{}</div>").format(card)]))
    html = page(
        "model.html.j2", path_of(name), name, links, name=name, sentence=sentence, svg=row.svg, parts=parts,
        pictured=f"Attention on {pictured}", facts=facts,
    )  # fmt: skip
    return Made(html, asdict(row))


def _linked(views: Sequence[Link]) -> Markup:
    """Links to views, relative to a model's page."""
    return Markup(", ").join(Markup("<a href='../{}'>{}</a>").format(link.path, link.label) for link in views)


# ---- trained models

NOT_KNOWN = "not known: no certificate"

Found = tuple[say.Row, str, list[tuple[str, Any]], list[Part]]


def _trained(name: str, model: ArithmeticTransformer, entry: dict[str, Any], row: say.Row) -> Found:
    certificate = stored_certificate(name)
    rung = all_pairs(name)  # empty where the certificate refutes
    fields = say.score_fields(entry["score"]) | say.seed_fields(entry["training"])
    row = replace(row, **(fields | ({"rung": rung} if rung else {})))
    parts = [_accuracy(name, model, entry)]
    if certificate is not None:
        parts.append(certificate_part(name, certificate))
    parts.append(_training_part(name, entry))
    start = entry["training"].get("start")
    begun = "from a random start" if start is None else f"from a start near {start['origin'].partition(',')[0]}"
    sentence = (
        f"{row.parameters:,} free parameters, trained {begun} on {model.task.name}: {say.score_words(entry['score'])}."
    )
    if certificate is not None:
        sentence = f"{sentence} {say.proved_words(certificate)}".rstrip()
    judged = [
        ("Right of those tried", say.score_words(entry["score"])),
        ("On all inputs", certificate_sentence(certificate) if certificate else on_all_inputs(name) or NOT_KNOWN),
    ]
    facts = [
        *([("Score", say.score_words(entry["score"]))] if "loss" in entry["score"] else judged),
        *say.training_facts(entry["training"]),
        ("Files", say.files(entry, name)),
    ]
    return row, sentence, facts, [part for part in parts if part.items]


def certificate_sentence(certificate: Verdict) -> str:
    if certificate.status != "certified":
        return certificate.finding()
    a, b = certificate.witness
    return (
        f"{certificate.provenance.rung}: right on all 10^20 pairs, smallest margin "
        f"{certificate.smallest_margin:.3f} logits at {a} + {b}"
    )


def _accuracy(name: str, model: ArithmeticTransformer, entry: dict[str, Any]) -> Part:
    if isinstance(model.task, (FixedWidthAddition, TwoDigitAddition)):
        known = Score.from_dict(entry["score"]) if "by_chain_length" in entry["score"] else None
        return chain_part(model, known)
    if "shapes" in entry["score"]:
        found = shape_scores(name)
        items = [figure_data(found.figure()), table(found.to_dataframe())]
        return Part("accuracy", "How far does it generalise?", items)
    return Part("accuracy", "Is it right?", [])  # a model of text has only its loss, which is stated already


def certificate_part(name: str, certificate: Verdict) -> Part:
    kind = "proof" if certificate.status == "certified" else "evidence"
    text = (
        f"{say.certificate_words(certificate)} The {kind} is stored next to the weights; the first command checks it "
        "again without trusting it, and the second makes it from scratch."
    )
    lines = [f"interp certify {name} --check", f"interp certify {name}"]
    return Part("certificate", "Certificate", [paragraph(text), commands(lines), figure_data(certificate.figure())])


def has_curves(entry: dict[str, Any]) -> bool:
    """Whether the entry holds the learning curves of its seeds."""
    return bool({"curves.safetensors", "metrics.jsonl"} & set(entry["sha256"]))


def training_items(name: str, entry: dict[str, Any]) -> list[Markup]:
    """The learning curves, if they are stored, and the commands that made the model."""
    made = entry["training"]
    items = [figure_data(learning_curves(name).figure())] if has_curves(entry) else []
    if made.get("repeats"):
        n, right = (sum(run[of] for run in made["repeats"]) for of in ("seeds_tried", "seeds_grokked"))
        text = f"On a build that rounds differently, {right} of the same {n:,} seeds answer the whole test set. Of all"
        items.append(paragraph(f"{text} runs these are {models.zoo.all_runs(made)}."))
    return [*items, paragraph("Made by"), commands(made["commands"])]


def _training_part(name: str, entry: dict[str, Any]) -> Part:
    items = training_items(name, entry)
    if not has_curves(entry):
        text = "No learning curves are stored with this entry. The card has every seed's result, and more is on "
        link = "<p>{}<a href='../{}'>the paper's page</a>.</p>"
        pages = [paper_path(paper) for paper in PAGES if paper.name == paper_of(name)]
        items = [*(Markup(link).format(text, path) for path in pages), *items]
    return Part("training", "How was it found?", items)


# ---- constructed models


def _constructed(model: ArithmeticTransformer, row: say.Row) -> Found:
    if isinstance(model.task, SequenceTask):
        return _constructed_sequences(model, row)
    found, certificate = score(model), certified_at_best(model)
    row = replace(row, score=f"{found.correct:,} of {found.n:,}", share=found.accuracy)
    if certificate.status == "certified":
        row = replace(row, rung=certificate.provenance.rung)
    words = say.score_words(found.to_dict())
    sentence = f"{row.parameters:,} numbers, all set by hand; nothing was trained. {words}."
    arithmetic = "" if certificate.arithmetic == "float32" else f" --arithmetic {certificate.arithmetic}"
    proof = [paragraph(say.certificate_words(certificate)), commands([f"interp certify {row.name}{arithmetic}"])]
    proof.append(figure_data(certificate.figure()))
    known = certificate_sentence(certificate)
    facts: list[tuple[str, Any]] = [("Right of those tried", words), ("On all inputs", known)]
    return row, sentence, facts, [chain_part(model, found), Part("certificate", "Certificate", proof)]


def _constructed_sequences(model: ArithmeticTransformer, row: say.Row) -> Found:
    name = row.name
    if name == HAND_BUILT:
        from interp.papers.position_coupling.hand_built import load_grid  # a paper's folder may be missing

        grid, proof = load_grid(), load_certified_grids()["float32"]
        right, tried = (int(grid.cells[column].sum()) for column in ("correct", "problems"))
        row = replace(row, score=f"{right:,} of {tried:,}", share=right / tried)
        row = replace(row, rung="certified with rounding")
        made = ["python -m interp.proofs.coupled_grid", "interp reproduce position-coupling:hand-built --size paper"]
        items = [paragraph(proof.sentence()), paragraph(grid.sentence()), commands(made)]
        items.append(figure_data(certified_margins(proof), fixed=True))
        sentence = "No parameters: every weight follows from the construction of Theorem 4.1. " + proof.sentence()
        return row, sentence, [("On all inputs", proof.sentence())], [Part("certificate", "Certificate", items)]
    sentence = "No parameters: every weight is constructed, in the manner of Theorem 4.1."
    certificate = certify(model)
    if certificate.status == "certified":
        row = replace(row, rung=certificate.provenance.rung)
    text = say.certificate_words(certificate)
    items = [paragraph(text), commands([f"interp certify {name}"]), figure_data(certificate.figure())]
    return row, f"{sentence} {text}", [], [Part("certificate", "Certificate", items)]
