"""AddLM's tables: ``python -m studies reproduce addlm:table | addlm:ablation | addlm:top-k``; see also :mod:`.claims`.

Losses are on the whole validation part of the text (871 windows of 128 characters). ``--size small`` is the paper's
smallest model at its own budget of 2,000 steps, hours on a CPU core for all variants. ``--size paper`` is the ablation
at 4.8 million parameters, and the table also with 4.8 and 25 million, which need a GPU (any run continues where it was
stopped: ``--minutes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

import models
from interp.core.sections import Section
from models.errors import UserError
from models.families.addlm import ABLATION, FURTHER, OF_PAPER, PAPER_STEPS, SIZES, TOP_K, model_name
from models.registry import parameter_count
from models.tasks.named.shakespeare import CharacterLanguage
from models.text_scores import TextLoss, letter_pair_loss, text_loss
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.ternary import TernaryWeights
from studies.addlm.figures.loss import draw_losses, loss_by_keys
from studies.addlm.runs import loss_curves, provenance, rows_for, run_table, runs_of, summary
from studies.runs.study import Made, Settings, shows, study

#: Steps of variants outside the ablation: a quarter of the budget, as the slowest of them takes seconds per step.
SHORT = 500
TRAINED_KEYS = ("-top-1", "-top-4", "", "-top-all")
INFERENCE_KEYS: tuple[int | None, ...] = (1, 2, 4, 8, 16, 32, None)

METHOD = """Loss is the mean cross-entropy of the next character in nats, over the whole validation part of
tinyshakespeare (its last tenth, 871 windows of 128 characters, each without context from before). "Best" is the lowest
of all evaluations, "last" the one after the last step: the paper gives one number a model and does not say which, and
the same part both selects and reports, there being no other.

Recipe: AdamW, learning rate 3e-4 throughout, decay 0.01, batches of 32 windows, no dropout, torch's default
initialisation, as in the paper's public settings. One thing is ours: matrix products are computed in bfloat16, for
time; distances, softmax, norms, latent weights and optimiser are float32, and so is the validation.
Scores are unscaled unless a name says "scaled"; the paper's formula has no scale."""


def _sizes(settings: Settings, of_paper: Sequence[str]) -> Sequence[str]:
    if settings.size == "small":
        return ["0.8m"]
    if settings.device == "cpu" and not settings.yes:
        raise UserError("The larger sizes take hours a run on a CPU; give --yes to start them anyway, or a GPU.")
    return of_paper


@study("addlm:table", "AddLM next to a float baseline")
def table(settings: Settings) -> Made | None:
    """The paper's first table."""
    names = [model_name(size, suffix) for size in _sizes(settings, list(SIZES)) for suffix in ("-float", "")]
    rows = rows_for(settings, [(name, None) for name in names])
    return Made({"rows": rows}) if rows else None


@shows("addlm:table")
def show_table(data: Any) -> list[Section]:
    runs = loss_curves(data["rows"])
    names = [name for size in SIZES for name in (model_name(size, "-float"), model_name(size)) if name in runs.models]
    counts = (f"{name} {parameter_count(name):,}" for name in names)
    text = f"{METHOD}\n\nParameters: {', '.join(counts)}."
    return [
        Section("What was measured", text),
        Section("Means", tables=[summary(runs, names[0])]),
        Section("Runs", tables=[run_table(runs)], figures=[draw_losses(runs, "Validation loss over training")]),
    ]


@study("addlm:ablation", "Which of AddLM's changes costs what")
def ablation(settings: Settings) -> Made | None:
    """The paper's second table; at 0.82 million parameters (2,000 steps), also further variants."""
    (size,) = _sizes(settings, [OF_PAPER])
    steps = PAPER_STEPS if size == OF_PAPER else None
    rows = rows_for(settings, [(model_name(size, suffix), steps) for suffix in ABLATION])
    if not rows or size == OF_PAPER:
        return Made({"rows": rows, "whole": len(rows), "size": size}) if rows else None
    further = ["-scaled", *(suffix for suffix in FURTHER if not suffix.startswith("-top"))]
    short = [(model_name("0.8m", suffix), SHORT) for suffix in (*ABLATION, *further)]
    others = rows_for(settings, short, seeds=1)
    pairs = letter_pair_loss(CharacterLanguage())
    return Made({"rows": rows + others, "whole": len(rows), "size": size, "letter_pairs": pairs})


@shows("addlm:ablation")
def show_ablation(data: Any) -> list[Section]:
    runs, others = loss_curves(data["rows"][: data["whole"]]), data["rows"][data["whole"] :]
    size = data.get("size", "0.8m")
    reference = model_name(size, next(iter(ABLATION)))
    text = """The float baseline is the paper's: dot products over sqrt(d_head), all keys, GELU. The others have ReLU;
"-l1" is the attention alone (negative L1, top 16), "-ternary" the weights alone, the name without a suffix both.

The paper's ablation is at 4.8 million parameters after 2,500 steps and one seed."""
    text += "" if size == OF_PAPER else " This one is at its smallest size."
    sections = [
        Section("What was measured", text + "\n\n" + METHOD),
        Section("The four variants", tables=[summary(runs, reference), run_table(runs)]),
        Section("Over training", figures=[draw_losses(runs, "Validation loss over training: the four variants")]),
    ]
    if others:
        pairs = data["letter_pairs"]
        note = f"""After {SHORT:,} steps (the learning rate is constant, so the longer runs count where they passed that
step). "-float-relu" is the baseline with AddLM's activation, "-max-plus" scores by the true tropical product, "-scaled"
divides scores by sqrt(d_head). A table of letter pairs, which sees one character, has a loss of {pairs:.3f}: a model
that is no better has learnt nothing from the characters before."""
        early = summary(loss_curves(others), reference)
        sections.append(Section("Other switches, early in training", note, tables=[early]))
    return sections


@study("addlm:top-k", "How many keys attention needs")
def top_k(settings: Settings) -> Made:
    """Losses over the number of keys, set after training or used in training."""
    inference = top_k_losses(models.load(model_name("0.8m")))
    rows = rows_for(settings, [(model_name("0.8m", suffix), None) for suffix in TRAINED_KEYS], seeds=1)
    data = {"inference": {k: x.to_dict() for k, x in inference.items()}, "rows": rows}
    return Made(data, "How many keys AddLM's attention needs")


@shows("addlm:top-k")
def show_top_k(data: Any) -> list[Section]:
    inference = data["inference"]
    lines = {f"trained with {TOP_K} keys, then changed": {k: found["loss"] for k, found in inference.items()}}
    runs = loss_curves(data["rows"]) if data["rows"] else None
    if runs:  # the lowest seed of every model
        first = {model: next(iter(runs_of(runs, model).values())) for model in runs.models}
        lines["trained with so many"] = {_keys_of(model): float(loss.iloc[-1]) for model, loss in first.items()}
    at_k = pd.DataFrame(
        {
            "keys": list(inference),
            "validation loss": [f"{found['loss']:.3f}" for found in inference.values()],
            "95% interval over windows": [
                "{:.3f} to {:.3f}".format(*found["interval"]) for found in inference.values()
            ],
            "windows": [found["windows"] for found in inference.values()],
        }
    )
    seed = models.zoo.read_entry(model_name("0.8m"))["training"]["seed"]
    text = f"""First table: the stored addlm-0.8m (seed {seed}),
trained with {TOP_K} keys, evaluated with other numbers. The intervals say what other windows might give and are far
wider than the differences between rows, which are on the same windows.

Of runs trained with their own number of keys the picture has the lowest seed; "all" is attention without top-k."""
    return [
        Section("What was measured", text + "\n\n" + METHOD),
        Section("Chosen after training", tables=[at_k]),
        Section("Trained with", tables=[run_table(runs)] if runs else []),
        Section("Both", figures=[loss_by_keys(lines, "Validation loss by the number of keys", provenance())]),
    ]


def with_top_k(model: ArithmeticTransformer, k: int | None) -> ArithmeticTransformer:
    """The same parameters with attention over the ``k`` best keys (None: all)."""
    old = model.weight_map
    assert isinstance(old, TernaryWeights)
    weight_map = TernaryWeights(old.config.replace(attn_top_k=k), old.is_ternary)
    weight_map.load_state_dict(old.state_dict())
    return ArithmeticTransformer(weight_map, model.task, name=model.name_or_path)


def top_k_losses(model: ArithmeticTransformer) -> dict[str, TextLoss]:
    """Validation loss of one model by the number of keys ("all" is None)."""
    return {_label(k): text_loss(with_top_k(model, k)) for k in INFERENCE_KEYS}


def _label(k: int | None) -> str:
    return "all" if k is None else str(k)


def _keys_of(model: str) -> str:
    return _label(models.build(model).config.attn_top_k)
