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
# # Right on all 10^20 pairs: a proof, step by step
#
# A trained transformer adds ten-digit numbers. There are 10^20 pairs of them, and no computer will ever try them all.
# This notebook shows how to judge all of them in a few seconds, and what the verdict rests on. It assumes that you know
# transformers, and nothing about interval arithmetic.

# %%
from dataclasses import replace
from itertools import product
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from flint import arb

import interp
import models
from benchmarks.false_certificates import perturb, wrong_answers
from interp.core.results import Provenance
from interp.core.stats import proportion
from interp.figures import theme
from interp.figures.figure_panels import Panel, compose, hline
from interp.figures.tables import table
from interp.figures.traces import cells, curve, points, written
from interp.proofs import check_certificate, decision_curves
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.column_windows import WindowBounds
from interp.proofs.columns.ratio_attention import read_ratio_attention
from interp.proofs.columns.small_margins import attention_of
from interp.proofs.columns.window_search import Search, prove_query
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.enclosure import Enclosure, TrimmedMatrix
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL
from models import number_format
from models.errors import UserError
from models.evaluation import predict, score

adder = models.load("microadder-57")


def interval(ball: arb, digits: int = 4) -> str:
    """The ends of a ball."""
    return f"[{float(ball.lower()):.{digits}f}, {float(ball.upper()):.{digits}f}]"


# %% [markdown]
# ## 1. Why 10,010 of 10,010 is no proof
#
# Add noise of 0.1% to the 57 parameters, and try the result on AdderBoard's 10,010 problems.

# %%
noisy = models.load("microadder-57")
perturb(noisy, noise=1e-3, rounding="none", seed=18)
score(noisy)

# %% [markdown]
# The score is perfect. For other problems of this kind, it gives an interval (Clopper-Pearson): at most three in ten
# thousand are wrong, at 95% confidence. Three in ten thousand of 10^20 are 3 x 10^16 pairs. Is one of them wrong?

# %%
verdict = interp.certify(noisy)
verdict

# %%
one = verdict.counterexample
table([(one.problem, one.expected, one.predicted)], ["problem", "right answer", "the model's answer"])

# %% [markdown]
# One is wrong, by ten million. How common are such pairs? They are common enough to be met in practice, and too rare
# for a benchmark of ten thousand.

# %%
uniform = torch.randint(10**10, (100_000, 2), generator=torch.Generator().manual_seed(0))
wrong = wrong_answers(noisy, uniform)
rate = proportion(wrong.numpy())
table(
    [(rate.successes, f"{rate.n:,}", f"{number_format.small(rate.low)} to {number_format.small(rate.high)}")],
    ["wrong", "uniform pairs", "rate (95% interval)"],
)

# %%
met = uniform[wrong][:3]
said = noisy.task.decode(predict(noisy, met))
rows = [(a, b, a + b, answer) for (a, b), answer in zip(met.tolist(), said, strict=True)]
table(rows, ["first number", "second number", "sum", "the model's answer"])

# %% [markdown]
# ## 2. Attention writes one number
#
# In the 57-parameter model, queries and keys depend on positions only, so the pattern is the same for every problem.
# `W_V W_O` has rank one. So whatever attention reads, it writes a multiple `s` of one vector B into the residual
# stream. Both facts can be seen: the pattern does not vary, and what is written has one singular value.

# %%
TARGET = 5  # we follow the prediction of answer digit s5
query = adder.task.query_positions[TARGET]
problems = torch.randint(10**10, (2000, 2), generator=torch.Generator().manual_seed(1))
with torch.inference_mode():
    logits, cache = adder.run_with_cache(adder.task.encode(problems))
outputs = cache["attn_out", 0][:, query].double().numpy()
variation = np.ptp(cache["pattern", 0].numpy(), 0).max()
singular = np.linalg.svd(outputs, compute_uv=False)
table(
    [
        ("largest variation of an attention weight", number_format.small(variation)),
        ("singular values of what attention writes", ", ".join(map(number_format.small, singular))),
    ],
    [f"over {len(problems):,} problems", "value"],
)

# %% [markdown]
# In general, attention writes a ratio of two sums over positions: the weighted sum of what each key writes, over the
# sum of all weights. `read_ratio_attention` works out both from the model's weights. Here the pattern does not depend
# on digits. So `s` is simply a sum with one term per position, and the term depends only on the digit there.

# %%
weights = read_adder(adder)
attention = read_ratio_attention(weights, REAL)


def terms_of(target: int) -> np.ndarray:
    """[position, token]: what the token there adds to s at this target's query."""
    found = np.zeros(attention.coords.shape[1:3])
    for token in attention.tokens[target]:
        w = attention.queries[target, token].weights[0]
        found = np.where(w > 0, w * attention.coords[0, ..., 0] / w.max(1).sum(), found)
    return found


terms = terms_of(TARGET)
tokens = adder.task.encode(problems).numpy()
s = terms[np.arange(tokens.shape[1]), tokens].sum(1)
along = outputs @ attention.basis[0]
print(f"largest difference between s and what the model writes along B: {number_format.small(np.abs(along - s).max())}")

# %%
labels = [role.label for role in adder.task.roles[: len(terms)]]
shown = [j for j in range(query + 1) if np.ptp(terms[j]) > 0.05]
reach = {label: np.ptp(terms[labels.index(label)]) for label in ("a5", "a4")}
layer = cells(
    terms[shown].T, [labels[j] for j in shown], list(range(10)), signed=True, text=written(terms[shown].T, ".1f"),
    bar="term of s<br>(stream units)",
)  # fmt: skip
compose(
    [
        Panel(
            [layer],
            x="position (a, b: operands; s: answer; 0: units)",
            y={"title": "digit there", "dtick": 1, "autorange": True},
        )
    ],
    f"The prediction of s5 reads its own column {reach['a5'] / reach['a4']:.1f} times more strongly than column 4",
    Provenance(10 * len(shown), None, "terms of s, read off the weights", "exhaustive"),
    note="Positions whose terms differ by 0.05 or less are left out",
    height=480,
)

# %% [markdown]
# After attention, everything happens at one position. The MLP, the norms and the unembedding see the query's own token
# (here the answer digit s4) and `s`, and nothing else. So all ten logits are functions of one number.

# %%
own = tokens[:, query]
right = adder.task.targets(problems)[:, TARGET].numpy()
chosen = own == 7
carries = (problems.numpy() % 10 ** (TARGET + 1)).sum(1) >= 10 ** (TARGET + 1)
kinds = {
    "no carry out": (chosen & ~carries, theme.BLUE, "circle"),
    "carry out of column 5": (chosen & carries, theme.VERMILION, "diamond"),
}
compose(
    [
        Panel(
            [
                points(s[rows], right[rows], name, colour, symbol, 7, opacity=0.6)
                for name, (rows, colour, symbol) in kinds.items()
            ],
            x="attention scalar s (stream units)",
            y={"title": "right digit s5", "dtick": 1},
        )
    ],
    "After a 7, s alone tells the right digit, in two flights of stairs",
    Provenance(int(chosen.sum()), 1, "uniform problems whose s4 is 7"),
    height=440,
)

# %% [markdown]
# ## 3. Ten columns and a carry
#
# Group the problems by what fixes the right answer and the query's token: the previous answer digit, the carry into the
# column, and the sum of the column's two digits. For all twelve targets together, this gives 3,442 *classes*. For each
# target, every one of the 10^20 problems is in exactly one class. If the right digit wins on the whole range of `s` in
# each class, the model is right on every problem.
#
# So what are the least and the largest `s` in a class? `s` is a sum over columns, but the columns are not free: digits
# make carries, and carries make the answer digits that are read as well. Once the carry into a column is known,
# however, the columns below it no longer matter. Dynamic programming needs nothing more (Bellman): keep the least sum
# for either carry, and go one column further. The next cell does this in full for one class: s4 = 7, no carry into
# column 5, x5 + y5 = 9.

# %%
PREVIOUS, CARRY, TOTAL = 7, 0, 9
layout = weights.layout


def least(t: np.ndarray) -> float:
    """The least sum of t[position, digit] over all problems of the class."""
    best = {0: 0.0}  # carry into the column -> least sum of the columns before
    for column in range(TARGET):
        (x_at, y_at), z_at, further = layout.operands[:, column], layout.answers[column], {}
        for carry, x, y in product(best, range(10), range(10)):
            out, z = divmod(x + y + carry, 10)
            if column == TARGET - 1 and (z, out) != (PREVIOUS, CARRY):
                continue
            value = best[carry] + t[x_at, x] + t[y_at, y] + t[z_at, z]
            further[out] = min(value, further.get(out, value))
        best = further
    x_at, y_at = layout.operands[:, TARGET]
    own = min(t[x_at, x] + t[y_at, TOTAL - x] for x in range(10))
    above = sum(t[j, :10].min() for column in range(TARGET + 1, 10) for j in layout.operands[:, column])
    fixed = sum(t[j, allowed[0]] for j, allowed in enumerate(layout.tokens) if len(allowed) == 1)
    return best[CARRY] + own + above + fixed


by_hand = least(terms), -least(-terms)
print(f"s lies in [{by_hand[0]:.6f}, {by_hand[1]:.6f}]")

# %% [markdown]
# A `WindowBounds` does this for all classes after one token. It uses the ratio instead of the sum, so it also works for
# attention that depends on digits. It bounds `s` window by window (a window is the digits of column 5 and the carry
# into it), and the bounds of a class are the outermost of its windows.


# %%
def reached_after(target: int, token: int) -> pd.DataFrame:
    """The range of s in each class, by carry and total."""
    query = WindowBounds(attention, layout, target, token)
    windows = query.unsplit_windows()
    carry, total = query.class_of(windows)
    low, high = (end[:, 0] for end in query.box(windows))
    keys = {"target": target, "previous": token, "carry": carry, "total": total}
    return pd.DataFrame(keys | {"low": low, "high": high}).groupby(list(keys)).agg({"low": "min", "high": "max"})


row = reached_after(TARGET, PREVIOUS).loc[TARGET, PREVIOUS, CARRY, TOTAL]
assert np.allclose(by_hand, row, atol=1e-5)
table([("by hand", *by_hand), ("by the certifier", *row)], ["range of s", "least", "largest"], precision=6)

# %% [markdown]
# Sampling cannot replace this. Of 100,000 random pairs, none leaves the range of its class, as it should be. In a class
# that they meet often, they come close to the ends of the range. In a class that they meet rarely, they do not, and a
# failure near an end is met just as rarely.

# %%
x, y = np.random.default_rng(0).integers(10, size=(2, 100_000, 10))
pairs = np.stack((x, y), 1) @ 10 ** np.arange(10)
tokens, answers = adder.task.encode(pairs).numpy(), adder.task.targets(pairs).numpy()
ranges = pd.concat([reached_after(target, token) for target in range(1, 10) for token in range(10)])
met = []
for target in range(1, 10):
    sums = terms_of(target)[np.arange(tokens.shape[1]), tokens].sum(1)
    carry = (pairs % 10**target).sum(1) // 10**target
    keys = [np.full(len(pairs), target), answers[:, target - 1], carry, x[:, target] + y[:, target]]
    met.append(pd.Series(sums).groupby(keys).agg(["min", "max", "count"]))
met = pd.concat(met).rename_axis(ranges.index.names).join(ranges)
# The sum takes the weights as constant, which they are up to 5e-6.
assert (met["min"] >= met.low - 1e-3).all() and (met["max"] <= met.high + 1e-3).all()

# %%
short = 100 * (1 - (met["max"] - met["min"]) / (met.high - met.low))
missed = short > 10
most = met["count"][missed].max()
compose(
    [
        Panel(
            [points(met["count"], short, size=4, opacity=0.5)],
            x={"title": "random pairs met in the class", "type": "log"},
            y="part of the exact range missed (%)",
        )
    ],
    f"Over 10% of the range is missed in {missed.sum()} of {len(met):,} classes, met up to {most} times each",
    Provenance(len(pairs), 0, "uniform pairs"),
    note="A point per class of s1 to s9",
    height=440,
)

# %% [markdown]
# ## 4. The decision function
#
# F(d, s) is the lead of digit d over the best other digit if attention writes `s`. The curves are thick where a class
# for which d is right can reach. A thick piece below zero would be a wrong answer.

# %%
curves = decision_curves(adder, target=TARGET, token=PREVIOUS)
curves

# %%
curves.figure()

# %% [markdown]
# ## 5. From a picture to a proof
#
# All thick pieces lie above zero, at the points of a grid. Between those points a curve might dip, and the computer
# that drew it rounds. To be sure, we compute with *balls*. A ball is a midpoint and a radius, and stands for every
# number in between. Every operation on balls gives a ball that contains all possible results, including the computer's
# own rounding. python-flint (Arb) does this. The table shows each ball by its ends.

# %%
x, y = arb(1.5, 0.1), arb(2, 0.2)
rows = [("x", interval(x, 2)), ("y", interval(y, 2)), ("x y, as a ball", interval(x * y, 2))]
table([*rows, ("x y, by hand: 1.4 x 1.8 to 1.6 x 2.2", f"[{1.4 * 1.8:.2f}, {1.6 * 2.2:.2f}]")], ["number", "lies in"])

# %% [markdown]
# The ball is symmetric around 1.5 x 2, so it is a little larger than necessary on one side. What counts is that it is
# never too small.
#
# A gelu takes more thought. Where it rises or falls throughout a ball, its values lie between those at the two ends.
# Elsewhere the ball has to include its minimum, which is not below -0.17.

# %%
rows = []
for centre, radius in ((1.0, 0.25), (-2.0, 0.25), (-0.5, 0.5)):
    values = torch.nn.functional.gelu(torch.linspace(centre - radius, centre + radius, 1001, dtype=torch.float64))
    (low,), (high,) = ACTIVATIONS["gelu"].on(np.array([centre - radius]), np.array([centre + radius])).range()
    ends = [f"[{least:.4f}, {most:.4f}]" for least, most in ((low, high), (values.min(), values.max()))]
    rows.append((interval(arb(centre, radius), 2), *ends))
table(rows, ["x", "gelu(x), as a ball", "gelu(x), on a grid"])

# %% [markdown]
# Balls forget where they come from. For x in [0, 1], the parabola x - x^2 lies between 0 and 1/4. But a ball does not
# know that both terms have the same x in them, so it combines the largest value of one with the least of the other.
# This is the *dependency problem*. Cutting the range cures it, because little can be forgotten over short pieces.

# %%
rows = []
for n in (1, 2, 8, 64):
    pieces = [arb(k / n).union(arb((k + 1) / n)) for k in range(n)]
    found = [p - p * p for p in pieces]
    low, high = min(float(f.lower()) for f in found), max(float(f.upper()) for f in found)
    rows.append((n, f"[{low:.3f}, {high:.3f}]"))
table(rows, ["pieces of [0, 1]", "x - x^2 lies in"])

# %% [markdown]
# The model's margin is such an expression: a norm, an MLP, a norm and logits, with the same `s` everywhere. So the
# certifier keeps each number as a *form*: a value, a slope along `s`, and a radius for everything else (affine
# arithmetic). The error of a form falls with the square of the range. The next cell takes the class from section 3 and
# bounds its margin from below over 1, 2, 4 and 8 pieces of its range, stretched by half so that there is something to
# see. A bound below zero proves nothing.

# %%
search, after_7 = Search(weights, REAL, attention), WindowBounds(attention, layout, TARGET, PREVIOUS)
answer = (TOTAL + CARRY) % 10
middle, half = (row.low + row.high) / 2, (row.high - row.low) / 2
stretched = middle - 1.5 * half, middle + 1.5 * half
lead, at = curves.lead.sel(digit=answer), np.linspace(*stretched, 201)
layers = [curve(at, np.interp(at, lead.s, lead), "on a grid", theme.BLACK)]
for n, colour in zip((1, 2, 4, 8), ("#b5cfe6", "#85b3d9", "#2168a8", "#08306b"), strict=True):
    cuts = np.linspace(*stretched, n + 1)
    lower, _ = search.bounds_without_halving(after_7, np.full(n, answer), cuts[:-1, None], cuts[1:, None])
    steps = np.repeat(cuts, 2)[1:-1]
    layers.append(curve(steps, np.repeat(lower, 2), f"{n} piece{'s' * (n > 1)}", colour, width=3))
compose(
    [
        Panel(
            layers,
            x="attention scalar s (stream units)",
            y="lead of the right digit (logits)",
            marks=[hline(0, dash="solid", colour=theme.VERMILION)],
        )
    ],
    "The more pieces, the closer the proved bound comes to the margin",
    Provenance(1, None, "class of inputs, its range stretched by half", "certified in intervals"),
    height=500,
)

# %% [markdown]
# Branch and bound cuts only where it has to. If the bound of a window of columns is too low, the window is cut in
# halves or made longer by one more column. Once the splits are written down, anybody can repeat the proof without
# searching.

# %%
found = prove_query(search, after_7)[CARRY, TOTAL]
bound = number_format.shown(found.lowest, 4)
table(
    [(f"{found.certified:,}", found.open, len(found.splits), bound)],
    ["problems of the class certified", "left open", "splits", "every margin is above"],
)

# %% [markdown]
# ## 6. float32 is one more radius
#
# So far, the weights were exact numbers and the arithmetic was that of the reals. The model that runs is different.
# Every float32 operation rounds by at most u = 2^-24 of its result, and sums round in an order that depends on the
# machine. So each operation's ball gets a radius that covers the rounding. A sum of n products in *any* order is off by
# at most n u / (1 - n u) times the sum of their magnitudes.

# %%
numbers, ones = Enclosure.exact(torch.tensor([[1, -1, 1 / 8]])), TrimmedMatrix.of(torch.ones(3, 1))
rows = []
for name, arithmetic in (("the reals", REAL), ("float32", FLOAT32)):
    found = arithmetic.linear(numbers, ones)
    rows.append((name, interval(arb(float(found.mid), float(found.rad)), 8)))
table(rows, ["arithmetic", "1 - 1 + 1/8 lies in"])

# %% [markdown]
# Where does that matter? It matters in the class with the lowest margin of all. The next cell bounds the margin at a
# problem of that class, and compares the bounds with what the model computes.

# %%
hunted = interp.certify(adder, arithmetic="float").classes
worst = int(hunted.margin.values.argmin())
target, token, answer, a, b = (int(hunted[name][worst]) for name in ("target", "token", "answer", "a", "b"))
digits = np.array([[[n // 10**i % 10 for i in range(10)] for n in (a, b)]])
bounds = []
for arithmetic in (REAL, FLOAT32):
    own = Search(weights, arithmetic)
    query_there = own.query(target, token)
    point = attention_of(query_there, digits)[1].sum(1)
    bounds.append(float(own.bounds_without_halving(query_there, np.array([answer]), point, point)[0][0]))
with torch.inference_mode():
    logits = adder(adder.task.encode([(a, b)]))[0, adder.task.query_positions[target]].double()
this_run = float(logits[answer] - np.delete(logits, answer).max())
at_least = [number_format.shown(bound, 4) for bound in bounds]
rows = [(f"{a} + {b}", *at_least, f"{this_run:.4f}", f"{logits.abs().max():.0f}")]
table(rows, ["pair", "over the reals, at least", "in float32, at least", "this run", "largest logit"])

# %% [markdown]
# float32 keeps seven digits of a logit. Here the logits are large and their difference is small, so rounding could use
# up most of this lead, though not all of it. A proof over the reals does not see that.

# %% [markdown]
# ## 7. The certificate
#
# One call does all of this. It finds a hard problem of every class and runs it through the model itself. It proves each
# class, with every rounding enclosed. The result keeps every number that a checker needs.

# %%
certificate = interp.certify(adder)
certificate

# %%
certificate.figure()

# %% [markdown]
# To check a certificate, one need not trust whoever made it. The checker computes the terms again from the weights, and
# encloses each window again. It does not search.

# %%
check_certificate(certificate, adder)  # raises an error unless it holds
splits = sum(len(cuts) for cuts in certificate.cuts)
table(
    [(f"{len(certificate.cuts):,}", f"{splits:,}", number_format.shown(certificate.lower_bound, 3))],
    ["classes that hold", "splits", "every margin is above"],
)

# %% [markdown]
# A certificate does not hold if it claims more than was proved, if it states another margin for a problem, or if it is
# handed in for other weights:


# %%
def objection(claim, model=adder) -> str:
    try:
        check_certificate(claim, model)
    except UserError as error:
        return str(error)
    return "It holds."


def copied(claim):
    evidence = replace(claim.evidence, classes=claim.classes.copy(deep=True))
    return replace(claim, evidence=evidence)


bolder, other = copied(certificate), copied(certificate)
bolder.classes.proved[worst] *= 2
other.classes.margin[worst] += 1
table(
    [
        ("more than was proved", objection(bolder)),
        ("another margin", objection(other)),
        ("other weights", objection(certificate, noisy)),
    ],
    ["the certificate claims", "the checker says"],
)

# %% [markdown]
# ## 8. A model of your own, trained and proved in a minute
#
# Nothing of this is made for one model. Here is a task that you state in a line, a transformer of one layer with the
# usual parts, and 600 steps of training, which take about a quarter of a minute. There are a million problems. The
# proof does not run them: it takes what a query sees as paths of a graph, and bounds all paths with one right answer at
# once. Attention is a ratio of two sums over positions, whose largest value over all paths a dynamic programme finds.

# %%
reversal = models.tasks.formatted("{a:6}={s:6r}", "a")
config = models.TransformerConfig(
    n_layers=1, d_model=16, n_heads=1, d_head=16, d_mlp=32, act_fn="relu", normalization_type=None,
    d_vocab=reversal.d_vocab, n_ctx=reversal.input_length,
)  # fmt: skip
with TemporaryDirectory() as folder:
    models.train(config, reversal, out=folder, steps=600, lr=0.01, batch_size=128, progress=False)
    mine = models.load(folder)
tried = score(mine, reversal.sample(1_000, torch.Generator().manual_seed(0)))
print("{:,} of {:,} drawn problems, 95% interval {:.1%} to {:.1%}".format(tried.correct, tried.n, *tried.interval))
proved = interp.certify(mine)
proved

# %% [markdown]
# Each row of the table is a class: a token at the query, and the right answer there. The least lead that was met in a
# class lies above the bound that was proved.

# %%
proved.to_dataframe().groupby("target")[["bound", "sampled"]].min().round(3)

# %% [markdown]
# ## 9. What "certified" says, and what it does not say
#
# It says: with these weights (their hash is in the certificate) and this forward pass, the model answers every one of
# the 10^20 pairs of numbers from 0 to 9,999,999,999 correctly, whatever the order of summation. It assumes that the
# machine keeps to a few rules: `+ - *` are correctly rounded, quotients and roots are within one unit in the last
# place, `exp` and `erf` are within two, and there is no TF32 and no half precision. The tests check this machine's
# torch against these rules on dense samples.
#
# It says nothing about other weights (one bit is enough), about other number formats or hardware that breaks these
# rules, or about tokens that are not a sum of two such numbers. A verdict "in floats" is a picture and no proof. The
# strengths of evidence are, from weak to strong: sampled, exhaustive, certified in floats, certified in intervals,
# certified with rounding. The noisy model from the beginning has only the weakest: 10,010 sampled problems of 10,010
# are right, and the model is wrong.
