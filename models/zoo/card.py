"""The card of a zoo entry: what a reader wants to know first, rendered from the entry's data.

Nobody writes or edits a card. Each fact comes from the entry's config (score, training, certificate, notes) or from its
``seeds.json``; an entry with a score of an unknown form has a short card.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from models.evaluation import Rate, Score
from models.files.checkpoint import parse_weights
from models.numerals import shown
from models.registry import build, recipe_of
from models.tasks.multi_addition import MultiOperandAddition
from models.training.objective import ParameterLayout
from models.training.recipes import recipe_name, starts_of
from models.training.run_folder import differences
from models.zoo.files import CARD, STORED_AS

_MADE = ("seed", "step", "seeds_tried", "seconds", "commands", "recipe", "torch")  # what publishing records
_OTHER = "Another machine or version rounds differently and gets other seeds."
_CHAOS = (
    "Another machine or version rounds differently, and training is chaotic: another seed may succeed there, or none."
)
_LOTTERY = "Another machine or version rounds differently, and how far a seed generalises is a lottery."
_FILES = {
    "certificate.json.gz": "the proof",
    "curves.safetensors": "the learning curves of all seeds",
    "metrics.jsonl": "every evaluation",
    "seeds.json": "the results of all seeds",
    "snapshots.safetensors": "log-spaced over training",
}


def render_card(config: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """An entry's card as Markdown, from its config and files (the weights and, where there is one, ``seeds.json``).

    Raises:
        UserError: a model that is not registered.
    """
    score, training = config["score"], config["training"]
    seeds = json.loads(files["seeds.json"]) if "seeds.json" in files else []
    parts = [f"# {config['model']}", _introduction(config, files)]
    kinds = ((_text, "windows"), (_pairs, "all"), (_lengths, "shapes"), (_problems, "by_chain_length"))
    render = next((render for render, key in kinds if key in score), None)
    if "published" in training:
        result = Score.from_dict(score)
        points = [*_scored(result, training["published"]), *_certificate(config)]
        parts += ["\n".join(f"* {point}" for point in points), _chain_lengths(result)]
    elif render is not None and all(key in training for key in _MADE):
        points, tables, warning = render(config, seeds)
        parts += ["\n".join(f"* {point}" for point in [*points, _time(training)]), *tables]
        parts += [made_by(config["model"], training), warning]
    parts.append(_files({*config["sha256"], *files} - {CARD, config["weights"]}, config["weights"]))
    for heading, paragraphs in config.get("notes", {}).items():
        parts += [f"## {heading}", *paragraphs]
    return "\n\n".join(part for part in parts if part) + "\n"


def made_by(name: str, training: Mapping[str, Any]) -> str:
    """How a model was made: the commands, and where their recipe differs from the registered one.

    Args:
        training: ``training`` of the entry's config, with ``commands`` and ``recipe``.
    """
    registered = recipe_of(name)
    changes = [
        f"* `{path}`: {_shown(now)} (registered: {_shown(then)})"
        for path, now, then in differences(training["recipe"], registered.to_dict())
    ]
    made = "Made by\n\n" + "\n".join(f"    {command}" for command in training["commands"])
    if not changes:
        return made
    known = f", {recipe_name(registered)}," if recipe_name(registered) else ""
    return f"{made}\n\nwith a recipe that differs from the registered one{known} in\n\n" + "\n".join(changes)


# ---- what every card has


def _introduction(config: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    name, model = config["model"], build(config["model"])
    tensors, metadata = parse_weights(files[config["weights"]], config["weights"])
    count = sum(tensor.numel() for tensor in tensors.values())
    text = f"{name} has {count:,} free parameters"
    if getattr(model.weight_map, "is_ternary", False):
        text += ", which are latent weights: W_Q, W_K, W_V, W_O, W_in and W_out are made ternary"
    text += f". They are stored in {metadata[STORED_AS]}." if STORED_AS in metadata else "."
    if (numbers := model.weight_map.constants) and "published" in config["training"]:
        listed = ", ".join(f"{name} {shown(value)}" for name, value in numbers.items())
        text += f" Its code has {len(numbers)} constants that act like further ones: {listed}."
    if (published := config["training"].get("published")) is not None:
        return (
            f"{text} Others trained it, from {published['begun']}; its numbers are as they published them "
            f"({published['source']}). They were selected on {published['selected_on']}."
        )
    if "recipe" not in config["training"]:
        return text
    start = config["training"].get("start")
    recipe, begun = config["training"]["recipe"], "a random start"
    if start is not None:
        begun = f"a start near {start['origin']} (each number times 1 + {start['noise']} z, z normal)"
    layout = ParameterLayout(model)
    drawn, names = starts_of(recipe)
    placed = {i for name in names for i in range(layout.n)[layout.places(name)]}
    if drawn:
        begun += f" ({', '.join(f'{name} {low:.4g} to {high:.4g}' for name, (low, high) in drawn.items())}, uniform)"
    if placed:
        begun += f", but for {len(placed)} numbers that begin where the recipe puts them in every seed"
    if model.weight_map.placed:
        begun += f", but for {model.weight_map.placed}"
    if recipe.get("polish"):
        begun += f", and ended with BFGS on {recipe['polish']['problems']:,} problems"
    return f"{text} This project trained all of them on {model.task.name} from {begun}."


def _stored(training: Mapping[str, Any]) -> str:
    return f"**Seed:** seed {training['seed']} is stored, with its parameters after {training['step']:,} steps."


def _time(training: Mapping[str, Any]) -> str:
    n, where = training["seeds_tried"], training.get("machine")
    products = "in float32"
    if training["recipe"]["autocast"]:
        products = "with matrix products in bfloat16 where the processor has them (all else in float32)"
    seeds = f"All {n} seeds" if n > 1 else "The one seed"
    machine = f" on {where}" if where else ""
    return f"**Time:** {seeds} took {training['seconds'] / 60:.0f} min{machine}, {products}, torch {training['torch']}."


def _files(stored: set[str], weights: str) -> str:
    words = dict(_FILES)
    if "curves.safetensors" in stored:
        words["metrics.jsonl"] += " of this seed"
    listed = [f"`{name}` ({words[name]})" if name in words else f"`{name}`" for name in sorted(stored)]
    return f"Files: {', '.join([f'`{weights}` (the free parameters)', *listed, '`config.json` (all other data)'])}."


def _certificate(config: Mapping[str, Any]) -> list[str]:
    found = config.get("certificate")
    if not isinstance(found, Mapping):
        return []
    limit = f" --minutes {found['minutes']}" if "minutes" in found else ""
    reals = " --arithmetic interval" if found.get("arithmetic") == "in interval arithmetic" else ""
    command = f"`interp {found.get('method', 'certify')} {config['model']}{reals}{limit}`"
    if found["status"] == "refuted":
        share = f" It is {found['share']}." if found.get("share") else ""
        where = f"The evidence is in `{found['file']}`; {command} makes it again." if "file" in found else ""
        return [
            f"**Refuted**: {found['counterexample']} (run through the model).{share} "
            + (where or f"{command} finds a wrong answer again.")
        ]
    if "domain" in found:
        margins = f"above {shown(found['smallest_margin'])}"
        return [
            f"**Certified** {found['arithmetic']}: {found['domain']}. Every margin is {margins} logits. The "
            f"proof is in `{found['file']}`; {command} makes it again."
        ]
    a, b = found["witness"]
    where = f"The smallest margin is {found['smallest_margin']:.3f} logits, at {found.get('at', f'{a} + {b}')}"
    if found["status"] != "certified":
        return [f"**Tried** {found['arithmetic']}, without a proof: no extreme pair is wrong. {where} ({command})."]
    of = "all eleven digits of " if found["targets"] == "digits" else ""
    return [
        f"**Certified** {found['arithmetic']}: {of}{found.get('pairs', 'all 10^20 pairs')}. {where}. "
        f"The proof is in `{found['file']}`; {command} makes it again."
    ]


# ---- what a kind of score has: points, tables, and a warning

_Rendered = tuple[list[str], list[str], str]


def _problems(config: Mapping[str, Any], seeds: list[dict[str, Any]]) -> _Rendered:
    """Points, tables and warning for adders whose seeds either grok or do not."""
    result, training = Score.from_dict(config["score"]), config["training"]
    tried, grokked = training["seeds_tried"], training["seeds_grokked"]
    there = " from that start, which are not independent," if training.get("start") else ""
    counted = f"**Seeds:** {grokked} of {tried} seeds{there} answer the whole test set ({_percent(tried, grokked)})."
    if training.get("seeds_once_perfect"):
        once = training["seeds_once_perfect"]
        counted += f" {once} of {tried} ({_percent(tried, once)}) once answered every uniform validation problem."
    points = [
        *_scored(result),
        *_certificate(config),
        f"{_stored(training)} {_reached(training)} {_chosen(training)}",
        counted,
    ]
    points += [
        f"**The same seeds again**, on a build that rounds differently: {again['seeds_grokked']} of "
        f"{again['seeds_tried']} answer the whole test set ({_percent(again['seeds_tried'], again['seeds_grokked'])})."
        for again in training.get("repeats", ())
    ]
    return points, [_chain_lengths(result)], _CHAOS


def _scored(result: Score, published: Mapping[str, Any] | None = None) -> list[str]:
    text = (
        f"**Score:** {result.correct:,} of {result.n:,} problems ({result.problems}) are answered right, "
        f"{result.method.replace('_', ' ')}. "
    )
    if published is not None and published["on_test"]:
        return [f"{text}These problems also selected the numbers, so that the score bounds no error rate."]
    return [
        f"{text}This is {result.rung}: the error rate is below {shown(result.error_bound, up=True)} with 95% "
        "confidence on problems of that distribution, and nothing is said about all inputs."
    ]


def _chain_lengths(result: Score) -> str:
    """The score by chain length as a table; empty if there is one length."""
    rows = [
        [row.chain_length, f"{row.n:,}", f"{row.correct:,}", f"{row.low:.4f}-{row.high:.4f}"]
        for row in result.to_dataframe().itertuples()
    ]
    chain = "borrow" if "subtraction" in result.task else "carry"
    table = _table([f"longest {chain} chain", "problems", "right", "95% interval"], rows)
    return table if len(result.by_chain_length) > 1 else ""


def _chosen(training: Mapping[str, Any]) -> str:
    if "chosen_by" in training:
        return (
            "Of the seeds that were perfect on validation it is the first that is proved right on all pairs "
            f"(`interp publish {training['chosen_by'].partition(' ')[0]}`); the test set played no part."
        )
    return "It was chosen on validation problems alone, which are disjoint from the test set."


def _reached(training: Mapping[str, Any]) -> str:
    first = training["first_perfect_step"]
    if first is not None:
        return f"It was first perfect on validation at step {first:,}."
    if training.get("once_perfect"):
        return "It was never perfect on the carry-rich half of validation, but once on the uniform half."
    best = math.floor(1_000 * training["validation_exact"]) / 10  # rounded down: 100% means all of them
    return f"It answered at best {best:.1f}% of the validation problems."


def _lengths(config: Mapping[str, Any], seeds: list[dict[str, Any]]) -> _Rendered:
    """Points, tables and warning for models on sequences of many lengths."""
    score, training = config["score"], config["training"]
    first = score["shapes"][0]
    task = build(config["model"]).task
    size = {2: "digits of both factors", 1: "bits"}[len(first["shape"])]
    if isinstance(task, MultiOperandAddition):
        size = "operands, digits"
    rows = [
        [", ".join(map(str, one["shape"])), *(_share(Rate(one["n"], seed["shapes"][i][1])) for seed in seeds)]
        for i, one in enumerate(score["shapes"])
    ]
    text = (
        f"The table has the share of whole responses that are right, with 95% intervals: {first['n']:,} problems per "
        f"shape (seed {score['seed']}), teacher forced (for a whole response the same as greedy decoding), with "
        f"position ids that start at 1. This is {score['rung']}. The first row is the training set's longest shape."
    )
    stored = _stored(training)
    if len(seeds) > 1 and "selection" in training:
        on = training["selection"]
        stored += f" Of {len(seeds)} seeds it was chosen on "
        if "within" in on:  # earlier rules looked only beyond the training shapes
            stored += f"{on['within']:,} other problems of the longest training shape, and among equals there on "
        stored += f"{on['n']} other problems per longer shape (seed {on['seed']})."
    table = _table([size, *(f"seed {seed['seed']}" for seed in seeds)], rows)
    return [stored, *_certificate(config)], [text, table], _LOTTERY


def _pairs(config: Mapping[str, Any], seeds: list[dict[str, Any]]) -> _Rendered:
    """Points, tables and warning for two-digit adders, which are scored on all pairs."""
    score, training = config["score"], config["training"]
    whole, test = score["all"], Rate(score["n"], score["correct"])
    known, n_train = whole["correct"] - test.correct, whole["n"] - test.n
    choice = "It is the only one that was trained; how others do is not known."
    if len(seeds) > 1:
        choice = (
            f"Of {len(seeds)} seeds it answers the most training pairs. The held-out pairs played no part in "
            "this choice, but the best of several seeds is not a typical one. The table has all of them."
        )
    points = [
        f"**Score:** {whole['correct']:,} of all {whole['n']:,} pairs are answered right, decoded greedily. This is "
        f"{whole['rung']}. Of the {test.n} pairs held out, {test.correct} are right (95% interval {_span(test)}); of "
        f"the {n_train:,} trained on, {known:,} are. The model was scored as it is stored, in float16 precision.",
        f"{_stored(training)} {choice}",
    ]
    rows = [
        [
            f"{seed['seed']}{' (stored)' if seed['chosen'] else ''}",
            f"{seed['train']['correct']:,}",
            f"{seed['test']['correct']} ({_span(Rate(**seed['test']))})",
            *(f"{count:,}" for count in seed["digits"]),
        ]
        for seed in seeds
    ]
    heads = ["seed", f"right of {n_train:,}", f"right of {test.n} (95% interval)"]
    table = _table([*heads, *(f"{place} right" for place in ("units", "tens", "hundreds"))], rows)
    digits = f"Digits are counted over all {whole['n']:,} sums, decoded greedily."
    return points, [table, digits], _OTHER


def _text(config: Mapping[str, Any], seeds: list[dict[str, Any]]) -> _Rendered:
    """Points, tables and warning for models of text."""
    score, training = config["score"], config["training"]
    low, high = score["interval"]
    points = [
        f"**Loss:** the stored model's loss is {score['loss']:.4f} nats per character on the whole validation part, "
        f"the last tenth of the text ({score['n']:,} characters in {score['windows']} windows of "
        f"{score['n'] // score['windows']}, each read without earlier context; 95% interval over windows "
        f"{low:.3f}-{high:.3f}). The same part chose the step, as in the paper; there is no third part.",
        f"{_stored(training)} The loss is lowest there. The recipe has {training['recipe']['steps']:,} steps.",
    ]
    rows = [
        [str(seed["seed"]), f"{seed['best_loss']:.4f}", f"{seed['best_step']:,}", f"{seed['last_loss']:.4f}"]
        for seed in seeds
    ]
    text = "This is the validation loss of every seed in training (float32 parameters):"
    return points, [text, _table(["seed", "best", "at step", "last"], rows)], ""


# ---- numbers in words


def _table(heads: list[str], rows: list[list[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _percent(n: int, correct: int) -> str:
    rate = Rate(n, correct)
    return f"{100 * rate.accuracy:.1f}%, 95% interval {_span(rate)}"


def _span(rate: Rate) -> str:
    low, high = rate.interval
    return f"{100 * low:.1f}-{100 * high:.1f}%"


def _share(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.accuracy:.3f} ({low:.3f}-{high:.3f})"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()
