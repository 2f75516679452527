"""The one hooked forward pass.

Every model of this project is this decoder; models differ in their weight map and in a few switches of the config. The
forward is a pure function of (effective weights, tokens):

    weights = model.effective_weights()                  # {"embed.W_E": ..., "blocks.0.attn.W_Q": ..., ...}
    logits = model(tokens, weights=weights)              # the same as model(tokens)

Hook names, shapes, firing order, weight names and the options of ``forward`` are TransformerLens', so that its
tools (``patching``, ``ActivationCache``, ``tools.analysis``, ``head_detector``) work unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens import ActivationCache

from models.errors import UserError
from models.lens.export import to_hooked_transformer, to_transformer_bridge
from models.lens.folding import folded_norms
from models.lens.generation import generate
from models.lens.lens_contract import LensContract, check_differentiable, padding_mask
from models.lens.lens_tokens import refuse_bos
from models.lens.post_norm_cache import PostNormCache
from models.lens.runtime_config import RuntimeConfig
from models.tasks.formats.string_task import function
from models.tasks.task import Task
from models.transformer.config import TransformerConfig
from models.transformer.parts.attention import Attention
from models.transformer.parts.block import Block
from models.transformer.parts.embeddings import Embed, Unembed
from models.transformer.parts.hook_point import HookPoint
from models.transformer.parts.mlp import MLP
from models.transformer.parts.norms import Norm
from models.transformer.parts.positions import FireBias, PosEmbed, WindowBias
from models.transformer.parts.shapes import PositionIds, ScoreBias, Stream, Tokens
from models.transformer.parts.weights import Weights, WeightView, weight_shapes
from models.transformer.unaltered import remember, require_unaltered
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_map import WeightMap


class Output(NamedTuple):
    """The output of ``return_type="both"``, as in TransformerLens."""

    logits: Float[Tensor, "batch pos d_vocab"]
    loss: Float[Tensor, " *batch_and_next"]


class ArithmeticTransformer(LensContract):
    """A decoder for one task, with hooks.

    ``sum(p.numel() for p in model.parameters())`` counts the free parameters of the weight map: the model holds
    no others. The effective weights (``model.W_Q`` and so on) are computed from them on each access.
    """

    def __init__(self, weight_map: WeightMap, task: Task, name: str | None = None):
        super().__init__()
        self.config = cfg = weight_map.config
        self.name_or_path = name
        self.registered = name  # the model that it is one of, with its task; None where the task was given
        self.load_report = ""  # of a file: what was recognised, left out and could not be checked
        self.run = ""  # the folder of the run that it was loaded from, as the user wrote it
        self.cfg = RuntimeConfig(cfg, self)
        self.weight_shapes = weight_shapes(cfg)
        self.weight_map = weight_map
        self.task = task
        self.embed = Embed(cfg)
        self.hook_embed = HookPoint()  # [batch, pos, d_model]
        if cfg.positional_embedding_type in ("standard", "coupled"):
            self.pos_embed = PosEmbed(cfg)
            self.hook_pos_embed = HookPoint()
        if cfg.positional_embedding_type == "fire":
            self.fire = FireBias(cfg)
        self.blocks = nn.ModuleList(Block(cfg, (self.cfg,)) for _ in range(cfg.n_layers))
        if cfg.has_final_norm:
            self.ln_final = Norm(cfg, "gain" if cfg.final_gain else None)
        self.unembed = Unembed(cfg)
        for module in self.modules():
            if isinstance(module, WeightView):
                module._root = (self,)
        self.setup()
        self.eval()  # transformer_lens 4.3's patching refuses a model in training mode

    def forward(
        self,
        input: Any,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        start_at_layer: int | None = None,
        tokens: Any = None,
        stop_at_layer: int | None = None,
        position_ids: PositionIds | None = None,
        weights: Weights | None = None,
        attention_mask: Tensor | None = None,
        prepend_bos: bool | None = None,
        **unused: Any,
    ) -> Any:
        """Logits, loss, both or nothing, from tokens (or, with ``start_at_layer``, from a residual stream).

        Args:
            input: tokens [batch, pos] or [pos], problem text such as ``"57+48"``, or with ``start_at_layer`` the
                residual stream [batch, pos, d_model] that enters that layer.
            return_type: None, "logits", "loss" or "both" (an :class:`Output`); the loss is the mean cross-entropy of
                the next token.
            loss_per_token: return the loss as [batch, pos - 1] instead of its mean.
            start_at_layer: enter before this layer (negative counts from the end).
            tokens: [batch, pos], for the loss of a run with ``start_at_layer``.
            stop_at_layer: return the residual stream that would enter this layer; 0 gives the embeddings.
            position_ids: ids to use in place of the task's (coupled positions only).
            weights: effective weights to use instead of the model's own.
            attention_mask: [batch, pos], 0 at padding, which must be on the right: it changes nothing before it, and is
                left out of the loss.
            prepend_bos: must not be True, as a task's encoding is complete.

        Raises:
            UserError: invalid token ids, shapes or options.
        """
        extra = {k: v for k, v in unused.items() if v is not None and v is not False}
        if extra:
            if "past_kv_cache" in extra:
                raise UserError("forward() keeps no keys and values; generate() and models.run.greedy do.")
            raise UserError(f"forward() does not take {', '.join(sorted(extra))}.")
        refuse_bos(prepend_bos)
        if return_type not in (None, "logits", "loss", "both"):
            raise UserError(f"return_type must be None, 'logits', 'loss' or 'both', not {return_type!r}.")
        self.check_layers(start_at_layer=start_at_layer, stop_at_layer=stop_at_layer)
        weights = self.cached_weights() if weights is None else weights
        if start_at_layer is None:
            tokens = self.as_tokens(input)
            residual = self.embed_tokens(tokens, weights, position_ids)
        else:
            residual = self.as_residual(input)
            if tokens is not None:
                tokens = self.as_tokens(tokens)
            elif return_type in ("loss", "both"):
                raise UserError("The loss needs tokens: with start_at_layer, pass tokens=... as well.")
        if attention_mask is not None:
            attention_mask = padding_mask(attention_mask, residual)
        bias = self.score_bias(residual.shape[1], weights, tokens, position_ids)
        for block in self.blocks[start_at_layer:stop_at_layer]:
            residual = block(residual, weights, bias)
        if stop_at_layer is not None:
            return residual
        if self.config.has_final_norm:
            residual = self.ln_final(residual, weights)
        if return_type is None:
            return None
        logits = self.unembed(residual, weights)
        if return_type == "logits":
            return logits
        assert tokens is not None  # checked before the run
        loss = self.loss_fn(logits, tokens, attention_mask, per_token=loss_per_token)
        return loss if return_type == "loss" else Output(logits, loss)

    def input_to_embed(
        self, input: Any, prepend_bos: bool | None = None, padding_side: str | None = None, attention_mask: Any = None
    ) -> tuple[Stream, Tokens, None, Tensor | None]:
        """(first residual stream, tokens, None, attention mask), as in TransformerLens, whose third part is for
        positions that this project's models do not have. Errors as in :meth:`forward`."""
        refuse_bos(prepend_bos)
        tokens = self.as_tokens(input)
        residual = self.embed_tokens(tokens)
        return residual, tokens, None, None if attention_mask is None else padding_mask(attention_mask, residual)

    def embed_tokens(
        self, tokens: Tokens, weights: Weights | None = None, position_ids: PositionIds | None = None
    ) -> Stream:
        """Token plus position embedding, through their hooks."""
        residual = self.hook_embed(self.embed(tokens, weights))
        if hasattr(self, "pos_embed"):
            residual = residual + self.hook_pos_embed(self.pos_embed(tokens, position_ids, weights))
        dropout = self.config.dropout
        return F.dropout(residual, dropout) if dropout and self.training else residual

    def score_bias(
        self, n_pos: int, weights: Weights, tokens: Tokens | None = None, position_ids: PositionIds | None = None
    ) -> ScoreBias | None:
        """What is added to the scores of every layer: FIRE's bias, or what hides keys outside ``attn_window``.

        Raises:
            UserError: as :meth:`window_bias`.
        """
        window = self.window_bias(tokens, position_ids)
        if window is not None:
            return window(0, n_pos)
        return self.fire(n_pos, weights) if hasattr(self, "fire") else None

    def window_bias(
        self, tokens: Tokens | None, position_ids: Int[Tensor, "#batch pos level"] | None = None
    ) -> WindowBias | None:
        """What hides keys outside ``attn_window`` in these problems; None for a model without a window.

        Raises:
            UserError: neither tokens nor ids, which say how far away keys are.
        """
        if self.config.attn_window is None:
            return None
        if position_ids is None:
            if tokens is None:
                raise UserError("attn_window asks how far position ids are apart: pass tokens=... or position_ids=...")
            position_ids = self.task.position_ids(tokens)
            assert position_ids is not None  # of a task with coupled positions
        return WindowBias(position_ids, self.config.window_offsets)

    def loss_fn(
        self,
        logits: Float[Tensor, "batch pos d_vocab"],
        tokens: Tokens,
        attention_mask: Tensor | None = None,
        per_token: bool = False,
    ) -> Float[Tensor, " *batch_and_next"]:
        """Cross-entropy of each next token, in nats: [batch, pos - 1], or its mean.

        Where the token or the one before it is masked the loss is 0, and left out of the mean.

        Raises:
            UserError: no next tokens, a mask of another shape than the tokens', or padding that is not on the right.
        """
        if not len(tokens) or tokens.shape[1] < 2:
            raise UserError(f"There is no next token to predict in tokens of shape {list(tokens.shape)}.")
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        loss = loss.view(tokens.shape[0], -1)
        if attention_mask is None:
            return loss if per_token else loss.mean()
        attention_mask = padding_mask(attention_mask, logits)
        counts = attention_mask[:, :-1] & attention_mask[:, 1:]
        loss = loss.masked_fill(~counts, 0.0)
        return loss if per_token else loss.sum() / counts.sum()

    def run_with_cache(
        self,
        *args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        incl_bwd: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """The output and an :class:`ActivationCache` (a dict with ``return_cache_object=False``).

        ``names_filter``, ``pos_slice``, ``device``, ``incl_bwd`` and the options of :meth:`forward` as in
        TransformerLens. Models whose residual stream does not add up return a :class:`PostNormCache`.

        Raises:
            UserError: ``remove_batch_dim`` with a batch of several, ``incl_bwd`` where there is no mean loss to
                differentiate, and as :meth:`forward`.
        """
        if incl_bwd:
            check_differentiable(self.forward, *args, **kwargs)
        if remove_batch_dim:
            input = args[0] if args else kwargs.get("input")
            batch = self.as_tokens(input) if kwargs.get("start_at_layer") is None else self.as_residual(input)
            if len(batch) != 1:
                raise UserError(f"remove_batch_dim needs a batch of one sequence, not {len(batch)}.")
        out, cache = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, incl_bwd=incl_bwd, **kwargs)
        if not return_cache_object:
            return out, cache
        cache_type = ActivationCache if self.config.residual_stream_adds_up else PostNormCache
        return out, cache_type(cache, self, has_batch_dim=not remove_batch_dim)

    def __copy__(self) -> ArithmeticTransformer:
        """A model with the same weight map and task, and with its own switches.

        Raises:
            UserError: hooks or other changes, which the copy would not have; ``copy.deepcopy`` copies them.
        """
        mode = self.training
        try:
            require_unaltered(self.eval(), "A shallow copy")
        finally:
            self.train(mode)
        twin = type(self)(self.weight_map, self.task, self.name_or_path).train(mode)
        twin.cfg.copy_switches(self.cfg)
        twin.run, twin.registered = self.run, self.registered
        return twin

    def generate(self, input: Any, *args: Any, **options: Any) -> Any:
        """The input, followed by tokens that the model samples; see :func:`models.lens.generation.generate`."""
        return generate(self, input, *args, **options)

    def fold_layer_norm(self) -> ArithmeticTransformer:
        """An equal dense copy whose norms have no gain; see :func:`models.lens.folding.folded_norms`."""
        return self.dense_copy(folded_norms(self.config, dict(self.all_weights())))

    def dense_copy(self, weights: Weights | None = None) -> ArithmeticTransformer:
        """An equal model whose effective weights are its parameters, each free to be written: ``copy.W_E[3] = 0``.

        With ``weights``, one that has these in place of its own.
        """
        if weights is None:  # a map may also give factors of its matrices
            weights = {key: value for key, value in self.effective_weights().items() if key in self.weight_shapes}
        dense = DenseWeights.holding(self.config, weights)
        dense.position_limits = self.weight_map.position_limits
        copy = ArithmeticTransformer(dense, self.task, name=self.name_or_path)
        copy.run, copy.registered = self.run, self.registered
        return copy

    def to_hooked_transformer(self) -> Any:
        """A stock ``HookedTransformer`` with equal logits; see :func:`models.lens.export.to_hooked_transformer`."""
        return to_hooked_transformer(self)

    def to_transformer_bridge(self) -> Any:
        """A stock ``TransformerBridge`` with equal logits; see :func:`models.lens.export.to_transformer_bridge`."""
        return to_transformer_bridge(self)


def _fresh(config: TransformerConfig) -> ArithmeticTransformer:
    return ArithmeticTransformer(WeightMap(config), function("01", 2, "parity"))  # any task: parts do not depend on it


remember(_fresh, ArithmeticTransformer, Block, Attention, MLP, Norm, Embed, PosEmbed, FireBias, Unembed, HookPoint)
