"""Training problems, drawn for a whole chunk of steps at once.

The problems of (seed, chunk) depend on nothing else: not on the other seeds of a stack, not on what was drawn
before. So a seed trains alike alone and in a stack, and a resumed run needs no generator state.
"""

from __future__ import annotations

import hashlib

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from models.tasks.addition import digit_rows
from models.tasks.base import Task
from models.training.recipes import Recipe

CHUNK = 50  # steps drawn at a time: enough to make the cost of a call vanish


def derived_generator(device: torch.device, *key: int | str) -> torch.Generator:
    """A generator whose stream is a hash of ``key``."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _uniform(rows: int, n: int, generator: torch.Generator) -> Float[Tensor, "rows n"]:
    """Uniform in [0, 1) with 53 bits; ``floor(u * limit)`` is a uniform integer below ``limit`` up to limit / 2^53,
    and costs a fraction of an integer modulo."""
    return torch.rand(rows, n, generator=generator, device=generator.device, dtype=torch.float64)


def carry_rich_problems(max_digits: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, "n 2"]:
    """MicroAdder's four carry patterns in equal shares, with nd ~ U{1..max_digits} digits.

    * single: one column with both digits 5-9, every other digit 0-4;
    * chain: 10^nd - 1 plus U{1..10^min(nd, 3)};
    * place: a random nd-digit number plus U{1..9} times a power of ten below 10^nd;
    * boundary: 10^nd - U{1..10} plus U{1..20}.
    """
    n, device = max_digits.shape[0], max_digits.device
    power = 10.0 ** torch.arange(11, device=device, dtype=torch.float64)
    u = _uniform(5, n, generator)
    nd = 1 + (u[0] * max_digits).long()
    column = (u[1] * nd).long()
    kind = (u[2] * 4).long()
    full = power[nd]

    # floor(u * limit) with each pattern's own limits; a is counted down from 10^nd except in "place".
    low = torch.where(nd == 1, 0.0, full / 10)
    a_limit = torch.where(kind == 2, full - low, torch.where(kind == 3, 10.0, 1.0))
    b_limit = torch.where(kind == 2, 9.0, torch.where(kind == 3, 20.0, power[nd.clamp(max=3)]))
    below = (u[3] * a_limit).floor()
    a = torch.where(kind == 2, low + below, (full - 1 - below).clamp(min=0))
    b = (1 + (u[4] * b_limit).floor()) * torch.where(kind == 2, power[column], 1.0)
    problems = torch.stack((a, b), 1).long()

    where = (kind == 0).nonzero()[:, 0]
    digits = digit_rows((_uniform(2, len(where), generator) * 5.0**10).flatten(), 10, base=5).view(10, 2, -1)
    columns = torch.arange(10, device=device)[:, None]
    digits = digits + 5.0 * (columns == column[where])[:, None]
    single = (digits * power[:10, None, None]).sum(0) % full[where]  # the digits above nd are cut off
    problems[where] = single.T.long()
    return problems


def training_problems(recipe: Recipe, seed: int, chunk: int, device: torch.device) -> Int[Tensor, "step row 2"]:
    """The problems of steps ``chunk * CHUNK`` and following, [CHUNK, batch_size, 2]."""
    generator = derived_generator(device, "train", seed, chunk)
    steps = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    rows = recipe.batch_size
    max_digits = torch.tensor([recipe.max_digits_at(s) for s in steps], device=device).repeat_interleave(rows)
    problems = (_uniform(2, len(max_digits), generator) * 10.0**max_digits).long().T.contiguous()
    if recipe.carry_mix is not None:
        share = torch.tensor([recipe.carry_mix.at(s) for s in steps], device=device).repeat_interleave(rows)
        chosen = torch.rand(share.shape, generator=generator, device=device) < share
        where = chosen.nonzero()[:, 0]
        if len(where):
            problems[where] = carry_rich_problems(max_digits[where], generator)
    return problems.view(CHUNK, rows, 2)


class TrainingStream:
    """Batches for a group of seeds: ``batch(step)`` is (tokens [seed, pos, row], targets [seed, target, row]).

    Rows come last because the position-only objective wants long contiguous rows of one feature.
    """

    def __init__(self, task: Task, recipe: Recipe, seeds: list[int], device: torch.device):
        self.task, self.recipe, self.seeds, self.device = task, recipe, seeds, device
        self._chunk = -1
        self._tokens = self._targets = torch.empty(0)

    def batch(self, step: int) -> tuple[Integer[Tensor, "seed pos row"], Integer[Tensor, "seed target row"]]:
        chunk, offset = divmod(step, CHUNK)
        if chunk != self._chunk:
            tokens, targets = zip(*(self._encode(seed, chunk) for seed in self.seeds), strict=True)
            self._tokens, self._targets, self._chunk = torch.stack(tokens, 1), torch.stack(targets, 1), chunk
        return self._tokens[offset], self._targets[offset]

    def _encode(self, seed: int, chunk: int) -> tuple[Tensor, Tensor]:
        problems = training_problems(self.recipe, seed, chunk, self.device)
        # A byte a token: a chunk stays small, and the objective widens it inside the compiled step.
        compact = torch.uint8 if self.task.d_vocab <= 256 else torch.int32
        rows = self.task.encode_rows(problems.flatten(0, 1))
        return tuple(x.to(compact).unflatten(1, problems.shape[:2]).transpose(0, 1).contiguous() for x in rows)  # type: ignore[return-value]
