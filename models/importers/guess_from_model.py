"""The format, the operation and the tokens of a model that does not say them: :func:`guess`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from models.calls.argument_kinds import Count, Seconds
from models.calls.bound_arguments import typed
from models.errors import NotSaid, UserError
from models.files.stored_names import is_path
from models.importers.lens_states import is_lens_state, says_scale
from models.importers.readers import File, LoadOptions, Reader, reader_of
from models.importers.ways_to_write import TRIED, FormatOption, candidates
from models.plugins import import_plugins
from models.tasks.formats.formatted_task import FormattedTask, formatted

_FIRST = 24  # answer tokens that each candidate is judged by at first
_KEPT, _LEAST = 256, 0.5  # candidates that are looked at further; the share of right tokens, and of right answers
_OF_FEW = 0.95  # the latter where something else answers half as well (FormatOption.many_would_fit)
_NEAR = 0.75  # of the best one's answers, for another proposal
_AT_ONCE, _LEAST_AT_ONCE = 2**15, 2**9  # tokens of one forward pass, by how long those before took
_OF_TIME = 1 / 32  # of the seconds, which one forward pass should take at most
_JUDGING = 0.6  # of the work and the time of the search, which judging what it found may take again
_SMALL = 20_000  # a smaller model takes as long, which is Python's time
_BY_CHANCE = 2**10  # to one, that no format fits by chance
#: How much is tried, in millions of problems x tokens x parameters: some ten seconds, or a minute for many activations.
WORK = 400_000
_NAMED = 2  # proposals that the sentence names
_SETTINGS = 64  # of what a file does not say


@dataclass(frozen=True)
class Proposal:
    """``task`` under which a model answers ``correct`` of ``n`` different problems (:data:`TRIED`, or all there are),
    with the fields of a config that the file does not say (``config``)."""

    task: FormattedTask
    correct: int
    n: int
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
        return f"{self.text}{given} ({self.correct} of {self.n} problems)"


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
        first = self.proposals[0]
        return tuple(each for each in self.proposals[1:] if each.correct * first.n == first.correct * each.n)

    def __str__(self) -> str:
        first, *others = self.proposals
        named = "; ".join(map(str, others[:_NAMED]))
        more = f"; and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        also = f" Also consistent: {named}{more}." if others else " Nothing else that was tried fits."
        apart = f" {len(self.tied)} of these cannot be told from it." if self.tied else ""
        stopped = "" if self.complete else " The limit was reached before all were tried."
        said = f"A guess for {self.source}, the best of {self.searched:,} that were tried: {first}."
        return f"{said}{also}{apart}{stopped}"


#: (config that a file does not say, tokens in, logits out, d_vocab, n_logits, n_ctx)
_Setting = tuple[Mapping[str, Any], Callable[..., Any], int, int, int]
#: (how well it fits, config that the file does not say, d_vocab)
_Found = tuple["_Fit", Mapping[str, Any], int]


@typed
def guess(model: Any, config: Any = None, work: Count = WORK, seconds: Seconds | None = None) -> FormatGuess:
    """What the tokens of a model mean, found by trying: formats, orders of digits and tokens, separators, signs, the
    operations + - * max min and sums, differences and products modulo a number, in base 10, 2 or one token a number.

    ``d_vocab`` and ``n_ctx`` say what is possible. Where a file does not say its activation function or its number of
    heads, each is tried; where it does not say what attention scores are divided by, that is the root of d_head, and if
    not all answers are right with it, 1, d_head and the root of d_model. Every candidate answers a few problems, and
    the best ones 64; one fits if it gives at least half of the answers, and nearly all if they are of one token, or of
    a maximum or minimum, half of which a copy of a number gives. It needs as many different problems as could not be
    answered by chance by one of all that were tried: a format with the four problems of two bits never fits. Of those
    that give as many, the first leaves the fewest positions unused, then has the most problems, and then the smallest
    loss. It stays a guess: the result says what else fits, and a proof is about the task that you name.

    Args:
        model: a path, or a live model with TransformerLens' ``cfg``.
        config: what the file does not say, as :func:`models.load` takes it.
        work: how much is tried, in millions of problems x tokens x parameters (20,000 of a smaller model). The same
            work gives the same guess on every machine; judging what was found takes at most 0.6 times as much.
        seconds: a limit of time as well, for those who are in a hurry: the guess then depends on the machine. It ends
            in less than twice this time.

    Raises:
        UserError: nothing fits, what fits has too few problems, or a file that cannot be read.
    """
    limit = _Limit(work, seconds)
    settings, rescaled = _settings(model, config)
    source = str(model) if isinstance(model, (str, Path)) else f"this {type(model).__name__}"
    found: list[_Found] = []
    few: list[_Fit] = []
    searched, complete = 0, True
    for full in (True, False):  # first the formats that fill the context
        for some in (settings, rescaled):
            if found and found[0][0].minus_share == -1:
                break
            likely = list(dict.fromkeys(fit.written for fit, _, _ in found))
            for given, forward, d_vocab, n_logits, n_ctx in some:
                tried = likely or candidates(d_vocab, n_ctx if full else None)
                kept, n, ended = _best(forward, tried, n_logits, n_ctx, limit)
                searched, complete = searched + n, complete and ended
                needed = math.log2(max(1, searched) * _BY_CHANCE)
                few += [fit for fit in kept if fit.bits < needed]
                found += [(fit, given, d_vocab) for fit in kept if fit.bits >= needed]
            found.sort(key=lambda each: each[0][:4])
        if found:
            break
    proposals = []
    for fit, given, d_vocab in found[:_KEPT]:
        if fit.minus_share > _NEAR * found[0][0].minus_share:
            break
        with suppress(UserError):  # a task that cannot be
            proposals.append(Proposal(fit.written.task(d_vocab), fit.correct, fit.n, given))
    if not proposals:
        stopped = "" if complete else " The limit was reached before all were tried."
        chance = ""
        if few:
            chance = f" {few[0].written.said} fits, but all of its {few[0].n} problems could be answered by chance."
        raise UserError(
            f"Nothing fits {source}: {searched:,} formats were tried.{chance}{stopped} It may be untrained, or trained "
            "on another task; write that with models.tasks.formatted."
        )
    return FormatGuess(tuple(_exact_gelu_first(proposals)), source, searched, complete)


def _exact_gelu_first(proposals: list[Proposal]) -> list[Proposal]:
    """GELU before its tanh approximation where both give as many answers and all else is the same: their losses differ
    by less than where a training happened to end."""
    found = list(proposals)
    for place, each in enumerate(found):
        exact = {**each.config, "act_fn": "gelu"}
        at = next((at for at, x in enumerate(found) if x.config == exact and x.text == each.text), place)
        if each.config.get("act_fn") == "gelu_new" and at > place and found[at].correct == each.correct:
            found[place], found[at] = found[at], each
    return found


def says_its_task(model: str | Path) -> bool:
    """Whether a name or file says its task itself. Raises UserError if it cannot be read."""
    if isinstance(model, str) and not is_path(model):
        return True
    return _reader(File(Path(model).expanduser())).weights is None


def _reader(file: File) -> Reader:
    import_plugins()
    from models.importers import file_readers as file_readers
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
            cfg, weights = reader.weights(file, None, LoadOptions(config={**given, **changes} or None))
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


class _Limit:
    """How much may still be tried, and how many tokens a forward pass may have so that none takes long."""

    def __init__(self, work: int, seconds: float | None):
        self.work, self.seconds = work, seconds
        self.start, self.done, self.at_once = time.monotonic(), 0.0, _AT_ONCE if seconds is None else _LEAST_AT_ONCE

    def over(self, judging: bool) -> bool:
        share = 1 + _JUDGING * judging
        late = self.seconds is not None and time.monotonic() - self.start > share * self.seconds
        return late or self.done >= share * self.work

    def forward(self, model: Callable[..., Any], tokens: Int[Tensor, "row pos"]) -> Float[Tensor, "row pos d_vocab"]:
        """A forward pass that counts."""
        parameters = sum(x.numel() for x in model.parameters()) if isinstance(model, torch.nn.Module) else 0
        self.done += tokens.numel() * max(_SMALL, parameters) / 1e6
        before = time.monotonic()
        with torch.inference_mode():
            logits = model(tokens)
        if self.seconds is not None:
            slow = time.monotonic() - before > _OF_TIME * self.seconds
            self.at_once = max(1, self.at_once // 2) if slow else min(_AT_ONCE, 2 * self.at_once)
        return logits


def _best(
    forward: Callable[..., Any], all_of_them: Iterable[FormatOption], n_logits: int, n_ctx: int, limit: _Limit
) -> tuple[list[_Fit], int, bool]:
    """The candidates that fit, with how many problems they answer; how many were tried, and whether these were all."""
    promising: list[tuple[float, int, FormatOption]] = []
    searched, complete = 0, True
    left = iter(all_of_them)
    while complete and (batch := list(islice(left, 512))):
        fitting = [each for each in batch if each.input_length <= n_ctx]
        tried = 0
        for i, table, logits in _answered(forward, fitting, None, limit, judging=False):
            share = float(_right(fitting[i], table, logits).mean())
            tried += 1
            if share >= _LEAST:
                promising.append((-share, searched + i, fitting[i]))
        searched += tried
        complete = tried == len(fitting)
    best = [written for *_, written in sorted(promising, key=lambda each: each[:2])[:_KEPT]]
    found = []
    judged = 0
    for i, table, logits in _answered(forward, best, TRIED, limit, judging=True):
        judged += 1
        written, right = best[i], np.asarray(_right(best[i], table, logits).all(1))
        if right.mean() >= (_OF_FEW if written.many_would_fit else _LEAST):
            found.append(_fit(written, table, logits, right, n_ctx))
    return found, searched, complete and judged == len(best)


class _Fit(NamedTuple):
    """A candidate that fits; the first of several in order is the best. ``bits``: how much its right answers say."""

    minus_share: float
    unused: int
    minus_size: int
    loss: float
    written: FormatOption
    correct: int
    n: int
    bits: float


def _fit(
    written: FormatOption,
    table: Int[np.ndarray, "row whole"],
    logits: Float[Tensor, "row target d_vocab"],
    right: Bool[np.ndarray, " row"],
    n_ctx: int,
) -> _Fit:
    answers = table[:, written.prompt_length :]
    loss = float(cross_entropy(logits.flatten(0, 1).double().cpu(), torch.as_tensor(answers).flatten()))
    _, first = np.unique(table, axis=0, return_index=True)  # each problem once
    _, of_each = np.unique(answers[first], axis=0, return_counts=True)
    share = of_each / len(first)
    correct = int(right[first].sum())
    bits = correct * float(-(share * np.log2(share)).sum())
    return _Fit(
        -correct / len(first), n_ctx - written.input_length, -written.size, loss, written, correct, len(first), bits
    )


def _answered(
    forward: Callable[..., Any], group: Sequence[FormatOption], rows: int | None, limit: _Limit, judging: bool
) -> Iterator[tuple[int, Int[np.ndarray, "row whole"], Float[Tensor, "row target d_vocab"]]]:
    """Yield the candidates that were run before the limit: which, problems with answers, and the answers' logits."""
    by_length: dict[int, list[int]] = {}
    for i, each in enumerate(group):
        by_length.setdefault(each.input_length, []).append(i)
    for length, members in by_length.items():
        left = [(i, group[i].tokens(rows or max(4, -(-_FIRST // max(1, group[i].width))))) for i in members]
        while left and not limit.over(judging):
            fits = np.cumsum([len(table) * length for _, table in left]) <= limit.at_once
            now, left = left[: max(1, int(fits.sum()))], left[max(1, int(fits.sum())) :]
            whole = torch.as_tensor(np.concatenate([table for _, table in now]))
            parts = whole[:, :-1].split(max(1, limit.at_once // length))
            logits = []
            for part in parts:
                if limit.over(judging):
                    return
                logits.append(limit.forward(forward, part))
            for (i, table), own in zip(now, torch.cat(logits).split([len(table) for _, table in now]), strict=True):
                yield i, table, own[:, group[i].prompt_length - 1 :]


def _right(
    written: FormatOption, table: Int[np.ndarray, "row whole"], logits: Float[Tensor, "row target d_vocab"]
) -> Bool[np.ndarray, "row target"]:
    """Which answer tokens a model predicts rightly, given those before them."""
    return _likely(logits).numpy() == table[:, written.prompt_length :]


def _likely(logits: Float[Tensor, "row target d_vocab"]) -> Int[Tensor, "row target"]:
    return torch.where(logits.isnan().any(-1), -1, logits.argmax(-1)).cpu()
