"""Sampling tokens, with the arguments of TransformerLens' ``generate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor
from transformer_lens.utilities.logits_utils import sample_logits

from models.calls.argument_kinds import Check, Count, Natural, is_number, real, real_within, shown, whole
from models.calls.bound_arguments import typed
from models.errors import UserError, unknown_name
from models.lens.lens_contract import LensContract
from models.lens.lens_tokens import refuse_bos
from models.run import NOTHING, greedy

#: A temperature of 0 takes the most likely token; one that is closer to 0 than the least here would make logits
#: infinite.
TEMPERATURE = Check(
    lambda name, value: 0.0 if is_number(value) and value == 0 else real(name, value, 1e-6, 1e6),
    "0 or between 1e-06 and 1e+06",
)
NEW_TOKENS = 10  # if the input is tokens, as in TransformerLens


@typed
def generate(
    model: LensContract,
    input: Any,
    max_new_tokens: Natural | None = None,
    stop_at_eos: bool = True,
    eos_token_id: int | None = None,
    do_sample: bool = True,
    top_k: Count | None = None,
    top_p: Annotated[float, real_within(1e-9, 1.0)] | None = None,
    temperature: Annotated[float, TEMPERATURE] = 1.0,
    freq_penalty: Annotated[float, real_within(0.0, 1e6)] = 0.0,
    use_past_kv_cache: bool = True,
    prepend_bos: bool | None = None,
    padding_side: str | None = None,
    return_type: str | None = "input",
    verbose: bool = True,
    stop_strings: str | Sequence[str] | None = None,
    callback: Callable[[Tensor], Any] | None = None,
    return_cache: bool = False,
    return_input_tokens: bool = False,
) -> Any:
    """The input, followed by tokens that the model samples (or, with ``do_sample=False``, the most likely ones).

    Args:
        input: problems ("57+48", a tuple, or a list of either), of which the prompt is taken, or tokens [batch, pos].
        max_new_tokens: as many as the answer has for problems, 10 for tokens, unless given.
        eos_token_id: a token that ends a row if ``stop_at_eos``; the rest of the row is filled with it. Tasks without
            an end token of their own have no default, so that nothing ends a row unless this is given.
        top_k, top_p, temperature, freq_penalty: as in TransformerLens, within :data:`BOUNDS`; one of ``top_k`` and
            ``top_p`` at most. torch's global seed decides what is drawn.
        use_past_kv_cache: reuse keys and values, if the model computes what its weights say. Sums are taken in another
            order, so that logits differ by rounding: in half precision, other tokens may come first.
        prepend_bos, padding_side, verbose: accepted as in TransformerLens; nothing is prepended, padded or shown.
        return_type: "tokens", "str", or "input" for the input's own kind.
        stop_strings: a row ends when its new text has one of these; text is cut behind it, and a row of tokens is
            filled with ``eos_token_id``, or with its last token.
        callback: called after each token with the tokens so far, [batch, pos], as for streaming.
        return_cache: also return the ActivationCache of the tokens that were read, of one more forward pass.
        return_input_tokens: also return the tokens that the model was given to go on from, [batch, pos].

    Returns:
        tokens [batch, pos + new], or their text (a list for a list); with ``return_cache`` and
        ``return_input_tokens`` a tuple of it, the cache and the input's tokens, as asked for.

    Raises:
        UserError: a bad argument, more positions than the model has, or a row that cannot go on (a logit that is not a
            number, no position id left).
    """
    refuse_bos(prepend_bos)
    if padding_side not in (None, "left", "right"):
        raise unknown_name("padding side", str(padding_side), ("left", "right"))
    if eos_token_id is not None:
        eos_token_id = whole("eos_token_id", eos_token_id, 0, model.config.d_vocab - 1)
    if top_k is not None and top_p is not None:
        raise UserError("top_k and top_p exclude each other; give one of them.")
    if return_type not in ("input", "tokens", "str"):
        raise unknown_name("return type", str(return_type), ("input", "tokens", "str"))
    if isinstance(input, (list, tuple, str)) and not len(input):
        raise UserError("There is nothing to go on from: the input is empty.")
    spoken = isinstance(input, (str, tuple)) or (isinstance(input, list) and isinstance(input[0], (str, tuple)))
    prompt, answer = _prompt(model, input, spoken)
    if not prompt.numel():
        raise UserError("There is nothing to go on from: the input has no rows.")
    wanted = max_new_tokens if max_new_tokens is not None else answer

    def draw(logits: Tensor, prefix: Tensor) -> Tensor:
        wide = torch.promote_types(logits.dtype, torch.float32)  # a low temperature would leave half precision's range
        return sample_logits(
            logits.to(wide, copy=True), top_k, top_p, temperature, freq_penalty, tokens=prefix if freq_penalty else None
        )

    stops = [stop_strings] if isinstance(stop_strings, str) else list(stop_strings or ())
    if not all(isinstance(text, str) and text for text in stops):
        raise UserError(f"stop_strings is text, or a list of texts, not {shown(stop_strings)}.")

    def watch(tokens: Tensor) -> Tensor | None:
        if callback is not None:
            callback(tokens.clone())
        if not stops:
            return None
        texts = [model.to_string(row) for row in tokens[:, prompt.shape[1] :].clamp(0, model.config.d_vocab - 1)]
        return torch.tensor([any(stop in text for stop in stops) for text in texts])

    new = greedy(
        model,
        prompt,
        wanted,
        stop=eos_token_id if stop_at_eos else None,
        use_cache=use_past_kv_cache,
        choose=draw if do_sample else None,
        watch=watch if stops or callback is not None else None,
    )
    if bool((new == NOTHING).any()):
        raise UserError("A row cannot go on: a logit is not a number, or the next token has no position id.")
    tokens = torch.cat((prompt.to(new), new), 1)
    found: Any = tokens
    if return_type == "str" or (return_type == "input" and spoken):
        texts = [_cut(model, row, prompt.shape[1], stops) for row in tokens]
        found = texts if isinstance(input, list) or len(texts) > 1 else texts[0]
    asked = [found]
    if return_cache:
        asked.append(model.run_with_cache(tokens[:, :-1] if new.shape[1] else tokens)[1])
    if return_input_tokens:
        asked.append(prompt)
    return tuple(asked) if len(asked) > 1 else found


def _cut(model: LensContract, tokens: Tensor, prompt: int, stops: Sequence[str]) -> str:
    """The text of a row, up to the end of the first of some strings behind the prompt."""
    if not stops:
        return model.to_string(tokens)
    new = model.to_string(tokens[prompt:]) if len(tokens) > prompt else ""
    end = min((new.index(stop) + len(stop) for stop in stops if stop in new), default=len(new))
    between = model.task.separator if new else ""
    return model.to_string(tokens[:prompt]) + between + new[:end]


def _prompt(model: LensContract, input: Any, spoken: bool) -> tuple[Tensor, int]:
    """(prompt, how many tokens the answer has)."""
    if spoken:
        problems = input if isinstance(input, list) else [input]
        try:
            task = model.task.for_problems(problems)
            return task.encode_prompt(problems).to(model.device), len(task.query_positions)
        except UserError:
            pass  # the tokens' text, then
    return model.as_tokens(input), NEW_TOKENS
