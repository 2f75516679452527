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
# A carry is *made* in a column whose digits add up to ten or more, or *passed on* by a column that adds up to nine.
# This notebook puts single activations of one run into another, and finds that two trained adders treat these as two
# different things, which reach the answer by two different routes.

# %%
import numpy as np
import pandas as pd

import interp
import models
from interp.causal.interchange.accuracy import proportion
from interp.causal.patching import PatchingSweep
from interp.figures import theme
from interp.figures.dots import dot_plot
from interp.figures.layers import cells, written
from interp.figures.panels import Panel, compose
from models.tasks import problem_pairs

COLUMN = 4
adder = models.load("microadder-57")
PAIRS = {
    "made": problem_pairs(adder.task, "made carry", column=COLUMN, n=256, seed=0),
    "passed on": problem_pairs(adder.task, "passed carry", column=COLUMN, n=256, seed=0),
}

# %% [markdown]
# ## 1. Two problems that differ in one thing
#
# The problems of a pair have the same digits in column 4 and above. The carry into column 4 differs, and so the right
# digit `s4`. Where the carry is made, column 3 has ten more in one problem than in the other, and both write the same
# `s3`. Where it is passed on, column 3 adds up to nine in both, with the same digits, and writes 9 or 0.

# %%
roles = adder.task.roles
shown = [at for at, role in enumerate(roles) if role.column in (0, 1, 2, 3, 4) and role.kind != "operator"]
rows = {}
for kind, pairs in PAIRS.items():
    clean, corrupted = ([row[0, at].item() for at in shown] for row in (pairs.clean_tokens, pairs.corrupted_tokens))
    rows[f"{kind}: clean"], rows[f"{kind}: corrupted"] = clean, corrupted
labels = [roles[at].label for at in shown]
table = pd.DataFrame(rows, index=labels).T


def mark(frame: pd.DataFrame) -> pd.DataFrame:
    """Yellow where the two problems of a pair differ."""
    values = frame.to_numpy()
    differ = np.repeat(values[::2] != values[1::2], 2, axis=0)
    return pd.DataFrame(np.where(differ, f"background-color: {theme.YELLOW}", ""), frame.index, frame.columns)


table.style.apply(mark, axis=None).set_caption("The first pair of each kind, units first; yellow: differs")

# %% [markdown]
# ## 2. One position at a time
#
# Run the corrupted problem, with the residual stream of the clean run at one position. How much of the difference
# between the two runs comes back? The measure is the logit of the clean digit less that of the corrupted one; 100% is
# what exchanging the whole problem does, and `check=True` repeats some cells through the model's own hooks.

# %%
streams = {
    kind: interp.activation_patching(adder, pairs, site="resid_pre", direction="both", check=True)
    for kind, pairs in PAIRS.items()
}
for sweep in streams.values():
    print(sweep)

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
# A carry that is passed on comes from below column 3. How much do those positions restore?

# %%
below = [label for label in used if int(label[1]) < COLUMN - 1]
for kind, sweep in streams.items():
    most = float(abs(sweep.table.recovered.sel(direction="denoise", pos=below)).max())
    print(f"carry {kind}: at most {most:.1%} by one of {', '.join(below)} (n = {sweep.provenance.n} pairs)")

# %% [markdown]
# The model does not look there. It reads what it has just written.

# %% [markdown]
# ## 3. Two routes, in two models
#
# The query of `s4` stands on `s3`. So what `s3` says can reach the answer through attention's value of that position,
# or through the residual stream of the query itself, which needs no attention at all. Patching values by role tells the
# two apart. The second model has 456 parameters, another format (the operands are written with the units last) and
# attention that may depend on the digits.

# %%
SITES = {
    "values of the operands below": ("v", "previous operands"),
    "value of the digit before": ("v", "previous output"),
    "stream of the digit before": ("resid_pre", "previous output"),
    "values of all other positions": ("v", "own operands", "delimiters", "rest"),
}
rng = np.random.default_rng(0)


def restored(sweep: PatchingSweep, roles: tuple[str, ...]) -> tuple[float, float, float]:
    """Share restored by the role of these that does most, with a 95% bootstrap interval over pairs."""
    values = sweep.values.squeeze(drop=True).sel(role=list(roles)).transpose("role", "pair").values
    unpatched, other = (side.squeeze(drop=True).values for side in (sweep.unpatched, sweep.other))
    change = values - unpatched
    change = change[np.abs(change.mean(1)).argmax()]
    drawn = rng.integers(len(change), size=(2000, len(change)))
    shares = change[drawn].mean(1) / (other - unpatched)[drawn].mean(1)
    return change.mean() / (other - unpatched).mean(), *np.quantile(shares, (0.025, 0.975))


rows = []
for name in ("microadder-57", "adder-456"):
    model = models.load(name)
    for kind in PAIRS:
        pairs = problem_pairs(model.task, f"{kind.split()[0]} carry", column=COLUMN, n=256, seed=0)
        sweeps = {
            site: interp.activation_patching(model, pairs, site=site, by="role", allow_equal=True)
            for site in ("v", "resid_pre")
        }
        for site, (activation, *roles_of) in SITES.items():
            rows.append((name, kind, site, *restored(sweeps[activation], tuple(roles_of)), len(pairs)))
routes = pd.DataFrame(rows, columns=["model", "carry", "site", "restored", "low", "high", "n"])
routes.round(3).replace(-0.0, 0.0)

# %%
dot_plot(
    {
        name: {f"{row.carry}: {row.site}": (row.restored, row.low, row.high) for row in rows.itertuples()}
        for name, rows in routes.groupby("model")
    },
    "In both adders a made carry comes through values, a passed one through the query's stream",
    streams["made"].provenance,
    x={"title": "logit difference restored", "tickformat": ".0%", "range": [-0.1, 1.1]},
    note="Bars: 95% bootstrap over pairs. Of all other positions, the role that does most",
)

# %% [markdown]
# ## 4. Controls
#
# Does patching move answers that it should leave alone? Pairs of a third kind have the *same* carry into column 4, and
# all else below it differs. Every position below is exchanged, one at a time, and the answer must stay.

# %%
same = problem_pairs(adder.task, "same carry", column=COLUMN, n=256, seed=0)
control = interp.activation_patching(adder, same, site="resid_pre", metrics="exact_match", allow_equal=True)
kept = control.values.squeeze(drop=True) == 1  # [position, pair]
near = [f"{operand}{COLUMN - 1}" for operand in "abs"]
far = [label for label in kept.pos.values.tolist() if label not in near]
for name, places in (
    (f"all single patches but those of {', '.join(near)}", far),
    *((label, [label]) for label in near),
):
    stays = proportion(kept.sel(pos=places).all("pos").values)
    print(f"{name}: s{COLUMN} stays right in {stays} of the pairs (n = {stays.n})")

# %% [markdown]
# Patches of column 3 itself change some answers. Is patching to blame, or the model? `a3`, `b3` and `s3` are read
# together. In a sum that exists a3 + b3 - s3 is -1 or 0 without a carry out of the column, and 9 or 10 with one. A
# single digit from another problem makes it something else, and what the carry should be then is not defined. Where by
# chance it still is one of the four, the answer should be what that carry gives.

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
said, outside = proportion(np.concatenate(as_said)), 1 - np.mean(exists)
print(f"{outside:.0%} of the patches make a difference that no sum has.")
print(f"Of the others, {said} stay right just where the difference still says the right carry (n = {said.n}).")

# %% [markdown]
# ## 5. Along which edges?
#
# The same for edges in place of nodes: what one component writes is exchanged for one reader only. With few edges all
# paths can be patched exactly.

# %%
paths = {kind: interp.path_patching(adder, pairs, direction="noise") for kind, pairs in PAIRS.items()}
for kind, found in paths.items():
    print(f"{kind}: {found}\n")
paths["made"].figure()

# %%
paths["passed on"].figure()

# %% [markdown]
# Which edges are enough? All subsets are tried, the smallest faithful one is chosen on half of the pairs and judged on
# the other half.

# %%
circuit = interp.smallest_circuit(adder, PAIRS["passed on"])
circuit

# %%
circuit.figure()

# %% [markdown]
# ## 6. Could gradients have told?
#
# Attribution patching estimates every edge from gradients: at one end ("eap"), or averaged over steps between the two
# runs ("eap-ig"). On a model of this size the exact effects are there to compare with.

# %%
print(interp.edge_attribution(adder, PAIRS["made"], method="eap", direction="noise"), "\n")
estimate = interp.edge_attribution(adder, PAIRS["made"], method="eap-ig", direction="noise")
estimate

# %%
estimate.figure()

# %% [markdown]
# Against expectation, the gradient at one end ranks these edges better than the average over steps; for the carry that
# is passed on neither does well (`interp reproduce microadder:causal`). With so few edges, no estimate is needed.
