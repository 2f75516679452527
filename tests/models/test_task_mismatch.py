"""A model that was given a task which is not its own: the answers say so, and name the task that it has."""

from pathlib import Path
from typing import Any

import pytest
import torch

import interp
import models
from models.evaluation import predict
from models.task_mismatch import proposal
from models.tasks import formatted
from models.tasks.task_definitions import task_of_text
from models.weight_maps.dense import DenseWeights

OWN = "{a:1}+{b:1}={s:2r}; a + b"
#: Tasks of the same tokens and lengths, none of which is the model's own.
OTHERS = ["{a:1}+{b:1}={s:2}; a + b", "{a:1}+{b:1}={s:2r}; a * b", "{a:1}+{b:1}={s:2}; max(a, b)"]


def one_layer(text: str, errors: int = 0) -> models.ArithmeticTransformer:
    """A small model fitted to all problems of a task but a few, which it learns to answer wrongly."""
    task = task_of_text(text)
    config = models.TransformerConfig(
        n_layers=1, d_model=48, n_heads=4, d_head=12, d_mlp=128, d_vocab=task.d_vocab, n_ctx=task.input_length,
        normalization_type="LN",
    )  # fmt: skip
    weights = DenseWeights(config)
    weights.initialise(torch.Generator().manual_seed(0))
    model = models.ArithmeticTransformer(weights, task)
    problems = task.as_problems([(a, b) for a in range(10) for b in range(10)])
    tokens, targets = task.encode(problems), task.targets(problems).clone()
    targets[:errors] = torch.randint(10, (errors, targets.shape[1]), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(200):
        logits = model(tokens)[:, list(task.query_positions)]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def saved(model: models.ArithmeticTransformer, path: Path) -> Path:
    config = {"act_fn": model.config.act_fn, "normalization_type": "LN"}
    torch.save({"state_dict": dict(model.all_weights()), "config": config}, path)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(one_layer(OWN), tmp_path_factory.mktemp("own") / "own.pt")


@pytest.mark.parametrize("text", OTHERS)
def test_loading_scoring_and_certifying_begin_with_the_task_that_the_model_has(path: Path, text: str) -> None:
    with pytest.warns(UserWarning, match="^The task may not be the model's: '{a:1}.{b:1}={s:2r}' with a . b fits"):
        model = models.load(path, task=text)
    for answer in (
        str(models.score(model)),
        interp.certify(model).sentence(),
        str(models.score(model, task=model.task)),
    ):
        assert answer.startswith("The task may not be the model's: '{a:1}+{b:1}={s:2r}' with a + b fits")


def test_the_models_own_task_is_not_doubted(path: Path, recwarn: Any) -> None:
    model = models.load(path, task=OWN)
    assert not recwarn and models.score(model).task_mismatch == "" == interp.certify(model).task_mismatch


def test_what_is_proposed_need_not_fit_every_answer() -> None:
    found = proposal(one_layer(OWN, errors=10), formatted("{a:1}+{b:1}={s:2}", "a + b"), predict)
    assert found is not None
    said, share = found
    assert said.task.definition["format"] == "{a:1}+{b:1}={s:2r}" and 0.7 <= share < 1


@pytest.mark.slow
def test_a_model_that_knows_no_task_is_told_nothing_of_one_and_one_made_with_its_task_is_not_doubted() -> None:
    untrained = models.build("microadder-57")
    assert models.score(untrained, [(57, 48)]).correct == 0 and models.score(untrained, [(57, 48)]).task_mismatch == ""
    weights = DenseWeights(one_layer(OWN).config)
    weights.initialise(torch.Generator().manual_seed(3))
    model = models.ArithmeticTransformer(weights, formatted("{a:1}+{b:1}={s:2}", "a + b"))
    said = models.score(model).task_mismatch
    assert said.startswith("The task may not be the model's: it answers less than half of it.") and "guess" in said
