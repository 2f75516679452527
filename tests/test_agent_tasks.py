"""The tasks for agents: what was planted is true, traps are traps, and the tools of ``interp mcp`` are enough."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.agent_tasks import grade, questions, score, tasks
from benchmarks.agent_tasks.planted import made, write
from models.evaluation import predict
from tests.sampling import sampled

#: Their verdicts take more than some seconds.
LONG = [task["id"] for task in tasks() if task["make"]["model"] == "near copy"]
SHORT = [task for task in tasks() if task["id"] not in LONG]
OF_KIND = {kind: [task for task in SHORT if task["kind"] == kind] for kind in {task["kind"] for task in SHORT}}


def every_problem(model: Any) -> torch.Tensor:
    """All problems of a task of two numbers of equally many digits."""
    domain = model.task.domain
    side = round(domain.size**0.5)
    at = torch.arange(domain.size)
    return torch.stack((at // side, at % side), 1)


def wrong(model: Any, **hooks: Any) -> torch.Tensor:
    """The problems that a model answers wrong."""
    problems = every_problem(model)
    return problems[(predict(model, problems) != model.task.targets(problems)).any(1)]


def named(task: dict[str, Any]) -> str:
    return task["id"]


@pytest.mark.parametrize("task", [*OF_KIND["right"], *OF_KIND["wrong pair"]], ids=named)
def test_what_is_right_and_wrong_was_counted_by_running_every_problem(task):
    model = made(task)
    found = wrong(model)
    assert (len(found) == 0) == (task["answer"] in ("yes", "none"))
    if len(found):
        assert f"all but {len(found)} of" in task["trap"] and len(found) <= 6
        a, b = found[0].tolist()
        text = model.task.problem_text((a, b))
        assert grade(task | {"answer": "any that is wrong"}, text) == "right"
        assert grade(task | {"answer": "any that is wrong"}, model.task.problem_text((1, 2))) == "confidently wrong"


@pytest.mark.parametrize("task", [*OF_KIND["neuron"], *OF_KIND["breaks"]], ids=named)
def test_the_named_part_alone_is_needed_and_others_look_like_it(task):
    model = made(task)
    assert not len(wrong(model))
    size = model.cfg.d_mlp if task["kind"] == "neuron" else model.cfg.n_heads
    hook = "blocks.0.mlp.hook_post" if task["kind"] == "neuron" else "blocks.0.attn.hook_z"
    needed = []
    for part in range(size):
        with model.hooks(fwd_hooks=[(hook, lambda x, hook, part=part: torch.where(_at(x, part), 0.0, x))]):
            needed += [part] * bool(len(wrong(model)))
    assert [f"L0{'N' if task['kind'] == 'neuron' else 'H'}{part}" for part in needed] == [task["answer"]]
    problems = every_problem(model)
    _, cache = model.run_with_cache(model.task.encode(problems))
    last = model.task.query_positions[0]
    if task["kind"] == "neuron":
        carries = model.task.targets(problems)[:, 0] == 1
        follows = ((cache[hook][:, last] > 0) == carries[:, None]).all(0)
        assert follows[needed[0]] and follows.sum() > 1
    else:
        pattern = cache["pattern", 0][:, :, last]
        assert sum(torch.equal(pattern[:, each], pattern[:, needed[0]]) for each in range(size)) > 1


def _at(x: torch.Tensor, part: int) -> torch.Tensor:
    shape = [1] * x.ndim
    shape[2] = x.shape[2]
    return (torch.arange(x.shape[2]) == part).reshape(shape)


@pytest.mark.parametrize("task", OF_KIND["program"], ids=named)
def test_every_program_is_right_on_all_problems(task):
    assert not len(wrong(made(task)))


def test_there_are_forty_tasks_each_with_a_trap_and_graded_in_three_ways():
    assert len({task["id"] for task in tasks()}) == len(tasks()) == 40 and all(task["trap"] for task in tasks())
    nothing = score({})["all"]
    assert nothing == {"right": 0, "refused": 40, "confidently wrong": 0}
    cautious = score({task["id"]: "yes" for task in tasks()})
    assert cautious["right"]["confidently wrong"] == 4 and cautious["all"]["right"] == 5
    first = SHORT[0]
    assert set(questions({first["id"]: "x.pt"})[0]) == {"id", "question", "task", "model"}


def solved(given: list[dict[str, Any]], folder: Path) -> dict[str, str | None]:
    """The answers of the scripted client."""
    mcp = pytest.importorskip("mcp")
    from benchmarks.agent_tasks.client import answer
    from interp.cli.mcp_server import server
    from tests.interp.cli.test_mcp import Here

    async def run() -> dict[str, str | None]:
        async with mcp.Client(server(Here())) as client:  # type: ignore[arg-type]
            asked = questions({task["id"]: write(task, folder) for task in given})
            return {each["id"]: await answer(client, each) for each in asked}

    return asyncio.run(run())


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("kind", sampled(sorted(OF_KIND), "wrong pair"))
def test_a_client_with_the_tools_alone_solves_every_short_task(kind: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts = score(solved(OF_KIND[kind], tmp_path))[kind]
    assert counts["right"] == len(OF_KIND[kind]) and counts["confidently wrong"] == 0


def test_the_short_tasks_are_most_of_the_forty():
    assert len(SHORT) == sum(map(len, OF_KIND.values())) >= 36


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("task", [task for task in tasks() if task["id"] in LONG], ids=named)
def test_near_copies_of_trained_models_are_judged_too(task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert grade(task, solved([task], tmp_path)[task["id"]]) == "right"
