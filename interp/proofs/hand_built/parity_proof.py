"""A proof that the hand-built parity model is right on every string of up to N bits, by induction over the scratchpad.

A query that follows k bits of the scratchpad has position id k + 1 and reads three things: its own token (the parity p
of the first k bits, or ``=`` for k = 0), the next bit x, if there is one, and whether there is one. The other bits act
only through the weight that leaks to them, which is at most ``rest``. So there are at most eight cases per step:

    k < N, any k bits and more     p in {0, 1} (or "="), x in {0, 1}     p xor x is right
    k = n, the string ends         p in {0, 1}                           EOS is right

Lemma (what makes N steps enough for all 2^(N+1) - 2 strings): the pattern depends on ids alone
(:meth:`SinkHead.read` checks it, exactly), and every key's weight is positive, so that the leak of a shorter string is
at most that of the longest with the same next bit. If each case leaves the right token on top, then by induction over k
greedy decoding writes the running parities and ends.

Precondition: the model is what its options build (:mod:`interp.proofs.hand_built.matches_options`), so that ids are 2
... n + 1, then 1 ... n + 1. Postcondition of a positive margin: every next token of every response, n = 1 ... N, leads
by at least so much, in exact arithmetic over the stored weights, or with
:data:`~interp.proofs.numbers.rounded_operations.FLOAT32` in the model's own.
Cost: N^2 exact scores and 6 N evaluations in ball arithmetic; seconds for 100 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from flint import arb

from interp.proofs.hand_built.addition_values import NotSeparated
from interp.proofs.hand_built.matches_options import why_not_built
from interp.proofs.hand_built.sink_heads import Pattern, SinkHead
from interp.proofs.numbers.arb_balls import enclosure_of
from interp.proofs.numbers.enclosed_forward import EnclosedForward
from interp.proofs.numbers.enclosure import smallest_lead
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.verdict.time_limit import watched
from models.tasks.named.position_coupling.parity import DOLLAR, EQUALS
from models.transformer import HookedModel

ZERO, ONE = 0, 1


@dataclass(frozen=True)
class ParityStep:
    """One step of the induction: ``bits`` of the scratchpad are written; ``ends`` says that there are no more."""

    bits: int
    ends: bool

    @property
    def name(self) -> str:
        return f"{'EOS' if self.ends else 'the next bit'} after {self.bits} bit{'s' * (self.bits != 1)}"


class ParityProof:
    """The model's head, exactly, and its logits in each case.

    Raises:
        NotSeparated: weights that the proof does not cover.
    """

    def __init__(self, model: HookedModel, longest: int, arithmetic: Rounding):
        if (obstacle := why_not_built(model)) is not None:
            raise NotSeparated(obstacle)
        self.longest, self.arithmetic = longest, arithmetic
        self.forward = EnclosedForward(model.config, model.effective_weights(), arithmetic)
        weights = {key: value.detach().cpu().double().numpy() for key, value in model.effective_weights().items()}
        self.head = SinkHead.read(weights, longest + 2, DOLLAR, model.config.score_scale)  # ids are 0 to longest + 1
        d_model, d_head = weights["blocks.0.attn.W_Q"].shape[1:]
        self.share = self.head.weights(arithmetic, 2 * d_model + d_head + 8)

    @property
    def steps(self) -> list[ParityStep]:
        return [ParityStep(k, False) for k in range(self.longest)] + [
            ParityStep(k, True) for k in range(1, self.longest + 1)
        ]

    def margins(self) -> Iterator[float]:
        """Yield the margin of each step, one after the other."""
        for step in watched(self.steps, "proving", "step"):
            yield self.margin(step.bits, step.ends)

    def pattern(self, k: int, ends: bool) -> Pattern:
        """What the query after k bits attends to; if the string goes on, in the longest string."""
        weights, n = self.share[k + 1], k if ends else self.longest
        keys = [*range(2, n + 2), *range(1, k + 2)]  # the query's bits; '=' and the scratchpad
        match = None
        if not ends:
            match = weights[k + 2]
            keys.remove(k + 2)
        rest = sum((weights[key].upper() for key in keys), arb(0))
        return Pattern.of(match, rest, len(keys) + 2, self.arithmetic)

    def margin(self, k: int, ends: bool) -> float:
        """A lower bound of the right token's lead in all cases of a step. Without a bound, it is -inf."""
        pattern, forward = self.pattern(k, ends), self.forward
        owns, bits = ((ZERO, ONE) if k else (EQUALS,)), ((None,) if ends else (ZERO, ONE))
        cases = [(own, bit) for own in owns for bit in bits]
        right = torch.tensor([DOLLAR if bit is None else bit ^ (own == ONE) for own, bit in cases])
        found = [() if bit is None else (bit,) for _, bit in cases]
        written = enclosure_of([pattern.writes(self.head, DOLLAR, one, self.arithmetic) for one in found])
        tokens, ids = torch.tensor([own for own, _ in cases]), torch.full((len(cases), 1), k + 1)
        stream = self.arithmetic.add(forward.embedded(tokens, ids, ids[:, 0]), written)
        stream = self.arithmetic.add(stream, forward.mlp("blocks.0", stream)[0])
        return smallest_lead(forward.linear(stream, "unembed.W_U", "unembed.b_U"), right)
