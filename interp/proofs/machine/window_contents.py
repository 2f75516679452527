"""Bounds of every path that a query of a one-layer decoder can see, one by one, where that is few keys.

A key that ``attn_window`` hides has a weight of exactly zero, whatever stands there. With a window of two columns of
two running sums, what a decoder of one layer predicts about digit k of ``b_s = b_{s-1} + a_s`` depends on digits k - 1
and k of b_{s-1}, of a_s and of a_{s+1} (the number that shares the ids of b_s), and on digit k - 1 of b_s, which is the
query's own token and says what came in from below. These are at most 2 x 10^6 contents for each target, however many
problems there are. For each of them the forward pass is enclosed; that is quicker than bounds of many at once where a
wide MLP lies between attention and the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from interp.proofs.machine.gated_block import Bounds, GatedBlock, is_gated_block
from interp.proofs.machine.path_graph import QueryPaths
from interp.proofs.machine.path_search import PathClass, PathNode, grouped, masks_of
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.enclosure import Enclosure
from interp.proofs.numbers.token_tables import TokenTables
from interp.proofs.verdict.time_limit import check_time, watched
from models import ArithmeticTransformer
from models.families import TWO_BY_TWO
from models.tasks import Task
from models.transformer.config import ANY, PLAIN, uncovered

BATCH = 1024  # contents at a time
WEAK, FOLLOWED = 1.0, 64  # leads with bounds below this are followed along their directions, this many at a time


#: What the leads of each content of a window are stated for, beside :func:`is_gated_block`.
COVERS = PLAIN | {
    "positional_embedding_type": ("coupled",),
    "attn_window": ANY,
    "act_fn": tuple(ACTIVATIONS),
    "gated_mlp": ANY,
    "normalization_type": ("RMS",),
    "norm_placement": ("both",),
    "norm_eps_outside": ANY,
    "final_norm": ANY,
}


def why_not_model(model: ArithmeticTransformer) -> str | None:
    """What of a model with ``attn_window`` is in the way of the bounds, in words. None says that nothing is."""
    config = model.config
    if more := uncovered(config, COVERS):
        return f"what near keys hold is bounded without {', '.join(more)}"
    if not set(config.window_offsets) <= set(TWO_BY_TWO):
        return "its heads see more than two columns of two running sums"
    if config.n_layers != 1:
        return "it has several layers"
    if not is_gated_block(config, model.effective_weights()):
        return "its block is not gated with RMS norms before and after, or has biases"
    return None


def keys_in_sight(model: ArithmeticTransformer, task: Task, query: int) -> list[int]:
    """The positions that a query sees through the model's window: those of near ids, and those without ids."""
    example = task.encode(task.sample(1, torch.Generator().manual_seed(0)))
    ids = task.position_ids(example)[0, : query + 1]
    near = (ids[:, None] - ids[query] == torch.tensor(model.config.window_offsets)).all(-1).any(-1)
    return (near | (ids == 0).all(-1)).nonzero()[:, 0].tolist()


@dataclass(eq=False)
class EachPath:
    """A proof that goes through all paths of some classes; as :class:`interp.proofs.machine.path_search.PathSearch`,
    without a search.

    Cost: 0.05 ms for each content on one core, with an MLP of 3 x 128 x 512 weights.
    """

    reading: TokenTables
    classes: list[PathClass]
    weak: float = WEAK

    def after_refutation(self) -> None:
        """There is no least margin to raise any more, only leads to prove."""
        self.weak = 0.0

    def run(self) -> Iterator[PathClass]:
        """Bound every path, or as many as there is time for. Yields each class with a path that is wrong."""
        for group in watched(grouped(self.classes), "proving", "query"):
            paths, found = group[0].paths, []
            for one in group:
                options = paths.all_paths(one.open[0].masks)
                found.append((one, options, *self.contents(paths, options)))
            answers = [torch.full((len(contents),), one.answer) for one, _, contents, _ in found]
            low, high = self.leads(paths, torch.cat([part[2] for part in found]), torch.cat(answers))
            sizes = [len(part) for part in answers]
            for (one, options, _, number), least, most in zip(found, low.split(sizes), high.split(sizes), strict=True):
                _settle(one, options, number, least, most)
                if one.wrong:
                    yield one

    def contents(
        self, paths: QueryPaths, options: Int[Tensor, "path step"]
    ) -> tuple[Int[Tensor, "content key"], Int[Tensor, " path"]]:
        """The placed tokens that some paths show, each combination once, and which of them each path shows."""
        always = torch.tensor([self.reading.number[pair] for pair in paths.fixed])
        placed, code = [always.expand(len(options), -1)], torch.zeros(len(options), dtype=torch.int64)
        for step, option in zip(paths.steps, options.T, strict=True):
            for position, tokens in zip(step.positions, torch.from_numpy(step.tokens).T, strict=True):
                number = torch.tensor([self.reading.number[position, token] for token in tokens.tolist()])
                placed.append(number[option][:, None])
                code = code * self.reading.config.d_vocab + tokens[option]
        _, number = code.unique(return_inverse=True)
        first = torch.empty(int(number.max()) + 1, dtype=torch.int64).scatter_(0, number, torch.arange(len(number)))
        return torch.cat(placed, 1)[first], number

    def leads(self, paths: QueryPaths, contents: Int[Tensor, "n key"], answers: Int[Tensor, " n"]) -> Bounds:
        """Bounds of the right tokens' leads over all others."""
        reading, own = self.reading, self.reading.number[paths.query, paths.token]
        seen, nodes = contents.unique(return_inverse=True)
        values = reading.rounding.values(
            Enclosure(*(x[:, seen] for x in (reading.v.mid, reading.v.rad, reading.v.norm))), nodes.shape[1]
        )
        scores, x = reading.scores_of_query(own, seen), reading.x[torch.tensor([own])]
        bounds = []
        for rows, tokens in zip(nodes.split(BATCH), answers.split(BATCH), strict=True):
            check_time()
            pattern = reading.rounding.softmax(Enclosure.apart(scores.mid[:, rows], scores.rad[:, rows]))
            z = reading.side_by_side(reading.rounding.mixed(pattern, values.at(rows)))
            bounds.append(self._of_block(x[torch.zeros(len(rows), dtype=torch.int64)], z, tokens))
        low, high = (torch.cat(ends) for ends in zip(*bounds, strict=True))
        return low, high

    def _of_block(self, x: Enclosure, z: Enclosure, answers: Int[Tensor, " n"]) -> Bounds:
        low, high = GatedBlock(self.reading, x, z).leads(answers)
        for tighten, weak in ((False, self.weak), (True, min(self.weak, 0.0))):
            rows = (low < weak).nonzero()[:, 0]
            for part in rows.split(FOLLOWED) if len(rows) else ():
                block = GatedBlock(self.reading, x[part], z[part])
                if tighten:
                    block.tighten()
                low[part], high[part] = block.followed(answers[part])
        return low, high


def _settle(
    one: PathClass, options: Int[Tensor, "path step"], number: Int[Tensor, " path"], low: Tensor, high: Tensor
) -> None:
    """Put into a class what was found of its contents; ``number`` says which content each path shows."""
    (root,) = one.open
    least = int(((low + high) / 2).argmin())
    one.nodes, one.sampled = len(low), float((low + high)[least] / 2)
    one.lowest = options[int((number == least).nonzero()[0, 0])]
    one.wrong = one.sampled <= 0
    failed = options[(low <= 0)[number]]
    one.failed = [PathNode(masks) for masks in masks_of(one.paths, failed)]
    proved = low[low > 0]
    one.done = [replace(root, bound=float(proved.min()))] if len(proved) else []
    one.open = []
