"""The questions of :func:`interp.compare_models`, which are the same for every format.

Sampled questions look at problems half of which are uniform and half rich in carry chains, with the right answer in
place, at the queries of the inner columns (:mod:`interp.compare.subject`), so each is the same measure for two digits
and for ten. The control, unless a question says otherwise, is one untrained twin: the same architecture with fresh
parameters (for a model without parameters, Gaussian weights with the root mean square of each matrix).

Limits. Different formats have different problems: sums of two-digit numbers have no long chains. Heads, units and
directions are tested one at a time, so what is spread over several is missed. Means over heads say little where most
heads rest; the answer's parts list every head.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

import models
from interp.causal.ablation.ablated_runs import run_ablations
from interp.causal.interchange import InterchangeAccuracy, Site, interchange, which_algorithm
from interp.compare.answers import question
from interp.compare.subject import Subject
from interp.compare.unit_signals import unit_signals
from interp.core.answers import Answer, Part
from interp.core.components import Head
from interp.core.model import HookedModel
from interp.core.problems import draw
from interp.core.results import Rung
from interp.core.sites import require_hook, with_writable_stream
from interp.core.stats import mean_interval
from interp.core.thresholds import NEEDED
from interp.probes.embeddings import circle_fit
from interp.proofs.methods import certified_at_best
from models.errors import UserError
from models.evaluation import Score, score
from models.part_names import head_name, in_block
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.base import Task, base_of
from models.tasks.carries import problems_of_chain_length
from models.tasks.places import DELIMITERS, OUTPUT, OWN, PLACES, PREVIOUS, REST
from models.tasks.two_digit import TwoDigitAddition, all_problems
from models.unaltered import alterations

UNTRAINED = "an untrained twin"
PAIRS, EXAMPLES, HEAD_PROBLEMS, CHOOSING = 150, 300, 256, 80
_CHAIN_DRAWS = 8  # how large a pool, in units of n, is searched for problems of every chain length


@question("parameters", "parameters", "Free numbers in the checkpoint; a hand-built model may have none.", "count")
def parameters(subject: Subject) -> Answer:
    return Answer(float(sum(p.numel() for p in subject.model.parameters())))


# ---- how often it is right


@question(
    "uniform",
    "right, uniform",
    "Whole answers that are right on problems from the task's uniform distribution; all 10,000 of two digits.",
    "share",
)
def uniform(subject: Subject) -> Answer:
    task = subject.task
    if isinstance(task, TwoDigitAddition):
        return _of_all_pairs(subject)
    found = score(subject.model, draw(task, None, subject.n, subject.seed).problems, task=task)
    return _share(found)


@question(
    "carry-rich",
    "right, rich in carries",
    "Whole answers that are right on problems rich in carry chains: a column adds up to 9 with probability p ~ U(0, "
    "0.95), one p a problem, else below or above 9 with equal chance.",
    "share",
)
def carry_heavy(subject: Subject) -> Answer:
    sample = draw(subject.task, None, subject.n, subject.seed, 1.0)
    if "rich in carry chains" not in sample.provenance.source:
        raise UserError(f"The task {subject.task.name!r} has no sampler of problems rich in carries.")
    return _share(score(subject.model, sample.problems, task=subject.task))


@question(
    "chains",
    "right, worst chain length",
    "Whole answers that are right at the length of the longest carry chain where that share is lowest; drawn with that "
    "length, or found among problems rich in carries.",
    "share",
    parts="chain length",
)
def chains(subject: Subject) -> Answer:
    task = subject.task
    if exhaustive := isinstance(task, TwoDigitAddition):
        found = _on_all_pairs(subject)
    else:
        found = score(subject.model, _by_chain_length(task, max(2, subject.n // 5), subject.seed), task=task)
    parts = []
    for length, rate in sorted(found.by_chain_length.items()):
        low, high = (None, None) if exhaustive else rate.interval
        parts.append(Part(str(length), rate.accuracy, low, high, rate.n))
    worst = min(parts, key=lambda part: part.value)
    rung: Rung = "exhaustive" if exhaustive else "sampled"
    where = "all chain lengths alike" if worst.value == max(part.value for part in parts) else f"length {worst.name}"
    return Answer(worst.value, worst.low, worst.high, worst.n, rung, note=where, parts=tuple(parts))


def _share(found: Score) -> Answer:
    return Answer(found.accuracy, *found.interval, found.n, "sampled", note=f"{found.n - found.correct:,} wrong")


def _of_all_pairs(subject: Subject) -> Answer:
    found = _on_all_pairs(subject)
    return Answer(found.accuracy, n=found.n, rung="exhaustive", note=f"{found.n - found.correct:,} pairs wrong")


def _on_all_pairs(subject: Subject) -> Score:
    if "all pairs" not in subject.found:
        subject.found["all pairs"] = score(subject.model, all_problems(), task=subject.task)
    return subject.found["all pairs"]


def _by_chain_length(task: Task, count: int, seed: int) -> Tensor:
    """Up to ``count`` problems of every chain length."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(task, FixedWidthAddition):
        return torch.cat([problems_of_chain_length(length, count, generator) for length in range(DIGITS + 1)])
    pool = draw(task, None, _CHAIN_DRAWS * 2 * count, seed, 0.75).problems
    length = task.chain_length(pool)
    return torch.cat([pool[length == k][:count] for k in length.unique().tolist()])


@question(
    "all inputs",
    "right on all inputs",
    "Share of all problems of the task (in the shape asked about) that are right, by the strongest evidence that there "
    "is: a proof with the rung that it reached, or all problems run through the model.",
    "share",
)
def all_inputs(subject: Subject) -> Answer:
    if isinstance(subject.task, TwoDigitAddition):
        return _of_all_pairs(subject)
    rung = _stored_rung(subject.model)
    if rung is not None:
        return Answer(1.0, rung=rung, note="certificate stored in the zoo")
    name = str(getattr(subject.model, "name_or_path", ""))
    if name not in models.names() or models.get_spec(name).recipe is not None:
        raise UserError(
            "No proof is stored for these weights, and there are too many problems to run all; see interp.certify."
        )
    certificate = certified_at_best(subject.model, subject.task)
    if certificate.status != "certified":
        raise UserError(f"interp.certify leaves it {certificate.status}.")
    return Answer(1.0, rung=certificate.provenance.rung, note="proved now")


def _stored_rung(model: HookedModel) -> Any:
    """The rung of the certificate of the zoo entry with exactly these parameters. None without such an entry or
    certificate, and for an altered model, which does not compute what its parameters say."""
    from interp.proofs.stored_certificates import all_pairs

    name = str(getattr(model, "name_or_path", ""))
    if name not in models.zoo_names() or alterations(model):
        return None
    own, stored = dict(model.named_parameters()), dict(models.load(name).named_parameters())
    same = own.keys() == stored.keys() and all(torch.equal(own[key].cpu(), stored[key]) for key in own)
    return (all_pairs(name) or None) if same else None


# ---- where it looks


def _place_question(place: str, words: str) -> None:
    @question(
        f"attention: {place}",
        f"attention on {place}",
        f"Share of the attention of an inner column's query {words}, mean over problems, columns and heads. Control: "
        f"{UNTRAINED}.",
        "share",
        parts="head",
    )
    def attention(subject: Subject) -> Answer:
        shares, blank = (
            side.places[..., PLACES.index(place)].mean(1) for side in (subject.readings, subject.untrained_readings)
        )  # [n, layer, head]
        parts = []
        for layer, head in np.ndindex(*shares.shape[1:]):
            means = [float(side[:, layer, head].mean()) for side in (shares, blank)]
            parts.append(Part(head_name(layer, head), means[0], control=means[1]))
        mean, low, high = mean_interval(shares.mean((1, 2)))
        most = max(parts, key=lambda part: part.value)
        note = f"most in {most.name} ({most.value:.2f})" if len(parts) > 1 and most.value >= 0.005 else ""
        return Answer(mean, low, high, len(shares), "sampled", float(blank.mean()), UNTRAINED, note, tuple(parts))


for _place, _words in {
    OWN: "on the two digits that are added there",
    PREVIOUS: "on the two digits of the previous column",
    OUTPUT: "on its own token, the answer digit written before",
    DELIMITERS: "on plus, equals, BOS and other delimiters",
    REST: "on all other tokens",
}.items():
    _place_question(_place, _words)


@question(
    "head",
    "loss without its main head",
    "Share of right digits lost when one head's output at the queries is taken from other problems (resampled): the "
    f"largest of all heads; the note names all heads with a loss above {NEEDED}. Control: the largest in "
    f"{UNTRAINED}.",
    "share",
    parts="head",
)
def main_head(subject: Subject) -> Answer:
    parts = _head_losses(subject, subject.model)
    blank = max(part.value for part in _head_losses(subject, subject.twin))
    own = subject.readings.places[..., PLACES.index(OWN)].mean((0, 1))
    noted = []
    for part, share in zip(parts, own.ravel(), strict=True):
        noted.append(Part(part.name, part.value, part.low, part.high, part.n, note=f"{share:.2f} on {OWN}"))
    worst = max(noted, key=lambda part: part.value)
    needed = [part.name for part in sorted(noted, key=lambda part: -part.value) if part.value > NEEDED]
    note = f"needed: {', '.join(needed)}" if needed else f"no head's loss is above {NEEDED}"
    return Answer(worst.value, worst.low, worst.high, worst.n, "sampled", blank, UNTRAINED, note, tuple(noted))


def _head_losses(subject: Subject, model: HookedModel) -> list[Part]:
    """For each head, the share of right digits in the inner columns that is lost, averaged over problems."""
    count = min(HEAD_PROBLEMS, len(subject.sample.tokens))
    rows = torch.linspace(0, len(subject.sample.tokens) - 1, count).long()  # from both halves of the sample
    tokens, expected = subject.sample.tokens[rows], subject.expected[rows]
    queries = [subject.layout.queries[k] for k in subject.inner]
    cfg = model.cfg
    heads = [Head(layer, head, tuple(queries)) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
    right = torch.zeros(len(heads) + 1, count, dtype=torch.float64)

    def receive(component: int | None, method: int, control: bool, batch: slice, logits: Tensor) -> None:
        hit = (logits[:, queries].argmax(-1).cpu() == expected[batch]).double().mean(1)
        right[-1 if component is None else component, batch] = hit

    runner = with_writable_stream(model, subject.task, [heads[0].hook])
    run_ablations(runner, tokens, heads, ["resample"], subject.seed, receive, unchanged="keep")
    losses = (right[-1] - right[:-1]).numpy()
    return [
        Part(head.label.split(" ")[0], *mean_interval(loss), count) for head, loss in zip(heads, losses, strict=True)
    ]


# ---- what its units detect


def _unit_question(signal: str, words: str) -> None:
    @question(
        f"unit: {signal}",
        f"best neuron for the {signal}",
        f"Chance that a single MLP neuron's input is larger with {words} than without, with each of carry in, carry "
        "out, digit sum >= 10 and digit sum = 9 held fixed in turn, the worst case (0.5: no better than chance); the "
        f"neuron is chosen on half of the problems, the number is of the other half. Control: {UNTRAINED}, or shuffled "
        "problems if they do better.",
        "separability",
        parts="unit",
    )
    def best_unit(subject: Subject) -> Answer:
        return unit_signals(subject, signal.replace(" ", "_"))


_unit_question("carry in", "a carry into its column")
_unit_question("carry out", "a carry out of its column")


# ---- which variables make the answer


@question(
    "digit sum",
    f"digit sum at {OWN}",
    "Interchange accuracy of the column's digit sum in the values (attn.hook_v of the first layer) of its two digits: "
    "answers that become what addition gives with another problem's digit sum there, among pairs where that changes "
    "it; a middle column. Control: the best of random labels, an untrained twin and a random change of the same size.",
    "share",
)
def digit_sum(subject: Subject) -> Answer:
    return _interchanged(_interchange(subject, "digit_sum", Site("blocks.0.attn.hook_v", OWN), None))


@question(
    "carry in",
    "carry in, one direction",
    "Interchange accuracy of the carry into a middle column in one direction of the residual stream in front of an "
    "MLP, at the query (between its mean activations with and without a carry on training pairs; of the layers the one "
    "that does best on other pairs). A low value says that the model does not hold it as one direction. Controls as of "
    "the digit sum.",
    "share",
)
def carry_in(subject: Subject) -> Answer:
    sites = [Site(in_block(layer, "hook_resid_mid")) for layer in range(subject.model.cfg.n_layers)]
    for site in sites:
        require_hook(subject.model, site.hook)

    def tried(site: Site) -> float:
        return _interchange(subject, "carry_in", site, 1, CHOOSING, 1, controls=False).accuracy().value

    site = max(sites, key=tried) if len(sites) > 1 else sites[0]
    return _interchanged(_interchange(subject, "carry_in", site, 1))


def _interchange(
    subject: Subject, variable: str, site: Site, k: int | None, n: int = PAIRS, later: int = 0, controls: bool = True
) -> InterchangeAccuracy:
    return interchange(
        subject.model,
        variable,
        site,
        subject.inner[len(subject.inner) // 2],
        algorithm="ripple",
        subspace=k,
        method="means",
        n=n,
        n_train=n,
        seed=subject.seed + later,
        controls=controls,
        task=subject.task,
    )


def _interchanged(found: InterchangeAccuracy) -> Answer:
    accuracy = found.accuracy()
    controls = {run: found.accuracy(run).value for run in found.outcomes.run.values.tolist()[1:]}
    best = max(controls, key=controls.__getitem__)
    note = f"column {found.column}, {found.site}"
    return Answer(accuracy.value, accuracy.low, accuracy.high, accuracy.n, "sampled", controls[best], best, note)


@question(
    "reads its output",
    "carry follows the written digit",
    "Answers that are those of the chained algorithm, which reads the carry off the digit written before, where ripple "
    "carry and look-ahead answer otherwise: that digit is replaced by the 9 or 0 that a column of sum 9 would show "
    f"with the other carry. 1: it reads its own output; 0: it does not. Control: {UNTRAINED}.",
    "share",
)
def reads_output(subject: Subject) -> Answer:
    found = which_algorithm(subject.model, n=min(EXAMPLES, subject.n), seed=subject.seed, task=subject.task)
    what = found.deciding
    accuracy, blank = found.accuracy("chained", what), found.accuracy("chained", what, of="untrained")
    note = f"follows {found.verdict}; {found.clean(what).value:.3f} of these digits right before"
    note += "" if what == "plausible" else "; any wrong digit"
    return Answer(accuracy.value, accuracy.low, accuracy.high, accuracy.n, "sampled", blank.value, UNTRAINED, note)


# ---- the shape of its digits


@question(
    "circle",
    "digits off a circle",
    "Root mean square distance of the ten digits' embeddings from the nearest circle, in and off its plane, in radii; "
    "the note has their order around it, a circular rank correlation with its permutation p-value. Control: an "
    "untrained twin's (0 there too: the circle is part of the architecture).",
    "radii",
)
def circle(subject: Subject) -> Answer:
    base, digits = base_of(subject.task), list(subject.task.digit_tokens)
    table = subject.model.W_E[digits]
    fit, blank = circle_fit(table, seed=subject.seed), circle_fit(subject.twin.W_E[digits], resamples=1)
    distance = [math.hypot(each.residual, each.off_plane) / each.radius for each in (fit, blank)]
    note = f"order of the digits: {fit.order_text}; {fit.planarity:.0%} of their variance in the plane"
    return Answer(distance[0], n=base, rung="exhaustive", control=distance[1], control_note=UNTRAINED, note=note)
