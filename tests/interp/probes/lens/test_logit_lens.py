"""The logit lens: TransformerLens' readings, the model's own logits at the end, and no reading where there is none."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import entropy

import models
from interp.core.key_roles import ALL_TARGETS
from interp.core.named_places import stream_points
from interp.core.results import Provenance
from interp.probes.lens import compute_logit_lens, logit_lens
from interp.probes.lens.logit_lens import by_point
from models.errors import UserError
from tests.interp.probes.lens.made import SWITCHES, random_model

N = 64
MODELS = [*SWITCHES, "microadder-57", "toygpt-learned-pre", "adder-456"]


def model_of(name: str):
    return random_model(name) if name in SWITCHES else models.load(name)


def problems_of(model, n: int = N):
    return model.task.sample(n, torch.Generator().manual_seed(3))


def expected_tables(logits: torch.Tensor, right: np.ndarray) -> dict[str, np.ndarray]:
    """The three measures [point, target] of logits [point, n, target, d_vocab], in float64."""
    log_p = log_softmax(logits.double().numpy(), -1)
    p = np.exp(log_p)
    return {
        "accuracy": (log_p.argmax(-1) == right).mean(1),
        "probability": np.take_along_axis(p, right[None, ..., None], -1)[..., 0].mean(1),
        "kl": entropy(np.broadcast_to(p[-1], p.shape), p, axis=-1).mean(1),
    }


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_the_lens_reads_transformer_lens_accumulated_streams(name: str):
    model = model_of(name)
    problems = problems_of(model)
    found = logit_lens(model, problems=problems)
    _, cache = model.run_with_cache(model.task.encode(problems))
    mid = model.config.d_mlp > 0
    stack, labels = cache.accumulated_resid(layer=None, incl_mid=mid, return_labels=True)
    stack = stack[:, :, list(model.task.query_positions)]
    normed = model.ln_final(stack.flatten(0, 1)) if model.config.has_final_norm else stack.flatten(0, 1)
    logits = model.unembed(normed).unflatten(0, stack.shape[:2])
    assert labels[0] == "0_pre" and labels[-1] == "final_post"
    assert len(labels) == len(found.table.point) == 1 + model.config.n_layers * (1 + mid)
    for measure, expected in expected_tables(logits, model.task.targets(problems).numpy()).items():
        shown = found.table[measure]
        np.testing.assert_allclose(shown[:, :-1], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(shown.sel(target=ALL_TARGETS), expected.mean(1), rtol=1e-4, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("name", ["ln", "rms", "microadder-57"])
def test_probabilities_are_those_of_transformer_lens_own_lens(name: str):
    tool = pytest.importorskip("transformer_lens.tools.analysis.logit_lens", reason="this version has no logit lens")
    model = model_of(name)
    problems = problems_of(model)
    targets = model.task.targets(problems)
    found = logit_lens(model, problems=problems)
    last = model.task.query_positions[0]
    theirs = tool.logit_lens(
        model, model.task.encode(problems), positions=last, targets=targets[:, 0], return_type="probs"
    )
    posts = [i for i, point in enumerate(found.table.point.values) if point == "L0 pre" or point.endswith("post")]
    ours = found.table.probability.isel(point=posts, target=0)
    np.testing.assert_allclose(ours, theirs.values[..., 0].mean(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_lens_ends_at_the_models_own_answers(name: str):
    model = model_of(name)
    problems = problems_of(model)
    found = logit_lens(model, problems=problems).table.isel(point=-1)
    with torch.no_grad():
        logits = model(model.task.encode(problems))[:, list(model.task.query_positions)]
    right = model.task.targets(problems)
    assert (found.kl == 0).all()
    np.testing.assert_array_equal(found.accuracy[:-1], (logits.argmax(-1) == right).double().mean(0))
    assert float(found.accuracy[-1]) == pytest.approx((logits.argmax(-1) == right).double().mean().item())


def test_answers_of_other_problems_are_met_by_chance_alone():
    found = logit_lens(models.load("microadder-57"), n=2048).table
    digits = found.accuracy_shuffled.sel(target=[f"s{i}" for i in range(1, 10)])  # uniform; s10 and EOS are not
    assert float(abs(digits - 0.1).max()) < 0.04


def test_delimiters_of_one_label_are_told_apart():
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=2)
    found = logit_lens(model, task=model.task.at(3, 2), n=8)
    names = found.table.target.values.tolist()
    assert len(set(names)) == len(names) and {">", "> (2)", "> (3)"} <= set(names)
    assert found.cell("accuracy", point="L0 post", target=ALL_TARGETS).value == 1.0


def test_points_stand_in_order_of_depth():
    assert list(stream_points(random_model("ln", 2))) == ["L0 pre", "L0 mid", "L0 post", "L1 mid", "L1 post"]
    assert list(stream_points(random_model("attention-only", 2))) == ["L0 pre", "L0 post", "L1 post"]


def test_streams_that_are_normalised_after_the_sums_can_be_read_and_end_at_the_logits():
    found = logit_lens(models.load("toygpt-learned-post"), n=N).table
    assert (found.kl.isel(point=-1) == 0).all() and float(found.accuracy[-1, -1]) > 0.9


def test_bad_input_is_named():
    model = random_model("ln")
    with pytest.raises(UserError, match="at least 2"):
        logit_lens(model, n=1)
    logits, right = np.zeros((2, 3, 1, 10)), np.zeros((3, 1), dtype=np.int64)
    some = Provenance(3, 0, "made up")
    with pytest.raises(UserError, match="do not fit"):
        compute_logit_lens([logits], right, ["one"], ["s0"], "x", some)
    logits[0, 0, 0, 0] = np.nan
    with pytest.raises(UserError, match="diverged"):
        compute_logit_lens([logits], right, ["one", "two"], ["s0"], "x", some)


def test_a_model_that_forgets_its_answer_has_fewer_right_tokens_at_later_points():
    logits = np.zeros((3, 4, 1, 10))
    logits[0, :, :, 2], logits[1:, :, :, 5] = 1, 1
    right = np.full((4, 1), 2)
    found = compute_logit_lens([logits], right, ["one", "two", "three"], ["s0"], "x", Provenance(4, 0, "made up"))
    assert [part.value for part in by_point(found).parts] == [1, 0, 0] and by_point(found).name == "two"


def test_logits_that_do_not_come_from_the_last_stream_are_refused():
    model = random_model("no-norm")
    hook = model.hook_dict["unembed.hook_in"]
    handle = hook.register_forward_hook(lambda module, args, out: out + 1 if out.shape[1] == 6 else out)
    try:
        with pytest.raises(UserError, match="does not give this model's logits"):
            logit_lens(model, n=8)
    finally:
        handle.remove()


def test_the_figure_and_the_table_hold_the_numbers():
    found = logit_lens(random_model("ln", 2), n=16)
    figure, table = found.figure(), found.to_dataframe()
    assert len(figure.data) == 3 and np.shape(figure.data[0].z) == (5, 4)
    np.testing.assert_allclose(np.asarray(figure.data[2].z, dtype=float), found.table.kl)
    assert len(table) == 20 and (table.accuracy_low <= table.accuracy).all() and (table.kl_low <= table.kl_high).all()


def test_the_logit_lens_keeps_no_logits_of_the_whole_sample(monkeypatch):
    """What it holds of a chunk is reduced before the next is read: never more than a chunk's logits at a time."""
    module = importlib.import_module("interp.probes.lens.logit_lens")  # the package holds the function of that name
    seen = []
    log_softmax = module.log_softmax

    def watched(logits, axis):
        seen.append(logits.shape[1])
        return log_softmax(logits, axis)

    monkeypatch.setattr(module, "log_softmax", watched)
    model = models.load("microadder-57")
    found = logit_lens(model, n=1200)
    assert seen == [512, 512, 176]
    assert found.table.accuracy.values[-1, -1] == 1.0 and found.provenance.n == 1200
