"""Training of one's own model on one's own task: :func:`models.train`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models import registry
from models.calls.argument_kinds import Count, shown
from models.calls.bound_arguments import typed
from models.errors import UserError, unknown_name
from models.registry import ModelSpec
from models.tasks.held_out import SplitDomain
from models.tasks.task import Task
from models.tasks.task_definitions import task_of_text
from models.training.model_definition import TaskSource, check_fit
from models.training.recipes import Recipe
from models.training.task_problems import TaskProblems
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_map import WeightMap

if TYPE_CHECKING:
    from models.training.loop import TrainResult

EVALUATIONS = 50  # over a run, unless the recipe says otherwise
#: Recipe fields whose defaults are MicroAdder's, and what suits a transformer of free weights.
DEFAULTS: dict[str, Any] = {"lr": 1e-3, "warmup_steps": 100, "batch_size": 512}


def _specified(model: Any, task: Task | None, name: str) -> tuple[ModelSpec, dict[str, Any]]:
    """(spec, definition as JSON) of what a user gives as a model and its task."""
    if isinstance(model, ArithmeticTransformer):
        model, task = model.weight_map, task or model.task
    if task is None:
        raise UserError("train needs a task, such as models.tasks.formatted('{a}{b}=', '(a + b) % 113', base=113).")
    if not isinstance(task, Task):
        raise UserError(f"task is one of models.tasks, a line of text or 'FILE.py:NAME', not {shown(task)}.")
    definition: dict[str, Any] = {"task": getattr(task, "definition", None)}
    if isinstance(model, TransformerConfig):
        config, definition = model, definition | {"config": model.to_dict()}
        made: Callable[[], WeightMap] = lambda: DenseWeights(config)  # noqa: E731
    elif isinstance(model, WeightMap):
        if type(model) is DenseWeights:
            definition |= {"config": model.config.to_dict(), "biases": any("b_" in key for key in model.own())}
        made = lambda: deepcopy(model)  # noqa: E731
    else:
        raise UserError(
            f"train takes a registered name, a TransformerConfig, a WeightMap or a model of this package, not "
            f"{shown(model)}; models.adopt lets the probes ask any other module."
        )
    spec = ModelSpec(name, made, lambda: task, None, registry.OWN, sweep=True)
    check_fit(made().config, task)
    return spec, definition


def own_recipe(task: Task, steps: int, **changes: Any) -> Recipe:
    """A recipe for problems that the task draws; ``changes`` are fields of :class:`Recipe`. It validates on 2,048
    problems, or on all that a small task does not hold out.

    Raises:
        UserError: a field that a recipe does not have, or a value that it does not take.
    """
    known = [field.name for field in fields(Recipe)]
    if unknown := next((name for name in changes if name not in known), None):
        raise unknown_name("field of a recipe", unknown, known)
    split = task.held_out
    if isinstance(split, SplitDomain) and split.listed:
        changes = {"validation_size": max(1, min(Recipe.validation_size, task.domain.size - split.n))} | changes
    chosen = DEFAULTS | {"eval_every": max(1, steps // EVALUATIONS), "problems": TaskProblems()} | changes
    return Recipe(steps=steps, **chosen)


@typed
def train(
    model: Any,
    task: Any = None,
    steps: Count | None = None,
    seeds: int = 8,
    out: str | Path = "runs/mine",
    first_seed: int = 0,
    device: str = "auto",
    compile: bool | None = None,
    progress: bool = True,
    minutes: float | None = None,
    watch: Any = None,
    log: Any = None,
    until: Any = None,
    **recipe: Any,
) -> TrainResult:
    """Train seeds of a model of one's own on a task, or continue the run in ``out``.

    The trainer is that of ``interp train``: seeds are stacked, a killed run resumes with the same bits, Ctrl-C saves.
    ``models.load(out)`` gives the best seed's best parameters afterwards.

    Args:
        model: a :class:`TransformerConfig` (all weights free), a weight map, a model of this package, or the name of a
            registered model, which brings its task and recipe.
        task: what it is trained on; see :func:`models.tasks.formats.formatted_task.formatted`. Also a line of text, or
            ``"FILE.py:NAME"``. The source of that file, or of the script that is run if the task has a name there, is
            kept in the folder where the task is Python code.
        steps: how many; needed unless the model is registered.
        seeds: how many, from ``first_seed`` on.
        minutes: stop and save after this time; the same call resumes.
        log: a function that gets the numbers of every evaluation by name, such as ``wandb.log``; how often these are is
            ``eval_every=``. A resumed run evaluates again what was done since its last checkpoint.
        until: "certified": a seed that answers all validation problems is judged on all problems, for up to half a
            minute (:func:`interp.certify`). One that is certified ends there, and its certificate is kept in the folder
            under ``accepted``. Else the wrong problems, and problems of what could not be proved, become an eighth of
            its batches. Also a judge of one's own (:class:`models.training.acceptance.AcceptanceTest`). A seed's
            ``last_verdict`` says how far it came. A resumed run may train on other problems where a verdict ended by
            time.
        recipe: fields of :class:`models.training.Recipe`, such as ``lr=3e-4, weight_decay=1.0``. Problems are drawn by
            the task from what it does not hold out; ``problems=TaskProblems(hard=0.3)`` adds long carries.

    Raises:
        UserError: a model too small for the task, a recipe field that does not exist, a folder with another run, a
            model that cannot be judged.
    """
    from models.training.acceptance import judge_of
    from models.training.loop import train as train_seeds

    if log is not None and not callable(log):
        raise UserError(f"log is a function that gets a dictionary of numbers, not {shown(log)}.")
    if isinstance(model, str):
        if task is not None:
            raise UserError(f"{model} is a registered model with its own task; give a TransformerConfig with a task.")
        own = registry.recipe_of(model)
        chosen = own.replace(**recipe, **({} if steps is None else {"steps": steps})) if recipe or steps else own
        return train_seeds(
            model,
            out,
            seeds,
            first_seed,
            chosen,
            device,
            compile,
            progress=progress,
            minutes=minutes,
            watch=watch,
            log=log,
            judge=judge_of(until, model),
        )
    if steps is None:
        raise UserError("train needs steps=, the number of training steps.")
    given, task = task, task_of_text(task) if isinstance(task, str) else task
    name = Path(out).name or "mine"
    name = f"my-{name}" if name in registry.names(sweeps=True) and not registry.is_own(name) else name
    spec, definition = _specified(model, task, name)
    registry.register_own(spec)
    source = TaskSource.of(given if isinstance(given, str) else spec.task()) if definition["task"] is None else None
    try:
        return train_seeds(
            name, out, seeds, first_seed, own_recipe(spec.task(), steps, **recipe), device, compile, progress=progress,
            minutes=minutes, watch=watch, log=log, definition=definition, judge=judge_of(until, name),
        )  # fmt: skip
    finally:  # after a run that was stopped, too
        if source is not None and (Path(out) / "config.json").is_file():
            source.keep_in(Path(out))
            if progress:
                print(f"interp score {out} --task {source}", file=sys.stderr)
