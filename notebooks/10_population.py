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
# # A population, not a specimen
#
# What we know of "how a tiny transformer adds" we know of single models. Is it how adders add, or how that one does?
# This notebook asks the same of many adders: every seed of every architecture of this project that was kept and that
# is proved right on all 10^20 pairs. Each finding is decided for each of them by a probe, and for an untrained copy of
# each as the control.

# %%
import numpy as np
import pandas as pd

import interp
from interp.compare.population import LN10, Population
from interp.core.as_json import decode
from interp.figures import theme
from interp.figures.layers import points
from interp.figures.panels import Panel, compose, vline
from interp.papers.studies.comparison_population import STORED, classes, stored_members
from interp.compare.seeds import SeedDistances
from models.checkpoint import read_json

kept = read_json(STORED)
found = decode(Population, kept["population"])
members = stored_members()

# %% [markdown]
# ## 1. Who they are
#
# A member's numbers are kept with its proof. Seeds that were perfect on thousands of validation problems, and are wrong
# somewhere among all 10^20 pairs, are no members; nor are those whose proof did not end in time.

# %%
certified = pd.DataFrame(kept["members"]).groupby("model", sort=False)["smallest"].agg(["size", "min", "max"])
certified.columns = ["certified", "smallest margin", "largest smallest margin"]
tried = pd.DataFrame(kept["members"] + kept["others"]).groupby("model", sort=False).size()
certified.assign(tried=tried)

# %% [markdown]
# ## 2. Which findings hold
#
# A finding that holds for all is called a law of this population, one that holds for more than half a majority, any
# other a quirk.

# %%
found

# %%
found.figure()

# %% [markdown]
# ## 3. Base ten
#
# A digit of the own column outweighs one of the column below by a factor that training finds in every architecture.
# The line is at ln 10, where the factor is ten.

# %%
rows = found.members["architecture"].tolist()
compose(
    [
        Panel(
            [
                points(found.members["gap"], rows, "members", theme.BLUE, size=9, opacity=0.6),
                points(found.controls["gap"], rows, "untrained copies", theme.GREY, size=7, opacity=0.6),
                vline(LN10, "ln 10"),
            ],
            x={"title": "gap of attention scores between the own column and the column below, nats"},
            y={"type": "category", "autorange": "reversed"},
        )
    ],
    f"{found.share('base ten').correct} of {found.share('base ten').n} adders look ten times as much at their own column",
    found.provenance,
)

# %% [markdown]
# ## 4. The carry
#
# The paper of MicroAdder speaks of a neuron that detects the carry *in*. Where a neuron decides, it is the carry *out* of
# the column that is written, and the carry in is read off the digit written before.

# %%
found.members.groupby("architecture", sort=False)[
    ["neurons", "switches on carry out", "neurons of carry out", "neurons of carry in", "chained answers"]
].mean().round(2)

# %% [markdown]
# Any member can be asked anything. This is the first one of the largest family.

# %%
largest = found.members["architecture"].value_counts().idxmax()
name, member = next((name, model) for name, model in members if name.startswith(largest))
interp.carry_units(member, n=1000).figure()

# %% [markdown]
# ## 5. One solution, or many?
#
# Two seeds can be the same function with its parameters turned or mirrored. With these exact symmetries taken out, how
# far apart are members of one architecture?

# %%
distances = {name: decode(SeedDistances, each) for name, each in kept["distances"].items()}
pd.DataFrame(
    {
        "architecture": name,
        "members": len(each.names),
        "classes": len(classes(each)),
        "closest pair": each.table[each.table["component"] == "all"]["after"].min(),
        "farthest pair": each.table[each.table["component"] == "all"]["after"].max(),
        "closest untrained pair": each.table["untrained_low"].min(),
    }
    for name, each in distances.items()
).round(3)

# %%
widest = max(distances, key=lambda name: len(distances[name].names))
distances[widest].figure()
