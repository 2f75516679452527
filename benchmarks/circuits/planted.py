"""Models built by hand around a circuit that is known because it was put there; :func:`planted` draws one.

The residual stream has blocks of directions: one for each token, one for each position, and channels into which heads
write tokens. A head looks at a position or at a token and copies one block into a channel; an MLP combines channels;
the unembedding reads one of them. A random rotation of the stream, random gains, the order of heads, and random heads
whose channel nobody reads are drawn from the seed.

    irrelevant   a head carries what differs between the problems, and nobody reads it
    or           two heads copy the answer, and the MLP passes on at most one copy: each alone is enough
    and          the MLP answers 1 only if both heads say 1: one alone changes nothing
    cancel       two heads write another token's copy and its negative
    suppress     one head copies the answer twice, another takes one copy away: a circuit with only the first overshoots
    backup       a head of the second layer copies the answer only where the first layer's head wrote nothing
    relay        a head carries the answer to another position, and one of the second layer on to the query
    induction    a head looks at the previous token, one of the second layer for the token that is asked for
    largest      a head looks at the largest token: keys and values belong to the circuit
    places       one head for each of two answers, of which the pairs are about the second

The circuit is all edges of the mechanism: of "or" and "backup" also those that are redundant. These two are redundant
only where a cut edge carries nothing, and are judged under zero ablation, where edges from the positions count too. (In
the other problem's run a second copy says another answer, and a head that wrote the wrong token has still written.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from models import ArithmeticTransformer
from models.tasks import Task
from models.training.model_definition import task_of
from models.transformer.config import TransformerConfig
from models.weight_maps import DenseWeights

SURE = 40.0  # the lead of a score, so that a softmax is one-hot to e^-40
OUT, DEAD = "out", "dead"


@dataclass(frozen=True)
class Planted:
    """``circuit``: the names of its edges; ``replacement``: the ablation under which they are the circuit."""

    name: str
    model: ArithmeticTransformer
    circuit: tuple[str, ...]
    replacement: str = "corrupted"
    target: int = 0


@dataclass
class _Builder:
    """Blocks of directions, and the weights that read and write them."""

    task: Task
    n_layers: int
    n_heads: int
    generator: torch.Generator
    channels: Sequence[str] = (OUT, DEAD)
    heads: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=dict)
    mlp: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        vocabulary, places = self.task.d_vocab, self.task.input_length
        sizes = {"token": vocabulary, "place": places} | dict.fromkeys(self.channels, vocabulary)
        self.width = sum(sizes.values())
        rotation = torch.linalg.qr(self.noise(self.width, self.width))[0]
        self.block = dict(zip(sizes, rotation.split(list(sizes.values())), strict=True))  # rows are directions
        self.d_head = max(vocabulary, places) + 1

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def gain(self) -> float:
        return 1 + float(torch.rand((), generator=self.generator))

    def head(
        self,
        at: tuple[int, int],
        source: str,
        into: str,
        gain: float,
        query: Tensor,
        key: Tensor,
        last: int | None = None,
    ) -> None:
        """A head that copies the block ``source`` (of the tokens, not their end sign) into a channel; ``query`` and
        ``key`` are [d_model, d_head]."""
        copied = torch.zeros(self.d_head, self.width, dtype=torch.float64)
        n = self.task.d_vocab if last is None else last
        copied[:n] = self.block[source][:n]
        written = torch.zeros(self.d_head, self.width, dtype=torch.float64)
        written[:n] = gain * self.block[into][:n]
        self.heads[at] = {"W_Q": query, "W_K": key, "W_V": copied.T, "W_O": written}

    def looks(self, places: Mapping[int, int]) -> tuple[Tensor, Tensor]:
        """(query, key) of a head that looks from positions to positions."""
        query, key = torch.zeros(2, self.width, self.d_head, dtype=torch.float64)
        for of, to in places.items():
            query = query + torch.outer(self.block["place"][of], torch.eye(self.d_head)[to].double())
        for to in range(self.task.input_length):
            key = key + torch.outer(self.block["place"][to], torch.eye(self.d_head)[to].double())
        return SURE * query, key

    def filled(self) -> None:
        """Heads that are left get random queries and keys, and write tokens where nobody reads."""
        for at in ((layer, head) for layer in range(self.n_layers) for head in range(self.n_heads)):
            if at not in self.heads:
                query, key = self.noise(2, self.width, self.d_head)
                self.head(at, "token", DEAD, self.gain(), query, key)

    def model(self, name: str) -> ArithmeticTransformer:
        self.filled()
        task = self.task
        units = self.mlp["W_in"].shape[1] if self.mlp else 0
        config = TransformerConfig(
            d_vocab=task.d_vocab, n_ctx=task.input_length, n_layers=self.n_layers, d_model=self.width,
            n_heads=self.n_heads, d_head=self.d_head, d_mlp=units, act_fn="relu", normalization_type=None,
            attn_scale=1.0,
        )  # fmt: skip
        weights = {
            "embed.W_E": self.block["token"],
            "pos_embed.W_pos": self.block["place"],
            "unembed.W_U": self.block[OUT].T * 4,
        }
        for layer in range(self.n_layers):
            for kind in ("W_Q", "W_K", "W_V", "W_O"):
                own = [self.heads[layer, head][kind] for head in range(self.n_heads)]
                weights[f"blocks.{layer}.attn.{kind}"] = torch.stack(own)
        for kind, value in self.mlp.items():
            weights[f"blocks.0.mlp.{kind}"] = value
        dense = DenseWeights.holding(config, {key: value.float() for key, value in weights.items()})
        return ArithmeticTransformer(dense, task, name=name).eval()


def _copies(base: int = 6) -> Task:
    return task_of({"format": "{a}{b}{c}=", "answer": "a + 0 * b + 0 * c", "base": base})


def _path(head: str, into: str = "logits") -> tuple[str, ...]:
    return f"embed->{head}.v", f"{head}->{into}"


def _irrelevant(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(_copies(), 1, 3, g)
    b.head((0, 0), "token", OUT, b.gain(), *b.looks({3: 0}))
    b.head((0, 1), "token", DEAD, 2 * b.gain(), *b.looks({3: 1}))
    return b, _path("L0H0")


def _through_mlp(b: _Builder, pre: Float[Tensor, "d_model unit"], shift: Tensor, post: Tensor) -> None:
    b.mlp = {"W_in": pre, "b_in": shift, "W_out": post}


def _or(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(_copies(), 1, 3, g, (OUT, DEAD, "copy"))
    for head in (0, 1):
        b.head((0, head), "token", "copy", 1.0, *b.looks({3: 0}))
    n, read = b.task.d_vocab, b.block["copy"].T
    ones = torch.ones(n, dtype=torch.float64)
    _through_mlp(
        b, torch.cat((read, read), 1), torch.cat((0 * ones, -ones)), b.gain() * torch.cat((b.block[OUT], -b.block[OUT]))
    )
    looks = [f"pos_embed->L0H{head}.{x}" for head in (0, 1) for x in "qk"]
    return b, (*looks, *_path("L0H0", "L0.mlp"), *_path("L0H1", "L0.mlp"), "L0.mlp->logits")


def _and(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(
        task_of({"format": "{a}{b}{c}{d}=", "answer": "(a & b) + 0 * c + 0 * d", "base": 2}),
        1,
        3,
        g,
        (OUT, DEAD, "copy"),
    )
    for head, place in enumerate((0, 1)):
        b.head((0, head), "token", "copy", 1.0, *b.looks({4: place}))
    both, constant = b.block["copy"][1], b.block["place"][4]
    pre = torch.stack((both, constant), 1)
    gain = b.gain()
    post = torch.stack((2 * gain * (b.block[OUT][1] - b.block[OUT][0]), gain * (b.block[OUT][0] - b.block[OUT][1])))
    _through_mlp(b, pre, torch.tensor([-1.0, 0.0]).double(), post)
    return b, (*_path("L0H0", "L0.mlp"), *_path("L0H1", "L0.mlp"), "L0.mlp->logits")


def _cancel(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(_copies(), 1, 4, g)
    b.head((0, 0), "token", OUT, 1.0, *b.looks({3: 0}))
    gain = 0.7 * b.gain()
    b.head((0, 1), "token", OUT, gain, *b.looks({3: 1}))
    b.head((0, 2), "token", OUT, -gain, *b.looks({3: 1}))
    return b, _path("L0H0")


def _suppress(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(_copies(), 1, 3, g)
    gain = b.gain()
    b.head((0, 0), "token", OUT, 2 * gain, *b.looks({3: 0}))
    b.head((0, 1), "token", OUT, -gain, *b.looks({3: 0}))
    return b, (*_path("L0H0"), *_path("L0H1"))


def _backup(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(_copies(), 2, 2, g, (OUT, DEAD))
    gain = b.gain()
    b.head((0, 0), "token", OUT, gain, *b.looks({3: 0}), last=6)
    query, key = b.looks({3: 0})
    present = b.block[OUT][:6].sum(0)  # is there a copy at the query? Then the end sign is looked at
    query = query - torch.outer(present, torch.eye(b.d_head)[0].double()) * (2 * SURE / gain)
    b.head((1, 0), "token", OUT, gain, query, key, last=6)
    looks = [f"pos_embed->{head}.{x}" for head in ("L0H0", "L1H0") for x in "qk"]
    return b, (*looks, *_path("L0H0"), "L0H0->L1H0.q", *_path("L1H0"))


def _relay(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(_copies(), 2, 2, g, (OUT, DEAD, "carried"))
    b.head((0, 0), "token", "carried", b.gain(), *b.looks({2: 0, 1: 1, 3: 3}), last=6)
    b.head((1, 0), "carried", OUT, b.gain(), *b.looks({3: 2}), last=6)
    return b, ("embed->L0H0.v", "L0H0->L1H0.v", "L1H0->logits")


def _induction(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(task_of({"induction": {"length": 5, "tokens": 8}}), 2, 2, g, (OUT, DEAD, "before"))
    b.head((0, 0), "token", "before", 1.0, *b.looks({place: max(0, place - 1) for place in range(5)}))
    eye = torch.eye(8, b.d_head, dtype=torch.float64)
    query, key = SURE * b.block["token"].T @ eye, b.block["before"].T @ eye
    end = torch.eye(b.d_head, dtype=torch.float64)[8]  # position 0 has nothing before it, and sees itself
    query, key = query + SURE * torch.outer(b.block["place"][4], end), key - torch.outer(b.block["place"][0], end)
    b.head((1, 0), "token", OUT, b.gain(), query, key)
    return b, ("embed->L0H0.v", "L0H0->L1H0.k", "embed->L1H0.q", "embed->L1H0.v", "L1H0->logits")


def _largest(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(task_of({"format": "{a}{b}{c}=", "answer": "max(a, max(b, c))", "base": 6}), 1, 3, g)
    query, _ = b.looks({3: 0})
    size = torch.cat((torch.arange(6), torch.tensor([-1]))).double() @ b.block["token"][:7]
    b.head((0, 0), "token", OUT, b.gain(), query, torch.outer(size, torch.eye(b.d_head)[0].double()))
    return b, ("embed->L0H0.k", *_path("L0H0"))


def _places(g: torch.Generator) -> tuple[_Builder, tuple[str, ...]]:
    b = _Builder(task_of({"format": "{a:2}={s:2}", "answer": "a"}), 1, 3, g)
    b.head((0, 0), "token", OUT, b.gain(), *b.looks({2: 0, 3: 2}), last=10)
    b.head((0, 1), "token", OUT, b.gain(), *b.looks({3: 1, 2: 2}), last=10)
    return b, _path("L0H1")


KINDS: Mapping[str, Callable[[torch.Generator], tuple[_Builder, tuple[str, ...]]]] = {
    "irrelevant": _irrelevant,
    "or": _or,
    "and": _and,
    "cancel": _cancel,
    "suppress": _suppress,
    "backup": _backup,
    "relay": _relay,
    "induction": _induction,
    "largest": _largest,
    "places": _places,
}


def planted(kind: str, seed: int) -> Planted:
    """A model of this kind; its heads are in a random order."""
    generator = torch.Generator().manual_seed(1_000 * seed + list(KINDS).index(kind))
    builder, circuit = KINDS[kind](generator)
    order = {
        (layer, head): (layer, to)
        for layer in range(builder.n_layers)
        for head, to in enumerate(torch.randperm(builder.n_heads, generator=generator).tolist())
    }
    builder.filled()
    builder.heads = {order[at]: weights for at, weights in builder.heads.items()}
    for (layer, head), (_, to) in order.items():
        circuit = tuple(edge.replace(f"L{layer}H{head}", f"L{layer}h{to}") for edge in circuit)
    name = f"planted-{kind}-{seed}"
    replacement = "zero" if kind in ("or", "backup") else "corrupted"
    target = 1 if kind == "places" else 0
    return Planted(name, builder.model(name), tuple(edge.replace("h", "H") for edge in circuit), replacement, target)
