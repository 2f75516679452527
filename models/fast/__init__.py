"""The forward without hooks and attention patterns: the same function as the model's, much cheaper.

It is for scoring, decoding and training. It saves work because patterns are not kept (fused attention), because the
last layer computes queries, MLP and unembedding only where logits are wanted (for half of the tokens of a sum with its
scratchpad), and because decoding keeps the keys and values of earlier tokens. On a CPU and without gradients, a layer
takes its queries a few at a time: their scores, their MLP and the keys up to the last of them stay in the processor's
cache, and later keys cost nothing. The hooks of attention and of the residual stream do not fire. The hooked forward is
the definition; the tests compare this one with it, gradients included.
"""

from models.fast.decoding import NOTHING, greedy
from models.fast.layers import KNOWN, FireBiasTable, heads_output, mlp_input, stands_for, supports
from models.fast.scoring import exact_match, logits_at, logits_from, responses_right
from models.fast.shared_prefixes import logits_by_prefix, numbers_kept, shares_prefixes

__all__ = [
    "NOTHING",
    "KNOWN",
    "FireBiasTable",
    "exact_match",
    "greedy",
    "heads_output",
    "logits_at",
    "logits_by_prefix",
    "logits_from",
    "mlp_input",
    "numbers_kept",
    "responses_right",
    "shares_prefixes",
    "stands_for",
    "supports",
]
