"""The format, the operation and the tokens of a model that does not say them: :func:`guess`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.calls.argument_kinds import Seconds
from models.calls.arguments import typed
from models.errors import NotSaid, UserError
from models.files.stored_names import is_path
from models.importers.format_search import FormatOption, candidates
from models.importers.lens_states import is_lens_state, says_scale
from models.importers.readers import Asked, File, Reader, reader_of
from models.plugins import import_plugins
from models.tasks.formatted_task import FormattedTask, formatted

TRIED = 64  # problems that a proposal is judged by
_FIRST = 24  # answer tokens that each candidate is judged by at first
_KEPT, _LEAST = 256, 0.5  # candidates that are looked at further; the share of right tokens, and of right answers
_OF_FEW = 0.95  # the latter for answers of one token, or fewer problems than are tried
_NEAR = 0.75  # of the best one's answers, for another proposal
_AT_ONCE = 2**15  # tokens of one forward pass
_NAMED = 5  # proposals that the sentence names
_SETTINGS = 64  # of what a file does not say


@dataclass(frozen=True)
class Proposal:
    """``task`` under which a model answers ``correct`` of :data:`TRIED` problems, with the fields of a config that the
    file does not say (``config``)."""

    task: FormattedTask
    correct: int
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The task as one line, as ``--task`` takes it."""
        definition = dict(self.task.definition or {})
        said = [definition.pop("format"), definition.pop("answer")]
        if isinstance(definition.get("vocabulary"), (list, dict)):
            definition["vocabulary"] = json.dumps(definition["vocabulary"])
        shown = {name: value for name, value in definition.items() if (name, value) not in (("base", 10), ("seed", 0))}
        return "; ".join([*said, *(f"{name}={value}" for name, value in shown.items())])

    def __str__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.config.items())
        return f"{self.text}{given} ({self.correct} of {TRIED} problems)"


@dataclass(frozen=True)
class FormatGuess:
    """What fits a model, the best first: ``proposals[0]`` is the guess, and the others fit as well or nearly.

    Attributes:
        searched: how many ways to write problems were tried. complete: whether these were all.
    """

    proposals: tuple[Proposal, ...]
    source: str
    searched: int
    complete: bool

    @property
    def task(self) -> FormattedTask:
        return self.proposals[0].task

    @property
    def config(self) -> Mapping[str, Any]:
        """What ``models.load(path, config=...)`` needs beside the task; empty if the file says all."""
        return self.proposals[0].config

    @property
    def tied(self) -> tuple[Proposal, ...]:
        """The proposals that cannot be told from the first, as they answer as many of the problems."""
        return tuple(each for each in self.proposals[1:] if each.correct == self.proposals[0].correct)

    def __str__(self) -> str:
        first, *others = self.proposals
        named = "; ".join(map(str, others[:_NAMED]))
        more = f"; and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        also = f" Also consistent: {named}{more}." if others else " Nothing else that was tried fits."
        apart = f" {len(self.tied)} of these cannot be told from it." if self.tied else ""
        stopped = "" if self.complete else " The time was over before all were tried."
        said = f"A guess for {self.source}, the best of {self.searched:,} that were tried: {first}."
        return f"{said}{also}{apart}{stopped}"


#: (config that a file does not say, tokens in, logits out, d_vocab, n_logits, n_ctx)
_Setting = tuple[Mapping[str, Any], Callable[..., Any], int, int, int]
#: (how well it fits, config that the file does not say, d_vocab)
_Found = tuple["_Fit", Mapping[str, Any], int]


@typed
def guess(model: Any, config: Any = None, seconds: Seconds = 12.0) -> FormatGuess:
    """What the tokens of a model mean, found by trying: formats, orders of digits and tokens, separators, signs, the
    operations + - * max min and sums, differences and products modulo a number, in base 10, 2 or one token a number.

    ``d_vocab`` and ``n_ctx`` say what is possible. Where a file does not say its activation function or its number of
    heads, each is tried; where it does not say what attention scores are divided by, that is the root of d_head, and if
    not all answers are right with it, 1, d_head and the root of d_model. Every candidate answers a few problems, and
    the best ones 64; one fits if it gives at least half of the answers, and nearly all if they are of one token. Of
    those that give as many, the first leaves the fewest positions unused and then has the smallest loss. It stays a
    guess: the result says what else fits, and a proof is about the task that you name.

    Args:
        model: a path, or a live model with TransformerLens' ``cfg``.
        config: what the file does not say, as :func:`models.load` takes it.
        seconds: after this time no further candidates are tried.

    Raises:
        UserError: nothing fits, or a file that cannot be read.
    """
    settings, rescaled = _settings(model, config)
    source = str(model) if isinstance(model, (str, Path)) else f"this {type(model).__name__}"
    end = time.monotonic() + seconds
    found: list[_Found] = []
    searched, complete = 0, True
    for full in (True, False):  # first the formats that fill the context
        for some in (settings, rescaled):
            if found and -found[0][0].minus_correct == TRIED:
                break
            likely = list(dict.fromkeys(fit.written for fit, _, _ in found))
            for given, forward, d_vocab, n_logits, n_ctx in some:
                tried = likely or candidates(d_vocab, n_ctx if full else None)
                kept, n, ended = _best(forward, tried, n_logits, n_ctx, end)
                searched, complete = searched + n, complete and ended
                found += [(fit, given, d_vocab) for fit in kept]
            found.sort(key=lambda each: each[0][:3])
        if found:
            break
    proposals = []
    for fit, given, d_vocab in found[:_KEPT]:
        if -fit.minus_correct < _NEAR * -found[0][0].minus_correct:
            break
        with suppress(UserError):  # a task that cannot be
            proposals.append(Proposal(fit.written.task(d_vocab), -fit.minus_correct, given))
    if not proposals:
        stopped = "" if complete else f", in {seconds:g} seconds"
        raise UserError(
            f"Nothing fits {source}: {searched:,} ways to write sums, differences, products and maxima were tried"
            f"{stopped}, and by none of them does it answer half of {TRIED} problems. It may be untrained, or trained "
            "on another task; write that with models.tasks.formatted."
        )
    return FormatGuess(tuple(proposals), source, searched, complete)


def says_its_task(model: str | Path) -> bool:
    """Whether a name or file says its task itself. Raises UserError if it cannot be read."""
    if isinstance(model, str) and not is_path(model):
        return True
    return _reader(File(Path(model).expanduser())).weights is None


def _reader(file: File) -> Reader:
    import_plugins()
    from models.importers import own_files as own_files
    from models.training import load_run as load_run
    from models.zoo import not_read

    reader = reader_of(file)
    if reader is None:
        raise not_read(file)
    return reader


def _settings(model: Any, config: Any) -> tuple[list[_Setting], list[_Setting]]:
    """The model, or those that a file may be; and those with other scales of attention, if the file does not say it."""
    if not isinstance(model, (str, Path)):
        cfg = getattr(model, "cfg", None)
        if cfg is None or not callable(model):
            raise UserError(f"guess takes a path or a model with TransformerLens' cfg, not a {type(model).__name__}.")
        out = getattr(cfg, "d_vocab_out", None) or cfg.d_vocab
        return [({}, model, cfg.d_vocab, out if out > 0 else cfg.d_vocab, cfg.n_ctx)], []
    from models.transformer.arithmetic_transformer import ArithmeticTransformer
    from models.weight_maps.dense import DenseWeights

    file = File(Path(model).expanduser())
    reader = _reader(file)
    if reader.weights is None:
        raise UserError(f"{file.path} is {reader.name}, which says its own task: models.load({str(model)!r}) reads it.")
    given = config.to_dict() if hasattr(config, "to_dict") else dict(config or {})
    is_said = not is_lens_state(file.content) or says_scale(file.content, file.path, given)
    tried: list[dict[str, Any]] = [{}]
    found: list[_Setting] = []
    rescaled: list[_Setting] = []
    while tried:
        changes = tried.pop(0)
        try:
            cfg, weights = reader.weights(file, None, Asked(config={**given, **changes} or None))
        except NotSaid as unsaid:
            if len(tried) + len(found) < _SETTINGS:
                tried += [changes | {unsaid.field: choice} for choice in unsaid.choices]
            continue
        placeholder = formatted("{a}=", "a", base=min(cfg.d_vocab - 1, 2)) if cfg.d_vocab > 2 else None
        if placeholder is None:
            raise UserError(f"{file.path} has {cfg.d_vocab} tokens, too few for a task.")
        for scale in (None, *(() if is_said else (1.0, float(cfg.d_head), math.sqrt(cfg.d_model)))):
            scaled = cfg if scale is None else cfg.replace(attn_scale=scale)
            own = ArithmeticTransformer(DenseWeights.holding(scaled, weights), placeholder, name=file.path.stem)
            said = changes if scale is None else {**changes, "attn_scale": scale}
            into = found if scale is None else rescaled
            into.append((said, own, cfg.d_vocab, cfg.n_logits, cfg.n_ctx))
    return found, rescaled


def _best(
    forward: Callable[..., Any], all_of_them: Iterable[FormatOption], n_logits: int, n_ctx: int, end: float
) -> tuple[list[_Fit], int, bool]:
    """The candidates that fit, with how many problems they answer; how many were tried, and whether these were all."""
    promising: list[tuple[float, int, FormatOption]] = []
    searched, complete = 0, True
    left = iter(all_of_them)
    while batch := list(islice(left, 512)):
        fitting = [each for each in batch if each.input_length <= n_ctx]
        for written, right in zip(fitting, _right(forward, fitting, n_logits, None), strict=True):
            searched += 1
            share = float(right.mean())
            if share >= _LEAST:
                promising.append((-share, searched, written))
        if time.monotonic() > end:
            complete = not any(True for _ in left)
            break
    best = [written for *_, written in sorted(promising, key=lambda each: each[:2])[:_KEPT]]
    found = []
    for written, right in zip(best, _right(forward, best, n_logits, TRIED), strict=True):
        correct = int(right.all(1).sum())
        if correct >= (_LEAST if written.size >= TRIED and written.width > 1 else _OF_FEW) * TRIED:
            found.append(_Fit(-correct, n_ctx - written.input_length, _loss(forward, written), written))
    return found, searched, complete


class _Fit(NamedTuple):
    """A candidate that fits; the first of several in order is the best."""

    minus_correct: int
    unused: int
    loss: float
    written: FormatOption


@torch.inference_mode()
def _loss(forward: Callable[..., Any], written: FormatOption) -> float:
    """What the answers cost, in nats a token."""
    whole = torch.as_tensor(written.tokens(TRIED))
    logits = forward(whole[:, :-1])[:, written.prompt_length - 1 :]
    return float(cross_entropy(logits.flatten(0, 1).double().cpu(), whole[:, written.prompt_length :].flatten()))


@torch.inference_mode()
def _right(
    forward: Callable[..., Any], group: Sequence[FormatOption], n_logits: int, rows: int | None
) -> list[Bool[np.ndarray, "row target"]]:
    """Which answer tokens a model predicts rightly, given those before them, for each candidate."""
    found: dict[int, np.ndarray] = {}
    by_length: dict[int, list[int]] = {}
    for i, each in enumerate(group):
        by_length.setdefault(each.input_length, []).append(i)
    for length, members in by_length.items():
        n_rows = [rows or max(4, -(-_FIRST // max(1, group[i].width))) for i in members]
        tables = [group[i].tokens(n) for i, n in zip(members, n_rows, strict=True)]
        whole = torch.as_tensor(np.concatenate(tables))
        likely = torch.cat([_likely(forward(part[:, :-1])) for part in whole.split(max(1, _AT_ONCE // length))])
        for i, table, own in zip(members, tables, likely.split(n_rows), strict=True):
            start = group[i].prompt_length
            found[i] = own.numpy()[:, start - 1 :] == table[:, start:]
    return [found[i] for i in range(len(group))]


def _likely(logits: Float[Tensor, "row pos d_vocab"]) -> Int[Tensor, "row pos"]:
    return torch.where(logits.isnan().any(-1), -1, logits.argmax(-1)).cpu()
