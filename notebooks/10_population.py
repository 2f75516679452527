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
# is proved right on all 10^20 pairs. Each finding was decided for each of them from what probes measure, by an earlier
# version, and is kept as data. The controls are an untrained copy of each, and a trained adder of another architecture.
# `studies.population` asks today's questions of models of your own.

# %%
import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage

import interp
from interp.core.as_json import decode
from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.dot_plot import dot_plot
from interp.figures.figure_panels import Panel, compose, vline
from interp.figures.tables import table
from interp.figures.traces import points
from models.files.checkpoint import read_json
from models.training.run_reader import model_of
from studies.papers import DATA
from studies.population.solution_classes import SolutionClasses

kept = read_json(DATA / "comparison-population.json")  # what an earlier version measured and proved
members = decode(pd.DataFrame, kept["measured"])
controls = decode(pd.DataFrame, kept["measured_untrained"])
shares = decode(pd.DataFrame, kept["by_architecture"])
provenance = Provenance(**kept["provenance"])
names = [row["finding"] for row in kept["findings"]]
verdicts = pd.DataFrame(kept["verdicts"])
certified = verdicts[verdicts["status"] == "certified"]

# %% [markdown]
# ## 1. Who they are
#
# A member's numbers are kept with its verdict: certified, with float32 rounding. Seeds that were perfect on thousands
# of validation problems and are wrong somewhere among all 10^20 pairs are no members. Nor are those whose proof did not
# end in a minute.

# %%
margins = certified.groupby("model", sort=False)["smallest"].agg(["size", "min", "max"])
margins.columns = ["certified", "smallest margin of any", "smallest margin of the best"]
tried = verdicts.groupby("model", sort=False).size()
table(margins.assign(tried=tried).rename_axis("architecture").reset_index(), precision=2)

# %% [markdown]
# ## 2. Which findings hold
#
# Each finding is a sentence about one adder that a probe decides. What holds for all of this population need not hold
# for other adders. Some findings were added after a first look at the population; their source says so.

# %%
table(pd.DataFrame(kept["findings"]))

# %%
kinds = {"trained": "members", "untrained": "untrained copies", "otherwise": "trained controls"}
everyone = shares[(shares["architecture"] == "all") & (shares["n"] > 0)].set_index("finding")
everyone["share"] = everyone["k"] / everyone["n"]
series = {
    word: {name: (row.share, row.low, row.high) for name, row in everyone[everyone["kind"] == kind].iterrows()}
    for kind, word in kinds.items()
}
of_all = [name for name, (share, *_) in series["members"].items() if share == 1]
dot_plot(
    series,
    f"Of {len(names)} findings, all {len(members):,} adders of this population share {', '.join(of_all)}",
    provenance,
    {"title": "share of the models for which it holds", "tickformat": ".0%"},
    names,
)

# %% [markdown]
# Two findings hold for every adder of this population. The carry is read off the digit that was written before: the
# paper says so of 57 parameters, and that others look ahead at the operands; no adder here does. And a carry that is
# made goes through the heads' values. The trained control has both, too: it is no evidence that adders could do
# otherwise. A carry that is passed on takes two ways: the low-rank adders read it past the heads, and the MicroAdders
# need both routes. Base ten and the switch, which we found in models of few numbers, do not hold for all.
#
# Most members have 57 parameters, and all of these but one began where trained models end
# (`python -m studies reproduce microadder:starts`): part of what they share was given to them. The table of
# architectures counts the others.

# %%
trained = shares[(shares["kind"] == "trained") & (shares["n"] > 0)]
trained = trained.assign(share=trained["k"].astype(str) + " of " + trained["n"].astype(str))
wide = trained.pivot(index="architecture", columns="finding", values="share").fillna("")
table(wide.loc[list(trained["architecture"].unique()), names].reset_index())

# %% [markdown]
# ## 3. Base ten, or a head for each column
#
# For every adder, the figure has the gap of attention scores in the head that looks most at the own column. At ln 10 a
# digit of the own column weighs ten times as much as one of the previous column.

# %%
shown = {name: frame["gap"].fillna(12).clip(-4, 12) for name, frame in (("m", members), ("u", controls))}
rows = members["architecture"]
compose(
    [
        Panel(
            [
                points(shown["u"], rows, "untrained copies", theme.GREY, size=7, opacity=0.6),
                points(shown["m"], rows, "members", theme.BLUE, size=9, opacity=0.6),
            ],
            x={"title": "gap between the own column and the previous column, nats (12: 12 and more)"},
            y={"type": "category", "autorange": "reversed"},
            marks=[vline(np.log(10), "ln 10")],
        )
    ],
    f"One head weighs its columns ten to one in {series['members']['base ten'][0]:.0%} of {len(members)} adders",
    provenance,
    margin={"l": 140},
)

# %% [markdown]
# The adders far to the right have two heads, and there the head that looks most at the own column looks at hardly
# anything else. Where does the previous column come in? In some of them the other head weighs the columns ten to one;
# in others one head looks at the own column and the other at the previous one, and the ten to one comes after
# attention. So which head to ask is part of the question, and base ten in one pattern is not how all adders add.

# %%
two = members[members["heads"] == 2]
table(
    two[["name", "gap", "lowest gap"]].rename(columns={"gap": "head of the own column", "lowest gap": "other head"}),
    precision=1,
)

# %% [markdown]
# ## 4. The carry
#
# The paper of MicroAdder calls its two neurons the carry detection mechanism. Which carry? No adder of this population
# has a neuron for the carry *in*. Where a single neuron decides, it follows the carry *out* of the column that is
# written; and in some of the larger models no single neuron does.

# %%
columns = ["neurons", "switches on carry out", "neurons of carry out", "neurons of carry in", "chained answers"]
table(members.groupby("architecture", sort=False)[columns].mean().reset_index(), precision=2)

# %% [markdown]
# Any member can be asked anything. This is a member of the largest family.

# %%
member = certified[certified["model"] == members["architecture"].value_counts().idxmax()].iloc[0]
interp.carry_units(model_of(member["model"], kept["parameters"][member["key"]]), n=1000).figure()

# %% [markdown]
# ## 5. The circuits
#
# A carry is made by the previous column, or passed on by it. For each kind and each adder, this is the smallest set of
# edges of the residual stream that brings the carry back, found on pairs of problems that differ in that carry. How
# many different circuits are there?

# %%
table(pd.DataFrame(kept["circuits"]))

# %% [markdown]
# ## 6. One solution, or many?
#
# Two seeds can be the same function with its parameters turned or mirrored. With these exact symmetries taken out, how
# far apart are members of one architecture? Members that short distances connect are one class: below half of the
# distance of the closest untrained copies.

# %%
classes = {name: decode(SolutionClasses, each) for name, each in kept["classes"].items()}
table(pd.DataFrame([each.summary() for each in classes.values()]))

# %%
classes[max(classes, key=lambda name: len(classes[name].names))].figure()

# %% [markdown]
# The rule was fixed before any distance was seen. Its classes hold together by chains: a chain connects what is far
# apart as soon as there are enough neighbours. How many classes there are depends on the limit. The table has their
# number, and the size of the largest, at other limits than the rule's.

# %%
chained = classes[max(classes, key=lambda name: len(classes[name].names))]
limits = {"the rule's": chained.limit, **{f"{limit}": limit for limit in (0.2, 0.25, 0.3, 0.35, 0.4)}}
tree = linkage(chained.distances, "single")
sizes = {name: np.bincount(fcluster(tree, limit, "distance"))[1:] for name, limit in limits.items()}
table(
    [(name, limits[name], len(each), each.max()) for name, each in sizes.items()],
    ["limit", "distance", "classes", "members of the largest"],
    precision=2,
)
