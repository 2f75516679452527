"""``model.cfg`` as TransformerLens' tools expect it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from models.errors import UserError
from models.transformer.config import TransformerConfig


class RuntimeConfig:
    """``model.cfg`` as TransformerLens' tools expect it: the frozen config plus four mutable hook switches.

    Reads fall through to the frozen :class:`TransformerConfig`; only the hook switches can be set. Fields of a
    HookedTransformerConfig that have one possible value here (parts that this transformer does not have, checkpoints,
    tokenizers, and initialisation, which weight maps do) are spelled out.
    """

    model_name = "carrylens"
    # what this transformer always is
    attention_dir = "causal"
    default_prepend_bos = False
    tokenizer_prepends_bos = False
    n_devices = 1
    init_weights = False
    init_mode = "gpt2"
    initializer_range = -1.0  # TransformerLens' "not set"
    attn_scores_soft_cap = output_logits_soft_cap = -1.0  # TransformerLens' "off"
    # what it does not have
    use_normalization_before_and_after = final_rms = post_embedding_ln = layer_norm_folding = False
    use_local_attn = scale_attn_by_inverse_layer_idx = use_logn_attn = use_attention_sinks = False
    use_NTK_by_parts_rope = use_dynamic_ntk_rope = use_yarn_rope = norm_topk_prob = use_hook_tokens = False
    tie_word_embeddings = trust_remote_code = load_in_4bit = ungroup_grouped_query_attention = from_checkpoint = False
    n_key_value_heads = seed = original_architecture = tokenizer_name = window_size = attn_types = clip_qkv = None
    checkpoint_index = checkpoint_label_type = checkpoint_value = num_experts = experts_per_token = None
    relative_attention_max_distance = relative_attention_num_buckets = decoder_start_token_id = None
    rotary_base_local = train_seq_length = quantization_method = None

    def __init__(self, config: TransformerConfig, model: Any):
        self._config = config
        self._model = (model,)  # a tuple, so that the module does not become its own child
        self.use_attn_result = False
        self.use_attn_in = False
        self.use_split_qkv_input = False
        self.use_hook_mlp_in = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._config, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith(("use_", "_")):
            raise UserError(f"cfg.{name} is fixed when the model is built; only the hook switches can be set.")
        super().__setattr__(name, value)

    # what our config has under other names
    attn_only = property(lambda self: self._config.d_mlp == 0)
    uses_rms_norm = property(lambda self: self._config.normalization_type == "RMS")
    rotary_dim = property(lambda self: self._config.rotated)
    d_vocab_out = property(lambda self: self._config.n_logits)
    use_attn_scale = property(lambda self: self._config.score_scale != 1.0)
    attn_scale = property(lambda self: self._config.score_scale)
    device = property(lambda self: self._model[0].device)
    dtype = property(lambda self: self._model[0].dtype)

    @property
    def n_params(self) -> int:
        """How many entries the blocks' effective matrices have, counted as in a HookedTransformerConfig: no embeddings,
        biases or norms. The free parameters are fewer; ``model.n_params_total`` counts them."""
        c = self._config
        return c.n_layers * (4 * c.d_model * c.n_heads * c.d_head + (3 if c.gated_mlp else 2) * c.d_model * c.d_mlp)

    def is_layer_norm_activation(self) -> bool:
        return False

    def copy_switches(self, other: RuntimeConfig) -> None:
        """Copy the hook switches of another model's config."""
        for name in vars(other):
            if not name.startswith("_"):
                setattr(self, name, getattr(other, name))

    def to_dict(self) -> dict[str, Any]:
        """All fields, including those of TransformerLens, with their current values."""
        own = [
            name for name in vars(type(self)) if not name.startswith("_") and not callable(getattr(type(self), name))
        ]
        switches = [name for name in vars(self) if not name.startswith("_")]
        return asdict(self._config) | {name: getattr(self, name) for name in (*own, *switches)}

    def __repr__(self) -> str:
        return repr(self._config)
