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
# This notebook loads a transformer of 57 parameters that adds ten-digit numbers, looks inside with TransformerLens' own
# calls, and asks the questions that this workbench asks of every adder. Everything runs on a laptop in seconds.

# %%
import pandas as pd

import interp
import models

adder = models.load("microadder-57")
sum(p.numel() for p in adder.parameters())

# %% [markdown]
# These are the free parameters and their shapes. The matrices that the model computes with are made of them.

# %%
{name: tuple(parameter.shape) for name, parameter in adder.weight_map.named_parameters()}

# %% [markdown]
# ## It is a hooked transformer
#
# The model's task turns problems into tokens and tokens into answers. Hook names, shapes and weight names are those of
# TransformerLens.

# %%
tokens = adder.task.encode([(57, 48), (9999999999, 1)])
logits, cache = adder.run_with_cache(tokens)
adder.task.decode(logits[:, adder.task.query_positions].argmax(-1))

# %% [markdown]
# Both answers are right. The cache has every activation of the two runs:

# %%
{name: tuple(value.shape) for name, value in cache.items()}

# %% [markdown]
# ## Is it right?
#
# The probe runs a thousand problems of every carry-chain length, as uniform ones have no long chains. A sample proves
# nothing, so the sentence says what was tried and how often the model can still be wrong.

# %%
accuracy = interp.accuracy_by_chain(adder)
accuracy

# %%
accuracy.figure()

# %% [markdown]
# ## Where does each answer digit look?
#
# An answer digit looks at its own column, and ten times less at the previous one. The previous column tells the carry:
# its two digits minus its output digit are ten times its carry out minus its carry in.

# %%
attention = interp.attention_by_role(adder)
attention

# %%
attention.figure()

# %%
attention.figure("pattern")

# %% [markdown]
# ## Which neurons detect the carry?

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
# The model makes `W_E` from three of its parameters, but `W_E` is an ordinary matrix. A fit to that matrix finds the
# three numbers again; here are two of them.

# %%
circle = interp.circle_fit(adder.W_E)
weights = adder.weight_map
pd.DataFrame(
    {
        "fitted": {"radius": circle.radius, "stride": circle.stride},
        "in the checkpoint": {"radius": weights.arc_A.item(), "stride": weights.arc_stride.item()},
    }
)

# %%
circle.figure()

# %% [markdown]
# ## How was it found?
#
# Most seeds never learn to add. These curves show every seed that was tried.

# %%
curves = interp.learning_curves("microadder-57")
curves

# %%
curves.figure()

# %% [markdown]
# ## Step through an answer
#
# Type two numbers and move from digit to digit, with the arrow keys if you like. Click a head or a neuron to ablate it.
# Next to the trained model is a twin of the same architecture whose 57 numbers were set by hand. Does the same neuron
# matter there?

# %%
interp.explore(adder, models.load("microadder-57-by-hand"), problem="9999999999+1")
