"""Greedy decoding with cached keys and values: what a model answers when it reads its own tokens.

Every layer keeps the keys and values of the tokens so far, so a new token costs one position of every product and one
row of attention, and n tokens cost O(n^2) scores instead of the O(n^3) of running the whole prefix again. That is
right because nothing about earlier tokens changes while decoding: the mask is causal, and a task gives the tokens of a
growing prefix the ids that they keep
(:meth:`models.tasks.named.position_coupling.sequence_task.SequenceTask.position_ids`).

There are no hooks. ``use_cache=False``, and a model that has no run (:func:`models.run.has_run`), take the hooked
forward on every prefix, which is slow, but the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.lens.lens_contract import LensContract
from models.run.blocks import of_queries
from models.run.formulas import Formulas, has_run
from models.transformer.parts.shapes import Tokens
from models.transformer.parts.weights import Weights

NOTHING = -1  # stands where a row cannot go on: its ids have left the tables, or a logit is NaN


@torch.no_grad()
def greedy(
    model: LensContract,
    prompts: Tokens,
    n_tokens: int,
    stop: int | None = None,
    use_cache: bool = True,
    position_ids: Callable[[Tensor], Tensor] | None = None,
    weights: Weights | None = None,
    choose: Callable[[Tensor, Tensor], Tensor] | None = None,
    watch: Callable[[Tensor], Tensor | None] | None = None,
) -> Int[Tensor, "batch n_tokens"]:
    """The ``n_tokens`` most likely tokens after each prompt, each read back before the next.

    Cost for one layer: one forward over the prompts, then per token one position of every weight and ``pos`` keys.

    Args:
        prompts: prompts of one length.
        stop: a token (EOS) that ends a row; the rest of the row is filled with it. Without it rows go on.
        position_ids: ids [batch, pos, level] of a prefix, in place of the task's (shifted ones, say). Only used with
            coupled positions.
        weights: effective weights to use instead of the model's own.
        choose: the next tokens [batch] from logits [batch, d_vocab] and prefix, in place of the most likely ones.
        watch: called after each token with all tokens so far, [batch, pos]; it may return which rows end there,
            [batch]. A row that has ended is filled with ``stop``, or with its last token.

    Returns:
        tokens; :data:`NOTHING` from where a row has no next token: the position id that it would have is beyond the
        model's tables, a logit is NaN, or the token before it is one that the model writes but cannot read.

    Raises:
        UserError: no prompt, a negative number of tokens, or more positions than a table of absolute positions has.
    """
    if prompts.shape[1] < 1 or n_tokens < 0:
        raise UserError(f"Decoding needs a prompt and a number of tokens from 0 on, not {n_tokens}.")
    total = prompts.shape[1] + n_tokens
    if model.config.positional_embedding_type == "standard" and total - 1 > model.config.n_ctx:
        raise UserError(f"{total - 1} positions are needed, and this model has {model.config.n_ctx}.")
    prompts = prompts.to(model.device)
    if use_cache and has_run(model):
        step = Cached(Formulas(model, model.effective_weights() if weights is None else weights), len(prompts), total)
    else:
        step = _Uncached(model, weights)
    ids_of = model.task.position_ids if position_ids is None else position_ids
    has_ids = model.config.positional_embedding_type == "coupled"
    limits = torch.tensor(model.position_limits, device=prompts.device)

    tokens = torch.cat((prompts, prompts.new_zeros(len(prompts), n_tokens)), 1)
    alive = torch.ones(len(prompts), dtype=torch.bool, device=prompts.device)
    ended = torch.zeros_like(alive)
    last_good = torch.full((len(prompts),), total, device=prompts.device)  # first place that holds nothing
    for place in range(prompts.shape[1], total):
        prefix, ids = tokens[:, :place].clamp(max=model.config.d_vocab - 1), None
        if has_ids:
            ids = ids_of(prefix)
            alive = alive & (ids <= limits).all(2).all(1)
            ids = torch.where(alive[:, None, None], ids, 0)  # a dead row computes anything
        logits = step(prefix, ids)
        highest, best = logits.max(-1)  # max hands NaN on
        alive = alive & ~highest.isnan()
        if choose is not None:
            best = torch.where(alive, choose(torch.where(alive[:, None], logits, 0), prefix), best)
        last_good = torch.where(alive | ended | (last_good < place), last_good, place)
        if stop is not None:
            best = torch.where(ended, stop, best)
            ended = ended | (alive & (best == stop))
        elif watch is not None:
            best = torch.where(ended, tokens[:, place - 1], best)
        tokens[:, place] = best
        if watch is not None and (over := watch(tokens[:, : place + 1])) is not None:
            ended = ended | over.to(ended.device)
        alive = alive & (best < model.config.d_vocab)  # a token that the model cannot read has no next one
        if bool((ended | ~alive).all()):
            tokens[:, place + 1 :] = tokens[:, place : place + 1] if stop is None else stop
            break
    places = torch.arange(total, device=prompts.device)
    return torch.where(places < last_good[:, None], tokens, NOTHING)[:, prompts.shape[1] :]


class _Uncached:
    """Logits of the last token, by the hooked forward on the whole prefix."""

    def __init__(self, model: LensContract, weights: Weights | None):
        self.model = model
        self.options: dict[str, Any] = {} if weights is None else {"weights": weights}

    def __call__(self, prefix: Tensor, ids: Tensor | None) -> Tensor:
        ids_given = {} if ids is None else {"position_ids": ids}
        return self.model(prefix, **self.options, **ids_given)[:, -1]


class Cached:
    """Logits of the last token; remembers keys and values [layer][batch, pos, head, d_head] of those before."""

    def __init__(self, f: Formulas, batch: int, total: int):
        self.f, self.known = f, 0
        like = f.weights["embed.W_E"]
        self.keys, self.values = (
            [like.new_empty(batch, total, f.cfg.n_heads, f.cfg.d_head) for _ in range(f.cfg.n_layers)] for _ in range(2)
        )
        if f.fire is not None:
            f.fire(total)  # once, instead of growing with the prefix

    def follow(self, rows: Int[Tensor, " new"]) -> None:
        """Take the keys and values of these rows as those of the batch: row i goes on from what was row ``rows[i]``."""
        self.keys, self.values = ([x.index_select(0, rows) for x in kept] for kept in (self.keys, self.values))

    def __call__(self, prefix: Tensor, ids: Tensor | None) -> Tensor:
        return self.f.logits(self.read(prefix, ids))[:, -1]

    def read(self, prefix: Tensor, ids: Tensor | None, to_the_end: bool = True) -> Tensor:
        """The last stream of the last token, once the keys and values of new tokens are remembered; without
        ``to_the_end`` what the last layer reads, as all that is needed of it then is its keys and values."""
        f, start, stop = self.f, self.known, prefix.shape[1]
        window = f.model.window_bias(prefix, ids)
        x = f.embed(prefix[:, start:], None if ids is None else ids[:, start:], start)
        for layer in range(f.cfg.n_layers):
            normalized = f.attn_in(layer, x)
            keys, values = self.keys[layer], self.values[layer]
            keys[:, start:stop], values[:, start:stop] = f.keys_and_values(layer, normalized, start)
            if layer == f.cfg.n_layers - 1:
                if not to_the_end:
                    continue
                x, normalized = x[:, -1:], normalized[:, -1:]
            x = of_queries(f, layer, x, normalized, keys[:, :stop], values[:, :stop], window)
        self.known = stop
        return x
