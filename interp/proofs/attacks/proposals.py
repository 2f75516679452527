"""The best problem of a linearised margin, over all problems of a task with a small memory at once.

Changing one digit at a time climbs; this jumps. Replace a margin by a sum over positions of one number per token, and
:meth:`models.tasks.machines.machine.Machine.least` finds the least such sum among all problems that pass through each
option of a step, however rare the problem that attains it. There are two such sums:

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
from interp.proofs.attacks.problem_digits import Digits, DigitSpace, OtherDigits
from models.errors import UserError
from models.tasks import Machine, Task, domain_of, machine_of

ATTENTION_OUT, SCORES, VALUES = "blocks.0.hook_attn_out", "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_v"
OTHERS = 6  # proposals per target whose query reads another token
FEW = 10**4  # so few problems are found without a programme


class Proposals:
    """The proposals for a task with a machine; ``hooks`` names where else it needs the margin's gradient."""

    def __init__(self, runner: Runner, machine: Machine) -> None:
        self.runner, self.machine = runner, machine
        cfg, hooks = runner.model.cfg, runner.model.hook_dict
        same_heads = getattr(cfg, "n_key_value_heads", None) in (None, cfg.n_heads)
        self.has_ratio = cfg.n_layers == 1 and same_heads and all(h in hooks for h in (ATTENTION_OUT, SCORES, VALUES))
        self.hooks = (ATTENTION_OUT,) if self.has_ratio else ()
        allowed = [np.array(machine.tokens_at(slot)) for slot in range(machine.input_length)]
        self.n_tokens = 1 + max(int(tokens.max()) for tokens in allowed)
        # sequences in which, between them, every position has every token that it can have, and the first with it
        self.n_rows = max(map(len, allowed))
        each = np.arange(self.n_rows)
        self.rows = torch.from_numpy(np.stack([tokens[each % len(tokens)] for tokens in allowed], 1))
        self.row_of = torch.zeros(machine.input_length, self.n_tokens, dtype=torch.int64)
        for position, tokens in enumerate(allowed):
            self.row_of[position, tokens] = torch.arange(len(tokens))
        self._attention: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @property
    def cost(self) -> int:
        """The most runs that it takes to linearise around one problem, on top of its gradient."""
        return self.n_rows if self.has_ratio else 0

    def effects(
        self, tokens: Int[Tensor, "n pos"], targets: Int[Tensor, " n"], gradients: Gradients
    ) -> Float[Tensor, "n pos token"]:
        """What each token adds to the sum: the one-layer sum's terms, else the gradient's own effects."""
        if not self.has_ratio:
            return gradients.effects
        found = torch.zeros(*tokens.shape, self.n_tokens, dtype=torch.float64)
        for row, target in enumerate(targets.tolist()):
            query = self.runner.queries[target]
            found[row, : query + 1] = self._ratio(tokens[row], query, gradients.caught[ATTENTION_OUT][row, query])
        return found

    def proposals(
        self,
        space: DigitSpace,
        digits: Digits,
        targets: Int[Tensor, " n"],
        effects: Float[Tensor, "n pos token"],
    ) -> OtherDigits:
        """Problems with the same answer as the first problem of each target, and the least and the largest sums.

        They are the problems at both ends among those that share the token that is read there (another rival may lead
        at the upper end), for each state before and after the step that writes the answer; and those with the
        :data:`OTHERS` least sums for other tokens.
        """
        problems = space.problems(digits)
        tokens, answers = space.task.encode(problems), space.task.targets(problems)
        kept: dict[int, Int[np.ndarray, "k step"]] = {}
        for row, target in enumerate(targets.tolist()):
            query = self.runner.queries[target]
            terms = effects[row, : query + 1, : self.n_tokens]
            if target not in kept and terms.isfinite().all() and bool((terms != 0).any()):
                own, answer = int(tokens[row, query]), int(answers[row, target])
                kept[target] = self._ends(terms.numpy(), query, target, own, answer)
        if not kept:
            return digits[:0]
        return space.digits(self.machine.problems(np.concatenate(list(kept.values()))))

    def _ends(
        self, terms: Float[np.ndarray, "pos token"], query: int, target: int, own: int, answer: int
    ) -> Int[np.ndarray, "k step"]:
        """The paths of the problems that :meth:`proposals` names, for one target."""
        values = [np.zeros(len(step.before)) for step in self.machine.layers]
        for k, step in enumerate(self.machine.layers):
            for column, slot in enumerate(step.slots):
                if slot <= query:
                    values[k] += terms[slot, step.tokens[:, column]]
        slot = self.machine.input_length + target
        at, _ = self.machine.places.get(slot, (len(values) - 1, 0))  # no step has a share in a token that is fixed
        right = self.machine.having({slot: answer})
        found, others = [], []
        for token in self.machine.tokens_at(query):
            fits = [one & two for one, two in zip(right, self.machine.having({query: token}), strict=True)]
            for sign in (1, -1) if token == own else (1,):
                costs = [np.where(each, sign * value, np.inf) for each, value in zip(fits, values, strict=True)]
                sums, paths = self.machine.cheapest_paths(costs, at)
                best = _best_of_each(self.machine.layers[at].before, self.machine.layers[at].after, sums)
                (found if token == own else others).append((sums[best], paths[best]))
        if others:
            sums, paths = (np.concatenate(each) for each in zip(*others, strict=True))
            found.append((sums, paths[np.argsort(sums, kind="stable")[:OTHERS]]))
        return np.concatenate([paths for _, paths in found])

    def _ratio(
        self, tokens: Int[Tensor, " pos"], query: int, direction: Float[Tensor, " d_model"]
    ) -> Float[Tensor, "key token"]:
        """The terms of the one-layer sum, for keys up to the query."""
        scores, values = self._reads(query, int(tokens[query]))
        W_O = self.runner.model.W_O[0].detach().cpu().double()  # [head, d_head, d_model]
        written = torch.einsum("tphe,he->thp", values, W_O @ direction.double())  # u . c_hj(token)
        present = self.row_of[torch.arange(query + 1), tokens[: query + 1]]
        present = present[None, None].expand(1, scores.shape[1], -1)
        weights = (scores - scores.gather(0, present).amax(2, keepdim=True)).exp()
        own_weights, own = weights.gather(0, present), written.gather(0, present)
        total = own_weights.sum(2, keepdim=True)
        terms = (weights * (written - (own_weights * own).sum(2, keepdim=True) / total) / total).sum(1)  # [token, key]
        return terms.gather(0, self.row_of[: query + 1].T).T

    def _reads(self, query: int, token: int) -> tuple[Tensor, Tensor]:
        """Scores [token, head, key] of a query that is ``token``, and values [token, key, head, d_head].

        They are read from made-up sequences with the tokens that can stand at each position: in a one-layer model, keys
        and values depend on the token and the position alone.
        """
        if (query, token) not in self._attention:
            rows = self.rows.clone()
            rows[:, query] = token
            caught = self.runner.catch(rows, (SCORES, VALUES))
            scores, values = caught[SCORES][:, :, query, : query + 1], caught[VALUES][:, : query + 1]
            self._attention[query, token] = scores.double(), values.double()
        return self._attention[query, token]


def _best_of_each(
    before: Int[np.ndarray, " option"], after: Int[np.ndarray, " option"], sums: Float[np.ndarray, " option"]
) -> Int[np.ndarray, " k"]:
    """For each pair of states, the option with the least sum, where that is finite."""
    order = np.lexsort((sums, after, before))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (before[order][1:] != before[order][:-1]) | (after[order][1:] != after[order][:-1])
    best = order[first]
    return best[np.isfinite(sums[best])]


def proposals_for(runner: Runner, task: Task) -> Proposals | None:
    """The proposals for this model; None if the task has no machine that is known, or has so few problems that it takes
    no programme to find them."""
    try:
        if domain_of(task).size <= FEW:
            return None
        return Proposals(runner, machine_of(task))
    except UserError:  # the other moves still work
        return None
