# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How 456 parameters add
#
# `adder-456` has 456 parameters in one layer, and its attention may depend on the digits. That of `microadder-57`
# cannot. Does the larger model use this freedom, and where does its carry come from?

# %%
import numpy as np
import torch

import interp
import models
from interp.causal.ablation import Together, role_edges
from interp.core.samples import draw
from interp.core.stats import proportion
from interp.figures.tables import findings, table
from models.tasks import problem_pairs
from models.tasks.columns.long_carries import problems_of_chain_length

NAMES = ["microadder-57", "adder-456", "adder-512", "adder-582"]
adders = {name: models.load(name) for name in NAMES}
adder = adders["adder-456"]

# %% [markdown]
# ## 1. Does attention depend on the digits?
#
# The last row is an untrained model of the size of `adder-456`.

# %%
looks = {name: interp.attention_by_role(model) for name, model in adders.items()}
findings(looks | {"untrained": interp.attention_by_role(models.build("adder-456"))}, "model")

# %%
looks["adder-456"].figure()

# %% [markdown]
# ## 2. Does it have to?
#
# Every weight is set to its mean over the problems, so that attention is one constant matrix. The problems have carry
# chains of every length from 0 to 10, 500 each. The control moves the weights as far in a random direction.

# %%
generator = torch.Generator().manual_seed(0)
problems = torch.cat([problems_of_chain_length(length, 500, generator) for length in range(11)])
rows = []
for name, model in adders.items():
    everything = Together(tuple(role_edges(model, model.task)), "attention")
    found = interp.component_ablation(
        model, components=[everything], replacement="mean", problems=problems, unchanged="keep"
    )
    whole = proportion(found.values["accuracy"].squeeze(drop=True).all("read").values)
    cell = found.table.squeeze(drop=True).sel(stratum="all")
    rows.append((name, str(whole), float(cell.value), float(cell.value_random), len(problems)))
table(rows, ["attention at its mean", "whole answers right", "digits right", "digits right, control", "problems"])

# %% [markdown]
# A constant matrix is enough for 456 parameters, as it is for MicroAdder, whose attention is one. The models of 512 and
# 582 parameters lose many answers. But a random change of the same length costs them about as much. So they need their
# weights to be about as they are; this does not say that the choice by value tells them something.
#
# ## 3. What does attention write?
#
# At the query of a digit, what attention writes is projected on the direction in which it varies most, and fitted on
# three numbers: the digit sum of the digit's own column, that of the previous column, and the digit that was written
# last. The control takes these numbers from another problem.


# %%
def fit(signal: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, float]:
    """Coefficients by least squares, and the share of the variance that they explain."""
    design = np.column_stack((terms, np.ones(len(terms))))
    coefficients = np.linalg.lstsq(design, signal, rcond=None)[0]
    return coefficients[:-1], 1 - np.var(signal - design @ coefficients) / np.var(signal)


rows = []
for name in ("microadder-57", "adder-456"):
    model = adders[name]
    sample = draw(model.task, None, n=2048, seed=0)
    values = {key: x.numpy().astype(float) for key, x in model.task.variables(sample.problems).items()}
    with torch.inference_mode():
        _, cache = model.run_with_cache(sample.tokens, names_filter="blocks.0.hook_attn_out")
    for column in range(1, 10):
        written = cache["blocks.0.hook_attn_out"][:, model.task.query_positions[column]].double().numpy()
        written = written - written.mean(0)
        _, scale, directions = np.linalg.svd(written, full_matrices=False)
        sums = values["digit_sum"]
        terms = np.stack((sums[:, column], sums[:, column - 1], values["s"][:, column - 1]), 1)
        (own, previous, last), explained = fit(written @ directions[0], terms)
        _, control = fit(written @ directions[0], np.roll(terms, 1, axis=0))
        share = scale[0] ** 2 / (scale**2).sum()
        rows.append((name, f"s{column}", own / previous, last / previous, share, explained, control))
columns = ["model", "digit", "own / previous", "written / previous", "of variance", "explained", "explained, control"]
table(rows, columns, "On 2,048 uniform problems")

# %% [markdown]
# Both write the two columns as one decimal number, ten to one. MicroAdder's attention also writes the last digit, as
# strongly as a digit of the previous column; that of `adder-456` leaves it out.
#
# ## 4. Which way does the carry come?
#
# A circuit is searched for on one half of the pairs and judged on the other. A carry into column 4 is made in column 3,
# or passed on by it; `04_patching_carries` has the pairs, and the routes of both models one by one.

# %%
circuits = {
    f"{name}, {kind} carry": interp.smallest_circuit(
        adders[name],
        problem_pairs(adders[name].task, f"{kind} carry", column=4, n=256, seed=0, side="mixed"),
        groups="roles",
    )
    for name in ("microadder-57", "adder-456")
    for kind in ("made", "passed")
}
findings(circuits, "model and carry")

# %% [markdown]
# A carry that is made comes through the values of the previous operands in both models. For a carry that is passed on,
# the circuit of `adder-456` has no edge through the head: the written digit goes from the query's own token past
# attention. MicroAdder's circuit needs the head's value of that token as well.

# %%
circuits["adder-456, passed carry"].figure()

# %% [markdown]
# ## 5. Which neurons detect it, and which algorithm is it?

# %%
units = interp.carry_units(adder)
findings({"neurons": units, "algorithm": interp.which_algorithm(adder)}, "question")

# %%
units.figure()
