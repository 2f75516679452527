"""TransformerLens' token methods, which use the model's task: tokens from problems and text, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from models.calls.argument_kinds import readable_problems, shown
from models.errors import Caution, UserError
from models.tasks.given_problems import are_integers
from models.tasks.named.position_coupling.sequence_task import SPECIAL
from models.tasks.task import Task
from models.transformer.config import TransformerConfig
from models.transformer.parts.values import has_values
from models.transformer.parts.weights import Weights


class TokenMethods:
    """The token methods of a hooked model. The task is the tokenizer; an encoding is complete, nothing is prepended."""

    config: TransformerConfig
    task: Task
    device: torch.device
    W_U: Any
    cached_weights: Callable[[], Weights]
    tokenizer = None  # TransformerLens checks for None

    def as_tokens(self, input: Any) -> Tensor:
        """Token ids [batch, pos], checked, from ids (a tensor, array or list), from problems (text, a tuple such as
        ``(57, 48)``, or a list of either), or from the tokens' text, as :meth:`to_string` writes it.

        Text that is a problem is that problem, encoded with its answer; text that has an answer is as long as it is.

        Raises:
            UserError: ids outside the vocabulary or not integers, too many axes or positions, or neither a problem nor
                tokens.
        """
        input = readable_problems("The input", input, with_values=False)
        if isinstance(input, (str, tuple)):
            input = [input]
        if isinstance(input, list) and input and isinstance(input[0], (str, tuple)):
            try:
                task = self.task.for_problems(input)
                whole = self._with_answers(input, task.encode_prompt(input))
                input = task.encode(input) if whole is None else whole
            except UserError:
                # A sequence's own text begins with its BOS; any other text is an invalid problem, not tokens.
                starts = SPECIAL if self.task.roles[0].kind == "bos" else ""
                found = [self._spelt(text) if str(text).startswith(starts) else None for text in input]
                lengths = {len(ids) for ids in found if ids is not None}
                if None in found or len(lengths) != 1:
                    raise
                input = torch.tensor(found)
        tokens = _integers(input)
        if tokens.is_meta and self.device.type != "meta":
            raise UserError("The tokens are on the meta device: they have no numbers.")
        tokens = tokens.to(self.device)
        tokens = tokens[None] if tokens.ndim == 1 else tokens
        if tokens.ndim != 2 or tokens.shape[1] == 0:
            raise UserError(
                f"Tokens must have shape [batch, pos] with at least one position, not {list(tokens.shape)}."
            )
        if tokens.shape[1] > self.config.n_ctx:
            raise UserError(f"The sequence has {tokens.shape[1]} tokens; this model takes at most {self.config.n_ctx}.")
        self._check_ids(tokens)
        return tokens

    def _with_answers(self, input: list[Any], prompts: Tensor) -> Tensor | None:
        """The tokens of texts that go on behind their prompts; None for other input."""
        found = [self._spelt(text) for text in input]
        if any(ids is None or ids[: prompts.shape[1]] != row for ids, row in zip(found, prompts.tolist(), strict=True)):
            return None
        lengths = {len(ids) for ids in found if ids is not None}
        return torch.tensor(found) if len(lengths) == 1 and min(lengths) > prompts.shape[1] else None

    def _spelt(self, text: Any) -> list[int] | None:
        """The tokens whose texts, one after the other, are ``text``, the longest first; None if there are none."""
        ids: list[int] = []
        while isinstance(text, str) and text:
            token = next((token for token in self._by_length if text.startswith(token)), None)
            if token is None:
                return None
            ids.append(self._by_length[token])
            text = text[len(token) :].removeprefix(self.task.separator)
        return ids or None

    @cached_property
    def _by_length(self) -> dict[str, int]:
        """The token of each text, long texts first; the first token if several have the same text."""
        texts = [self.task.token_text(torch.tensor([token])) for token in range(self.config.d_vocab)]
        found = {text: token for token, text in reversed(list(enumerate(texts))) if text}
        return dict(sorted(found.items(), key=lambda item: -len(item[0])))

    def _check_ids(self, tokens: Tensor) -> None:
        if not has_values(tokens):
            return
        bad = tokens[(tokens < 0) | (tokens >= self.config.d_vocab)]
        if bad.numel():
            raise UserError(f"There is no token {bad[0].item()}; token ids run from 0 to {self.config.d_vocab - 1}.")

    def to_tokens(
        self,
        input: Any,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        move_to_device: bool = True,
        truncate: bool = True,
    ) -> Tensor:
        """Tokens of problems, or of the text that :meth:`to_string` makes of tokens.

        Raises:
            UserError: as :meth:`as_tokens`, or for ``prepend_bos=True``.
        """
        refuse_bos(prepend_bos)
        return self.as_tokens(input)

    def to_string(self, tokens: Any) -> Any:
        """Text of one token, a sequence, or a list of texts for a batch."""
        tokens = _integers(tokens)
        self._check_ids(tokens)
        if tokens.ndim == 2:
            return [self.to_string(row) for row in tokens]
        return self.task.token_text(tokens)

    def to_str_tokens(self, input: Any, prepend_bos: bool | None = None, padding_side: str | None = None) -> Any:
        """One label per token of a sequence; a list of such lists for several problems or texts, or for a batch."""
        refuse_bos(prepend_bos)
        found = [[self.task.token_text(token) for token in row] for row in self.as_tokens(input)]
        several = isinstance(input, list) and bool(input) and isinstance(input[0], (str, tuple, list))
        return found if several or len(found) != 1 else found[0]

    def to_single_token(self, string: str) -> int:
        known, text = list(self.task.vocabulary), string if string in self.task.vocabulary else string.strip()
        if text not in known:
            raise UserError(f"{string!r} is not a token; tokens are {' '.join(known)}.")
        return known.index(text)

    def to_single_str_token(self, int_token: int) -> str:
        return self.to_string(int_token)

    def get_token_position(self, single_token: Any, input: Any, mode: str = "first", **_: Any) -> int:
        """Position of the first (or last) occurrence of a token in one sequence."""
        token = self.to_single_token(single_token) if isinstance(single_token, str) else int(single_token)
        where = (self.as_tokens(input)[0] == token).nonzero().flatten().tolist()
        if not where:
            raise UserError(f"Token {single_token!r} does not occur in the input.")
        return where[0 if mode == "first" else -1]

    def tokens_to_residual_directions(self, tokens: Any) -> Tensor:
        """The unembedding column of each token: [d_model], or [..., d_model] for a tensor of ids.

        As in a HookedTransformer, this is the direction of the token's logit only where the final norm has no gain;
        elsewhere ``ActivationCache.logit_attrs`` and ``direct_logit_attribution``, which take it from here, miss the
        gain, and this warns: for attributions that add up, take :meth:`fold_layer_norm` first.
        """
        tokens = _integers(self.to_single_token(tokens) if isinstance(tokens, str) else tokens).to(self.device)
        self._check_ids(tokens)
        if self._final_norm_has_gain():
            warnings.warn(
                "The final norm has a gain or bias, which columns of W_U and attributions by them miss: take "
                "model.fold_layer_norm() first.",
                category=Caution,
                stacklevel=2,
            )
        directions = self.W_U.T[tokens]
        return directions.reshape(-1) if tokens.numel() == 1 else directions

    def _final_norm_has_gain(self) -> bool:
        weights = self.cached_weights()
        gain, bias = weights.get("ln_final.w"), weights.get("ln_final.b")
        if gain is None or not has_values(gain):
            return False
        return bool((gain != 1).any()) or (bias is not None and bool(bias.any()))


def _integers(value: Any) -> Tensor:
    """Token ids as an int64 tensor; raises UserError for anything else."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise UserError(f"{shown(value)} is not an array of token ids.") from None
    if tensor.numel() == 0 and not isinstance(value, Tensor):
        raise UserError("There are no tokens: the input is empty.")
    if not are_integers(tensor):
        raise UserError(f"Token ids must be integers, not {tensor.dtype}.")
    return tensor.long()


def refuse_bos(prepend_bos: bool | None) -> None:
    """Raise UserError if a token is to be prepended."""
    if prepend_bos:
        raise UserError("Nothing can be prepended: a task's encoding is complete, with its first token if it has one.")
