"""Training until certified: it ends with a certificate in the run's folder, or gives back what is not right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import interp
import models
from interp.proofs import check_certificate, load_certificate
from interp.proofs.stored_verdicts import FILE
from interp.proofs.training_judge import Prover, judged, unproved_problems
from models.errors import UserError
from models.tasks import formatted
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights
from tests.interp.proofs.conftest import zoo
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")
REVERSAL = formatted("{a:2}={s:2r}", "a", held_out=10)
CONFIG = models.TransformerConfig(
    n_layers=1, d_model=16, n_heads=1, d_head=16, d_mlp=32, act_fn="relu", normalization_type=None,
    d_vocab=REVERSAL.d_vocab, n_ctx=REVERSAL.input_length,
)  # fmt: skip


def run(out: Path, **options: Any) -> Any:
    settings = {"steps": 300, "seeds": 2, "lr": 0.01, "batch_size": 64, "eval_every": 50, "warmup_steps": 10}
    return models.train(CONFIG, REVERSAL, out=out, progress=False, **{"until": "certified"} | settings | options)


def test_a_seed_ends_with_its_certificate_in_the_folder(tmp_path: Path):
    result = run(tmp_path / "run")
    assert result.accepted
    seed = result.accepted[0].seed
    assert result.accepted[0].stopped_at < 300
    found = load_certificate(tmp_path / "run/accepted" / f"seed-{seed}" / FILE)
    assert found.status == "certified"
    model = models.load(tmp_path / "run", seed=seed)
    assert check_certificate(found, model).status == "certified" and unproved_problems(found, model.task) == ()


def test_a_run_without_a_certificate_says_how_far_it_came(tmp_path: Path):
    result = run(tmp_path / "run", steps=20, eval_every=10)
    assert not result.accepted and all(state.status == "finished" for state in result.seeds)


@pytest.mark.parametrize("broken", sampled(["microadder-57", "max-3"], "microadder-57"))
def test_what_is_given_back_is_wrong_or_stands_for_what_is_not_proved(broken: str):
    if broken == "microadder-57":  # the columns' method; without its MLP it cannot carry
        model = models.build(broken)
        model.load_state_dict(zoo(broken).state_dict())
        with torch.no_grad():
            for name, value in model.weight_map.named_parameters():
                if "fc1" in name:
                    value.zero_()
    else:  # the general method, on a model that never learnt
        task = formatted("max({a:2},{b:2},{c:1})={m:2}", "max(a, b, c)")
        config = CONFIG.replace(d_vocab=task.d_vocab, n_ctx=task.input_length)
        model = ArithmeticTransformer(DenseWeights(config), task)
    found = judged(model, "float32", 2.0)
    assert found.status == "refuted"
    problems = torch.tensor(unproved_problems(found, model.task))
    assert len(problems) > 20 and len(problems.unique(dim=0)) == len(problems)
    wrong = (models.evaluation.predict(model, problems) != model.task.targets(problems)).any(1)
    assert wrong[0] and wrong.float().mean() > 0.9


def test_what_nothing_can_prove_is_refused_before_training(tmp_path: Path):
    task = formatted("{a:10r}+{b:10r}={s:11r}", "a + b")
    config = CONFIG.replace(n_layers=3, d_vocab=task.d_vocab, n_ctx=task.input_length)
    with pytest.raises(UserError):
        models.train(config, task, steps=10, out=tmp_path / "run", progress=False, until="certified")
    assert not (tmp_path / "run").exists()


def test_a_judge_of_ones_own_may_take_longer(tmp_path: Path):
    assert run(tmp_path / "run", until=Prover(minutes=2.0), seeds=1).seeds[0].last_verdict
    assert interp.certify(models.load(tmp_path / "run")).status == "certified"
