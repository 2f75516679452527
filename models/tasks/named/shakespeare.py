"""Predicting the next character of Shakespeare: AddLM's task, and the only one here without an algorithm.

A problem is the place in the text where a window of 129 characters starts: 128 go in, and each predicts the next one.
The first nine tenths of the text are for training, the rest for validation. The 65 characters are listed here, so that
models can be built without the text; only problems need it (:mod:`models.files.texts`). There is no test part: the
paper reports, and checkpoints are selected by, the loss on the validation part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from models.calls.argument_kinds import Natural, RowKeys, Seed, Share, shown
from models.calls.bound_arguments import checked_method
from models.errors import UserError
from models.files.texts import TINYSHAKESPEARE, read_corpus
from models.tasks.counter_rng import uniform
from models.tasks.given_problems import are_integers
from models.tasks.held_out import HeldOut
from models.tasks.roles import Role
from models.tasks.task import Task

#: Every character of the text, in the order of their code points, which is the order of their ids.
CHARACTERS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
N_CTX = 128
TRAINING = TINYSHAKESPEARE.characters * 9 // 10  # characters of the training part, which comes first
_ID = {character: i for i, character in enumerate(CHARACTERS)}


@cache
def text_ids() -> UInt8[Tensor, " character"]:
    """The whole text as token ids. Raises UserError if it is not available."""
    table = np.zeros(128, dtype=np.uint8)
    table[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))
    return torch.from_numpy(table[np.frombuffer(read_corpus(TINYSHAKESPEARE).encode("ascii"), dtype=np.uint8)])


def text_tokens(texts: Sequence[str]) -> Int[Tensor, "n pos"]:
    """Token ids of texts of one length. Raises UserError for other characters, different lengths, or empty texts."""
    if len({len(text) for text in texts}) != 1 or not texts[0]:
        raise UserError("Texts that are encoded together must have one length, of at least one character.")
    unknown = next((c for text in texts for c in text if c not in _ID), None)
    if unknown is not None:
        raise UserError(f"There is no token for {unknown!r}; the text has the characters {CHARACTERS!r}.")
    return torch.tensor([[_ID[character] for character in text] for text in texts])


class CharacterLanguage(Task):
    """Next-character prediction on tinyshakespeare, in windows of 128 characters.

    A problem's "answer" is the text's own next characters. No model is expected to predict all of them, so models of
    this task are compared by their loss.
    """

    name = "tinyshakespeare"
    vocabulary = CHARACTERS
    d_vocab = len(CHARACTERS)
    input_length = N_CTX
    selected_by = "loss"

    @cached_property
    def roles(self) -> Sequence[Role]:
        return tuple(Role("character", f"c{i}") for i in range(N_CTX + 1))

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        return self.roles[1:]

    @cached_property
    def query_positions(self) -> Sequence[int]:
        return tuple(range(N_CTX))

    # ---- problems

    def as_problems(self, problems: Any) -> Int[Tensor, "n 1"]:
        """Where windows start, from integers or a tensor [n] or [n, 1].

        Raises:
            UserError: not an integer, or a window that leaves the text.
        """
        if isinstance(problems, int) or (isinstance(problems, Iterable) and not isinstance(problems, (str, bytes))):
            try:
                starts = torch.as_tensor(problems)
            except (TypeError, ValueError, RuntimeError):
                starts = torch.zeros(())
            if starts.numel() and are_integers(starts):
                starts, last = starts.reshape(-1, 1).long(), TINYSHAKESPEARE.characters - N_CTX - 1
                outside = starts[(starts < 0) | (starts > last)]
                if outside.numel():
                    raise UserError(f"Windows start at 0 to {last}, and {int(outside[0])} is not there.")
                return starts
        raise UserError(f"{shown(problems)} is not a problem: give the integer at which a window starts.")

    def validation_windows(self) -> Int[Tensor, "n 1"]:
        """The 871 windows that cover the validation part once, without overlap."""
        stop = TINYSHAKESPEARE.characters - N_CTX
        return torch.arange(TRAINING, stop, N_CTX)[:, None]

    @cached_property
    def held_out(self) -> TextParts:
        return TextParts(self)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 1"]:
        """Windows that start anywhere in the validation part, uniformly: text that training does not see."""
        count = TINYSHAKESPEARE.characters - N_CTX - TRAINING
        return TRAINING + torch.randint(count, (n, 1), generator=generator, device=generator.device)

    # ---- tokens

    def windows(self, problems: Any) -> Int[Tensor, "n character"]:
        """The 129 characters of each window."""
        starts = self.as_problems(problems)
        return text_ids().to(starts.device)[starts + torch.arange(N_CTX + 1, device=starts.device)].long()

    def encode(self, problems: Any) -> Int[Tensor, "n pos"]:
        """The first 128 characters of each window, or all characters of a text or of a list of texts of one length."""
        if isinstance(problems, str):
            return text_tokens([problems])
        if isinstance(problems, (list, tuple)) and problems and all(isinstance(p, str) for p in problems):
            return text_tokens(problems)
        return self.windows(problems)[:, :-1]

    def encode_prompt(self, problems: Any) -> Int[Tensor, "n 1"]:
        """The first character, as every other one is predicted."""
        return self.encode(problems)[:, :1]

    def targets(self, problems: Any) -> Int[Tensor, "n target"]:
        return self.windows(problems)[:, 1:]

    def encode_rows(self, problems: Int[Tensor, "n 1"]) -> tuple[Tensor, Tensor]:
        """Tokens [128, n] and targets [128, n] as uint8, without checks."""
        places = torch.arange(N_CTX + 1, device=problems.device)[:, None] + problems[:, 0]
        window = text_ids().to(problems.device)[places]
        return window[:-1], window[1:]

    # ---- what arithmetic has and text has not

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """The character that the query reads, the one before it, and all earlier ones."""
        return {
            "current character": [target],
            "previous character": [target - 1] if target else [],
            "earlier characters": list(range(target - 1)),
        }


class TextParts(HeldOut):
    """The windows that train and select a model of text. There is no test part."""

    def __init__(self, task: CharacterLanguage):
        super().__init__(task.name)
        self.windows = task.validation_windows

    @checked_method
    def validation(self, n: Natural, seed: Seed) -> Int[Tensor, "n 1"]:
        """``n`` windows, evenly spread over the validation part; ``seed`` changes nothing.

        Raises:
            UserError: there are fewer than ``n``.
        """
        windows = self.windows()
        if n > len(windows):
            raise UserError(f"The validation part has {len(windows)} windows, not {n}.")
        return windows[torch.arange(n) * len(windows) // n]

    @checked_method
    def training(self, keys: RowKeys, long_carries: Share = 0.0, share: Share = 1.0) -> Int[Tensor, "row 1"]:
        """Windows that start anywhere in the first ``share`` of the training part and end in it; none is hard.

        Raises:
            UserError: a share that has no window.
        """
        starts = round(share * TRAINING) - N_CTX
        if not 0 < starts <= TRAINING - N_CTX:
            raise UserError(f"A share of the training part has a window of {N_CTX + 1} characters; {share} has none.")
        return (uniform(keys, 0) * starts).long()[:, None]
