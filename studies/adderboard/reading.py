"""A public AdderBoard model as its file makes it: its numbers, its forward pass, its prompts and its answers.

This runs the file, so it is only used in the process that :mod:`studies.adderboard.isolation` starts.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from models.errors import UserError
from models.tasks.number_digits import DIGITS
from studies.adderboard import mlx_names
from studies.adderboard.framed_addition import Frame

BUILDERS = ("build_model", "build_adder", "build_magic_model")
SETTERS = ("set_weights", "hand_set_weights", "_init_weights", "_set_handcrafted_weights")
ADDERS = ("add", "generate", "_generate_output_batch", "test")
#: Pairs by which prompts are recognised: no digit occurs twice, and neither sum reads the same backwards.
PAIRS = ((8146025397, 2075931864), (3951704826, 9607284135))


@dataclass(eq=False)
class Submission:
    """A file that was run.

    Attributes:
        model: what its builder returns, usually a module.
        metadata: what the file says about itself; may be empty.
        remarks: what the reader had to change or leave out, in whole sentences.
    """

    path: Path
    module: ModuleType
    model: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, Any]:
        """What the file defines."""
        return vars(self.module)

    def constant(self, name: str) -> Any:
        """The value of a name in the file. Raises UserError if the file does not define it."""
        if name not in self.names:
            raise UserError(f"it defines no {name}")
        return self.names[name]

    def get(self, path: str) -> Any:
        """A part of the model, such as "layers.0.attn.q_proj". Raises UserError if it does not exist."""
        found: Any = self.model
        for name in path.split("."):
            try:
                found = found[int(name)] if name.isdigit() else getattr(found, name)
            except (AttributeError, IndexError, TypeError, KeyError):
                raise UserError(f"its model has no {path}") from None
        return torch.from_numpy(found) if isinstance(found, np.ndarray) else found

    def has(self, path: str) -> bool:
        try:
            self.get(path)
        except UserError:
            return False
        return True

    def call(self, part: str, *arguments: Any) -> Any:
        """Call a part of the model by its path."""
        return self.get(part)(*arguments)

    def matrix(self, part: str, width: int, like: Tensor) -> Float[Tensor, "width out"]:
        """The matrix of a linear part, found by applying it to ``width`` unit vectors."""
        return self.call(part, torch.eye(width, dtype=like.dtype)[None])[0]

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The model's own parameters, each once; without a module, all tables that its object holds."""
        if isinstance(self.model, nn.Module):
            return dict(self.model.named_parameters())
        tables = {name: self.get(name) for name in getattr(self.model, "__dict__", {})}
        return {k: v for k, v in tables.items() if isinstance(v, Tensor) and v.is_floating_point()}

    # ---- its own answers

    @cached_property
    def _adder(self) -> Callable[..., Any]:
        found = next((self.names[name] for name in ADDERS if callable(self.names.get(name))), None)
        if found is None:
            raise UserError("it has no function that adds two numbers")
        return found

    @cached_property
    def _run(self) -> tuple[Callable[..., Any], list[Any], int, Frame]:
        """(forward pass, arguments of one call, which of them are the tokens, the frame of its prompts)."""
        runs = []
        for a, b in PAIRS:
            calls: dict[Any, list[tuple[list[Any], int]]] = {}
            with _watched(self._files, calls):
                answer = self._answer(a, b)
            forward = next((key for key, found in calls.items() if len(found) > DIGITS), None)
            if forward is None:
                raise UserError("its forward pass is not called once for each digit of the sum")
            tokens = [_numbers(given[i]) for given, i in calls[forward]]
            runs.append((forward, *calls[forward][0], _frame_of(a, b, tokens[0], tokens[DIGITS], answer)))
        if runs[0][3] != runs[1][3]:
            raise UserError("its prompts are not written alike for all pairs")
        (holder, name), given, index, frame = runs[0]
        function = self.constant(name) if holder is None else getattr(holder, name)
        return function, given, index, frame

    @property
    def _files(self) -> tuple[str, ...]:
        return str(self.path), mlx_names.__file__

    def _answer(self, a: int, b: int) -> Any:
        if self._adder.__name__ == "_generate_output_batch":
            extra = ["cpu"] if len(inspect.signature(self._adder).parameters) > 2 else []
            return self._adder(self.model, [(a, b)], *extra)[0]
        return self._adder(self.model, a, b)

    @property
    def frame(self) -> Frame:
        """How the model's prompts and answers are written, found by letting it add two pairs of numbers."""
        return self._run[3]

    def last_output(self, tokens: Int[Tensor, "1 pos"]) -> Tensor:
        """The output of the forward pass at the last token: logits, or the token that it chooses."""
        function, arguments, index, _ = self._run
        given = tokens if isinstance(arguments[index], Tensor) else tokens.numpy()
        found = function(*(given if i == index else value for i, value in enumerate(arguments)))
        found = torch.as_tensor(found[0] if isinstance(found, tuple) else found)
        return found.reshape(-1, *found.shape[2:])[-1] if found.ndim == 3 else found.reshape(-1)[-1]

    def add(self, a: int, b: int) -> int:
        """The file's own answer to a + b."""
        said = self._answer(a, b)
        said = said[1] if isinstance(said, tuple) else said
        if isinstance(said, str):
            said = int(said if self.frame.answer_down else said[::-1])
        return int(said)


def run(path: Path) -> Submission:
    """Run a file as its owner does who imports it, and build its model. Raises whatever the file raises."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    mlx_names.install()
    tree, remarks = _parsed(path.read_text(encoding="utf-8"))
    module = sys.modules["submission"] = ModuleType("submission")
    module.__file__ = str(path)
    sys.path.insert(0, str(path.parent))
    exec(compile(tree, str(path), "exec"), vars(module))
    model, metadata = _built(vars(module), remarks)
    if isinstance(model, nn.Module):
        model.eval()
    return Submission(path, module, model, metadata if isinstance(metadata, dict) else {}, tuple(remarks))


@contextmanager
def float32_as_float64() -> Iterator[None]:
    """A context in which what a file calls float32 is float64, so that rounding plays no part."""
    before = torch.float32, torch.get_default_dtype(), Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.set_default_dtype(torch.float64)
    Tensor.float = Tensor.double
    try:
        yield
    finally:
        torch.float32 = torch.float = before[0]
        torch.set_default_dtype(before[1])
        Tensor.float = before[2]


@contextmanager
def _watched(files: Sequence[str], calls: dict[Any, list[tuple[list[Any], int]]]) -> Iterator[None]:
    """A context in which calls of functions of ``files`` with a row of tokens are noted.

    ``calls``: (object or None, name of its method or of the function) -> (arguments, which of them are the tokens) of
    each call with other tokens than the last.
    """

    def hear(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename not in files:
            return
        names = code.co_varnames[: code.co_argcount]
        given = [frame.f_locals[name] for name in names]
        holder = given.pop(0) if names[:1] == ("self",) else None
        for i, value in enumerate(given):
            if _are_tokens(value):
                found = calls.setdefault((holder, code.co_name), [])
                if not found or _numbers(found[-1][0][i]) != _numbers(value):
                    found.append((given, i))

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        yield
    finally:
        sys.setprofile(before)


def _are_tokens(value: Any) -> bool:
    if not isinstance(value, (Tensor, np.ndarray)) or value.ndim != 2 or len(value) != 1:
        return False
    whole = not value.is_floating_point() if isinstance(value, Tensor) else value.dtype.kind in "iu"
    return whole and value.shape[1] > 2 * DIGITS


def _numbers(tokens: Any) -> list[int]:
    return tokens[0].tolist()


def _frame_of(a: int, b: int, prompt: list[int], last: list[int], answer: Any) -> Frame:
    """What stands around the digits of the first call's tokens, and the order of the appended digits."""
    said = last[len(prompt) :]  # ten of eleven digits
    digits = [[int(c) for c in f"{n:010d}"] for n in (a, b)]
    for down in (True, False):
        one, other = (number if down else number[::-1] for number in digits)
        for i in range(len(prompt) - 2 * DIGITS + 1):
            for j in range(i + DIGITS, len(prompt) - DIGITS + 1):
                if prompt[i : i + DIGITS] == one and prompt[j : j + DIGITS] == other:
                    break
            else:
                continue
            before, between, after = prompt[:i], prompt[i + DIGITS : j], prompt[j + DIGITS :]
            answer_down = _starts_at_the_top(said, a + b, answer)
            if not between or not after:
                raise UserError("its operands stand next to each other, or next to the answer")
            tokens = max((9, *before, *between, *after)) + 1
            return Frame(tuple(before), tuple(between), tuple(after), down, answer_down, _vocabulary(tokens))
    raise UserError("the ten digits of its operands do not stand in its prompts one after another")


def _starts_at_the_top(said: list[int], right: int, answer: Any) -> bool:
    """Whether the first ten tokens of an answer are its highest digits, by the true sum or the number that it returns.

    The model may be wrong. Its tokens are then read in either order, and must give the number that the file returns.
    """
    answer = answer[1] if isinstance(answer, tuple) and len(answer) == 2 else answer
    numbers = [right] if not isinstance(answer, int) or isinstance(answer, bool) else [right, answer]
    up, down = sum(d * 10**i for i, d in enumerate(said)), int("".join(map(str, said)))
    for number in numbers:
        fits = number % 10**DIGITS == up, number // 10 == down
        if any(fits):
            return fits[1] and not fits[0]
    if isinstance(answer, str):
        return False  # the answer is text as generated, which is units first in all such files
    raise UserError(f"it says {answer} with the digits {said} and one more, so that their order is not known")


def _vocabulary(n: int) -> str:
    """The texts of the first n tokens: ten digits, then letters."""
    if n > 36:
        raise UserError(f"its prompts have token {n - 1}")
    return "0123456789abcdefghijklmnopqrstuvwxyz"[:n]


def _parsed(text: str) -> tuple[ast.Module, list[str]]:
    try:
        return ast.parse(text), []
    except SyntaxError as error:
        line = error.lineno or 0
        if "unterminated triple-quoted" in str(error) and line > 1:
            kept = "\n".join(text.splitlines()[: line - 1])
            return ast.parse(kept), [f"Its last text, from line {line} on, has no end, and is left out."]
        raise


def _built(names: dict[str, Any], remarks: list[str]) -> tuple[Any, Any]:
    """(the model, its metadata) from the file's builder, or from its last module class and what sets its weights."""
    for name in BUILDERS:
        builder = names.get(name)
        if not callable(builder):
            continue
        arguments = []
        if wanted := _required(builder):
            choices = names.get("VARIANT_CHOICES")
            if wanted != 1 or not isinstance(choices, (list, tuple)):
                raise UserError(f"{name} needs arguments")
            arguments = [choices[-1]]
            remarks.append(f"Of its {len(choices)} variants the last one is read, {choices[-1]}.")
        found = builder(*arguments)
        return found if isinstance(found, tuple) and len(found) == 2 else (found, {})
    for cls in reversed(list(names.values())):
        if not isinstance(cls, type) or not issubclass(cls, nn.Module) or cls.__module__ != names["__name__"]:
            continue
        if _required(cls) == 0:
            model = cls()
            setter = next((names[name] for name in SETTERS if callable(names.get(name))), lambda model: None)
            setter(model)
            return model, {}
    raise UserError("it has neither a function build_model nor a class of models")


def _required(function: Callable[..., Any]) -> int:
    """How many arguments a function needs."""
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is inspect.Parameter.empty and p.kind not in kinds for p in parameters)
