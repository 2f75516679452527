"""Read a public AdderBoard model as its file defines it: its numbers, its forward pass, and its prompts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.errors import UserError
from models.importers.board import plain_words, words
from models.importers.board.interpreter import Interpreter
from models.importers.board.module_words import is_module, named_parameters, prelude
from models.importers.board.objects import Bound, Class, Function, Instance
from models.tasks.addition import DIGITS
from models.tasks.framed_addition import Frame

LARGEST_TEXT = 1 << 20  # bytes
BUILDERS = ("build_model", "build_adder", "build_magic_model")
SETTERS = ("set_weights", "hand_set_weights", "_init_weights", "_set_handcrafted_weights")
ADDERS = ("add", "generate", "_generate_output_batch", "test")
#: Pairs by which prompts are recognised: no digit occurs twice, and neither sum reads the same backwards.
PAIRS = ((8146025397, 2075931864), (3951704826, 9607284135))


@dataclass(eq=False)
class Submission:
    """A file that was read.

    Attributes:
        model: what its builder returns, usually an object of one of its classes.
        metadata: what the file says about itself; may be empty.
        remarks: what the reader had to change or leave out, in whole sentences.
    """

    path: Path
    interpreter: Interpreter
    model: Any
    metadata: dict[str, Any]
    remarks: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, Any]:
        """What the file defines."""
        return self.interpreter.module.names

    def constant(self, name: str) -> Any:
        """The value of a name in the file. Raises UserError if the file does not define it."""
        if name not in self.names:
            raise UserError(f"it defines no {name}")
        return self.names[name]

    def get(self, path: str) -> Any:
        """A part of the model, such as "layers.0.attn.q_proj". Raises UserError if it does not exist."""
        found: Any = self.model
        for name in path.split("."):
            part: Any = found
            found = part[int(name)] if name.isdigit() else self.interpreter.attribute(part, name)
            if isinstance(found, Instance) and "items_" in found.values:
                found = found.values["items_"]
        return found

    def has(self, path: str) -> bool:
        try:
            self.get(path)
        except (UserError, IndexError, TypeError):
            return False
        return True

    def call(self, part: Any, *arguments: Any) -> Any:
        """Call a function of the text, or a part of the model by its path."""
        self.interpreter.steps = 0
        return self.interpreter.call(self.get(part) if isinstance(part, str) else part, list(arguments))

    def matrix(self, part: Any, width: int, like: Tensor) -> Float[Tensor, "width out"]:
        """The matrix of a linear part, found by applying it to ``width`` unit vectors."""
        with reading_as(like.dtype):
            eye = torch.eye(width, dtype=like.dtype, device=like.device)
            return self.call(part, eye[None])[0]

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The model's own parameters, each once; without a module, all tables that its object holds."""
        found = dict(named_parameters(self.model))
        if not found and isinstance(self.model, Instance):
            found = {k: v for k, v in self.model.values.items() if isinstance(v, Tensor) and v.is_floating_point()}
        return found

    # ---- its own answers

    @cached_property
    def _run(self) -> tuple[Any, list[Any], int, Frame]:
        """(forward pass, arguments of one call, which of them are the tokens, the frame of its prompts)."""
        adder = next((self.names[name] for name in ADDERS if isinstance(self.names.get(name), Function)), None)
        if adder is None:
            raise UserError("it has no function that adds two numbers")
        frames = []
        for a, b in PAIRS:
            calls: list[tuple[Any, list[Any], int]] = []

            def hear(function: Any, arguments: list[Any], calls: list[Any] = calls) -> None:
                for i, value in enumerate(arguments):
                    tokens = isinstance(value, Tensor) and value.ndim == 2 and len(value) == 1
                    tokens = tokens and not value.is_floating_point() and value.shape[1] > 2 * DIGITS
                    if tokens and isinstance(function, (Bound, Function, Instance)) and _is_new(calls, value):
                        calls.append((function, list(arguments), i))

            self.interpreter.heard = hear
            try:
                answer = self._answer(adder, a, b)
            finally:
                self.interpreter.heard = None
            if len(calls) < DIGITS + 1:
                raise UserError("its forward pass is not called once for each digit of the sum")
            frames.append(_frame_of(a, b, calls, answer))
        if frames[0] != frames[1]:
            raise UserError("its prompts are not written alike for all pairs")
        function, arguments, index = calls[0]
        return function, arguments, index, frames[0]

    def _answer(self, adder: Function, a: int, b: int) -> Any:
        first = adder.node.args.args
        if adder.name == "_generate_output_batch":
            extra = ["cpu"] if len(first) > 2 else []
            return self.interpreter.call(adder, [self.model, [(a, b)], *extra])[0]
        return self.interpreter.call(adder, [self.model, a, b])

    @property
    def frame(self) -> Frame:
        """How the model's prompts and answers are written, found by letting it add two pairs of numbers."""
        return self._run[3]

    def last_output(self, tokens: Int[Tensor, "1 pos"], dtype: torch.dtype = torch.float32) -> Tensor:
        """The output of the forward pass at the last token: logits, or the token that it chooses.

        ``dtype`` is used wherever the file says float32; the parameters must have it.
        """
        function, arguments, index, *_ = self._run
        self.interpreter.steps = 0
        with reading_as(dtype):
            given = [tokens if i == index else value for i, value in enumerate(arguments)]
            found = self.interpreter.call(function, given)
        found = found[0] if isinstance(found, tuple) else found
        return found.reshape(-1, *found.shape[2:])[-1] if found.ndim == 3 else found.reshape(-1)[-1]

    def add(self, a: int, b: int) -> int:
        """The file's own answer to a + b. Takes about as long as a hundred thousand steps of Python."""
        adder = next(self.names[name] for name in ADDERS if isinstance(self.names.get(name), Function))
        self.interpreter.steps = 0
        said = self._answer(adder, a, b)
        said = said[1] if isinstance(said, tuple) else said
        if isinstance(said, str):
            said = int(said if self.frame.answer_down else said[::-1])
        return int(said)


@contextmanager
def reading_as(dtype: torch.dtype) -> Iterator[None]:
    """A context in which a file's float32 is another dtype."""
    before, words.Kind.float32 = words.Kind.float32, torch.float64 if dtype == torch.float64 else torch.float32
    try:
        yield
    finally:
        words.Kind.float32 = before


def _is_new(calls: list[Any], tokens: Tensor) -> bool:
    last = calls[-1] if calls else None
    return last is None or not torch.equal(last[1][last[2]], tokens)


def _frame_of(a: int, b: int, calls: list[Any], answer: Any) -> Frame:
    """What stands around the digits of the first call's tokens, and the order of the appended digits."""
    prompt = calls[0][1][calls[0][2]][0].tolist()
    last = calls[DIGITS][1][calls[DIGITS][2]][0].tolist()
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


def read(path: str | Path) -> Submission:
    """Read a file. Raises UserError, in one sentence, if it cannot be read."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    if path.stat().st_size > LARGEST_TEXT:
        raise UserError(f"{path} is larger than a submission can be ({LARGEST_TEXT >> 20} MB).")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text in UTF-8.") from None
    try:
        tree, remarks = _parsed(text)
        found = _evaluated(path, tree, remarks)
    except UserError as error:
        raise UserError(f"{path} cannot be read as a model: {str(error).rstrip('.')}.") from None
    except RecursionError:
        raise UserError(f"{path} cannot be read as a model: its expressions are nested too deeply.") from None
    return found


def _parsed(text: str) -> tuple[ast.Module, list[str]]:
    try:
        return ast.parse(text), []
    except SyntaxError as error:
        line = error.lineno or 0
        if "unterminated triple-quoted" in str(error) and line > 1:
            kept = "\n".join(text.splitlines()[: line - 1])
            try:
                return ast.parse(kept), [f"Its last text, from line {line} on, has no end, and is left out."]
            except SyntaxError:
                pass
        raise UserError(f"it is not Python ({error.msg}, line {line})") from None
    except (ValueError, MemoryError):
        raise UserError("it is not Python") from None


def interpreter_for_files() -> Interpreter:
    """An interpreter that knows all words."""
    found = Interpreter({}, {}, plain_words.attribute)
    found.builtins.names.update(plain_words.builtins(found))
    found.words = words.modules(found, prelude(found))
    return found


def _evaluated(path: Path, tree: ast.Module, remarks: list[str]) -> Submission:
    interpreter = interpreter_for_files()
    interpreter.run(tree.body, interpreter.module)
    names = interpreter.module.names
    model, metadata = _built(interpreter, names, remarks)
    return Submission(path, interpreter, model, metadata if isinstance(metadata, dict) else {}, tuple(remarks))


def _built(interpreter: Interpreter, names: dict[str, Any], remarks: list[str]) -> tuple[Any, Any]:
    """(the model, its metadata) from the file's builder, or from its last module class and what sets its weights."""
    for name in BUILDERS:
        builder = names.get(name)
        if not isinstance(builder, Function):
            continue
        arguments, wanted = [], builder.node.args
        if len(wanted.args) > len(wanted.defaults):
            choices = names.get("VARIANT_CHOICES")
            if len(wanted.args) - len(wanted.defaults) != 1 or not isinstance(choices, (list, tuple)):
                raise UserError(f"{name} needs arguments")
            arguments = [choices[-1]]
            remarks.append(f"Of its {len(choices)} variants the last one is read, {choices[-1]}.")
        found = interpreter.call(builder, arguments)
        return found if isinstance(found, tuple) and len(found) == 2 else (found, {})
    classes = [value for value in names.values() if is_module(value) and value.find("forward") is not None]
    for cls in reversed(classes):
        init = cls.find("__init__")
        if isinstance(init, Function) and len(init.node.args.args) - len(init.node.args.defaults) > 1:
            continue
        model = interpreter.call(cls, [])
        for name in SETTERS:
            if isinstance(names.get(name), Function) and cls.find(name) is None:
                interpreter.call(names[name], [model])
                break
        return model, {}
    raise UserError("it has neither a function build_model nor a class of models")


def class_name(value: Any) -> str:
    return value.cls.name if isinstance(value, Instance) else value.name if isinstance(value, Class) else ""
