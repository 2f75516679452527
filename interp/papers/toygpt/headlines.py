"""The headline numbers of ToyGPT. The paper has one run of each variant; ours are five seeds of the same budget."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import models
from interp.core.results import Provenance
from interp.core.stats import mean_interval
from interp.papers.headlines.counts import Finder, parameters_of
from interp.papers.headlines.headline import Headline
from interp.papers.headlines.rules import AtLeast, Digits, Inside, Near, Ours, counted, over_seeds, share
from interp.papers.headlines.store import NotStored, Store
from interp.papers.toygpt.seeds import BUDGET, N_TEST, N_TRAIN

BEST = "toygpt-learned-pre"
SHOWN = "interp headlines --paper toygpt"  # run or counted whenever it is made
POSITIONS, LAYERNORM = "interp reproduce toygpt:table-positions", "interp reproduce toygpt:table-layernorm"
_line = partial(Headline, "toygpt")
_count = partial(Headline, "toygpt", kind="count")
_trained = partial(Headline, "toygpt", kind="training")


def _rows(store: Store, question: str, model: str) -> list[dict[str, Any]]:
    rows = store.experiment(f"toygpt-table-{question}")["rows"]
    found = [row for row in rows if row["model"] == model and row["step"] == BUDGET]
    if not found:
        raise NotStored(f"No seed of {model} is stored at {BUDGET:,} iterations.")
    return found


def accuracy(question: str, model: str, split: str) -> Finder:
    """Whole sums right after the paper's 1,000 iterations, over seeds."""

    def found(store: Store) -> Ours:
        of = N_TEST if split == "test" else N_TRAIN
        values = [row[split] / of for row in _rows(store, question, model)]
        ours = over_seeds(values, f"seeds of {model}, {of:,} {split} pairs each", 0.0, 1.0)
        return replace(ours, remark=f"seeds from {min(values):.1%} to {max(values):.1%}")

    return found


def final_loss(store: Store) -> Ours:
    """Loss of the training batch at the last step, over seeds."""
    curves = store.experiment("toygpt-table-positions")["losses"].get(BEST)
    if not curves:
        raise NotStored(f"No losses of {BEST} are stored.")
    values = [curve["loss"][curve["step"].index(BUDGET)] for curve in curves.values()]
    return over_seeds(values, f"seeds of {BEST}, the batch of step {BUDGET:,}", 0.0)


def above(question: str, better: str, worse: str, split: str = "test") -> Finder:
    """How much more one variant answers than another, over seeds; the same seed draws the same problems for both."""

    def found(store: Store) -> Ours:
        of = N_TEST if split == "test" else N_TRAIN
        first, second = (
            {row["seed"]: row[split] / of for row in _rows(store, question, name)} for name in (better, worse)
        )
        shared = sorted(first.keys() & second.keys())
        values = [first[seed] - second[seed] for seed in shared]
        mean, low, high = mean_interval(np.array(values))
        holds = sum(value > 0 for value in values)
        source = Provenance(len(values), None, f"seeds that both have, {of:,} {split} pairs each")
        return Ours(mean, source, low, high, remark=f"holds in {holds} of {len(values)} seeds")

    return found


def seconds(store: Store) -> Ours:
    """Wall time of 1,000 iterations, over seeds."""
    made = store.entry(BEST)["training"]
    source = f"runs of {BEST}, one CPU thread of a shared machine"
    return counted(made["seeds_tried"], source).with_value(made["seconds"] / made["seeds_tried"])


def errors_in_tens(store: Store) -> Ours:
    """Of all wrong sums of all seeds, the share whose first wrong digit is the tens."""
    by_seed = [row["errors"]["first_wrong"] for row in _rows(store, "positions", BEST)]
    wrong, total = sum(row["tens"] for row in by_seed), sum(sum(row.values()) for row in by_seed)
    ours = share(wrong, total, f"wrong sums of all 10,000 pairs, {len(by_seed)} seeds", "exhaustive")
    each = ", ".join(f"{row['tens']:,} of {sum(row.values()):,}" for row in by_seed)
    return replace(ours, remark=f"by seed {each}")


def examples(store: Store) -> Ours:
    """How many of the paper's three wrong sums the stored model gets wrong as well."""
    from models.evaluation import predict

    model = store.model(BEST)
    problems = model.task.as_problems(["42+47", "77+99", "17+3"])
    predicted = model.task.decode(predict(model, problems, method="greedy", task=model.task))
    right = model.task.decode(model.task.targets(problems))
    wrong = sum(a != b for a, b in zip(predicted, right, strict=True))
    return counted(3, "the paper's three sums", model=BEST).with_value(wrong)


def keys_by_layer(store: Store) -> list[float]:
    return [float(np.mean(heads)) for heads in store.experiment("toygpt-fig3")["keys"]]


def less_sparse(first: int, last: int) -> Finder:
    """How many more keys a layer attends to than another: exp(entropy), mean over heads, queries and all sums."""

    def found(store: Store) -> Ours:
        keys = keys_by_layer(store)
        shown = ", ".join(f"{value:.2f}" for value in keys)
        source = Provenance(10_000, None, "sums, all of them", "exhaustive")
        return Ours(keys[last] - keys[first], source, model=BEST, remark=f"keys by layer: {shown}")

    return found


def alike(store: Store) -> Ours:
    """Mean overlap of two heads of the paper's layer 2 less that of heads of different layers."""
    overlaps = store.experiment("toygpt-fig3")["overlaps"]
    source = Provenance(10_000, None, "sums, all of them", "exhaustive")
    value = overlaps["layer 1"] - overlaps["other layers"]
    remark = f"overlap {overlaps['layer 1']:.2f} in the layer, {overlaps['other layers']:.2f} across layers"
    return Ours(value, source, model=BEST, remark=remark)


def without_head(name: str) -> Finder:
    """Parameters as minGPT counts them, which leaves out the head."""

    def found(store: Store) -> Ours:
        cfg = models.build(name).config
        return counted(parameters_of(name) - cfg.d_model * cfg.d_vocab, f"parameters of {name} without its head")

    return found


VARIANTS = (
    ("2(b)i", "Learned positions", "positions", BEST, "99.82%", "99.80%",
     "0.8 Million - Final Training accuracy: 99.82% - Final Test accuracy: 99.80%"),
    ("2(b)ii", "No positions", "positions", "toygpt-none-pre", "4.12%", "3.4%",
     "Final Training accuracy: 4.12% - Final Test accuracy: 3.4%"),
    ("2(b)iii", "Rotary positions", "positions", "toygpt-rotary-pre", "48.51", "45.60%",
     "Final Training accuracy: 48.51 - Final Test accuracy: 45.60%"),
    ("3(b)b", "Post-LN", "layernorm", "toygpt-learned-post", "90.25%", "89.60%",
     "Final Training accuracy: 90.25% - Final Test accuracy: 89.60%"),
    ("3(b)c", "No LayerNorm", "layernorm", "toygpt-learned-none", "9.15%", "7.60%",
     "Final Training accuracy: 9.15% - Final Test accuracy: 7.60%"),
)  # fmt: skip
RUNS = {"positions": POSITIONS, "layernorm": LAYERNORM}

HEADLINES: tuple[Headline, ...] = (
    _trained("1(a)", "Seconds of training on a CPU.", "42.75", Near(), POSITIONS, seconds, "seconds",
          "the total training time is 42.75 *sec*"),
    _trained("1(b)", "Final training loss.", "0.17523", Inside(), POSITIONS, final_loss, "nats",
          "Final training loss: 0.17523"),
    _line("1(c), Table 1", "Wrong sums go wrong in the tens digit, mostly.",
          "making an error in predicting the 2nd digit", AtLeast(0.5, "the share of wrong sums"), POSITIONS,
          errors_in_tens, "%"),
    _line("1(c), Table 1", "42 + 47, 77 + 99 and 17 + 3 are answered wrong.",
          "42 + 47 99 89 77 + 99 166 176 17 + 3 10 20", AtLeast(3, "the number that ours gets wrong too"), SHOWN,
          examples, "sums", note="which sums go wrong is chance"),
    *(
        line
        for where, label, question, model, train, test, quote in VARIANTS
        for line in (
            _line(where, f"{label}: training accuracy.", train, Inside(), RUNS[question],
                  accuracy(question, model, "train"), "%", quote),
            _line(where, f"{label}: test accuracy.", test, Inside(), RUNS[question], accuracy(question, model, "test"),
                  "%", quote),
        )
    ),
    _count("2(b)i", "Parameters with learned positions, the head not counted.", "0.8 Million", Digits(), SHOWN,
          without_head(BEST), "parameters", "Model Size (number of parameters): 0.8 Million"),
    _count("2(b)ii", "Parameters without positions, the head not counted.", "0.79 Million", Digits(), SHOWN,
          without_head("toygpt-none-pre"), "parameters", "Model Size (number of parameters): 0.79 Million"),
    _count("2(b)iii", "Parameters with rotary positions, the head not counted.", "0.79 Million", Digits(), SHOWN,
          without_head("toygpt-rotary-pre"), "parameters", "Model Size (number of parameters): 0.79 Million"),
    _line("2(c), Figure 1", "Learned positions answer more than rotary ones.", "follow the order",
          AtLeast(0, "the difference"), "interp reproduce toygpt:fig1", above("positions", BEST, "toygpt-rotary-pre"),
          "%"),
    _line("2(c), Figure 1", "Rotary positions answer more than none.", "follow the order", AtLeast(0, "the difference"),
          "interp reproduce toygpt:fig1", above("positions", "toygpt-rotary-pre", "toygpt-none-pre"), "%"),
    _line("3(c), Figure 2", "Pre-LN answers more than post-LN.", "Pre-LN performing better overall",
          AtLeast(0, "the difference"), "interp reproduce toygpt:fig2", above("layernorm", BEST, "toygpt-learned-post"),
          "%"),
    _line("3(c), Figure 2", "Without LayerNorm the model answers less.",
          "leading to lower final training and test accuracies", AtLeast(0, "the difference to post-LN"),
          "interp reproduce toygpt:fig2", above("layernorm", "toygpt-learned-post", "toygpt-learned-none"), "%"),
    _line("4(c), Figure 3", "From layer 1 to layer 2 attention gets less sparse.",
          "particularly from layer 1 to layer 2", AtLeast(0, "the difference in keys"), "interp reproduce toygpt:fig3",
          less_sparse(0, 1), "keys"),
    _line("4(c), Figure 3", "Attention goes on getting less sparse to the last layer.", "as we go deeper",
          AtLeast(0, "the difference in keys of the last two layers"), "interp reproduce toygpt:fig3",
          less_sparse(2, 3), "keys"),
    _line("4(c), Figure 3", "Heads of one layer are alike, those of layer 2.", "attention matrices are sort of similar",
          AtLeast(0.1, "the overlap beyond that of heads of other layers"), "interp reproduce toygpt:fig3", alike),
)  # fmt: skip
