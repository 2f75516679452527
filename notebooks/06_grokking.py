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
# # Watching it grok
#
# For a long time in training, nothing seems to happen. Then everything happens at once. The stored models keep
# snapshots along the way, and learning curves of every seed that was tried, failed ones included. So every question
# that is asked of a trained adder can also be asked while it becomes one.
#
# "Grokking" here means success that is late and sudden. Training draws fresh problems at every step. So there is no
# training set to learn by heart, and no gap between training and test that could close later.

# %%
import pandas as pd

import interp
from interp.core.results import Provenance
from interp.figures.dot_plot import dot_plot
from interp.figures.tables import findings

# %% [markdown]
# ## 1. All seeds
#
# How often does it happen at all?

# %%
NAMES = ("microadder-57", "microadder-67", "microadder-74", "adder-456", "adder-512")
curves = {name: interp.learning_curves(name) for name in NAMES}
findings(curves, "model")

# %%
rates = {name: found.grokked(name) for name, found in curves.items()}
total, tried = (sum(getattr(rate, what) for rate in rates.values()) for what in ("correct", "n"))
dot_plot(
    {"": {f"{name} ({rate.correct} of {rate.n})": (rate.accuracy, *rate.interval) for name, rate in rates.items()}},
    f"Grokking is rare: {total} of {tried} seeds of five adders",
    Provenance(tried, None, "seeds, all that were tried"),
    x={"title": "seeds that answer the whole test set (bars: 95% Clopper-Pearson)", "tickformat": ".0%"},
)

# %% [markdown]
# The next figure shows the curves of one of them, one line per seed. Most seeds stop somewhere on the way.

# %%
curves["adder-456"].figure()

# %% [markdown]
# ## 2. One seed, in every measure
#
# These figures follow the snapshots of the chosen seed in everything that can be measured: loss, accuracy on uniform
# sums and by length of the carry chain, the attention gap, the arc of the embedding, and how well the MLP neurons
# separate carries.

# %%
dynamics = {name: interp.training_dynamics(name, n=256, n_per_length=50) for name in ("microadder-57", "adder-456")}
dynamics["microadder-57"].figure()

# %%
dynamics["adder-456"].figure()

# %% [markdown]
# ## 3. In which order?
#
# For each measure, the figure marks the two snapshots between which half of its change was made for good. A change that
# is taken back does not count, such as the early fall of MicroAdder's loss. A measure that comes before the accuracy
# could have announced it.

# %%
frames = [found.half_way().dropna(subset=["by"]).assign(model=name) for name, found in dynamics.items()]
order = pd.concat(frames).query("measure != 'accuracy_by_chain'")  # the panels above have the chains
order["reading"] = order.reading.str.replace("_", " ")
readings = order.groupby("reading").by.min().sort_values().index.tolist()
steps = order.pivot(index="reading", columns="model", values="by")
before = [reading for reading in readings if (steps.loc[reading] < steps.loc["score"]).all()]
dot_plot(
    {
        f"{name}, seed {dynamics[name].seed}": {row.reading: (row.by, row.after, row.by) for row in rows.itertuples()}
        for name, rows in order.groupby("model")
    },
    f"Half-way before exact match, in both: {', '.join(before)}",
    dynamics["adder-456"].provenance,
    x={
        "title": "step by which half of the change is made for good (bars: since the snapshot before)",
        "type": "log",
        "dtick": 1,
    },
    rows=readings,
)

# %% [markdown]
# This is one seed per model. What comes first in one seed need not come first in another.
