"""What a run folder keeps of a model that is registered nowhere: its config and its task, as text or as the
source of the Python file that makes it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files.checkpoint import read_json, write_json_atomic
from models.files.python_source import run_source
from models.tasks.task import Task
from models.tasks.task_definitions import task_of
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights

TASK_SOURCE = "task_source.json"  # beside a run's config, which it is no part of


def check_fit(config: TransformerConfig, task: Task) -> None:
    """Raise UserError if the model has too few tokens or positions for the task."""
    if config.d_vocab < task.d_vocab or config.n_ctx < task.input_length:
        raise UserError(
            f"The task {task.name} needs d_vocab of at least {task.d_vocab} and n_ctx of at least {task.input_length}, "
            f"and the config has {config.d_vocab} and {config.n_ctx}."
        )


@dataclass(frozen=True)
class TaskSource:
    """The Python file that makes a run's task, as the run folder keeps it. It is run only where a user asks for it.

    Attributes:
        file: where it was. name: of the task in it. source: what it said.
    """

    file: str
    name: str
    source: str

    @classmethod
    def of(cls, task: Any) -> TaskSource | None:
        """The file with a task: that of ``FILE.py:NAME``, or the script that is run if the task has a name there."""
        if isinstance(task, str):
            file, _, name = task.rpartition(":")
        else:
            main = vars(sys.modules["__main__"])
            file = str(main.get("__file__") or "")
            name = next((name for name, value in main.items() if value is task), "")
        path = Path(file)
        return (
            cls(file, name, path.read_text(encoding="utf-8"))
            if name and path.suffix == ".py" and path.is_file()
            else None
        )

    @classmethod
    def kept_in(cls, folder: Path) -> TaskSource | None:
        """The source that a run folder keeps. Raises UserError for one that is damaged."""
        path = folder / TASK_SOURCE
        if not path.is_file():
            return None
        found = read_json(path)
        if not all(isinstance(found.get(key), str) for key in ("file", "name", "source")):
            raise UserError(f"{path} does not hold the source of a task.")
        return cls(found["file"], found["name"], found["source"])

    def keep_in(self, folder: Path) -> None:
        write_json_atomic(folder / TASK_SOURCE, asdict(self))

    def task(self, folder: Path) -> Task:
        """The task, made by running the source. Raises UserError if it fails, or makes no task of this name."""
        found = getattr(run_source(self.source, folder / TASK_SOURCE), self.name, None)
        if not isinstance(found, Task):
            raise UserError(f"The source in {folder / TASK_SOURCE} makes no task named {self.name!r}.")
        return found

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


def built_from(
    definition: dict[str, Any], name: str, task: Task | None, folder: Path, trust: bool | str = False
) -> ArithmeticTransformer | None:
    """The untrained model that a run folder's definition describes; None if its weight map is Python code.

    Args:
        trust: whether the Python source of the task, which the folder may keep, may be run.

    Raises:
        UserError: the task is Python code, no ``task`` is given, and its source is not trusted or not kept.
    """
    if "config" not in definition:
        return None
    if task is None and definition.get("task") is not None:
        task = task_of(definition["task"])
    if task is None:
        kept = TaskSource.kept_in(folder)
        if kept is None:
            raise UserError(
                f"The task of {name} is Python code, which its run folder does not keep; give it as models.load(path, "
                "task=...), or write the task's functions as text, such as '(a + b) % 113'."
            )
        if not trust:
            raise UserError(
                f"The task of {name} is the Python code {kept}. Give it as task={str(kept)!r} or --task {kept}, or let "
                f"the source that the folder keeps be run, with all that you may do: trust=True, or --trust."
            )
        task = kept.task(folder)
    config = TransformerConfig(**definition["config"])
    check_fit(config, task)
    return ArithmeticTransformer(DenseWeights(config, definition.get("biases", True)), task, name=name)
