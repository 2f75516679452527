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
# # Quick start
#
# A 57-parameter transformer that adds ten-digit numbers: load it, look inside with TransformerLens' own calls, and ask
# the three questions that this workbench starts from. Everything runs on a laptop in seconds.

# %%
import interp
import models

adder = models.load("microadder-57")
print(f"{sum(p.numel() for p in adder.parameters())} free parameters:")
{name: tuple(parameter.shape) for name, parameter in adder.weight_map.named_parameters()}

# %% [markdown]
# ## It is a hooked transformer
#
# Problems become tokens through the model's task; hook names, shapes and weight names are TransformerLens'.

# %%
tokens = adder.task.encode([(57, 48), (9999999999, 1)])
logits, cache = adder.run_with_cache(tokens)
print("answers:", adder.task.decode(logits[:, adder.task.query_positions].argmax(-1)))
{name: tuple(value.shape) for name, value in cache.items()}

# %% [markdown]
# ## Is it right?
#
# On the public test set, and on as many problems of every carry-chain length. Sampled is not proven: the sentence says
# what was tried and what that bounds.

# %%
accuracy = interp.accuracy_by_chain(adder)
accuracy

# %%
accuracy.figure()

# %% [markdown]
# ## Where does each answer digit look?
#
# At its own column, and ten times less at the previous one. The carry can be read off there: the previous column's two
# digits minus its output digit are ten times its carry out, less its carry in.

# %%
attention = interp.attention_by_role(adder)
attention

# %%
attention.figure()

# %%
attention.figure("pattern")

# %% [markdown]
# ## Which units detect the carry?

# %%
units = interp.carry_units(adder)
units

# %%
units.figure()

# %%
units.figure("ablation")

# %% [markdown]
# ## What shape is the embedding?
#
# `W_E` is an ordinary matrix, whatever made it; the fit finds the three numbers that did.

# %%
circle = interp.circle_fit(adder.W_E)
weights = adder.weight_map
print(f"radius {circle.radius:.6f} fitted, {weights.arc_A.item():.6f} in the checkpoint")
print(f"stride {circle.stride:.6f} fitted, {weights.arc_stride.item():.6f} in the checkpoint")
circle.figure()

# %% [markdown]
# ## How was it found?
#
# Most seeds never get there. These are all that were tried.

# %%
curves = interp.learning_curves("microadder-57")
curves

# %%
curves.figure()

# %% [markdown]
# ## Step through an answer
#
# Type two numbers, move from digit to digit (arrow keys do), click a head or a unit to leave it out. Beside it a twin
# of the same architecture whose 57 numbers were set by hand: does the same unit matter there?

# %%
interp.explore(adder, models.load("microadder-57-by-hand"), problem="9999999999+1")
