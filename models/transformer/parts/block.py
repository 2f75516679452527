"""One layer: attention and the MLP, each with its norms and its hooks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from models.lens.runtime_config import RuntimeConfig
from models.transformer.config import TransformerConfig
from models.transformer.parts.attention import Attention
from models.transformer.parts.hook_point import HookPoint
from models.transformer.parts.mlp import MLP
from models.transformer.parts.norms import Norm
from models.transformer.parts.shapes import ScoreBias, Stream
from models.transformer.parts.weights import Weights, WeightView


class Block(WeightView):
    """``resid_mid = N(resid_pre + attn(N(resid_pre)))``, then the same with the MLP; each N is a switch.

    With ``parallel_attn_mlp`` the MLP reads ``resid_pre``; ``resid_mid`` is then the sum before its output is added.
    """

    hook_out_is_single_residual_stream = True  # transformer_lens 4.3's logit lens asks

    def __init__(self, cfg: TransformerConfig, runtime: tuple[RuntimeConfig]):
        super().__init__(cfg)
        self._runtime = runtime
        self.hook_attn_in = HookPoint()  # [batch, pos, head, d_model], fires with use_attn_in
        self.hook_q_input = HookPoint()  # [batch, pos, head, d_model], these three with use_split_qkv_input
        self.hook_k_input = HookPoint()
        self.hook_v_input = HookPoint()
        self.hook_mlp_in = HookPoint()  # [batch, pos, d_model], fires with use_hook_mlp_in
        self.hook_attn_out = HookPoint()  # [batch, pos, d_model], as the following
        self.hook_mlp_out = HookPoint()
        self.hook_resid_pre = HookPoint()
        if cfg.d_mlp:
            self.hook_resid_mid = HookPoint()
        self.hook_resid_post = HookPoint()
        if cfg.has_pre_norm:
            self.ln1 = Norm(cfg)
        self.attn = Attention(cfg, runtime)
        if cfg.has_post_norm:
            self.ln1_post = Norm(cfg)
            # This tells transformer_lens 4.3's edge attribution and path patching that a norm follows the heads' sum,
            # so that they refuse: what they add to a later head's input does not arrive there unchanged.
            self.submodules = {"attn": "attn", "ln1_post": "ln1_post"}
            self.hook_aliases = {"hook_attn_out": "ln1_post.hook_normalized"}
        if cfg.d_mlp:
            if cfg.has_pre_norm:
                self.ln2 = Norm(cfg)
            self.mlp = MLP(cfg)
            if cfg.has_post_norm:
                self.ln2_post = Norm(cfg)

    def forward(
        self, resid_pre: Stream, weights: Weights | None = None, position_bias: ScoreBias | None = None
    ) -> Stream:
        cfg, runtime, weights = self.config, self._runtime[0], self.weights_or_own(weights)
        if position_bias is None:
            position_bias = self._root[0].score_bias(resid_pre.shape[1], weights)
        resid_pre = self.hook_resid_pre(resid_pre)
        per_head = lambda x: x[:, :, None].repeat(1, 1, cfg.n_heads, 1)  # noqa: E731
        attn_in = self.hook_attn_in(per_head(resid_pre)) if runtime.use_attn_in else resid_pre
        inputs = [attn_in] * 3
        if runtime.use_split_qkv_input:
            hooks = (self.hook_q_input, self.hook_k_input, self.hook_v_input)
            inputs = [hook(per_head(resid_pre)) for hook in hooks]
        if cfg.has_pre_norm and inputs[0] is inputs[2] and not self.ln1.watched:
            inputs = [self.ln1(attn_in, weights)] * 3
        elif cfg.has_pre_norm:
            # Once for each of q, k and v, as in HookedTransformer: a hook on the norm may treat them apart.
            inputs = [self.ln1(x, weights) for x in inputs]
        attn_out = self.hook_attn_out(self._dropout(self.attn(*inputs, weights, position_bias)))
        resid_mid = resid_pre + attn_out
        if cfg.has_post_norm:
            resid_mid = self.ln1_post(resid_mid, weights)
        if not cfg.d_mlp:
            return self.hook_resid_post(self._mixed(resid_pre, resid_mid, weights))
        resid_mid = self.hook_resid_mid(resid_mid)
        mlp_in = resid_pre if cfg.parallel_attn_mlp else resid_mid
        mlp_in = self.hook_mlp_in(mlp_in.clone()) if runtime.use_hook_mlp_in else mlp_in
        normalized = self.ln2(mlp_in, weights) if cfg.has_pre_norm else mlp_in
        mlp_out = self.hook_mlp_out(self._dropout(self.mlp(normalized, weights)))
        resid_post = resid_mid + mlp_out
        resid_post = self.ln2_post(resid_post, weights) if cfg.has_post_norm else resid_post
        return self.hook_resid_post(self._mixed(resid_pre, resid_post, weights))

    def _mixed(self, before: Tensor, after: Tensor, weights: Weights) -> Tensor:
        """``before + mix (after - before)`` where the config has ``layer_mix``."""
        if not self.config.layer_mix:
            return after
        mix = self.get(weights, "mix")
        return torch.where(mix == 1, after, before + (after - before) * mix)

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout) if self.config.dropout and self.training else x
