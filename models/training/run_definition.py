"""What a run folder keeps of a model that is registered nowhere: its config and, if it is text, its task."""

from __future__ import annotations

from typing import Any

from models.errors import UserError
from models.tasks.base import Task
from models.tasks.formatted_task import formatted
from models.tasks.induction import induction
from models.tasks.token_function import function
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights


def check_fit(config: TransformerConfig, task: Task) -> None:
    """Raise UserError if the model has too few tokens or positions for the task."""
    if config.d_vocab < task.d_vocab or config.n_ctx < task.input_length:
        raise UserError(
            f"The task {task.name} needs d_vocab of at least {task.d_vocab} and n_ctx of at least {task.input_length}, "
            f"and the config has {config.d_vocab} and {config.n_ctx}."
        )


def built_from(definition: dict[str, Any], name: str, task: Task | None) -> ArithmeticTransformer | None:
    """The untrained model that a run folder's definition describes; None if its weight map is Python code.

    Raises:
        UserError: the task is Python code, and no ``task`` is given.
    """
    if "config" not in definition:
        return None
    if task is None and definition.get("task") is not None:
        task = task_of(definition["task"])
    if task is None:
        raise UserError(
            f"The task of {name} is Python code, which a run folder does not keep; give it as models.load(path, "
            "task=...), or write the task's functions as text, such as '(a + b) % 113'."
        )
    config = TransformerConfig(**definition["config"])
    check_fit(config, task)
    return ArithmeticTransformer(DenseWeights(config, definition.get("biases", True)), task, name=name)


#: Tasks that are no format; their definition is {kind: arguments}.
_OTHERS: dict[str, Any] = {"function": function, "induction": induction}


def task_of(definition: dict[str, Any]) -> Task:
    """The task that a stored definition makes: of a format, or of a task of another kind under its name."""
    kind = next(iter(definition)) if len(definition) == 1 else ""
    return _OTHERS[kind](**definition[kind]) if kind in _OTHERS else formatted(**definition)
