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
# This notebook shows how all of them can be judged in a few seconds, and what the verdict rests on. It assumes that you
# know transformers, and nothing about interval arithmetic.

# %%
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch
from flint import arb

import interp
import models
from interp.core.stats import clopper_pearson
from interp.figures import theme
from interp.proofs import check_certificate, decision_curves
from interp.proofs.balls import FLOAT32, REAL
from interp.proofs.branching import Search, prove
from interp.proofs.hunting import attention_of
from interp.proofs.leaves import Query
from interp.proofs.one_layer import read_adder
from interp.proofs.ratio_attention import read_ratio_attention
from interp.proofs.trials import perturb, wrong_answers
from models import numerals
from models.errors import UserError
from models.evaluation import predict, score

adder = models.load("microadder-57")


def show(figure: go.Figure, title: str, x: str, y: str, height: int = 440) -> go.Figure:
    """Title (the finding), axes, and the look that the library's own figures have."""
    axis = {"gridcolor": theme.LIGHT}
    figure.update_layout(
        template="plotly_white", title=f"<b>{title}</b>", title_font_size=16, width=1000, height=height
    )
    return figure.update_xaxes(title=x, **axis).update_yaxes(title=y, **axis)


def interval(ball: arb, digits: int = 4) -> str:
    """The ends of a ball."""
    return f"[{float(ball.lower()):.{digits}f}, {float(ball.upper()):.{digits}f}]"


# %% [markdown]
# ## 1. Why 10,010 of 10,010 is no proof
#
# Add noise of 0.1% to the 57 parameters, and put the result to AdderBoard's 10,010 problems.

# %%
noisy = models.load("microadder-57")
perturb(noisy, noise=1e-3, rounding="none", seed=18)
score(noisy)

# %% [markdown]
# Perfect. What that says about other problems of this kind is an interval (Clopper-Pearson): at most three in ten
# thousand wrong, at 95% confidence. Three in ten thousand of 10^20 are 3 x 10^16 pairs. Is one of them wrong?

# %%
verdict = interp.certify(noisy)
print(verdict)
a, b, answer = verdict.counterexample
print(f"{a} + {b} = {a + b}, and the model says {answer}")

# %% [markdown]
# Yes, by ten million. How common are such pairs? Common enough to be met in practice, and too rare for a benchmark of
# ten thousand.

# %%
uniform = torch.randint(10**10, (100_000, 2), generator=torch.Generator().manual_seed(0))
wrong = wrong_answers(noisy, uniform)
low, high = clopper_pearson(int(wrong.sum()), len(wrong))
rate = f"{numerals.small(low)} to {numerals.small(high)}"
print(f"{int(wrong.sum())} of {len(wrong):,} uniform pairs wrong: a rate of {rate}")
met = uniform[wrong][:3]
for (a, b), said in zip(met.tolist(), noisy.task.decode(predict(noisy, met)), strict=True):
    print(f"{a} + {b} = {a + b}, and the model says {said}")

# %% [markdown]
# ## 2. Attention writes one number
#
# In the 57-parameter model queries and keys read positions only, so that the pattern is the same for every problem. All
# values lie along one direction, so that whatever attention reads, it writes a multiple `s` of one vector B into the
# residual stream. Both can be seen:

# %%
TARGET = 5  # we follow the prediction of answer digit s5
query = adder.task.query_positions[TARGET]
problems = torch.randint(10**10, (2000, 2), generator=torch.Generator().manual_seed(1))
with torch.inference_mode():
    logits, cache = adder.run_with_cache(adder.task.encode(problems))
written = cache["attn_out", 0][:, query].double().numpy()
variation = np.ptp(cache["pattern", 0].numpy(), 0).max()
print(f"an attention weight varies by at most {numerals.small(variation)} over {len(problems):,} problems")
singular = np.linalg.svd(written, compute_uv=False)
print("singular values of what is written:", ", ".join(map(numerals.small, singular)))

# %% [markdown]
# In general attention writes a ratio of two sums over positions: what each key writes, weighted, over the sum of all
# weights. `read_ratio_attention` works both out from the weights of the model. Here the pattern does not depend on
# digits, so that `s` is simply a sum of one term a position, and the term depends on the digit there alone.

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
along = written @ attention.basis[0]
print(f"largest difference between s and what the model writes along B: {numerals.small(np.abs(along - s).max())}")

# %%
labels = [role.label for role in adder.task.roles[: len(terms)]]
shown = [j for j in range(query + 1) if np.ptp(terms[j]) > 0.05]
figure = go.Figure(
    go.Heatmap(
        z=terms[shown].T,
        x=[labels[j] for j in shown],
        y=list(range(10)),
        colorscale=theme.DIVERGING,
        zmid=0,
        texttemplate="%{z:.1f}",
        colorbar={"title": "term of s<br>(stream units)"},
    )
)
figure.update_xaxes(type="category").update_yaxes(dtick=1)
finding = "The prediction of s5 reads its own column, and column 4 ten times more faintly"
show(figure, finding, "position (a, b: operands; s: answer; 0: units)", "digit there", height=480)

# %% [markdown]
# After attention everything happens at one position: the MLP, the norms and the unembedding see the query's own token
# (here the answer digit s4) and `s`, nothing else. All ten logits are functions of one number.

# %%
own = tokens[:, query]
right = adder.task.targets(problems)[:, TARGET].numpy()
chosen = own == 7
carries = (problems.numpy() % 10 ** (TARGET + 1)).sum(1) >= 10 ** (TARGET + 1)
figure = go.Figure()
for out, colour, symbol in ((False, theme.BLUE, "circle"), (True, theme.VERMILION, "diamond")):
    rows = chosen & (carries == out)
    marker = {"size": 7, "opacity": 0.6, "color": colour, "symbol": symbol}
    figure.add_scatter(
        x=s[rows], y=right[rows], mode="markers", marker=marker, name="carry out of column 5" if out else "no carry out"
    )
figure.update_yaxes(dtick=1)
finding = f"After a 7, s alone tells the right digit, in two flights of stairs ({chosen.sum()} random problems)"
show(figure, finding, "attention scalar s (stream units)", "right digit s5")

# %% [markdown]
# ## 3. Ten columns and a carry
#
# Group the problems by what fixes the right answer and the query's token: the previous answer digit, the carry into the
# column, and the sum of the column's two digits. For all twelve targets together these are 3,442 *classes*, and every
# one of the 10^20 problems is in one class a target. If the right digit wins on the whole range of `s` in each class,
# the model is right on every problem.
#
# So: what is the least and the largest `s` in a class? It is a sum over columns, but columns are not free: digits make
# carries, and carries make the answer digits that are read as well. Given the carry into a column, though, the columns
# before do not matter any more. That is all that dynamic programming needs (Bellman): keep the least sum for either
# carry, and go one column further. Here it is in full, for one class: s4 = 7, no carry into column 5, x5 + y5 = 9.

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
# A `Query` does this for all classes after one token, with the ratio instead of the sum: for attention that depends on
# digits as well. Its bounds come window by window (the digits of column 5 and the carry into it are one), and those of
# a class are the outermost ones of its windows.


# %%
def reached_behind(target: int, token: int) -> pd.DataFrame:
    """The range of s in each class, by carry and total."""
    query = Query(attention, layout, target, token)
    leaves = query.roots()
    carry, total = query.class_of(leaves)
    low, high = (end[:, 0] for end in query.box(leaves))
    keys = {"target": target, "previous": token, "carry": carry, "total": total}
    return pd.DataFrame(keys | {"low": low, "high": high}).groupby(list(keys)).agg({"low": "min", "high": "max"})


row = reached_behind(TARGET, PREVIOUS).loc[TARGET, PREVIOUS, CARRY, TOTAL]
assert np.allclose(by_hand, row, atol=1e-5)
print(f"the same, by the certifier: [{row.low:.6f}, {row.high:.6f}]")

# %% [markdown]
# Sampling cannot replace this. Of 100,000 random pairs none leaves the range of its class, as none may. In a class that
# they meet often they come close to its ends. In a class that they meet rarely they do not, and a failure there is as
# rarely met.

# %%
x, y = np.random.default_rng(0).integers(10, size=(2, 100_000, 10))
pairs = np.stack((x, y), 1) @ 10 ** np.arange(10)
tokens, answers = adder.task.encode(pairs).numpy(), adder.task.targets(pairs).numpy()
ranges = pd.concat([reached_behind(target, token) for target in range(1, 10) for token in range(10)])
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
marker = {"size": 4, "color": theme.BLUE, "opacity": 0.5}
figure = go.Figure(go.Scatter(x=met["count"], y=short, mode="markers", marker=marker))
figure.update_xaxes(type="log")
missed = short > 10
most = met["count"][missed].max()
finding = f"Over 10% of the range is missed in {missed.sum()} of {len(met):,} classes, met up to {most} times each"
show(figure, finding, "random pairs met in the class (of 100,000; s1 to s9)", "part of the exact range missed (%)")

# %% [markdown]
# ## 4. The decision function
#
# F(d, s) is the lead of digit d over the best other one, if attention writes `s`. Thick pieces are where the classes
# for which d is right reach. A thick piece below zero would be a wrong answer.

# %%
curves = decision_curves(adder, target=TARGET, token=PREVIOUS)
curves

# %%
curves.figure()

# %% [markdown]
# ## 5. From a picture to a proof
#
# All thick pieces lie above zero, at the points of a grid. Between them a curve might dip. And the computer that drew
# it rounds. To be sure we compute with *balls*: a midpoint and a radius, which stand for every number between. Every
# operation on balls gives a ball that contains all results, rounding of the computer's own included. python-flint (Arb)
# does this; we print a ball by its ends.

# %%
x, y = arb(1.5, 0.1), arb(2, 0.2)
print(f"x in {interval(x, 2)}, y in {interval(y, 2)}, x y in {interval(x * y, 2)}")
print(f"by hand: from 1.4 x 1.8 = {1.4 * 1.8:.2f} to 1.6 x 2.2 = {1.6 * 2.2:.2f}")

# %% [markdown]
# The ball is a little larger than it would have to be on one side (it is symmetric around 1.5 x 2): never too small is
# what counts.
#
# A gelu takes more thought. Over a ball where it rises or falls throughout, its values lie between those at the ends;
# otherwise its minimum, which is not below -0.17, has to be let in.

# %%
for centre, radius in ((1.0, 0.25), (-2.0, 0.25), (-0.5, 0.5)):
    ball = REAL.gelu(arb(centre, radius))
    values = torch.nn.functional.gelu(torch.linspace(centre - radius, centre + radius, 1001, dtype=torch.float64))
    exact = f"{values.min():.4f} to {values.max():.4f}"
    print(f"gelu of {interval(arb(centre, radius), 2)} in {interval(ball)}; on a grid {exact}")

# %% [markdown]
# Balls forget where they come from. For x in [0, 1] the parabola x - x^2 lies between 0 and 1/4, but a ball does not
# know that both terms have the same x in them, and takes the largest of one with the least of the other. This is the
# *dependency problem*. Its cure is to cut: over short pieces little can be forgotten.

# %%
for n in (1, 2, 8, 64):
    pieces = [arb(k / n).union(arb((k + 1) / n)) for k in range(n)]
    found = [p - p * p for p in pieces]
    low, high = min(float(f.lower()) for f in found), max(float(f.upper()) for f in found)
    print(f"{n:3d} pieces: x - x^2 in [{low:.3f}, {high:.3f}]")

# %% [markdown]
# The model's margin is such an expression: norm, MLP, norm, logits, with the same `s` everywhere. So each number is
# kept as a *form*: a value, a slope along `s` and a radius for all else (affine arithmetic). What a form gives away
# falls with the square of the range. Take the class from section 3, and bound its margin from below over 1, 2, 4 ...
# pieces of its range, stretched by half so that there is something to see. A bound below zero proves nothing.

# %%
search, behind_7 = Search(weights, REAL, attention), Query(attention, layout, TARGET, PREVIOUS)
answer = (TOTAL + CARRY) % 10
middle, half = (row.low + row.high) / 2, (row.high - row.low) / 2
stretched = middle - 1.5 * half, middle + 1.5 * half
curve = curves.lead.sel(digit=answer)
figure = go.Figure()
at = np.linspace(*stretched, 201)
line = {"color": theme.BLACK, "width": 2}
figure.add_scatter(x=at, y=np.interp(at, curve.s, curve), mode="lines", line=line, name="on a grid")
for n, colour in zip((1, 2, 4, 8), ("#b5cfe6", "#85b3d9", "#2168a8", "#08306b"), strict=True):
    cuts = np.linspace(*stretched, n + 1)
    lower, _ = search.margins(behind_7, np.full(n, answer), cuts[:-1, None], cuts[1:, None])
    steps = np.repeat(cuts, 2)[1:-1]
    name = f"{n} piece{'s' * (n > 1)}"
    figure.add_scatter(x=steps, y=np.repeat(lower, 2), mode="lines", line={"color": colour, "width": 3}, name=name)
figure.add_hline(y=0, line={"color": theme.VERMILION})
finding = "The more pieces, the closer the proved bound comes to the margin"
show(figure, finding, "attention scalar s (stream units)", "lead of the right digit (logits)", height=500)

# %% [markdown]
# Branch and bound cuts only where it has to: a window of columns whose bound is too low is cut in halves, or made
# longer by one more column. With the splits written down, anybody can repeat the proof without searching.

# %%
found = prove(search, behind_7)[CARRY, TOTAL]
bound = numerals.shown(found.lowest, 4)
counts = f"{found.certified:,} problems of the class are certified, {found.open} open"
print(f"{counts}, after {len(found.splits)} splits: every margin above {bound}")

# %% [markdown]
# ## 6. float32 is one more radius
#
# So far the weights were exact numbers and the arithmetic was that of the reals. The model that runs is another one:
# every float32 operation rounds, by at most u = 2^-24 of its result, and sums round in an order that depends on the
# machine. So each operation's ball gets a radius that covers it; a sum of n products in *any* order is off by at most
# n u / (1 - n u) times the sum of their magnitudes.

# %%
terms = [arb(1), arb(-1), arb(1) / 8]
print(f"1 - 1 + 1/8 over the reals: {interval(REAL.dot(terms), 8)}, in float32: {interval(FLOAT32.dot(terms), 8)}")

# %% [markdown]
# Where does that matter? In the class whose margin comes lowest of all. Here are bounds at a problem of it, beside what
# the model computes:

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
    bounds.append(float(own.margins(query_there, np.array([answer]), point, point)[0][0]))
with torch.inference_mode():
    logits = adder(adder.task.encode([(a, b)]))[0, adder.task.query_positions[target]].double()
this_run = float(logits[answer] - np.delete(logits, answer).max())
print(f"logits up to {logits.abs().max():.0f}")
rows = [(f"{a} + {b}", *(numerals.shown(bound, 4) for bound in bounds), f"{this_run:.4f}")]
pd.DataFrame(rows, columns=["pair", "over the reals, at least", "in float32, at least", "this run"])

# %% [markdown]
# float32 keeps seven digits of a logit, and here logits are large and their difference is small: rounding could use up
# most of this lead, and not all of it. A proof over the reals knows nothing of that.

# %% [markdown]
# ## 7. The certificate
#
# All of it in one call: a hunted problem of every class run through the model itself, a proof of each class with every
# rounding enclosed. The result keeps every number that a checker needs.

# %%
certificate = interp.certify(adder)
certificate

# %%
certificate.figure()

# %% [markdown]
# Checking needs no trust in whoever made it: terms are worked out anew from the weights, and each window is enclosed
# again. It needs no search.

# %%
check_certificate(certificate, adder)
splits = sum(len(cuts) for cuts in certificate.cuts)
bound = numerals.shown(certificate.lower_bound, 3)
print(f"holds: {len(certificate.cuts):,} classes, {splits:,} splits, every margin above {bound}")


# %% [markdown]
# Claim more than was proved, another margin for a problem, or hand it in for other weights, and it does not hold:


# %%
def attempt(claim, model=adder) -> None:
    try:
        check_certificate(claim, model)
        print("holds")
    except UserError as error:
        print(error)


bolder, other = (replace(certificate, classes=certificate.classes.copy(deep=True)) for _ in range(2))
bolder.classes.proved[worst] *= 2
other.classes.margin[worst] += 1
attempt(bolder)
attempt(other)
attempt(certificate, noisy)

# %% [markdown]
# ## 8. What "certified" says, and what it does not
#
# It says: with these weights (their hash is in the certificate) and this forward pass, every one of the 10^20 pairs of
# numbers from 0 to 9,999,999,999 is answered right, whatever the order of summation, if the machine keeps to what is
# assumed: `+ - *` correctly rounded, quotients and roots within one unit in the last place, `exp` and `erf` within two,
# no TF32 and no half precision. The tests hold this machine's torch to that on dense samples.
#
# It does not say anything about other weights (one bit is enough), about other number formats or hardware that breaks
# these rules, or about tokens that are no sum of two such numbers. A verdict "in floats" is a picture and no proof:
# the rungs are, from weak to strong, sampled, exhaustive, certified in floats, in intervals, with rounding. The noisy
# model of the beginning stands on the first of them with 10,010 of 10,010, and is wrong.
