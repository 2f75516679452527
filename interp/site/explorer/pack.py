"""What a page needs to run a model by itself: weights, config and the meaning of the task's tokens, as JSON.

Weights are the effective weights with TransformerLens' names, in base64, one little-endian array per model (or
snapshot). ``forward.js`` computes from them what
:class:`models.transformer.arithmetic_transformer.ArithmeticTransformer` does. ``tasks.js`` knows the project's tasks;
:mod:`interp.site.explorer.own_tasks` says what the page must know of any other.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.model_checks import require_evaluation_mode
from interp.core.task_checks import resolve_task
from interp.site.explorer.own_tasks import drawn_texts, own_task, shown_variable
from models.errors import UserError, unknown_name
from models.importers import from_transformer_lens
from models.tasks import MultiOperandAddition, Multiplication, Parity, Task
from models.tasks.named.addition import adds_pairs_below
from models.transformer import HookedModel, alterations, own_name
from models.zoo import load, zoo_names
from models.zoo.snapshots import load_snapshots

METHODS = ("zero", "mean")
MOST_TOKENS = 512  # in one problem's sequence: a page of cells, far more than a view is useful for
FEW_WEIGHTS = 5_000  # models with at most so many come with snapshots of their training
N_SNAPSHOTS = 12

#: The problems that a view of adders offers, first the one it starts with, and what each shows.
ADDITIONS = (
    ("57+48", "two carries, the second into an empty column"),
    ("1234+5432", "no carry anywhere"),
    ("9999999999+1", "a carry that travels through all ten columns"),
    ("9999989999+1", "a carry passed on by four nines and stopped by an eight"),
    ("5555555555+4444444445", "every column above the units sums to nine, and a carry comes in"),
    ("5555555555+4444444444", "every column sums to nine, and no carry comes in"),
)
SMALL_ADDITIONS = (
    ("57+48", "two carries, the second into an empty column"),
    ("12+34", "no carry anywhere"),
    ("99+1", "a carry that travels through both columns"),
    ("58+41", "the tens sum to nine, the units too, and nothing is carried"),
    ("58+42", "the tens sum to nine, and a carry comes in"),
)
OTHERS = {
    "multiplication": (("12*34", "a short product"), ("57*48", "carries in both stages"), ("99*99", "all nines")),
    "parity": (("0101", "two ones"), ("0111", "three ones"), ("1111", "all ones"), ("0000", "all zeros")),
    "multi-operand-addition": (
        ("57+48+96", "three numbers"),
        ("99+1+0", "a carry that travels"),
        ("12+34+51", "no carry"),
        ("57+48", "two numbers"),
    ),
}


class ExploredModel:
    """A model with its task, checked so that a page can run it. The weights are read when it is packed.

    Args:
        model: one of this project's models, or a TransformerLens model with a ``task``, which is copied.
        task: the model's task, if it has none.

    Raises:
        UserError: a model without hooks, in training mode, or whose task has no answers (text); a model that computes
            something other than its weights say, or in half precision: the page would show another model.
    """

    def __init__(self, model: HookedModel, task: Task | None = None):
        task = resolve_task(model, task)
        self.name = own_name(model)
        if task.selected_by == "loss":
            raise UserError(f"{self.name} predicts text: its task has no problems to type and answers to step to.")
        require_evaluation_mode(model)
        self.model, self.task = from_transformer_lens(model, task), task
        if changed := alterations(self.model):
            raise UserError(f"The explorer runs a model from its weights, and this one does more: {changed[0]}.")
        if self.model.config.dtype not in ("float32", "float64"):
            raise UserError(f"The explorer computes in float64, and {self.name} in {self.model.config.dtype}.")
        if task_data(task)["kind"] == "table" and self.model.position_limits:
            raise UserError(f"The explorer does not know the position ids of the task {task.name!r}.")

    def parse(self, problem: str) -> Int[Tensor, "1 *operands"]:
        """Read a problem and check it.

        Raises:
            UserError: the text is not a problem of the task, or the problem is too large for the model.
        """
        task = self.task.for_problems([problem])
        parsed = task.as_problems([problem])
        if task.input_length > MOST_TOKENS:
            raise UserError(f"{problem!r} takes {task.input_length} tokens; the explorer shows at most {MOST_TOKENS}.")
        if self.model.position_limits:
            self.model.pos_embed.check_ids(task.position_ids(task.encode(parsed)))
        elif task.input_length > self.model.config.n_ctx:
            raise UserError(
                f"{problem!r} takes {task.input_length} tokens, and {self.name} has {self.model.config.n_ctx}."
            )
        return parsed

    def to_dict(self, problems: Sequence[str] = ()) -> dict[str, Any]:
        """The model as data for JSON. The page can read ``problems`` even if it does not know the task."""
        cfg = self.model.config
        if cfg.later_switches:
            raise UserError(f"The explorer does not compute {', '.join(cfg.later_switches)}, which {self.name} has.")
        packs = [*self._snapshots(), ("trained", self.model)]
        weights, task = [_weights(model) for _, model in packs], task_data(self.task)
        derived = ("score_scale", "has_pre_norm", "has_post_norm", "has_final_norm", "residual_stream_adds_up")
        return {
            "name": self.name,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "cfg": cfg.to_dict()
            | {name: getattr(cfg, name) for name in (*derived, "n_logits")}
            | {"position_limits": list(self.model.position_limits) or None},
            "task": task | (own_task(self.task, problems, self.row) if task["kind"] == "table" else {}),
            "vocabulary": [self.task.token_text([token]) for token in range(cfg.d_vocab)],
            "names": list(weights[0]),
            "shapes": [list(value.shape) for value in weights[0].values()],
            "dtype": cfg.dtype,
            "steps": [step for step, _ in packs],
            "data": [_base64(one) for one in weights],
        }

    def _snapshots(self) -> list[tuple[int, Any]]:
        """(step, model) of snapshots of the training that led to this model, evenly spread over those stored."""
        size = sum(value.numel() for value in _weights(self.model).values())
        if self.name not in zoo_names() or size > FEW_WEIGHTS or not _same(self.model, load(self.name)):
            return []
        try:
            found = load_snapshots(self.name)
        except UserError:  # an entry without snapshots
            return []
        every = (len(found) - 1) / max(1, min(len(found), N_SNAPSHOTS) - 1)
        return [found[round(i * every)] for i in range(min(len(found), N_SNAPSHOTS))]

    def row(self, text: str) -> tuple[str, dict[str, list[Any]]]:
        """(a problem as the page names it, its tokens), for tasks that the page does not know. Raises like parse."""
        problem = self.parse(text)
        tokens = {"prompt": self.task.encode_prompt(problem), "right": self.task.targets(problem)}
        numbers = text.removesuffix("=").split()
        apart = all(number.isdecimal() for number in numbers)  # by spaces alone, which are then kept
        found = {name: row[0].tolist() for name, row in tokens.items()} | {"shown": shown_variable(self.task, problem)}
        return (" " if apart else "").join(numbers), found


def task_data(task: Any) -> dict[str, Any]:
    """What ``tasks.js`` must know about a task; it cannot encode problems of the kind "table" by itself."""
    common: dict[str, Any] = {"digits": list(range(10))}
    common |= {
        "operator": getattr(task, "operator", "+"),
        "base": 10,
        "bos": None,
        "mostTokens": MOST_TOKENS,
        "example": "57+48",
    }
    if (
        adds_pairs_below(task) is not None
        and not task.parsed.delimiters[0]
        and max(map(len, task.parsed.delimiters)) <= 1
    ):
        first = task.parsed.operand_fields[0]
        ends = [part[0] if part else None for part in task.parsed.delimiters[1:]]
        return common | {"kind": "pair", "width": first.width, "down": not first.reversed, "ends": ends}
    if task.has_other_sizes:
        common |= {"bos": task.special, "base": task.base, "example": task.example}
        common["digits"] = list(range(task.base))
    if isinstance(task, MultiOperandAddition):
        form = task.format
        return common | {
            "kind": "addition",
            "scratchpad": form.scratchpad,
            "skipped": 0 if form.zero_start else 1,
            "reversedQuery": form.reversed_query,
            "reversedResponse": form.reversed_response,
            "maxOperands": task.max_operands,
            "maxDigits": task.max_digits,
        }
    if isinstance(task, Multiplication):
        return common | {"kind": "multiplication", "scratchpad": task.scratchpad, "maxDigits": task.max_digits}
    if isinstance(task, Parity):
        return common | {"kind": "parity", "scratchpad": task.scratchpad, "maxDigits": task.max_bits}
    common |= {"digits": [], "example": (drawn_texts(task) or [""])[0]}
    with suppress(UserError):  # a task that does not tell its base
        common |= {"base": task.domain.base, "digits": list(task.digit_tokens)}
    return common | {"kind": "table"}


def examples(subjects: Sequence[ExploredModel]) -> list[tuple[str, str]]:
    """Example problems that all of the models take, each with what it shows.

    Raises:
        UserError: no known problem suits all models.
    """
    tasks: list[Any] = [subject.task for subject in subjects]
    known = list(OTHERS.get(tasks[0].name, ()))
    if all(task.has_other_sizes for task in tasks):
        known = known or [(task.example, "") for task in tasks]
    else:
        known = [*ADDITIONS, *(e for e in SMALL_ADDITIONS if e not in ADDITIONS)]
        if any(task.input_length < 20 for task in tasks if not task.has_other_sizes):
            known = list(SMALL_ADDITIONS)
    taken = lambda known: [e for e in known if all(_takes(subject, e[0]) for subject in subjects)]  # noqa: E731
    found = taken(known) or taken([(text, "") for text in drawn_texts(subjects[0].task)[: len(ADDITIONS)]])
    if not found:
        names = " and ".join(subject.name for subject in subjects)
        raise UserError(
            f"There is no problem that {names} both take; they are about different tasks."
            if len(subjects) > 1
            else f"The task {subjects[0].task.name} reads no problem from text, as it would be typed."
        )
    return found[: len(ADDITIONS)]


def view_data(
    models: Sequence[Any],
    problems: Sequence[str | tuple[str, str]] | None = None,
    method: str = "zero",
    problem: str | None = None,
) -> dict[str, Any]:
    """All data of a view of one or two models, for JSON.

    Args:
        models: models, or :class:`ExploredModel` objects.
        problems: texts, or (text, what it shows), to offer; by default examples for the models' task.
        method: the ablation method at the start, "zero" or "mean".
        problem: the problem at the start; the first of ``problems`` by default.

    Raises:
        UserError: no models or too many, no or unknown problems, an unknown method.
    """
    if not 1 <= len(models) <= 2:
        raise UserError(f"A view shows one model or two, not {len(models)}.")
    if method not in METHODS:
        raise unknown_name("ablation method", method, METHODS)
    subjects = [model if isinstance(model, ExploredModel) else ExploredModel(model) for model in models]
    shown = examples(subjects) if problems is None else [(p, "") if isinstance(p, str) else p for p in problems]
    if not shown:
        raise UserError("There is no problem to show: the list is empty.")
    problem = shown[0][0] if problem is None else problem
    texts = [problem, *(text for text, _ in shown)]
    for subject in subjects:
        for text in texts:
            subject.parse(text)
    return {
        "models": [subject.to_dict(texts) for subject in subjects],
        "examples": [list(example) for example in shown],
        "method": method,
        "problem": problem,
    }


def _takes(subject: ExploredModel, problem: str) -> bool:
    try:
        subject.parse(problem)
    except UserError:
        return False
    return True


@torch.no_grad()
def _weights(model: HookedModel) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.effective_weights().items()}


def _same(a: Any, b: Any) -> bool:
    ours, theirs = _weights(a), _weights(b)
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in ours.items())


def _base64(weights: dict[str, Tensor]) -> str:
    kind = "<f8" if next(iter(weights.values())).dtype == torch.float64 else "<f4"
    return base64.b64encode(b"".join(value.numpy().astype(kind).tobytes() for value in weights.values())).decode()
