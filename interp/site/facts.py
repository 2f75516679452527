"""The facts about a model: its row in the index and the list at the top of its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from interp.proofs.certificate import PairEvidence
from interp.proofs.verdict import Verdict
from interp.site.gallery.render import code
from models.evaluation import Rate
from models.numerals import shown
from models.zoo import grokked_seeds, seed_rate

NORMS = {"pre": "before", "post": "after", "both": "before and after"}
POSITIONS = {"standard": "learned", "coupled": "coupled", "rotary": "rotary", "fire": "FIRE", "none": "no"}


@dataclass(frozen=True)
class Row:
    """A row of the index. ``share``: share of right answers, to sort by; ``rung``: the evidence on all inputs."""

    name: str
    path: str
    paper: str
    how: str  # trained, published numbers, or constructed
    task: str
    parameters: int
    svg: str
    score: str = ""
    share: float | None = None
    rung: str = ""
    seeds: str = ""
    seeds_share: float | None = None


def proved_words(certificate: Verdict) -> str:
    """What a certificate proves, as a sentence; "" if it does not prove the model right."""
    rung = {"certified with rounding": "float32 rounding included", "certified in intervals": "in real arithmetic"}
    if certificate.status != "certified" or certificate.provenance.rung not in rung:
        return ""
    own = certificate.evidence
    of = own.rule.all_pairs if isinstance(own, PairEvidence) else "all inputs"
    return f"It is proved right on {of}, {rung[certificate.provenance.rung]}."


def architecture(cfg: Any) -> str:
    """Layers, heads, widths and further settings of the architecture, as text."""
    parts = [f"{cfg.n_layers} layer{'s' * (cfg.n_layers > 1)}", f"{cfg.n_heads} head{'s' * (cfg.n_heads > 1)} a layer"]
    parts.append(f"d_model {cfg.d_model}")
    parts.append(f"{cfg.d_mlp} MLP neurons ({'gated ' * cfg.gated_mlp}{cfg.act_fn})" if cfg.d_mlp else "no MLP")
    norm = cfg.normalization_type and NORMS.get(cfg.norm_placement)
    parts.append(f"{cfg.normalization_type} norm {norm} each sublayer" if norm else "no norm but the last")
    parts.append(f"{POSITIONS[cfg.positional_embedding_type]} positions")
    if cfg.attn_scores != "dot":
        parts.append({"neg_l1": "scores -|q - k|", "max_plus": "max-plus scores"}[cfg.attn_scores])
    if cfg.attn_top_k:
        parts.append(f"softmax over the best {cfg.attn_top_k} keys")
    return ", ".join(parts)


def score_fields(score: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row that an entry's score fills."""
    if "loss" in score:
        return {"score": f"loss {score['loss']:.3f}"}
    fields = {"score": f"{score['correct']:,} of {score['n']:,}", "share": score["correct"] / score["n"]}
    if "all" in score:
        fields["rung"] = f"exhaustive: {score['all']['correct']:,} of {score['all']['n']:,}"
    return fields


def score_words(score: dict[str, Any]) -> str:
    """The score in words, with its evidence."""
    if "loss" in score:
        low, high = score["interval"]
        return (
            f"validation loss {score['loss']:.4f} nats a character (95% interval over windows {low:.3f} to "
            f"{high:.3f}; {score['n']:,} characters, {score['rung']})"
        )
    rate = Rate(score["n"], score["correct"])
    low, high = rate.interval
    text = f"{rate.correct:,} of {rate.n:,} of {score['problems']} (sampled; 95% interval {low:.2%} to {high:.2%})"
    if rate.correct == rate.n:
        text = (
            f"{rate.correct:,} of {rate.n:,} of {score['problems']} (sampled: error rate below "
            f"{shown(rate.error_bound, up=True)} with 95% confidence on such problems)"
        )
    if "all" in score:
        text += f"; {score['all']['correct']:,} of all {score['all']['n']:,} pairs (exhaustive)"
    return text


def seed_fields(training: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row on how many seeds were tried and were perfect; none for models of text, which have a loss."""
    if "seeds_grokked" not in training:
        return {}
    rate = seed_rate(training)
    return {"seeds": f"{rate.correct} of {rate.n}", "seeds_share": rate.accuracy}


def training_facts(training: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the list at the top of the page says about training."""
    if (published := training.get("published")) is not None:
        begun = f"published: trained by others from {published['begun']}"
        return [("Numbers", begun), ("Selected on", published["selected_on"])]
    facts: list[tuple[str, Any]] = []
    if "seeds_grokked" in training:
        words = f"{grokked_seeds(training)} of {_runs(seed_rate(training).n)} answer the whole test set"
        if repeats := training.get("repeats"):
            words += f"; {len(repeats)} of {len(repeats) + 1} builds, which round differently, ran the same seeds again"
        facts.append(("Seeds", words))
    else:
        facts.append(("Seeds", f"{training['seeds_tried']} tried"))
    facts.append(("Stored", f"seed {training['seed']}, after {training['step']:,} steps"))
    facts.append(("Training time", f"{training['seconds'] / 60:.0f} minutes for all seeds on one thread"))
    return facts


def _runs(n: int) -> str:
    return f"{n} runs of seeds" if n != 1 else "1 run of one seed"


def certificate_words(certificate: Verdict) -> str:
    """What the certificate found, as a sentence without the seconds it took."""
    return certificate.finding()[:1].upper() + certificate.finding()[1:] + "."


def files(entry: dict[str, Any], name: str) -> Markup:
    """The names of the files in the entry's folder."""
    names = Markup(", ").join(code(file) for file in sorted(entry["sha256"]))
    return Markup("{} in {}, each with its SHA-256 in {}").format(
        names, code(f"models/zoo/{name}"), code("config.json")
    )
