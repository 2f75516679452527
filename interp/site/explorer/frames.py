"""What the view draws of one model and one problem: answer digit by answer digit, as numbers for JSON.

At every target of the task (answer digits, in the order in which the model writes them, and EOS):

    pattern    attention of each head over the tokens up to the query
    writes     what each head adds to the chosen token's logit over the mean of all tokens (direct logit attribution)
    units      activations and writes of the MLP's units; of more than 16, the 16 that write most at this digit
    stream     every residual stream, if it has at most 16 dimensions; its length (Euclidean norm)
    lens       logits that each stream would give, read by the final norm and W_U
    logits     the model's own

The direct attribution is exact at the frozen scale of the final norm. Behind norms that follow the sums (post-norm) it
is not defined: heads then have no such number, and units are ordered by the length of what they add to the stream.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.probes.lens.parts import directions, unit_writes
from interp.probes.lens.reading import target_labels
from interp.site.explorer.layout import Line, Truth, lines, step_key, truths
from interp.site.explorer.subject import Run, Subject
from models.tasks.base import Task

FEW_UNITS = 16  # all of them are shown; of more, so many
FEW_DIMENSIONS = 16


@dataclass(frozen=True, eq=False)
class Frame:
    """Everything about one run; heads and units are those of all layers, in order. Units' activations and writes are
    [target, layer * unit], streams' [target, stream, ...]; ``head_writes`` and ``unit_writes`` are None (post-norm)."""

    name: str
    task: Task
    problem: str
    ablated: tuple[str, ...]
    method: str
    tokens: Int[np.ndarray, " pos"]
    answer: Int[np.ndarray, " target"]
    right: Int[np.ndarray, " target"]
    whole: Int[np.ndarray, " target"]  # the answer with nothing ablated
    pattern: Float[np.ndarray, "target head key"]
    head_writes: Float[np.ndarray, "target head"] | None
    units: Float[np.ndarray, "target unit"]
    unit_writes: Float[np.ndarray, "target unit"] | None
    unit_rank: Float[np.ndarray, "target unit"]  # what the units shown are chosen by
    units_per_layer: int
    stream: Float[np.ndarray, "target stream d_model"]
    lens: Float[np.ndarray, "target stream d_vocab"]
    logits: Float[np.ndarray, "target d_vocab"]
    truths: tuple[Truth, ...]
    lines: tuple[Line, ...]

    @property
    def number(self) -> str:
        """The answer as a number."""
        return number(self.task, self.answer)

    def unit_name(self, unit: int) -> str:
        return f"L{unit // self.units_per_layer}U{unit % self.units_per_layer}"

    def shown_units(self, target: int) -> list[int]:
        """All units of a model with few; else those that write most here, and those that are ablated."""
        n = self.units.shape[1]
        if n <= FEW_UNITS:
            return list(range(n))
        chosen = np.argsort(-self.unit_rank[target], kind="stable")[:FEW_UNITS].tolist()
        names = [self.unit_name(unit) for unit in range(n)] if self.ablated else []
        return chosen + [
            names.index(name) for name in self.ablated if name in names and names.index(name) not in chosen
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: patterns with 3 decimals, logits with 4 significant digits, all else with 3."""
        labels = target_labels(self.task)
        few = self.stream.shape[2] <= FEW_DIMENSIONS
        decimals = np.round(self.pattern.astype(np.float64), 3)
        stream = significant(self.stream if few else np.linalg.norm(self.stream, axis=2), 3)
        lens, logits = significant(self.lens[:, :-1], 4), significant(self.logits, 4)
        units, heads = significant(self.units, 3), None
        if self.head_writes is not None:
            heads = significant(self.head_writes, 3)
        writes = None if self.unit_writes is None else significant(self.unit_writes, 3)
        steps = []
        for target, (role, query) in enumerate(zip(self.task.target_roles, self.task.query_positions, strict=True)):
            shown, truth = self.shown_units(target), self.truths[target]
            step: dict[str, Any] = {
                "facts": {  # the same whatever is ablated
                    "key": step_key(self.task, role),
                    "label": labels[target],
                    "query": query,
                    "right": int(self.right[target]),
                    "whole": int(self.whole[target]),
                    "carry": truth.carry,
                    "truth": truth.sentence,
                },
                "token": int(self.answer[target]),
                "pattern": _tidy(decimals[target, :, : query + 1]),
                "units": shown,
                "activations": _tidy(units[target, shown]),
                "stream": _tidy(stream[target]),
                "lens": _tidy(lens[target]),
                "logits": _tidy(logits[target]),
            }
            if heads is not None:
                step["headWrites"] = _tidy(heads[target])
            if writes is not None:
                step["unitWrites"] = _tidy(writes[target, shown])
            steps.append(step)
        return {
            "problem": self.problem,
            "ablated": list(self.ablated),
            "method": self.method,
            "answer": self.number,
            "right": number(self.task, self.right),
            "whole": number(self.task, self.whole),
            "tokens": self.tokens.tolist(),
            "labels": [role.label for role in self.task.roles[: len(self.tokens)]],
            "lines": [line.to_dict() for line in self.lines],
            "steps": steps,
        }


def significant(values: Any, digits: int) -> Float[np.ndarray, "..."]:
    """Rounded to so many significant digits; what is not finite stays."""
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(values)))
        places = np.where(np.isfinite(places), np.clip(places, -300, 300), 0)
        down, up = 10.0 ** np.clip(-places, 0, None), 10.0 ** np.clip(places, 0, None)
        return np.where(np.isfinite(values), np.round(values / down * up) * down / up, values)


def _tidy(values: Any) -> Any:
    """Nested lists of numbers in which JSON has as few letters as it can: whole numbers are integers, and what is not
    finite is null."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [_tidy(value) for value in values]
    if values != values or values in (float("inf"), float("-inf")):
        return None
    return int(values) if values == int(values) else values


def number(task: Task, tokens: Int[np.ndarray, " target"]) -> str:
    """Answer tokens as a number's text; "no number" where they spell none."""
    if (tokens < 0).any():
        return "no number"
    (found,) = task.decode(torch.as_tensor(tokens)[None])
    return "no number" if found < 0 else str(found)


def describe(subject: Subject) -> dict[str, Any]:
    """What does not change from frame to frame: the model's size, vocabulary, components and streams."""
    model, cfg = subject.model, subject.model.config
    words = {"L0 pre": "embeddings"}
    for layer in range(cfg.n_layers):
        words |= {f"L{layer} mid": f"after attention {layer}", f"L{layer} post": f"after MLP {layer}"}
        if not cfg.d_mlp:
            words[f"L{layer} post"] = f"after attention {layer}"
    return {
        "name": subject.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "layers": cfg.n_layers,
        "heads": [f"L{layer}H{head}" for layer in range(cfg.n_layers) for head in range(cfg.n_heads)],
        "units": cfg.d_mlp * cfg.n_layers,
        "unitsPerLayer": cfg.d_mlp,
        "dimensions": cfg.d_model,
        "vocabulary": [model.task.token_text([token]) for token in range(cfg.d_vocab)],
        "streams": [words[point] for point in subject.streams],
        "fewUnits": cfg.d_mlp * cfg.n_layers <= FEW_UNITS,
        "fewDimensions": cfg.d_model <= FEW_DIMENSIONS,
        "addsUp": cfg.residual_stream_adds_up,
        "leftToRight": getattr(model.task, "base", 10) == 2,  # bits are written as they are read
    }


def frame(
    model: Any,
    problem: str,
    ablated: Sequence[str] = (),
    method: str = "zero",
    task: Task | None = None,
    whole: Frame | None = None,
) -> Frame:
    """What a model does on one problem, without some of its heads and units.

    Args:
        model: a :class:`Subject`, or a model to make one of.
        problem: text such as "57+48".
        ablated: heads and units, such as "L0H1" and "L0U3".
        method: "zero" or "mean" ablation.
        task: what the model's tokens mean, if it does not say.
        whole: the frame of the same problem with nothing ablated, if it is at hand: else it costs another run.

    Raises:
        UserError: not a problem of the task, or a component or method that there is not.
    """
    subject = model if isinstance(model, Subject) else Subject(model, task)
    ablated = tuple(dict.fromkeys(ablated))
    if whole is None and ablated:
        whole = frame(subject, problem)
    guess = None if whole is None else torch.as_tensor(whole.answer)
    return _frame(subject, _normal(problem), ablated, method, subject.run(problem, ablated, method, guess), whole)


def _normal(problem: str) -> str:
    return re.sub(r"\s+", "", problem).removesuffix("=")


@torch.no_grad()
def _frame(
    subject: Subject, problem: str, ablated: tuple[str, ...], method: str, run: Run, whole: Frame | None
) -> Frame:
    model, cfg, cache = subject.model, subject.model.config, run.cache
    layers, targets = range(cfg.n_layers), list(range(len(run.answer)))
    pattern = torch.cat([cache[f"blocks.{layer}.attn.hook_pattern"] for layer in layers], 1)[0].transpose(0, 1)
    posts = [cache[f"blocks.{layer}.mlp.hook_post"] for layer in layers] if cfg.d_mlp else []
    stream = torch.stack([cache[hook][0] for hook in run.streams.values()], 1)
    head_writes = by_unit = None
    if cfg.residual_stream_adds_up:
        chosen = torch.nn.functional.one_hot(run.answer.clamp_min(0), cfg.n_logits).to(run.logits)
        u, _ = directions(model, subject.all_weights, cache, targets, (chosen - 1 / cfg.n_logits)[None])
        z = [cache[f"blocks.{layer}.attn.hook_z"][0] for layer in layers]
        w_o = [subject.all_weights[f"blocks.{layer}.attn.W_O"] for layer in layers]
        head_writes = torch.cat([torch.einsum("thd,hdm,tm->th", z[i], w_o[i], u[0]) for i in layers], 1)
        if cfg.d_mlp:
            by_unit = torch.cat([unit_writes(cache, subject.all_weights, i, targets, u)[0] for i in layers], 1)
    units = torch.cat([post[0] for post in posts], 1) if posts else stream.new_zeros(len(targets), 0)
    if by_unit is not None:
        rank = by_unit.abs()
    else:
        sizes = [subject.all_weights[f"blocks.{layer}.mlp.W_out"].norm(dim=1) for layer in layers] if posts else []
        rank = units.abs() * torch.cat(sizes) if posts else units
    normed = model.ln_final(stream, subject.weights) if cfg.has_final_norm else stream
    lens = model.unembed(normed, subject.weights)
    host = lambda x: x.float().cpu().numpy()  # noqa: E731
    answer = run.answer.numpy()
    return Frame(
        name=subject.name,
        task=run.task,
        problem=problem,
        ablated=ablated,
        method=method,
        tokens=run.tokens.numpy(),
        answer=answer,
        right=run.right.numpy(),
        whole=answer if whole is None else whole.answer,
        pattern=host(pattern),
        head_writes=None if head_writes is None else host(head_writes),
        units=host(units),
        unit_writes=None if by_unit is None else host(by_unit),
        unit_rank=host(rank),
        units_per_layer=cfg.d_mlp,
        stream=host(stream),
        lens=host(lens),
        logits=host(run.logits),
        truths=tuple(truths(run.task, run.problem)) if whole is None else whole.truths,
        lines=tuple(lines(run.task)) if whole is None else whole.lines,
    )
