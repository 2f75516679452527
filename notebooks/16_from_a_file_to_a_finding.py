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
# # From a file to a finding
#
# Somebody sends a file of weights, and says nothing more. What was it trained on, does it work, how, and where does it
# fail? Two such files are made here first: the weights of two models of
# [the benchmark of ordinary models](../proofs.md), with TransformerLens' names, and nothing else.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import save_file

import interp
import models
from models.tasks import problem_pairs

ORDINARY = next(root for root in (Path("."), Path("..")) if (root / "benchmarks").is_dir()) / "benchmarks/provability"
place = TemporaryDirectory()
folder = Path(place.name)
for name, file in (("subtract-signed-3-0", "first.safetensors"), ("add-three-3-13", "second.safetensors")):
    weights = models.load(ORDINARY / "models" / name).effective_weights()
    save_file({key: value.detach().contiguous() for key, value in weights.items()}, folder / file)

# %% [markdown]
# ## 1. What was it trained on?
#
# Ways to write sums, differences, products and maxima are tried, each on 64 problems; and so is what the file does not
# say, such as the activation.

# %%
found = models.guess(folder / "first.safetensors")
print(found.task, found.config, sep="\n")

# %% [markdown]
# ## 2. Does it work?

# %%
model = models.load(folder / "first.safetensors", task=found.task, config=found.config)
print(models.score(model))

# %% [markdown]
# All of them. That leaves room for an error in thousands of problems; we come back to it.

# %% [markdown]
# ## 3. How does it work?
#
# Two problems that differ in one digit: which component, taken from the one run into the other, changes the answer?

# %%
nodes = interp.activation_patching(model, "402-135", "406-135", by="component")
nodes.figure()

# %%
print(nodes)

# %% [markdown]
# One pair is one pair. Pairs in which the borrow into a column differs, and nothing that is written in that column:

# %%
pairs = problem_pairs(model.task, "variable", variable="borrow_in", column=1, n=128)
by_borrow = interp.activation_patching(model, pairs, by="component")
by_borrow.figure()

# %%
print(by_borrow)
print(by_borrow.to_dataframe()[["component", "recovered", "answers"]].round(2).to_string(index=False))
print(interp.carry_units(model))

# %% [markdown]
# What attention writes carries most of the borrow, and each of the two heads a part of it: alone, either gives the
# other run's answer in about a third of the pairs. In MicroAdder a neuron is a switch for the carry. Here no single
# neuron tells the borrow from what comes with it.

# %% [markdown]
# ## 4. Where does it fail?
#
# A proof that it is right on all problems is tried. Where there is none, all problems are run as far as the time goes.

# %%
verdict = interp.certify(model, minutes=4.0)
print(verdict)

# %% [markdown]
# **The finding**: the file is a subtractor of three-digit numbers with a sign. It answers all held-out problems right,
# and yet not all: the problem above is one that it gets wrong. Two heads carry the borrow together, and no neuron alone
# tells it.

# %% [markdown]
# ## 5. A file that is not guessed
#
# The second file adds three numbers. No such format is tried, and that is what is said. With the task in a line, the
# same questions can be asked.

# %%
try:
    models.guess(folder / "second.safetensors")
except models.UserError as error:
    print(error.args[0].replace(str(folder), "folder"))

# %%
task = models.tasks.formatted("{a:3}+{b:3}+{c:3}={s:4r}", "a + b + c", variables="addition")
second = models.load(folder / "second.safetensors", task=task, config={"act_fn": "gelu"})
print(models.score(second))
proof = interp.certify(second, minutes=15.0)
print(proof)

# %% [markdown]
# A billion problems, of which none was left out. What the proof's picture shows is the least lead that was proved for
# each right digit.

# %%
proof.figure()

# %%
place.cleanup()
