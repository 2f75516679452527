"""The best problem of a linearised margin, over all classes of sums or differences of two numbers at once.

Changing one digit at a time climbs; this jumps. Replace a margin by a sum over positions of one number per token, and
:func:`interp.proofs.columns.all_classes` finds the least such sum in every class of inputs, however rare the problem
that attains it. There are two such sums:

    any model         gradient of the margin . W_E[token], at every position: the first-order estimate
    one layer         what attention writes at a query is ``sum_h N_h / D_h``, both additive over positions. With u the
                      gradient of the margin at the attention's output, and o_h, D_h at the present problem,
                      ``sum_h e_hj(token) u . (c_hj(token) - o_h) / D_h``; for one head its sum over positions is
                      ``u . (o' - o) D' / D``, exactly

The second sum linearises only what comes after the attention, and keeps the ratio. Its problems are proposals, which
the model then judges, so that nothing here has to be a bound.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.attacks.counted_runs import Gradients, Runner
from interp.proofs.attacks.problem_digits import Digits, OtherDigits, ProblemSpace
from interp.proofs.columns import all_classes
from interp.proofs.one_layer import FEW
from interp.proofs.token_layout import Layout, read_layout
from models.errors import UserError
from models.tasks.base import Task

ATTENTION_OUT, SCORES, VALUES = "blocks.0.hook_attn_out", "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_v"
DIGIT_TOKENS = 10  # in tasks of fixed width, tokens 0 to 9
OTHERS = 6  # proposals per target from classes whose query reads another token
_LARGEST = 2.0**50  # the largest of the integers that stand for terms


class Programme:
    """The programme for a task of two numbers; ``hooks`` names where else it needs the margin's gradient."""

    def __init__(self, runner: Runner, layout: Layout) -> None:
        self.runner, self.layout = runner, layout
        cfg, hooks = runner.model.cfg, runner.model.hook_dict
        same_heads = getattr(cfg, "n_key_value_heads", None) in (None, cfg.n_heads)
        self.has_ratio = cfg.n_layers == 1 and same_heads and all(h in hooks for h in (ATTENTION_OUT, SCORES, VALUES))
        self.hooks = (ATTENTION_OUT,) if self.has_ratio else ()
        self.n_tokens = max(max(allowed) for allowed in layout.tokens) + 1
        self._attention: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @property
    def cost(self) -> int:
        """The most runs that it takes to linearise around one problem, on top of its gradient."""
        return DIGIT_TOKENS if self.has_ratio else 0

    def effects(
        self, tokens: Int[Tensor, "n pos"], targets: Int[Tensor, " n"], gradients: Gradients
    ) -> Float[Tensor, "n pos token"]:
        """What each token adds to the sum: the one-layer sum's terms, else the gradient's own effects."""
        if not self.has_ratio:
            return gradients.effects
        found = torch.zeros(*tokens.shape, self.n_tokens, dtype=torch.float64)
        for row, target in enumerate(targets.tolist()):
            query = self.layout.queries[target]
            found[row, : query + 1] = self._ratio(tokens[row], query, gradients.caught[ATTENTION_OUT][row, query])
        return found

    def proposals(
        self,
        space: ProblemSpace,
        digits: Digits,
        targets: Int[Tensor, " n"],
        effects: Float[Tensor, "n pos token"],
    ) -> OtherDigits:
        """Problems that attain the ends of classes with the same answer as the first problem of each target.

        They attain both ends of the classes that share the token it reads (another rival may lead at the upper end),
        and the lower ends of the :data:`OTHERS` classes with the least sums.
        """
        problems = space.problems(digits)
        tokens, answers = space.task.encode(problems), space.task.targets(problems)
        terms = np.zeros((len(self.layout.queries), self.layout.n_positions, self.n_tokens))
        asked: dict[int, tuple[int, int]] = {}  # target: own token, answer
        for row, target in enumerate(targets.tolist()):
            if target in asked:
                continue
            query = self.layout.queries[target]
            found = effects[row, : query + 1, : self.n_tokens]
            if found.isfinite().all() and bool((found != 0).any()):
                terms[target, : query + 1] = found.numpy()
                asked[target] = int(tokens[row, query]), int(answers[row, target])
        if not asked:
            return digits[:0]
        largest = np.abs(terms).max((1, 2), keepdims=True)
        fixed = np.round(terms / np.where(largest > 0, largest, 1.0) * _LARGEST).astype(np.int64)
        classes = all_classes(self.layout, fixed)
        kept = []
        for target, (token, answer) in asked.items():
            alike = (classes.target == target) & (classes.answer == answer)
            kept.append(classes.witnesses[alike & (classes.token == token)].reshape(-1, 2))
            others = np.flatnonzero(alike & (classes.token != token))
            kept.append(classes.witnesses[others[np.argsort(classes.ends[others, 0], kind="stable")[:OTHERS]], 0])
        return space.digits(torch.from_numpy(np.concatenate(kept)))

    def _ratio(
        self, tokens: Int[Tensor, " pos"], query: int, direction: Float[Tensor, " d_model"]
    ) -> Float[Tensor, "key token"]:
        """The terms of the one-layer sum, for keys up to the query."""
        scores, values = self._reads(query, int(tokens[query]))
        W_O = self.runner.model.W_O[0].detach().cpu().double()  # [head, d_head, d_model]
        written = torch.einsum("tphe,he->thp", values, W_O @ direction.double())  # u . c_hj(token)
        present = tokens[: query + 1].clamp(max=DIGIT_TOKENS - 1)[None, None].expand(1, scores.shape[1], -1)
        weights = (scores - scores.gather(0, present).amax(2, keepdim=True)).exp()
        own_weights, own = weights.gather(0, present), written.gather(0, present)
        total = own_weights.sum(2, keepdim=True)
        terms = (weights * (written - (own_weights * own).sum(2, keepdim=True) / total) / total).sum(1)  # [token, key]
        found = terms[-1].repeat(self.n_tokens, 1)  # a position where only one token can stand has one value
        found[:DIGIT_TOKENS] = terms
        return found.T

    def _reads(self, query: int, token: int) -> tuple[Tensor, Tensor]:
        """Scores [token, head, key] of a query that is ``token``, and values [token, key, head, d_head].

        They are read from ten made-up sequences, each with one digit wherever digits stand: in a one-layer model, keys
        and values depend on the token and the position alone.
        """
        if (query, token) not in self._attention:
            rows = torch.arange(DIGIT_TOKENS)[:, None].repeat(1, self.layout.n_positions)
            for position, allowed in enumerate(self.layout.tokens):
                if len(allowed) == 1:
                    rows[:, position] = allowed[0]
            rows[:, query] = token
            caught = self.runner.catch(rows, (SCORES, VALUES))
            scores, values = caught[SCORES][:, :, query, : query + 1], caught[VALUES][:, : query + 1]
            self._attention[query, token] = scores.double(), values.double()
        return self._attention[query, token]


def programme(runner: Runner, task: Task) -> Programme | None:
    """The programme for this model; None if the task does not add or subtract two numbers column by column, or has so
    few problems that it takes no programme to find them."""
    try:
        layout = read_layout(task)
    except UserError:  # the other moves still work
        return None
    return Programme(runner, layout) if layout.rule.digits > FEW else None
