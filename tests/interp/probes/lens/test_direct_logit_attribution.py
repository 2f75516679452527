"""Direct logit attribution: parts that add up, TransformerLens' attributions, formulas written out, and refusals."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import models
from interp.core.key_roles import ALL_TARGETS
from interp.core.results import Provenance
from interp.probes.lens import compute_direct_logit_attribution, direct_logit_attribution
from interp.probes.lens.direct_logit_attribution import PARTS, by_kind
from interp.probes.lens.residual_contributions import attributed, choose_rivals
from interp.probes.lens.residual_points import carry_flipped, digit_targets
from models.errors import UserError
from models.tasks.named.addition import TenDigitAddition
from tests.interp.probes.lens.made import SWITCHES, random_model

N = 24
ZOO = ["microadder-57", "microadder-74", "adder-456", "toygpt-learned-pre", "addlm-adder-two-digit"]


def model_of(name: str):
    return random_model(name) if name in SWITCHES else models.load(name)


def problems_of(model, n: int = N):
    return model.task.sample(n, torch.Generator().manual_seed(4))


@torch.no_grad()
def attributed_values(model, problems, rival="others") -> xr.DataArray:
    """Every problem's logits [part, target, example], which the result has the means of."""
    task = model.task
    targets = digit_targets(task, columns=isinstance(rival, str) and rival == "carry")
    coefficients, _ = choose_rivals(
        task, problems, targets, task.targets(problems)[:, targets], rival, model.config.n_logits
    )
    values, parts, _, _ = attributed(model, task, task.encode(problems), targets, coefficients)
    coords = {axis: ("part", parts[axis].to_numpy()) for axis in ("part", "layer", "head")}
    return xr.DataArray(values, coords, ("part", "target", "example"))


@pytest.mark.parametrize(
    ("name", "rival"),
    [
        pytest.param(name, rival, marks=[pytest.mark.slow] * (name in ZOO and rival != "carry"))
        for name in (*SWITCHES, *ZOO)
        for rival in ("others", "carry", "all")
    ],
)
def test_the_parts_of_every_problem_add_up_to_the_lead_of_its_right_digit(name: str, rival: str):
    model = model_of(name)
    problems = problems_of(model)
    found = direct_logit_attribution(model, problems=problems, rival=rival)
    targets = [i for i, role in enumerate(model.task.target_roles) if role.kind == "answer"]
    with torch.no_grad():
        logits = model(model.task.encode(problems))[:, [model.task.query_positions[t] for t in targets]].double()
    right = model.task.targets(problems)[:, targets]
    own = logits.gather(-1, right[..., None])[..., 0]
    if rival == "others":
        lead = own - (logits[..., :10].sum(-1) - own) / 9
    elif rival == "all":
        lead = own - logits.mean(-1)
    else:
        variables = model.task.variables(problems)
        columns = [model.task.target_roles[t].column for t in targets]
        total = variables["digit_sum"][:, columns] + 1 - variables["carry_in"][:, columns]
        lead = own - logits.gather(-1, (total % 10)[..., None])[..., 0]
    scale = float(lead.abs().max())
    values = attributed_values(model, problems, rival)
    np.testing.assert_allclose(values.sum("part", skipna=True).T, lead, atol=1e-4 * scale)
    parts = found.table.query(f"of == '{PARTS}' and target != '{ALL_TARGETS}'")
    by_target = parts.groupby("target", sort=False)
    np.testing.assert_allclose(by_target.contribution.sum(), lead.mean(0), atol=1e-4 * scale)
    np.testing.assert_allclose(by_target.lead.first(), lead.mean(0), atol=1e-4 * scale)
    assert found.table.deviation.max() < 1e-4 * scale
    means = values.mean("example").to_series().dropna()
    np.testing.assert_allclose(parts.contribution, means, atol=1e-5 * scale)


@torch.no_grad()
@pytest.mark.parametrize("name", ["ln", "rms", "final-norm-alone", "microadder-57", "toygpt-learned-pre"])
def test_parts_are_those_of_transformer_lens_on_folded_weights(name: str):
    model = model_of(name)
    problems = problems_of(model)
    right, tokens = model.task.targets(problems), model.task.encode(problems)
    rival = (right + 3) % 10
    targets = [i for i, role in enumerate(model.task.target_roles) if role.kind == "answer"]
    found = attributed_values(model, problems, rival[:, targets])
    folded = model.fold_layer_norm()
    _, cache = folded.run_with_cache(tokens)
    scale = float(abs(found).max())
    for place, target in enumerate(targets[:3]):
        query = model.task.query_positions[target]
        who = {"tokens": right[:, target], "incorrect_tokens": rival[:, target], "pos_slice": query}
        parts, labels = cache.decompose_resid(None, return_labels=True, pos_slice=query)
        attributed = dict(zip(labels, cache.logit_attrs(parts, **who), strict=True))
        heads = cache.logit_attrs(cache.stack_head_results(pos_slice=query), **who)
        ours = found.isel(target=place)
        for layer in range(model.config.n_layers):
            biases = ours.sel(part=[f"L{layer}.mlp", f"L{layer}.b_out"]).sum("part")
            np.testing.assert_allclose(biases, attributed[f"{layer}_mlp_out"], atol=1e-4 * scale)
            for head in range(model.config.n_heads):
                by_role = ours.isel(part=(ours.layer == layer) & (ours["head"] == head))
                theirs = heads[layer * model.config.n_heads + head]
                np.testing.assert_allclose(by_role.sum("part", skipna=True), theirs, atol=1e-4 * scale)
        np.testing.assert_allclose(ours.sel(part="embed"), attributed["embed"], atol=1e-4 * scale)
        np.testing.assert_allclose(ours.sel(part="pos"), attributed["pos_embed"], atol=1e-4 * scale)


@torch.no_grad()
def test_units_are_those_of_transformer_lens_on_folded_weights():
    model = random_model("ln")
    problems = problems_of(model)
    right = model.task.targets(problems)
    rival = (right + 3) % 10
    found = direct_logit_attribution(model, problems=problems, rival=rival)
    _, cache = model.fold_layer_norm().run_with_cache(model.task.encode(problems))
    query = model.task.query_positions[1]
    neurons = cache.stack_neuron_results(-1, pos_slice=query)
    theirs = cache.logit_attrs(neurons, tokens=right[:, 1], incorrect_tokens=rival[:, 1], pos_slice=query)
    at = found.table[found.table.target == found.table.target.unique()[1]].set_index("part").contribution
    neurons = [f"L{layer}N{unit}" for layer in range(3) for unit in range(model.config.d_mlp)]
    np.testing.assert_allclose(at[neurons], theirs.mean(-1), atol=1e-5)
    sums = at[neurons].to_numpy().reshape(3, -1).sum(1)
    np.testing.assert_allclose(sums, at[[f"L{layer}.mlp" for layer in range(3)]], atol=1e-5)


@torch.no_grad()
def test_a_role_of_a_head_is_the_sum_over_its_keys_written_out_in_float64():
    model = random_model("ln")
    problems = problems_of(model)
    found = attributed_values(model, problems)
    weights = {name: value.double() for name, value in model.all_weights().items()}
    _, cache = model.run_with_cache(model.task.encode(problems))
    layer, head, target = 1, 1, 1
    query, i = model.task.query_positions[target], 5
    right = int(model.task.targets(problems)[i, target])
    lead = -torch.ones(10, dtype=torch.float64) / 9
    lead[right] = 1.0
    read = weights["ln_final.w"] * (weights["unembed.W_U"] @ lead)
    for role in ("own operands", "previous operands", "previous output"):
        total = 0.0
        for key in model.task.relative_roles(target)[role]:
            value = cache[f"blocks.{layer}.attn.hook_v"][i, key, head].double()
            written = float(cache[f"blocks.{layer}.attn.hook_pattern"][i, head, query, key]) * (
                value @ weights[f"blocks.{layer}.attn.W_O"][head]
            )
            total += float((written - written.mean()) @ read / cache["ln_final.hook_scale"][i, query, 0])
        here = found.sel(part=f"L{layer}H{head} {role}").isel(target=target, example=i)
        assert float(here) == pytest.approx(total, rel=1e-4, abs=1e-6)


def test_in_the_hand_built_adder_the_mlp_writes_the_whole_lead():
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=3)
    found = direct_logit_attribution(model, task=model.task.at(3, 3), n=64, rival="carry")
    shares = by_kind(found) / found.table.lead.iloc[-1]
    assert shares["mlp"] == pytest.approx(1.0, abs=1e-3)
    assert shares.drop("mlp").abs().max() < 1e-3


def test_a_part_without_a_position_is_blank_and_the_rest_has_intervals_around_its_mean():
    found = direct_logit_attribution(models.load("microadder-57"), n=128)
    last = found.table[(found.table.part == "L0H0 own operands") & (found.table.target == "s10")]
    assert last.empty  # the last digit has no operands of its own
    assert (found.table.contribution_low <= found.table.contribution + 1e-9).all()
    assert (found.table.contribution_high >= found.table.contribution - 1e-9).all()
    whole = found.table[found.table.target != ALL_TARGETS].groupby("part").contribution.sum() / 11
    over_all = found.table[found.table.target == ALL_TARGETS].set_index("part").contribution
    np.testing.assert_allclose(over_all, whole[over_all.index], rtol=1e-5)


@given(st.lists(st.tuples(st.integers(0, 10**10 - 1), st.integers(0, 10**10 - 1)), min_size=1, max_size=5))
def test_the_digit_of_the_other_carry_is_what_the_column_would_hold_with_it(problems):
    task = TenDigitAddition()
    variables = task.variables(problems)
    for role in task.target_roles[:11]:
        flipped = carry_flipped(variables, role)
        column = role.column
        expected = (variables["a"] + variables["b"] + 1 - variables["carry_in"])[:, column] % 10
        assert torch.equal(flipped, expected) and (flipped != variables["s"][:, column]).all()


@pytest.mark.parametrize("name", ["toygpt-learned-post", "position-coupling-1l4h-small"])
def test_norms_after_the_sums_are_refused(name: str):
    with pytest.raises(UserError, match="is not the sum of what is written"):
        direct_logit_attribution(models.load(name))


def test_bad_input_is_named():
    model = random_model("ln")
    problems = problems_of(model)
    right = model.task.targets(problems)
    with pytest.raises(UserError, match="Did you mean 'carry'"):
        direct_logit_attribution(model, rival="cary")
    with pytest.raises(UserError, match="rivals are the right digit itself"):
        direct_logit_attribution(model, problems=problems, rival=right)
    with pytest.raises(UserError, match=r"\[24, 3\], not \[24\]"):
        direct_logit_attribution(model, problems=problems, rival=right[:, 0])
    with pytest.raises(UserError, match="from 0 to 9"):
        direct_logit_attribution(model, problems=problems, rival=right + 10)


def test_parts_that_do_not_add_up_are_refused():
    parts = pd.DataFrame([{"part": "embed", "kind": "embed", "layer": -1, "head": -1, "role": ""}])
    values = np.ones((1, 1, 4))
    some = Provenance(4, 0, "made up")
    compute_direct_logit_attribution(values, parts, None, np.ones((1, 4)), ["s0"], "x", "y", some)
    for lead, says in ((1.5, "do not add up"), (np.nan, "has diverged")):
        with pytest.raises(UserError, match=says):
            compute_direct_logit_attribution(values, parts, None, np.full((1, 4), lead), ["s0"], "x", "y", some)


def test_a_model_in_double_precision_is_attributed_alike():
    model = random_model("ln")
    single = direct_logit_attribution(model, n=12).table.contribution
    double = direct_logit_attribution(copy.deepcopy(model).double(), n=12).table.contribution
    np.testing.assert_allclose(single, double, atol=1e-5)


def test_a_bit_leads_over_the_other_bit_and_over_no_delimiter():
    task = models.load("parity-coupling-1l4h-small").task
    problems = task.sample(6, torch.Generator().manual_seed(0))
    targets = digit_targets(task)
    right = task.targets(problems)[:, targets]
    coefficients, _ = choose_rivals(task, problems, targets, right, "others")
    assert torch.equal(coefficients[..., :2].gather(-1, 1 - right[..., None])[..., 0], -torch.ones(right.shape))
    assert not coefficients[..., 2:].any()
