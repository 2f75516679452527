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
# # Where is the carry? Activation patching
#
# A column *makes* a carry if its digits add up to ten or more, and *passes on* a carry if they add up to nine. This
# notebook puts single activations of one run into another. It finds that the two kinds of carry reach the answer by
# different routes, and that two trained adders do not take the same route for a carry that is passed on.

# %%
import numpy as np
import pandas as pd
import torch

import interp
import models
from interp.causal.circuits import compute_faithfulness
from interp.causal.edges import EdgeExperiment
from interp.core.stats import proportion
from interp.figures import theme
from interp.figures.dot_plot import dot_plot
from interp.figures.figure_panels import Panel, compose
from interp.figures.tables import findings, table
from interp.figures.traces import cells, written
from models.tasks import problem_pairs

COLUMN = 4
adder = models.load("microadder-57")
PAIRS = {
    "made": problem_pairs(adder.task, "made carry", column=COLUMN, n=256, seed=0, side="mixed"),
    "passed on": problem_pairs(adder.task, "passed carry", column=COLUMN, n=256, seed=0, side="mixed"),
}

# %% [markdown]
# ## 1. Two problems that differ in one thing
#
# The problems of a pair have the same digits in column 4 and above. The carry into column 4 differs, and so does the
# right digit `s4`. In pairs of the first kind, column 3 makes the carry: it has ten more in one problem than in the
# other, and both problems write the same `s3`. In pairs of the second kind, column 3 passes the carry on: it adds up to
# nine in both problems, with the same digits, and writes 9 or 0.

# %%
roles = adder.task.roles
shown = [at for at, role in enumerate(roles) if role.column in (0, 1, 2, 3, 4) and role.kind != "operator"]
rows = {}
for kind, pairs in PAIRS.items():
    clean, corrupted = ([row[0, at].item() for at in shown] for row in (pairs.clean_tokens, pairs.corrupted_tokens))
    rows[f"{kind}: clean"], rows[f"{kind}: corrupted"] = clean, corrupted
labels = [roles[at].label for at in shown]
frame = pd.DataFrame(rows, index=labels).T


def mark(frame: pd.DataFrame) -> pd.DataFrame:
    """Yellow where the two problems of a pair differ."""
    values = frame.to_numpy()
    differ = np.repeat(values[::2] != values[1::2], 2, axis=0)
    return pd.DataFrame(np.where(differ, f"background-color: {theme.YELLOW}", ""), frame.index, frame.columns)


frame.style.apply(mark, axis=None).set_caption("The first pair of each kind, units first; yellow: differs")

# %% [markdown]
# ## 2. One position at a time
#
# The probe runs the corrupted problem with the residual stream of the clean run at one position. How much of the
# difference between the two runs comes back? The measure is the logit of the clean digit minus that of the corrupted
# one. 100% is what exchanging the whole problem does. With `check=True` the probe repeats some cells through the
# model's own hooks.

# %%
streams = {
    kind: interp.activation_patching(adder, pairs, site="resid_pre", direction="both", check=True)
    for kind, pairs in PAIRS.items()
}
findings(streams, "carry")

# %%
used = [f"{operand}{column}" for operand in "abs" for column in range(COLUMN + 1) if (operand, column) != ("s", COLUMN)]
z = np.stack(
    [sweep.table.recovered.sel(direction="denoise").squeeze(drop=True).sel(pos=used) for sweep in streams.values()]
)
made, passed = (sweep.strongest("denoise") for sweep in streams.values())
layer = cells(
    z, used, [f"carry {kind}" for kind in streams], signed=1.0, text=written(z, ".0%", least=0.005),
    bar={"title": "restored", "tickformat": ".0%"},
)  # fmt: skip
compose(
    [Panel([layer], x="position whose stream is the clean run's")],
    f"A carry made below is in both digits of column {COLUMN - 1}; one passed on is in the digit written there alone "
    f"({passed[1]:.0%})",
    streams["made"].provenance,
    height=340,
    note="Clean into corrupted; the same n of either kind",
)

# %% [markdown]
# A carry that is passed on comes from below column 3. How much do the positions below column 3 restore?

# %%
below = [label for label in used if int(label[1]) < COLUMN - 1]
rows = []
for kind, sweep in streams.items():
    most = float(abs(sweep.table.recovered.sel(direction="denoise", pos=below)).max())
    rows.append((kind, f"{most:.1%}", sweep.provenance.n))
table(rows, ["carry", f"restored at most, by one of {', '.join(below)}", "pairs"])

# %% [markdown]
# The model does not look there. It reads what it has just written.

# %% [markdown]
# ## 3. Two routes, in two models
#
# The query of `s4` stands at `s3`. So the information in `s3` can reach the answer in two ways: through the value that
# attention reads at that position, or past the heads, through the residual stream of the query itself. A patch of that
# stream is both routes at once. To tell them apart, one route is patched and every other one held at the corrupted run.
# The share of the logit difference is not enough: it can come back in full although another digit has the largest
# logit. So the share of answers that become the clean one stands next to it. The second model has 456 parameters and
# another format (the operands are written with the units last), and its attention may depend on the digits.

# %%
SHARES = [f"{name}{end}" for name in ("recovered", "answers") for end in ("", "_low", "_high")]
rows = []
for name in ("microadder-57", "adder-456"):
    model = models.load(name)
    for kind in PAIRS:
        pairs = problem_pairs(model.task, f"{kind.split()[0]} carry", column=COLUMN, n=256, seed=0, side="mixed")
        experiment = EdgeExperiment(model, pairs, ["logit_diff", "exact_match"])
        names = np.array(experiment.graph.names)
        past = np.isin(names, ["embed->L0.mlp", "embed->logits"])
        values = np.char.startswith(names, "embed->") & np.char.endswith(names, ".v")
        ways = {"heads' values": values, "past the heads": past, "both": values | past}
        cut = torch.tensor(np.array(list(ways.values())))  # edges that are cut carry the clean run
        lead, answer = experiment(~cut)
        corrupted, clean = experiment.full[0], experiment.empty[0]
        recovered = np.stack(compute_faithfulness(lead, full=clean, empty=corrupted), 1)
        answers = [[found.value, found.low, found.high] for found in map(proportion, answer.numpy())]
        shares = pd.DataFrame(np.hstack((recovered, answers)), columns=SHARES)
        rows.append(pd.DataFrame({"model": name, "carry": kind, "route": list(ways)}).join(shares).assign(n=len(pairs)))
routes = pd.concat(rows, ignore_index=True)
routes.round(3).replace(-0.0, 0.0)

# %%
dot_plot(
    {
        name: {
            f"{row.carry}, {row.route}: {words}": (
                getattr(row, of),
                getattr(row, f"{of}_low"),
                getattr(row, f"{of}_high"),
            )
            for row in rows.itertuples()
            for words, of in (("logit difference", "recovered"), ("answers", "answers"))
        }
        for name, rows in routes.groupby("model")
    },
    "A passed carry goes past the heads in one adder; the other needs its head's values as well",
    streams["made"].provenance,
    x={"title": "share restored by the route alone", "tickformat": ".0%", "range": [-0.1, 1.1]},
    note="Bars: 95% intervals over pairs. Every other route carries the corrupted run",
)

# %% [markdown]
# ## 4. Controls
#
# Does patching change answers that it should leave alone? The pairs of a third kind have the *same* carry into column
# 4, and differ in everything else below it. The probe exchanges every position below column 4, one at a time. The
# answer must stay.

# %%
same = problem_pairs(adder.task, "same carry", column=COLUMN, n=256, seed=0)
control = interp.activation_patching(adder, same, site="resid_pre", metrics="exact_match", allow_equal=True)
kept = control.values.squeeze(drop=True) == 1  # [position, pair]
near = [f"{operand}{COLUMN - 1}" for operand in "abs"]
far = [label for label in kept.pos.values.tolist() if label not in near]
places = {f"any one position but {', '.join(near)}": far} | {label: [label] for label in near}
stays = {name: proportion(kept.sel(pos=where).all("pos").values) for name, where in places.items()}
table([(name, str(rate), rate.n) for name, rate in stays.items()], ["patched", f"s{COLUMN} stays right", "pairs"])

# %% [markdown]
# Patches of column 3 itself change some answers. Is patching to blame, or the model? The model reads `a3`, `b3` and
# `s3` together. In a sum that exists, a3 + b3 - s3 is -1 or 0 without a carry out of the column, and 9 or 10 with one.
# A single digit from another problem makes it some other number, for which no carry is defined. Sometimes it happens to
# be one of the four numbers. Then the answer should follow the carry that this number tells.

# %%
position = {label: at for at, label in enumerate(role.label for role in roles)}
base, source = same.corrupted_tokens.numpy(), same.clean_tokens.numpy()
carried = (same.clean.numpy() % 10**COLUMN).sum(1) >= 10**COLUMN
exists, as_said = [], []
for label in near:
    digits = {one: (source if one == label else base)[:, position[one]] for one in near}
    difference = digits[near[0]] + digits[near[1]] - digits[near[2]]
    known = np.isin(difference, (-1, 0, 9, 10))
    exists.append(known)
    as_said.append((kept.sel(pos=label).values == ((difference > 5) == carried))[known])
said = proportion(np.concatenate(as_said))
table(
    [
        ("the difference is one that no sum has", f"{1 - np.mean(exists):.0%}", 3 * len(same)),
        ("of the others: s4 is right exactly where the difference tells the right carry", str(said), said.n),
    ],
    ["patches of column 3", "share", "n"],
)

# %% [markdown]
# ## 5. Along which edges?
#
# The same can be done for edges instead of nodes: what one component writes is exchanged for a single reader. A model
# with few edges allows exact patching of all paths.

# %%
paths = {kind: interp.path_patching(adder, pairs, direction="noise") for kind, pairs in PAIRS.items()}
findings(paths, "carry")

# %%
paths["made"].figure()

# %%
paths["passed on"].figure()

# %% [markdown]
# Which edges are enough? The search tries all subsets on half of the pairs and chooses the smallest faithful one. The
# other half tests it.

# %%
circuit = interp.smallest_circuit(adder, PAIRS["passed on"])
circuit

# %%
circuit.figure()

# %% [markdown]
# ## 6. Could gradients have told?
#
# Attribution patching estimates every edge's effect from gradients, either at one end ("eap") or averaged over steps
# between the two runs ("eap-ig"). On a model of this size the exact effects are there to compare with.

# %%
estimates = {
    method: interp.edge_attribution(adder, PAIRS["made"], method=method, direction="noise")
    for method in ("eap", "eap-ig")
}
findings(estimates, "method")

# %%
estimates["eap-ig"].figure()

# %% [markdown]
# The rank correlations are over edges that have an effect, or only an estimate, with intervals over pairs of problems;
# edges with neither are many here, and would make them look better. With so few edges, no estimate is needed.
