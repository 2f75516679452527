"""What is said of a model in words: its architecture, its score, and what its certificate proves."""

from __future__ import annotations

from typing import Any

from interp.proofs.columns.column_evidence import PairEvidence
from interp.proofs.verdict.verdict import Verdict
from models.number_format import shown
from models.rates import Rate

NORMS = {"pre": "before", "post": "after", "both": "before and after"}
POSITIONS = {"standard": "learned", "coupled": "coupled", "rotary": "rotary", "fire": "FIRE", "none": "no"}


def proved_words(certificate: Verdict) -> str:
    """What a certificate proves, as a sentence; "" if it does not prove the model right."""
    strength = {"certified with rounding": "float32 rounding included", "certified in intervals": "in real arithmetic"}
    if certificate.status != "certified" or certificate.provenance.strength not in strength:
        return ""
    own = certificate.evidence
    of = own.rule.all_pairs if isinstance(own, PairEvidence) else "all inputs"
    return f"It is proved right on {of}, {strength[certificate.provenance.strength]}."


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


def score_words(score: dict[str, Any]) -> str:
    """The score in words, with its evidence."""
    if "loss" in score:
        low, high = score["interval"]
        return (
            f"validation loss {score['loss']:.4f} nats a character (95% interval over windows {low:.3f} to "
            f"{high:.3f}; {score['n']:,} characters, {score['strength']})"
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


def certificate_words(certificate: Verdict) -> str:
    """What the certificate found, as a sentence."""
    return certificate.finding()[:1].upper() + certificate.finding()[1:] + "."
