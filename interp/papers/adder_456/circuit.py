"""The 456-parameter adder's circuit, and its section on the card: ``interp reproduce adder-456:circuit | card``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

import models
from interp.core.problems import digit_rows
from interp.core.results import Result
from interp.core.sections import Section, records
from interp.papers.adder_456.attention_signal import AttentionSignal, attention_signal
from interp.papers.adder_456.carry_routes import CarryRoutes, carry_routes
from interp.papers.adder_456.pattern_ablation import MEAN, NO_PREVIOUS, PatternAblation, pattern_ablation
from interp.papers.adder_456.pattern_dependence import PatternDependence, pattern_dependence
from interp.papers.adder_456.studies import MODEL, OTHER, errors_by_test_seed, scored_models
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.runs import zoo_model
from interp.probes.attention import attention_by_role
from interp.probes.carry import CarryUnits, carry_units
from interp.probes.embeddings import circle_fit
from interp.probes.stress import stress_suites
from models.zoo import change_entry

HEADING = "Tests and circuit"

#: The probes of a model's circuit by question; for the card, MicroAdder gets the first four too.
PROBES: dict[str, Callable[[Any], Result]] = {
    "How far attention depends on the problem": pattern_dependence,
    "Whether that part is needed": pattern_ablation,
    "What attention writes": attention_signal,
    "Which way the carry comes": carry_routes,
    "Which neurons carry it": carry_units,
    "Where the digits look": attention_by_role,
}
COMPARED = 4
DEPENDENCE, NEEDED, WRITES, WAY, UNITS, LOOK = PROBES
OWN_TOKEN = ("own token in the stream", "own token by all its routes")
#: How to read the pictures under each question.
READING = {
    DEPENDENCE: """s0 is the units digit. Left: how far the weights on all keys, taken together, move from problem to
problem at the query that predicts a digit (the root of the summed variances). Right: the share of that movement that
goes with a property of the problem (adjusted R²; crosses are the same with the property's values shuffled). Shares
overlap, since the properties do. The control is a model of 456 parameters that was not trained.""",
    NEEDED: """Whole answers right after the pattern of every head is replaced at the queries of the answer: by its mean
over other problems, so that attention is one constant matrix; by the model's own with the weight on the previous column
handed to the column itself, so that what is read there is lost; or by equal weights on all visible keys, the control.
Bars are 95% intervals.""",
    WRITES: """The attention's output at a digit's query, projected on the direction in which it varies most, fitted on
three numbers: the digit sum of the column that is predicted, that of the previous column, and the last output digit.
Coefficients are divided by the one of the previous column. Ten to one means that the two columns are written as one
two-digit number.""",
    WAY: """Two problems agree in a column and above it and differ in the carry into it. The previous column makes
that carry (a digit sum of 10 or more), or it passes it on (a digit sum of 9). One activation is taken from the other
problem: bars say how often the predicted digit becomes the other problem's. The last output digit is the query's own
token; it reaches the prediction in the residual stream, and through the query, its key and its value.""",
    UNITS: """The input of MLP neurons by the digit sum of the column. A neuron that tells carry out from carry in, and
from every other rival signal, with the rival held fixed, is drawn; it is a detector if setting it to zero hurts the
columns with that signal (or those without it) alone and apart from each rival. Others are needed for something else,
or have no effect of their own.""",
    LOOK: """Mean weight at the query of each answer digit on positions of one meaning. Right: the score gap between a
digit of the column itself and one of the previous column, next to ln 10.""",
}


@study("adder-456:circuit", "What attention and MLP do for the carry, next to MicroAdder and an untrained model")
def circuit(settings: Settings) -> Made:
    subjects = {**scored_models(settings), OTHER: models.load(OTHER)}
    found: dict[str, dict[str, Result]] = {name: {} for name in subjects}
    for name, model in subjects.items():
        for question, probe in PROBES.items():
            found[name][question] = probe(model)
            settings.say(f"{name}: {found[name][question]}")
    control = pattern_dependence(models.build(MODEL))
    stored = found.get(f"{MODEL} (zoo)")
    read = [] if stored is None else [f"{MODEL}, read together: {_reading(stored, found[OTHER])}"]
    data: dict[str, Any] = {"models": records(circuit_table(found)), "read": read}
    data |= {
        f"{name}: {question}": {"sentence": str(result), "rows": records(result.to_dataframe())}
        for name, own in found.items()
        for question, result in own.items()
    }
    data["untrained"] = {"sentence": str(control), "rows": records(control.to_dataframe())}
    return Made(data, "The circuit of the 456-parameter family", (found, control))


@shows("adder-456:circuit")
def show_circuit(data: Any, results: tuple[Mapping[str, Mapping[str, Result]], Result] | None = None) -> list[Section]:
    """The models next to each other; then, if the results are available, every question with a figure per model."""
    head = "\n\n".join([SIDE_BY_SIDE, *data["read"]])
    sections = [Section("The models next to each other", head, (pd.DataFrame(data["models"]),))]
    if results is None:
        return sections
    found, control = results
    for question, text in READING.items():
        sections.append(Section(question, text))
        sections += [Section(name, "", (), (own[question].figure(),), level=3) for name, own in found.items()]
        if question == DEPENDENCE:
            sections.append(Section(f"Control: {MODEL}, untrained", "", (), (control.figure(),), level=3))
    return sections


SIDE_BY_SIDE = """One number of each question below; there are the definitions, controls, numbers of problems and
intervals. All are sampled."""


def circuit_table(found: Mapping[str, Mapping[str, Result]]) -> pd.DataFrame:
    """One row per model: how far attention moves, whether it must, what it writes, where a passed carry is read."""
    rows = []
    for name, own in found.items():
        dependence, ablation, units = own[DEPENDENCE], own[NEEDED], own[UNITS]
        assert isinstance(dependence, PatternDependence) and isinstance(ablation, PatternAblation)
        assert isinstance(units, CarryUnits)
        mean, lost = ablation.total(MEAN), ablation.total(NO_PREVIOUS)
        signal, routes = _signal(own[WRITES]), _routes(own[WAY])
        rows.append(
            {
                "model": name,
                "attention moves by, at most": f"{dependence.max_spread:.4f}" if dependence.depends else "0",
                "right with its mean": f"{mean.accuracy:.1%}",
                "right without the previous column": f"{lost.accuracy:.1%}",
                "own column : below : last digit": f"{signal.mean('own')[0]:.2f} : 1 : {signal.mean('last')[0]:.2f}",
                "carry passed on, from own token in the stream": f"{routes.rate('passed', OWN_TOKEN[0]).accuracy:.1%}",
                "by all its routes": f"{routes.rate('passed', OWN_TOKEN[1]).accuracy:.1%}",
                "neurons for carry out": ", ".join(f"{n} {kind}" for kind, n in units.count_kinds("carry_out").items())
                or "none",
            }
        )
    return pd.DataFrame(rows)


@study("adder-456:card", "The measured section of the zoo entry's card: tests, stress, circuit")
def card(settings: Settings) -> Made:
    """Write the section into the zoo entry's card."""
    model = zoo_model(MODEL)
    errors = errors_by_test_seed(model)
    digits = model.W_E[digit_rows(model.task)]
    fit = circle_fit(digits)
    found = {question: probe(model) for question, probe in PROBES.items()}
    control, microadder = pattern_dependence(models.build(MODEL)), models.load(OTHER)
    other = {question: probe(microadder) for question, probe in list(PROBES.items())[:COMPARED]}
    lines = [
        f"* **Ten test sets** (the paper's Table 3): {sum(errors.values())} errors in 100,000; by test seed "
        + ", ".join(f"{seed}: {count}" for seed, count in errors.items())
        + ". Sampled.",
        f"* **Stress suites:** {stress_suites(model)} `interp reproduce adder-456:stress` has every case.",
        f"* **Digit table:** all {len(digits)} x {digits.shape[1]} numbers are free. {fit}",
        *(f"* **{question}:** {found[question]}" for question in found),
        f"* **The same of an untrained model of this size:** {control}",
        *(f"* **{OTHER}, {question[0].lower()}{question[1:]}:** {result}" for question, result in other.items()),
    ]
    settings.say("\n".join(lines))
    notes = ["\n".join(lines), f"Read together: {_reading(found, other)}"]
    change_entry(MODEL, {HEADING: notes})
    return Made({"notes": notes}, f"The card of {MODEL}")


@shows("adder-456:card")
def show_card(data: Any) -> list[Section]:
    return [Section(HEADING, "\n\n".join(data["notes"]))]


def _reading(found: Mapping[str, Result], other: Mapping[str, Result]) -> str:
    """What the numbers mean together, in words; every number is a measured one."""
    own, last = (_signal(found[WRITES]).mean(term)[0] for term in ("own", "last"))
    routes, others = _routes(found[WAY]), _routes(other[WAY])
    made, below = routes.rate("made", "previous operands"), routes.rate("passed", "operands below")
    stream, token = (routes.rate("passed", route) for route in OWN_TOKEN)
    other_stream, other_token = (others.rate("passed", route) for route in OWN_TOKEN)
    return (
        f"attention writes the own column's digit sum {own:.1f} times as strongly as that of the column "
        f"below, and the last output digit {last:.2f} times. A carry made below comes through those operands: "
        f"{made.accuracy:.1%} of the predictions follow them. A carry passed on by a sum of 9 shows only in the last "
        f"output digit, which is the query's own token: {token.accuracy:.1%} follow it by all its routes, "
        f"{stream.accuracy:.1%} in the residual stream alone; {below.accuracy:.1%} follow the operands further down. "
        "So the carry is the digit sum below less the last output digit, as in MicroAdder. What differs is where that "
        f"digit is read: {OTHER}'s attention writes it {_signal(other[WRITES]).mean('last')[0]:.2f} times as strongly "
        f"as the previous column, and there {other_token.accuracy:.1%} follow the token by all its routes and "
        f"{other_stream.accuracy:.1%} in the residual stream alone."
    )


def _signal(result: Result) -> AttentionSignal:
    assert isinstance(result, AttentionSignal)
    return result


def _routes(result: Result) -> CarryRoutes:
    assert isinstance(result, CarryRoutes)
    return result
