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
# # Which algorithm?
#
# All ways to add agree on every sum, so right answers cannot tell which of them a model runs. Interventions can: they
# change something that one algorithm reads and another does not. This notebook first makes three algorithms disagree.
# Then it looks for the winner's variables inside the model, and compares each finding with chance.

# %%
import pandas as pd

import interp
import models
from interp.causal.interchange import Place
from interp.causal.interchange.interchange_runs import CONTROLS
from interp.core.estimate import Estimate
from interp.core.table_result import Measure
from interp.figures.dot_plot import dot_plot
from interp.figures.tables import findings, table
from models.tasks import ALGORITHMS, column_places

COLUMN = 4
adder = models.load("microadder-57")

# %% [markdown]
# ## 1. Three algorithms and a wrong digit
#
# * **ripple** carries from column to column, starting at the units.
# * **look-ahead** finds the carry into a column from all operand digits below it. The MicroAdder paper says that its
#   models do this.
# * **chained** takes the digits of the previous column, a' and b', and the digit s' that was *written* there: if
#   a' + b' - s' is near ten, there was a carry.
#
# Take a previous column that adds up to nine. It writes 9, or 0 if a carry comes in. Now exchange the written digit, 9
# for 0, just before the model goes on. What should the next digit be?

# %%
a, b = 72_481, 41_513  # column 3: 2 + 1; column 2: 4 + 5 = 9, and no carry comes in: s2 = 9
layout = column_places(adder.task)
tokens = adder.task.encode([(a, b)])
query = layout.queries[3]
corrupted = tokens.clone()
corrupted[0, query] = 0
rows = {}
for name, sequence in (("as it is: 9 before the query", tokens), ("corrupted: 0 before the query", corrupted)):
    said = {label: algorithm.answer(layout.inputs(sequence))[0, 3].item() for label, algorithm in ALGORITHMS.items()}
    said["microadder-57"] = adder(sequence)[0, query].argmax().item()
    rows[name] = said
pd.DataFrame(rows).T.style.set_caption(f"s3 of {a:,} + {b:,} = {a + b:,}")

# %% [markdown]
# ## 2. A thousand times, in six models
#
# After the *plausible* wrong digit above (9 for 0, or 0 for 9), everything near the query looks as in a sum that
# exists. After *any* wrong digit, a' + b' - s' is mostly a number that no sum has, and the chained algorithm has to
# round. An untrained model of the same shape shows how much agreement comes from chance.

# %%
NAMES = ("microadder-57", "microadder-67", "microadder-74", "microadder-11", "adder-456", "adder-512")
found = {name: interp.which_algorithm(models.load(name), n=1000, seed=0) for name in NAMES}
followed = {
    name: result.cell("accuracy", corruption="plausible", algorithm="chained") for name, result in found.items()
}
table(
    [(name, found[name].verdict, str(share), share.n) for name, share in followed.items()],
    ["model", "follows", "answers that are chained's, after a plausible wrong digit", "n"],
)

# %%
SERIES = {
    "chained, plausible wrong digit": ("chained", "plausible", "accuracy"),
    "ripple and look-ahead, plausible": ("ripple", "plausible", "accuracy"),
    "chained, any wrong digit": ("chained", "any", "accuracy"),
    "chained, plausible, untrained": ("chained", "plausible", "accuracy_untrained"),
}


def share(name: str, algorithm: str, corruption: str, measure: str) -> Estimate:
    """One share of a model's table, with its interval."""
    return Measure(measure, "share").estimate(found[name].rows_at(corruption=corruption, algorithm=algorithm).iloc[0])


shares = {label: {name: share(name, *which) for name in NAMES} for label, which in SERIES.items()}
least = min(share.value for share in shares["chained, plausible wrong digit"].values())
dot_plot(
    {f"{label} (n = {each[NAMES[0]].n:,})": each for label, each in shares.items()},
    f"All six adders believe the digit before the query: {least:.1%} or more of their answers are the chained ones",
    found["microadder-57"].provenance,
    x={"title": "share of answers that are the algorithm's, where the algorithms disagree", "tickformat": ".0%"},
    note="Bars: 95% Clopper-Pearson",
)

# %% [markdown]
# What does the model do with differences that no sum has? It has never met them, and there is no right answer. Over
# most of the range it rounds as the chained algorithm does. Between the differences that do occur, it does something
# else.

# %%
found["microadder-57"].figure()

# %% [markdown]
# ## 3. Where are its variables?
#
# The claim "this variable lives at this site" means: if the site is taken from another problem, the answer becomes what
# the algorithm gives with the other problem's variable. Only pairs whose answer changes in this way count. There are
# three controls: the variable's values dealt at random, an untrained model, and a random subspace in which the
# activation moves as far.

# %%
STREAM, VALUE, MIDDLE = "blocks.0.hook_resid_pre", "blocks.0.attn.hook_v", "blocks.0.hook_resid_mid"
HYPOTHESES = {
    "digit before, in the stream of the query": ("previous", Place(STREAM), None),
    "sum of the previous column, in its values": ("previous_sum", Place(VALUE, "previous operands"), None),
    "sum of the own column, in its values": ("digit_sum", Place(VALUE, "own operands"), None),
    "total with carry, in the stream after attention": ("total", Place(MIDDLE), None),
    "total with carry, in one direction of it": ("total", Place(MIDDLE), 1),
    "carry in alone, in one direction of it": ("carry_in", Place(MIDDLE), 1),
}
tested = {
    label: interp.interchange_intervention(
        adder, variable, COLUMN, sites=site, subspace=k, n=256, n_train=512, das_steps=100, seed=0
    )
    for label, (variable, site, k) in HYPOTHESES.items()
}
findings(tested, "claim")

# %%
total, carry = (tested[label].largest("accuracy") for label in list(tested)[-2:])
measures = {"hypothesis": "accuracy"} | {run: f"accuracy_{run}" for run in CONTROLS}
dot_plot(
    {
        run: {
            f"{label} (n = {result.table['n'][0]})": Measure(measure, "share").estimate(result.table.iloc[0])
            for label, result in tested.items()
        }
        for run, measure in measures.items()
    },
    f"One direction holds the total with its carry ({total.value:.0%}); "
    f"no direction was found that holds the carry by itself ({carry.value:.0%})",
    tested["total with carry, in one direction of it"].provenance,
    x={"title": "interchange accuracy, where the answer changes", "tickformat": ".0%", "range": [-0.02, 1.05]},
)

# %% [markdown]
# There is hardly a trace of the carry as a variable of its own, because attention adds it to the digit sum as it reads.
# The first two rows fall short of 100% for the reason above: a random digit before the query, or a random sum below it,
# often makes a difference that no sum has. Is there another site for the carry in the residual stream?

# %%
sweep = interp.interchange_intervention(adder, "carry_in", COLUMN, n=256, seed=0)
sweep

# %%
sweep.figure()

# %% [markdown]
# ## 4. All claims at once
#
# Causal scrubbing is the strictest test. In a single run, it resamples *every* activation. What the algorithm calls
# irrelevant comes from any other problem. What it calls relevant through a variable comes from another problem that
# agrees in that variable. How much of the loss survives?

# %%
scrubbed = interp.causal_scrubbing(adder, interp.scrubbing_hypothesis(), n=256, seed=0)
scrubbed

# %%
scrubbed.figure()

# %% [markdown]
# So these adders chain through their own outputs. Each column reads its two digits, the previous column and the digit
# written there, and nothing further down (`04_patching_carries.py` shows the same with patches). Ripple and look-ahead
# read the same digits as each other and give the same answers here, so nothing above tells these two apart.
