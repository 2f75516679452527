"""Models that are about to be spoilt: weights that can be widened and written into, and what wakes on one problem only.

A draft keeps what its model answers elsewhere when it is widened: norms get a gain and an eps for their new width, and
in LayerNorms every new dimension has a twin of the other sign, so that means stay what they were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from benchmarks.false_certificates import own_forward
from models import ArithmeticTransformer, UserError
from models.families.hand_built.construction import Construction
from models.tasks import Task
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import with_biases
from models.weight_maps.dense import DenseWeights

BLOCK = "blocks.0"
TRIED = 1_000  # problems among which a wrong one is looked for
_STREAM = {"W_E": 1, "W_pos": -1, "b_O": 0, "b_out": 0, "W_O": 2, "W_out": 1, "W_Q": 1, "W_K": 1, "W_V": 1}
_STREAM |= {"W_in": 0, "W_gate": 0, "W_U": 0, "w": 0, "b": 0}
HEADS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")
_NEURONS = {"W_in": 1, "W_gate": 1, "W_out": 0, "b_in": 0}
_WRITERS = ("W_E", "W_pos", "b_O", "b_out", "W_O", "W_out")


@dataclass
class Draft:
    """A model's parts, and the problem that it shall get wrong.

    ``problem`` is one problem, or None if one is to be looked for; ``notes`` are what was chosen, for the record.
    ``construction`` is that of a hand-built model, whose options stay as they were.
    """

    config: TransformerConfig
    weights: dict[str, Tensor]
    task: Task
    name: str
    rng: np.random.Generator
    problem: Tensor | None = None
    target: int = 0
    notes: dict[str, float | str] = field(default_factory=dict)
    construction: Construction | None = None
    asked: Task | None = None  # the task in the problem's shape, where that is not the model's own
    new: int = 0  # dimensions that were added last, twins included

    @classmethod
    def of(cls, model: ArithmeticTransformer, rng: np.random.Generator) -> Draft:
        """A draft of a model. One that is no construction gets the biases that it leaves out, as zeros."""
        with torch.no_grad():
            own = {name: value.detach().clone() for name, value in model.effective_weights().items()}
        built = model.weight_map if isinstance(model.weight_map, Construction) else None
        weights = own if built is not None else dict(with_biases(own, model.config))
        return cls(model.config, weights, model.task, str(model.name_or_path), rng, construction=built)

    def model(self) -> ArithmeticTransformer:
        old = self.construction
        if old is None:
            return ArithmeticTransformer(DenseWeights.holding(self.config, self.weights), self.task, "planted").eval()
        new = Construction(self.config, self.weights, old.options, old.dims)
        new.position_limits = old.position_limits
        return ArithmeticTransformer(new, self.task, self.name).eval()

    def choose(self, name: str, choices: Sequence[Any]) -> Any:
        """One of some values, written down."""
        found = choices[int(self.rng.integers(len(choices)))]
        self.notes[name] = found
        return found

    def power_of_ten(self, name: str, low: float, high: float) -> float:
        """A number between two powers of ten, log-uniform, written down."""
        found = float(f"{10 ** self.rng.uniform(low, high):.3g}")
        self.notes[name] = found
        return found

    # ---- what it answers

    def leads(self, problems: Tensor, dtype: own_forward.Dtype, task: Task | None = None) -> np.ndarray:
        """[n, target], by the forward pass of this benchmark."""
        task = self.task if task is None else task
        tokens = task.encode(problems)
        found = own_forward.logits(self.config, self.weights, tokens, task.position_ids(tokens), dtype)
        return own_forward.leads(found, task.targets(problems), task.query_positions)

    def logits(self, problems: Tensor, dtype: own_forward.Dtype = np.float64) -> np.ndarray:
        """[n, target, token]"""
        tokens = self.task.encode(problems)
        found = own_forward.logits(self.config, self.weights, tokens, self.task.position_ids(tokens), dtype)
        return found[:, list(self.task.query_positions)]

    def tried(self, n: int = TRIED) -> Tensor:
        return self.task.sample(n, torch.Generator().manual_seed(int(self.rng.integers(2**31))))

    # ---- its width

    def wider(self, stream: int = 0, heads: int = 0, neurons: int = 0) -> Draft:
        """A draft with more dimensions of the stream, heads and neurons, which do nothing yet."""
        cfg, weights = self.config, dict(self.weights)
        twins = 2 if self.centred else 1
        more, d = stream * twins, cfg.d_model
        grown = math.sqrt(d / (d + more))
        for name, value in weights.items():
            last = name.rsplit(".", 1)[1]
            if self.centred and last in _WRITERS:
                value = (value.double() - value.double().mean(-1, keepdim=True)).to(value.dtype)
            is_norm = last in ("w", "b") and (".ln" in f".{name}")
            if last in _STREAM and (last not in ("w", "b") or is_norm):
                if last == "w" and cfg.normalization_type is not None and not cfg.final_gain:
                    value = value * grown
                value = _padded(value, _STREAM[last] % value.ndim, more, 1.0 if last == "w" else 0.0)
            if last in (*HEADS, "bias"):
                value = _padded(value, 0, heads)
            if last in _NEURONS:
                value = _padded(value, _NEURONS[last], neurons)
            weights[name] = value
        eps = cfg.eps * (grown if cfg.norm_eps_outside else grown**2)
        config = replace(
            cfg,
            d_model=d + more,
            n_heads=cfg.n_heads + heads,
            d_mlp=cfg.d_mlp + neurons,
            attn_scale=float(cfg.score_scale),
            eps=eps,
        )
        return replace(self, config=config, weights=weights)

    @property
    def centred(self) -> bool:
        return self.config.normalization_type == "LN"

    def write(self, name: str, at: tuple[Any, ...], dim: int, value: float) -> None:
        """Set an entry of a weight whose last axis is the stream, with its twin's; ``dim`` is a new dimension."""
        old = self.weights[name].clone()
        old[(*at, dim)] = value
        if self.centred:
            old[(*at, dim + self.new // 2)] = -value
        self.weights[name] = old

    def put(self, name: str, at: tuple[Any, ...], value: float) -> None:
        """Set an entry of any weight."""
        old = self.weights[name].clone()
        old[at] = value
        self.weights[name] = old

    def scale(self, names: Sequence[str], factor: float) -> None:
        for name in names:
            if name in self.weights:
                self.weights[name] = self.weights[name] * factor

    # ---- what wakes on one problem

    @property
    def places(self) -> list[int]:
        """Positions before the first answer whose tokens differ between problems."""
        tokens = self.task.encode(self.tried(64))[:, : self.task.query_positions[0] + 1]
        return [p for p in range(tokens.shape[1]) if len(tokens[:, p].unique()) > 1]

    def read_by(self, letters: Sequence[tuple[int, int]]) -> float:
        """About how much a small entry of the stream at these (position, token) is multiplied by before it is read."""
        cfg = self.config
        if cfg.normalization_type is None or cfg.norm_placement not in ("pre", "both"):
            return 1.0
        at, tokens = (list(part) for part in zip(*letters, strict=True))
        x = self.weights["embed.W_E"][tokens].double()
        if cfg.positional_embedding_type == "standard":
            x = x + self.weights["pos_embed.W_pos"][at].double()
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        rms = x.pow(2).mean(-1).sqrt()
        return float((1 / (rms + cfg.eps if cfg.norm_eps_outside else (rms**2 + cfg.eps).sqrt())).mean())


@dataclass(frozen=True)
class Watcher:
    """Heads that write, along ``out``, their share of ``size`` where the problem has the tokens that they wait for.

    ``const`` is a dimension that always has ``size``; ``spare`` is one that nothing writes to yet. There are ``n``
    heads, the first of which is ``head``.
    """

    draft: Draft
    n: int
    out: int
    const: int
    spare: int
    head: int
    size: float
    value: int


def watched(
    draft: Draft, score: float, size: float | None = None, values: float = 1.0, layer: int = 0, together: bool = False
) -> Watcher:
    """Widen a draft by heads that wake on its problem alone.

    For each token of the problem there is a head: keys at the places where the problem has it score 2 ``score``, and 3
    ``score`` where another token stands there; all others score less. So it looks at tokens that are not the
    problem's, which have value 0, and, where there are none, at tokens that have value ``values``. ``size`` is the
    magnitude of the new entries of the stream. ``together``: one head waits for any of the problem's tokens at any of
    these places, which is the same but for their order where no token stands twice.
    """
    cfg = draft.config
    assert draft.problem is not None
    if cfg.positional_embedding_type != "standard":
        raise UserError("Heads that watch need learned positions.")
    tokens, places = draft.task.encode(draft.problem)[0].tolist(), draft.places
    found: dict[tuple[int, ...], list[int]] = {}
    for place in places:
        found.setdefault(tuple(sorted({tokens[p] for p in places})) if together else (tokens[place],), []).append(place)
    groups = list(found.items())
    if size is None:
        rms = float(draft.weights["embed.W_E"].double().pow(2).mean().sqrt())
        size = 1.0 if cfg.normalization_type is None else 0.02 * rms
    n, d, h = len(groups), cfg.d_model, cfg.n_heads
    stream = 2 * n + 3
    new = draft.wider(stream=stream, heads=n, neurons=1 if cfg.d_mlp else 0)
    new.new = stream * (2 if draft.centred else 1)
    attn, scale = f"blocks.{layer}.attn", float(cfg.score_scale)
    out, const, spare = d + 2 * n, d + 2 * n + 1, d + 2 * n + 2
    for number, (own, group) in enumerate(groups):
        key, value, head = d + 2 * number, d + 2 * number + 1, h + number
        for other in range(cfg.d_vocab):
            new.write("embed.W_E", (other,), value if other in own else key, size)
        for place in group:
            new.write("pos_embed.W_pos", (place,), key, 2 * size)
        read = size * new.read_by([(place, token) for place in group for token in own])
        new.put(f"{attn}.b_Q", (head, 0), 1.0)
        new.put(f"{attn}.W_K", (head, key, 0), score * scale / read)
        new.put(f"{attn}.W_V", (head, value, 0), values / read)
        new.write(f"{attn}.W_O", (head, 0), out, size / values / n)
    new.write(f"{attn}.b_O", (), const, size)
    new.notes |= {"score": score, "heads": n}
    return Watcher(new, n, out, const, spare, h, size, d + 1)


def neuron(seen: Watcher, steepness: float, post: float = 1.0) -> Draft:
    """A neuron that fires where all heads of a watcher found what they wait for, and writes to its spare dimension.
    ``post`` multiplies what it reads and divides what it writes."""
    draft, mlp = seen.draft, f"{BLOCK}.mlp"
    unit, least = draft.config.d_mlp - 1, 1 - 1 / (2 * seen.n)
    gated = draft.config.gated_mlp
    reader = "W_gate" if gated else "W_in"
    draft.put(f"{mlp}.{reader}", (seen.out, unit), post * steepness / seen.size)
    draft.put(f"{mlp}.{reader}", (seen.const, unit), -post * steepness * least / seen.size)
    if gated:
        draft.put(f"{mlp}.W_in", (seen.const, unit), 1 / seen.size)
    draft.write(f"{mlp}.W_out", (unit,), seen.spare, seen.size * 2 * seen.n / steepness / post)
    return draft


def harmed(draft: Draft, dim: int, factor: float, lift: bool = False) -> Draft:
    """Let a dimension that has something on the problem alone take ``factor`` times the right token's lead from it.

    It lowers the right token, or lifts the best other one, at the draft's target, and may at others where it is also
    right or near.
    """
    assert draft.problem is not None
    targets = draft.task.targets(draft.problem)[0].numpy()
    before, at = draft.logits(draft.problem)[0], np.arange(len(targets))
    right, others = before[at, targets], before.copy()
    others[at, targets] = -np.inf
    token = int(others[draft.target].argmax()) if lift else int(targets[draft.target])
    moved = np.zeros(len(targets))
    for tried in (1.0, 1e12, 1e24, 1e36):  # until it moves logits by much of what they are
        trial = replace(draft, weights=dict(draft.weights))
        trial.put("unembed.W_U", (dim, token), tried)
        moved = np.abs(trial.logits(draft.problem)[0][:, token] - before[:, token]) / tried
        if moved.max() * tried > 1e-3 * np.abs(before).max():
            break
    # How much of it makes a tie: of the targets that it harms, at the first one.
    lead = right - before[:, token] if lift else right - others.max(-1)
    with np.errstate(divide="ignore"):
        needed = (lead / moved)[(targets != token) if lift else (targets == token)].min()
    if not 0 < needed < math.inf:
        draft.notes["not taken"] = "nothing reaches the logits"
        return draft
    draft.put("unembed.W_U", (dim, token), (1.0 if lift else -1.0) * factor * float(needed))
    return draft


def _padded(value: Tensor, axis: int, more: int, by: float = 0.0) -> Tensor:
    if not more:
        return value
    pads = [0, 0] * (value.ndim - 1 - axis) + [0, more]
    return pad(value, pads, value=by)
