"""What TransformerLens' tools and this project's probes rely on, checked on any model and task: :func:`check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.calls.checked_calls import checked
from models.errors import UserError
from models.tasks.check_task import MISTAKES
from models.tasks.task import Task
from models.tasks.task_definitions import TaskLike
from models.transformer.hooked import HookedModel
from models.transformer.part_names import in_block

if TYPE_CHECKING:
    import pandas as pd

ROWS = 3  # problems in a batch
#: How far sums and patched logits may be off, relative to the largest value.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


class Fails(Exception):
    """A check that does not hold, with the reason."""


def require(holds: Any, why: str) -> None:
    if not holds:
        raise Fails(why)


def table_of(checks: Mapping[str, Callable[[Any], None]], subject: Any) -> pd.DataFrame:
    """One row per check of a subject: its name, whether it passed, and why not. A check raises if it does not hold."""
    import pandas as pd

    rows = []
    for name, one in checks.items():
        why = ""
        try:
            one(subject)
        except Fails as error:
            why = str(error)
        except Exception as error:  # whatever somebody's model, task or probe raises
            why = f"{type(error).__name__}: {error}"
        rows.append({"check": name, "passed": not why, "why": why})
    return pd.DataFrame(rows)


class _Subject:
    """A model with a task, two batches of its tokens, and what a run gives on the first."""

    def __init__(self, model: Any, task: Task, was_training: bool = False):
        self.model, self.task, self.cfg, self.was_training = model, task, model.cfg, was_training
        self.problems, self.tokens, self.other = (
            task.sample(ROWS, _seeded(1)),
            *(task.encode(task.sample(ROWS, _seeded(seed))) for seed in (1, 2)),
        )
        with torch.no_grad():
            self.logits = model(self.tokens)
        self.tolerance = TOLERANCE.get(self.logits.dtype, 1e-2)

    def cache(self, tokens: Tensor | None = None) -> Any:
        with torch.no_grad():
            return self.model.run_with_cache(self.tokens if tokens is None else tokens)[1]

    def same(self, a: Tensor, b: Tensor) -> bool:
        return a.shape == b.shape and float((a - b).abs().max()) <= self.tolerance * max(1.0, float(b.abs().max()))


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _of_task(mistakes: Callable[[Task, Tensor], Iterator[str]]) -> Callable[[_Subject], None]:
    """The check that a task has no mistake of a kind."""

    def check(s: _Subject) -> None:
        if wrong := next(mistakes(s.task, s.problems), None):
            raise Fails(f"it {wrong}")

    return check


# ---- the model


def _evaluates(s: _Subject) -> None:
    """The model was given in evaluation mode, as probes ask for it; all other checks put it there."""
    require(not s.was_training, "it is in training mode; call model.eval() first")


def _runs(s: _Subject) -> None:
    """Logits are finite, [n, pos, d_vocab], and equal in every run."""
    require(s.logits.shape[:2] == s.tokens.shape, f"logits have shape {list(s.logits.shape)}")
    require(s.logits.isfinite().all(), "a logit is not finite")
    with torch.no_grad():
        require(torch.equal(s.model(s.tokens), s.logits), "two runs give different logits")


def _causal(s: _Subject) -> None:
    """A later token does not change earlier logits."""
    length = s.tokens.shape[1]
    if length > 1:
        last = s.other[:, -1:]
        if torch.equal(last, s.tokens[:, -1:]):  # a delimiter: any other token
            last = (last + 1) % s.task.d_vocab
        changed = torch.cat((s.tokens[:, :-1], last), 1)
        with torch.no_grad():
            require(s.same(s.model(changed)[:, :-1], s.logits[:, :-1]), "the last token changes earlier logits")


def _hooks(s: _Subject) -> None:
    """The activations have TransformerLens' names and shapes."""
    n, pos = s.tokens.shape
    stream, heads = (n, pos, s.cfg.d_model), (n, pos, s.cfg.n_heads, s.cfg.d_head)
    wanted: dict[str, tuple[int, ...]] = {"hook_embed": stream}
    for layer in range(s.cfg.n_layers):
        at = in_block(layer)
        wanted |= {f"{at}.hook_{name}": stream for name in ("resid_pre", "attn_out", "resid_post")}
        wanted |= {f"{at}.attn.hook_{name}": heads for name in ("q", "z")}
        wanted |= {f"{at}.attn.hook_{name}": (n, s.cfg.n_heads, pos, pos) for name in ("attn_scores", "pattern")}
        if not s.cfg.attn_only:
            wanted |= {f"{at}.hook_mlp_out": stream, f"{at}.mlp.hook_post": (n, pos, s.cfg.d_mlp)}
    cache = s.cache()
    for name, shape in wanted.items():
        require(name in cache, f"{name} is not among the activations")
        require(tuple(cache[name].shape) == shape, f"{name} has shape {list(cache[name].shape)}, not {list(shape)}")


def _adds_up(s: _Subject) -> None:
    """Embeddings and what attention and MLPs write add up to the last residual stream, unless norms stand between."""
    if not getattr(s.cfg, "residual_stream_adds_up", True):
        return
    cache = s.cache()
    total = cache["hook_embed"]
    if "hook_pos_embed" in cache:
        total = total + cache["hook_pos_embed"]
    for layer in range(s.cfg.n_layers):
        total = total + cache[in_block(layer, "hook_attn_out")]
        total = total + (0 if s.cfg.attn_only else cache[in_block(layer, "hook_mlp_out")])
    last = cache[in_block(s.cfg.n_layers - 1, "hook_resid_post")]
    require(s.same(total, last), f"they differ by {float((total - last).abs().max()):.2g}")


def _patterns(s: _Subject) -> None:
    """Attention weights lie between 0 and 1, add up to at most 1, and are 0 at later keys."""
    cache, pos = s.cache(), s.tokens.shape[1]
    future = torch.ones(pos, pos, dtype=torch.bool).triu(1)
    for layer in range(s.cfg.n_layers):
        pattern = cache[in_block(layer, "attn.hook_pattern")]
        require((pattern >= 0).all() and (pattern.sum(-1) <= 1 + 1e-4).all(), f"layer {layer} has other weights")
        require((pattern[..., future] == 0).all(), f"layer {layer} attends to later keys")


def _patching(s: _Subject) -> None:
    """With the last residual stream of other tokens patched in, the logits are those of the other tokens."""
    name = in_block(s.cfg.n_layers - 1, "hook_resid_post")
    value = s.cache(s.other)[name]
    with torch.no_grad():
        patched = s.model.run_with_hooks(s.tokens, fwd_hooks=[(name, lambda _, hook: value)])
        require(s.same(patched, s.model(s.other)), "the patched logits are not the other run's")


def _removed(s: _Subject) -> None:
    """Hooks are gone after a run, also after one that raised."""

    def fails(value: Tensor, hook: Any) -> Tensor:
        raise ZeroDivisionError

    with torch.no_grad():
        s.model.run_with_hooks(s.tokens, fwd_hooks=[("hook_embed", lambda value, hook: 0 * value)])
        require(torch.equal(s.model(s.tokens), s.logits), "a hook stayed after a run")
        with suppress(ZeroDivisionError):
            s.model.run_with_hooks(s.tokens, fwd_hooks=[("hook_embed", fails)])
        require(torch.equal(s.model(s.tokens), s.logits), "a hook stayed after a run that raised")


def _in_place(s: _Subject) -> None:
    """Nothing is written in place: an activation is after the run what it was at its hook, and a hook that writes into
    one sequence changes no other sequence and no weight."""
    kept: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(value: Tensor, hook: Any) -> None:
        kept[hook.name] = value, value.clone()

    def write(value: Tensor, hook: Any) -> Tensor:
        value[0] = value[0] + 1
        return value

    with torch.no_grad():
        s.model.run_with_hooks(s.tokens, fwd_hooks=[(name, keep) for name in s.cache()])
        for name, (value, before) in kept.items():
            require(torch.equal(value, before) or value.isnan().any(), f"{name} is overwritten after its hook")
        for layer in range(s.cfg.n_layers):
            for name in (in_block(layer, "hook_resid_pre"), in_block(layer, "attn.hook_z")):
                out = s.model.run_with_hooks(s.tokens, fwd_hooks=[(name, write)])
                require(s.same(out[1:], s.logits[1:]), f"a write into one sequence at {name} changes another")
        require(torch.equal(s.model(s.tokens), s.logits), "a write at a hook changed the weights")


def _gradients(s: _Subject) -> None:
    """The logits have finite gradients at the embeddings, not all of them zero."""
    seen: list[Tensor] = []

    def lead(value: Tensor, hook: Any) -> Tensor:
        seen.append(value.detach().requires_grad_())
        return seen[-1]

    with torch.enable_grad():
        logits = s.model.run_with_hooks(s.tokens, fwd_hooks=[("hook_embed", lead)])
        logits[:, -1].log_softmax(-1)[:, 0].sum().backward()
    gradient = seen[0].grad
    require(gradient is not None and gradient.isfinite().all(), "a gradient is missing or not finite")
    require(gradient is not None and gradient.any(), "all gradients are zero")


CHECKS: Mapping[str, Callable[[_Subject], None]] = {
    **{f"task: {name}": _of_task(mistakes) for name, mistakes in MISTAKES.items()},
    "evaluation mode": _evaluates,
    "logits are finite and determined": _runs,
    "logits are causal": _causal,
    "hook names and shapes": _hooks,
    "the residual stream adds up": _adds_up,
    "attention weights": _patterns,
    "patching": _patching,
    "hooks are removed": _removed,
    "nothing is written in place": _in_place,
    "gradients": _gradients,
}


@checked
def check(model: HookedModel, task: TaskLike | None = None) -> pd.DataFrame:
    """Which properties that TransformerLens' tools and this project's probes rely on hold for a model and its task.

    Returns:
        one row per check: its name, whether it passed, and why not. Cost: some twenty runs on three problems.

    Raises:
        UserError: no task, or a task that draws no problems.
    """

    task = getattr(model, "task", None) if task is None else task
    if task is None:
        raise UserError("This model does not say what its task is; give it as task=.")
    was_training = model.training
    model.eval()
    try:
        subject = _Subject(model, task, was_training)
        return table_of(CHECKS, subject)
    finally:
        model.train(was_training)
