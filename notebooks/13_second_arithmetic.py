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
# # A second arithmetic: differences and residues
#
# All that the other notebooks say is about sums, column by column. Which of it belongs to addition, and which to the
# way in which a small transformer goes through columns? This notebook asks the same of a trained model that
# subtracts, and then turns to addition modulo a prime, where there are no columns at all.

# %%
import tempfile
from pathlib import Path

import pandas as pd
import torch
from IPython.display import Code, display

import interp
import models
from interp.figures.tables import findings
from models.tasks import problem_pairs

# %% [markdown]
# ## 1. Is a borrow read as a carry is?
#
# `subtractor-47` has 47 trained numbers. It subtracts ten-digit numbers a - b with a >= b, units first. It is
# MicroAdder's twin with two heads, since one head cannot give the digits of a and of b opposite signs. A borrow is to
# a difference what a carry is to a sum: it is made where a digit of a is the smaller one, and passed on where the two
# are equal.

# %%
subtractor, adder = models.load("subtractor-47"), models.load("microadder-57")
heads = interp.attention_by_role(subtractor)
heads.figure()

# %% [markdown]
# Both models have two neurons, and all four are switches: their inputs lie in two ranges that are apart, with and
# without a carry (or borrow) out of the column. In the adder each is needed for one side alone. In the subtractor one
# is, and removing the other costs most digits without a borrow and some of those with one. The control of each sentence
# is the neuron's removal.

# %%
findings({name: interp.carry_units(model) for name, model in [("subtractor", subtractor), ("adder", adder)]}, "model")

# %% [markdown]
# Where does the borrow into a column come from? The adder reads the carry off the digit that it has just written:
# this is the *chained* algorithm. A wrong digit is put in that place, and the algorithms then disagree about the next
# one.

# %%
algorithms = {name: interp.which_algorithm(model) for name, model in [("subtractor", subtractor), ("adder", adder)]}
findings(algorithms, "model")

# %% [markdown]
# Pairs of problems that differ in one borrow show by which way it arrives. A share of the logit difference says
# little by itself, so the share of answers that become the clean one stands next to it.

# %%
borrows = {
    kind: problem_pairs(subtractor.task, kind, column=5, n=256, side="mixed")
    for kind in ("made borrow", "passed borrow")
}
patched = {kind: interp.activation_patching(subtractor, pairs, site="resid_pre") for kind, pairs in borrows.items()}
findings(patched, "pairs")

# %% [markdown]
# ## 2. Two programs next to each other
#
# Both models are proved equal, on every pair of their domain, to a short program that is read off their weights.
# Digits are lists, units first. A third one, `complement-subtractor`, takes any number from any other: it writes the
# digits of a - b modulo 10^10, and then 1 where a borrow is left, which says that a < b.

# %%
signed = models.load("complement-subtractor")
programs = {
    name: interp.decompile(model) for name, model in [("subtractor", subtractor), ("adder", adder), ("signed", signed)]
}
for found in programs.values():
    display(Code(found.program, language="python"))
findings(programs, "model")

# %% [markdown]
# But for the range of levels and the place of the thresholds between them, the programs are one. The level of a
# column is its own total plus what is left of the column before, over the base: with digits of a *sum*, a carry is
# left; with digits of a *difference*, minus a borrow. So the borrow is read as the carry is, off the digit that was
# written before.

# %% [markdown]
# ## 3. Both operations in one model
#
# `mixed-ten-digits` is one layer that adds and subtracts, as a token between the numbers says. Its training began with
# attention in place: one head reads the first number, and each of the two others reads the second number under one
# operator. The proof takes the operators one at a time, and everything else is as before.

# %%
mixed = models.load("mixed-ten-digits")
both = interp.certify(mixed)
print(both)

# %% [markdown]
# Under the operator that is not its own, a head looks at the operator itself, and hardly at any digit. The least weight
# that a head gives to the operator's place, over 512 problems and all digits of their answers:

# %%
problems = mixed.task.sample(512, torch.Generator().manual_seed(1))
_, cache = mixed.run_with_cache(mixed.task.encode(problems))
written = cache["pattern", 0][:, :, list(mixed.task.query_positions)[:10], 10]  # [problem, head, digit]
rows = {sign: written[problems[:, 1] == i].amin((0, 2)).tolist() for i, sign in enumerate(mixed.task.parsed.operators)}
pd.DataFrame(rows, index=["head 0", "head 1", "head 2"]).round(3)

# %% [markdown]
# ## 4. Where no proof over columns reaches
#
# Two layers in the shape of the QuantaMaths models write a sign and then the highest digit first. Their first digit
# needs every column, no written digit helps, and no method here proves it for numbers of six digits. A search for wrong
# answers is what is left: one that it finds refutes the model, and finding none proves nothing. Such files are read
# as they are. The one of ten digits is right on 10,000 of 10,000 problems drawn at random, and a random search finds
# nothing either.

# %%
six = models.load("mixed-six-digits")
path = Path(tempfile.mkdtemp()) / "mix_d6_l2_h4_t8K_s0.pth"
torch.save({name: value.detach() for name, value in six.all_weights().items()}, path)
attacked = {
    "mixed, six digits": models.load(path, task=six.task),
    "mixed, ten digits": models.load("mixed-ten-digits-two-layers"),
    "a < b": models.load("comparison-ten-digits"),
}
findings({name: interp.attack(model, runs=8_000) for name, model in attacked.items()}, "model")

# %% [markdown]
# ## 5. Addition modulo a prime: which frequencies?
#
# A number is one token here, and so is the answer: `a b =`. Networks learn this with waves over the numbers (Nanda et
# al., 2023). The spectrum says which frequencies stand out from relabelled numbers. It does not say that the model
# uses them, and so the answers with these frequencies alone, and without them, stand in the same sentence.

# %%
residues = {name: models.load(name) for name in models.zoo_names() if name.startswith("modular-")}
spectra = {
    f"{name}, {of}": interp.fourier_spectrum(model, of=of)
    for name, model in residues.items()
    for of in ("embeddings", "neurons", "logits")
}
findings(spectra, "model")

# %%
first = next(iter(residues))
spectra[f"{first}, embeddings"].figure()

# %% [markdown]
# The loss tells the same over the whole function: with the kept frequencies of the logits alone, and without them.

# %%
findings({name: interp.restricted_loss(model) for name, model in residues.items()}, "model")

# %% [markdown]
# ## 6. A clock or a pizza?
#
# With waves, there are two ways to add. A *clock* multiplies them: the angles of a and b are added, whatever the
# distance of a and b. A *pizza* takes the mean of the two embeddings, and doubles its angle; it is unsure where a and
# b lie opposite each other (Zhong et al., 2023). Both, and a table of all sums, can be built by hand, and each
# construction is proved right on all pairs. They are the controls: the question must find in them what was built.

# %%
built = {name: models.build(f"modular-{name}-hand-built") for name in ("clock", "pizza", "table")}
verdicts = {name: interp.certify(model) for name, model in built.items()}
findings(verdicts, "construction")

# %% [markdown]
# Two measures of the literature describe the difference: how alike the gradients of both operands are, and how much
# the logits depend on the distance.

# %%
everyone = built | residues
findings({name: interp.group_symmetry(model) for name, model in everyone.items()}, "model")

# %% [markdown]
# An intervention goes further. The first operand gets an embedding that no number has: its waves are scaled, or each
# comes from another number. Clock and pizza then give different answers. A program is followed if the model gives its
# answers in more than half of these cases, for both changes. It is named if the two measures say so as well. A trained
# model need not treat such embeddings as it does numbers, so that following none rules none out.

# %%
decided = {name: interp.group_program(model) for name, model in everyone.items()}
rows = [{"model": name, "verdict": found.verdict} | {
    f"{program}, {change}": str(found.cell("share", change=change, program=program)) if found.frequencies else ""
    for change in ("scaled", "interchanged") for program in ("clock", "pizza")
} for name, found in decided.items()]  # fmt: skip
pd.DataFrame(rows).set_index("model")

# %% [markdown]
# With attention that is learned, the answers are the clock's more often than the pizza's; with uniform attention it is
# the other way round, as Zhong et al. found. But a verdict is given to few of the models. In the others the answers to
# such embeddings follow neither program in both changes, and they stay undecided.
#
# ## 7. Right on all pairs?
#
# There are few pairs of residues, and every one of them is run with bounds on all rounding. Some models are proved
# right, and others are wrong on a few pairs, which no test set had shown.

# %%
findings({name: interp.certify(model) for name, model in residues.items()}, "model")

# %%
interp.learning_curves(first).figure()

# %% [markdown]
# What is the same: a column's answer is a saw tooth of a level, and what goes from column to column is read off the
# written digit, in this model of sums and in this model of differences. What is not: residues have no columns, and
# there the embeddings turn full circles, while the digits of both column models lie on an arc of some 70 degrees.
