"""The backward lens: its gradients by other means, what they say of the last stream by formula, and its control."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
import models
from interp.probes.lens.backward_lens import _read
from interp.probes.lens.residual_points import stream_points
from models.errors import UserError
from tests.comparing import numbers_are_finite
from tests.interp.probes.lens.made import random_model


def asked(kind: str, n: int = 5):
    model = random_model(kind).double()
    problems = model.task.sample(n, torch.Generator().manual_seed(3))
    goal = model.task.targets(problems).roll(1, 0).numpy()
    tokens, queries = model.task.encode(problems), list(model.task.query_positions)
    points = stream_points(model)
    return model, tokens, queries, goal, points, _read(model, tokens, list(points.values()), queries, goal)


@pytest.mark.parametrize("kind", ["ln", "rms-gated-rotary", "attention-only"])
def test_a_step_of_gradient_descent_moves_what_an_mlp_writes_along_what_is_read(kind: str):
    """The change of a layer's output at a query under a step of its bias is minus the gradient of that bias."""
    model, tokens, queries, goal, points, (_, promotes, demotes, norm) = asked(kind)
    layer, part = 1, "mid" if kind == "attention-only" else "post"
    last = f"L{layer} post" if kind == "attention-only" else f"L{layer} {part}"
    hook = points[last]
    for row, t in ((0, 0), (3, 1)):
        shift = torch.zeros(model.config.d_model, dtype=torch.float64, requires_grad=True)

        def moved(stream: torch.Tensor, hook: object, t: int = t, shift: torch.Tensor = shift) -> torch.Tensor:
            at = torch.zeros_like(stream[..., :1])
            at[:, queries[t]] = 1
            return stream + at * shift

        logits = model.run_with_hooks(tokens[row : row + 1], fwd_hooks=[(hook, moved)])
        loss = torch.nn.functional.cross_entropy(logits[:, queries[t]], torch.tensor(goal[row, t : t + 1]))
        (delta,) = torch.autograd.grad(loss, shift)
        reading, at = -delta @ model.W_U, list(points).index(last)
        assert promotes[at, row, t] == reading.argmax() and demotes[at, row, t] == reading.argmin()
        assert norm[at, row, t] == pytest.approx(float(delta.norm()), rel=1e-6)


def test_without_a_final_norm_the_last_streams_step_is_the_goal_minus_what_is_predicted():
    model, tokens, queries, goal, _, (answer, promotes, demotes, _) = asked("no-norm")
    p = model(tokens)[:, queries].softmax(-1)
    wanted = torch.nn.functional.one_hot(torch.from_numpy(goal), model.config.d_vocab)
    reading = ((wanted - p) @ model.W_U.T @ model.W_U).detach()
    assert np.array_equal(answer, p.argmax(-1).numpy()) and np.array_equal(promotes[-1], reading.argmax(-1))
    assert np.array_equal(demotes[-1], reading.argmin(-1))


def test_a_two_digit_adder_would_write_the_token_at_its_end_and_less_of_it_before():
    found = interp.backward_lens(models.load("toygpt-learned-pre"), n=400)
    share, control = found.table.overall.values, found.table.overall_control.values
    assert share[-1] > 0.98 > 0.6 > share[4] > 0.3 and share[0] < 0.25  # L1 post is in the middle
    assert (control < 0.12).all()
    assert (found.table.overall_low.values < share).all() and (found.table.overall_high.values > share).all()
    assert found.table.counted.max() <= found.provenance.n
    assert found.table.identical(interp.backward_lens(models.load("toygpt-learned-pre"), n=400).table)
    assert len(found.to_dataframe()) == 9 * 3 and len(found.figure().data) >= 2


def test_the_end_that_all_answers_share_is_left_out_and_one_problem_is_refused():
    model = models.load("adder-456")
    assert "EOS" not in interp.backward_lens(model, n=40).table.target.values
    with pytest.raises(UserError):
        interp.backward_lens(model, problems=[(1, 2)] * 4)


def test_gradients_that_overflow_in_half_precision_are_refused():
    with pytest.raises(UserError):
        interp.backward_lens(models.load("microadder-57").half(), n=512)


def test_with_two_tokens_there_is_no_third_to_compare_with():
    found = interp.backward_lens(models.load("parity-coupling-1l4h-small"), n=60)
    assert np.isnan(found.table.overall_control.values).all() and found.table.overall.values[-1] > 0.9
    assert numbers_are_finite(found.sentence()) and len(found.figure().data) >= 2
