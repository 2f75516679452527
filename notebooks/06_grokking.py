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
# Training looks like nothing for a long time, and then like everything at once. The stored models keep snapshots along
# the way, and learning curves of every seed that was tried, the failed ones too. So the same questions that are asked
# of a trained adder can be asked of it while it becomes one.
#
# "Grokking" here means success that is late and sudden. Training draws fresh problems at every step, so that there is
# no training set to learn by heart, and no gap between training and test that would close later.

# %%
import numpy as np
import pandas as pd
import plotly.graph_objects as go

import interp
from interp.core.results import Provenance
from interp.figures import theme

# %% [markdown]
# ## 1. All seeds
#
# How often does it happen at all?

# %%
NAMES = ("microadder-57", "microadder-67", "microadder-74", "adder-456", "adder-512")
curves = {name: interp.learning_curves(name) for name in NAMES}
for found in curves.values():
    print(found.sentence())

# %%
rates = [found.grokked(name) for name, found in curves.items()]
counts = [(rate.correct, rate.n) for rate in rates]
low, high = zip(*(rate.interval for rate in rates), strict=True)
labels = [f"{name} ({grokked} of {n})" for name, (grokked, n) in zip(NAMES, counts, strict=True)]
figure = go.Figure(
    go.Scatter(
        x=[rate.accuracy for rate in rates],
        y=labels,
        mode="markers",
        marker={"color": theme.BLUE, "size": 11},
        error_x=theme.error_bars([rate.accuracy for rate in rates], low, high, color=theme.BLUE),
    )
)
figure.update_xaxes(
    title="seeds that answer the whole test set (bars: 95% Clopper-Pearson)", tickformat=".0%", range=[0, 0.5]
)
figure.update_yaxes(autorange="reversed")
total, tried = np.sum(counts, 0)
finding = f"Grokking is rare: {total} of {tried} seeds of five adders"
theme.finish(figure, finding, Provenance(int(tried), None, "seeds, all that were tried"), height=420).update_layout(
    margin_l=210, title_xref="container", title_x=0.02
)

# %% [markdown]
# The curves of one of them, a line a seed. Most stop somewhere on the way.

# %%
curves["adder-456"].figure()

# %% [markdown]
# ## 2. One seed, in every measure
#
# The snapshots of the chosen seed, with all that can be measured of each: loss, accuracy on uniform sums and by length
# of the carry chain, the attention gap, the arc of the embedding, the separation of carries in the units.

# %%
dynamics = {name: interp.training_dynamics(name, n=256, n_per_length=50) for name in ("microadder-57", "adder-456")}
print(dynamics["microadder-57"])
dynamics["microadder-57"].figure()

# %%
print(dynamics["adder-456"])
dynamics["adder-456"].figure()

# %% [markdown]
# ## 3. In which order?
#
# For each measure, the two snapshots between which it made half of its change for good: a fall that is taken back, as
# the early one of MicroAdder's loss, does not count. What comes before the accuracy could have announced it.

# %%
frames = [found.half_way().dropna(subset=["by"]).assign(model=name) for name, found in dynamics.items()]
order = pd.concat(frames).query("measure != 'chain'")  # the panels above have the chains
order["reading"] = order.reading.str.replace("_", " ")
readings = order.groupby("reading").by.min().sort_values().index.tolist()
figure = go.Figure()
for (name, rows), colour, symbol in zip(
    order.groupby("model"), (theme.ORANGE, theme.BLUE), ("diamond", "circle"), strict=True
):
    figure.add_scatter(
        x=rows.by,
        y=rows.reading,
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 9},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": 0 * rows.by,
            "arrayminus": rows.by - rows.after,
            "width": 0,
        },
        name=f"{name}, seed {dynamics[name].seed}",
    )
figure.update_xaxes(
    type="log", dtick=1, title="step by which half of the change is made for good (bars: since the snapshot before)"
)
figure.update_yaxes(categoryorder="array", categoryarray=readings, autorange="reversed")
figure.update_layout(legend={"orientation": "h", "y": -0.25})
steps = order.pivot(index="reading", columns="model", values="by")
before = [reading for reading in readings if (steps.loc[reading] < steps.loc["exact"]).all()]
finding = f"Half-way before exact match, in both: {', '.join(before)}"
theme.finish(figure, finding, dynamics["adder-456"].provenance, height=460).update_layout(
    margin_l=210, title_xref="container", title_x=0.02
)

# %% [markdown]
# This is one seed of each model: what comes first in one need not in another.
