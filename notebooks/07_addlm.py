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
# # AddLM: what ternary weights and tropical attention look like inside
#
# AddLM is a small character model of Shakespeare that avoids multiplications where a transformer has most of them.
# Every projection is one scale times -1, 0 and 1. Attention compares queries and keys by the distance `-|q - k|`, over
# the best sixteen keys only. This notebook opens one, next to a float model of the same shape, and then asks the same
# algebra to add.

# %%
import pandas as pd
import plotly.express as px
import torch
from torch.nn import functional as F

import interp
import models
from interp.core.results import Provenance
from interp.figures.tables import table
from models.tasks.named.shakespeare import text_tokens
from studies.addlm.claims_page import claims_table
from studies.addlm.entries import ternary_entries
from studies.addlm.figures.loss import loss_by_keys
from studies.addlm.multiplications import count_multiplications
from studies.addlm.scores import read_scores
from studies.addlm.studies import INFERENCE_KEYS, with_top_k
from studies.addlm.weights import integer_circuits, value_composition

addlm, twin = models.load("addlm-0.8m"), models.load("addlm-0.8m-float")
{model.name_or_path: sum(p.numel() for p in model.parameters()) for model in (addlm, twin)}

# %% [markdown]
# ## 1. Weights with three values
#
# Training moves ordinary floats, the *latent* weights. The model computes with a coarser version of them. Entries
# within half of their matrix's mean magnitude act as 0, and all others act by their sign. So a picture of the latent
# weights, in units of that mean and with the two thresholds, shows everything that the model sees.

# %%
entries = ternary_entries(addlm)
entries

# %%
entries.figure()

# %% [markdown]
# The many zeros follow from the shape of the distribution; nothing is pruned. But there are two spikes. A latent weight
# gets the gradient of the value that it acts as, and that value changes only when the weight crosses a threshold. So
# the weight may be pushed to and fro there, which is known of such training (Nagel et al., 2022). Does the cut cause
# the spikes? The float model's weights have none if they are cut as if they were latent:

# %%
ternary_entries(twin, as_if=True)

# %% [markdown]
# ## 2. Circuits of whole numbers
#
# What a head copies is given by the product of its value and output matrices. Here that product is one scale times an
# integer matrix, which can be compared, stored and ranked without a tolerance.

# %%
circuits = integer_circuits(addlm)
circuits

# %%
circuits.figure(layer=0, head=0)

# %% [markdown]
# Do later heads read what earlier ones write? The product of two such matrices is again an integer matrix. The probe
# compares its size with that for shuffled weights, where the later head reads other dimensions.

# %%
composition = value_composition(addlm)
composition

# %%
composition.figure()

# %% [markdown]
# ## 3. Attention by distance
#
# A distance is a sum over coordinates, and each coordinate gives `-|q - k| = 2 min(q, k) - k - q`. The first term is a
# similarity: two signals overlap as far as the smaller one goes. The second is a bias of the key. The third is the same
# for all keys of a query and cancels. A true tropical product would be `max(q + k)`, so the name says too much. Every
# query uses its sixteen best keys. The text below is two sonnets that are not in the training text.

# %%
SONNETS = """\
Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance or nature's changing course untrimm'd;
But thy eternal summer shall not fade,
Nor lose possession of that fair thou ow'st;
Nor shall death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st:
So long as men can breathe or eyes can see,
So long lives this, and this gives life to thee.

Let me not to the marriage of true minds
Admit impediments. Love is not love
Which alters when it alteration finds,
Or bends with the remover to remove:
O no! it is an ever-fixed mark
That looks on tempests and is never shaken;
It is the star to every wandering bark,
Whose worth's unknown, although his height be taken.
Love's not Time's fool, though rosy lips and cheeks
Within his bending sickle's compass come:
Love alters not with his brief hours and weeks,
But bears it out even to the edge of doom.
If this be error and upon me proved,
I never writ, nor no man ever loved.
"""
n_ctx = addlm.config.n_ctx
windows = text_tokens([SONNETS[i : i + n_ctx + 1] for i in range(0, len(SONNETS) - n_ctx, n_ctx)])
tokens, targets = windows[:, :-1], windows[:, 1:]


def effective_keys(pattern):
    """Over how many equal weights each query's pattern spreads: exp(entropy), of shape [..., query]."""
    return torch.exp(-torch.special.xlogy(pattern, pattern).sum(-1))


def draw_pattern(model, layer, head, last=40):
    """A head's weights in the first window, for its last characters: rows look back at columns."""
    _, cache = model.run_with_cache(tokens[:1])
    pattern = cache["pattern", layer][0, head, -last:].detach()
    kept, spread = (pattern > 0).sum(-1), effective_keys(pattern).mean()
    title = (
        f"L{layer}H{head} of {model.name_or_path} keeps {kept.min()} to {kept.max()} keys, like {spread:.1f} equal ones"
    )
    letters = SONNETS[n_ctx - last : n_ctx].replace(" ", "␣").replace("\n", "⏎")
    figure = px.imshow(pattern[:, -last:].numpy(), color_continuous_scale="Blues", title=title, height=860)
    figure.update_xaxes(tickvals=list(range(last)), ticktext=list(letters), title="character looked at")
    return figure.update_yaxes(tickvals=list(range(last)), ticktext=list(letters), title="character that looks back")


draw_pattern(addlm, layer=1, head=3)

# %%
draw_pattern(twin, layer=0, head=3)

# %% [markdown]
# The first head looks for something. The second, of the float model, spreads over everything, which AddLM's attention
# cannot do. (Each picture has its own scale.) The next cell summarises all heads over all windows, and shows how much
# the model needs each head: how far the loss rises when the head's output is replaced by its mean. Effective keys are
# means over the queries with more than sixteen earlier characters, as the others have nothing to choose.


# %%
def loss(model, hooks=()):
    """The mean cross-entropy over all windows, in nats per character, under hooks."""
    with torch.no_grad():
        return F.cross_entropy(model.run_with_hooks(tokens, fwd_hooks=list(hooks)).transpose(1, 2), targets).item()


def head_summary(model):
    """One row per head: its effective keys, and the rise of the loss without it."""
    _, cache = model.run_with_cache(tokens)
    rows, whole, heads = [], loss(model), torch.arange(model.cfg.n_heads)[:, None]
    for layer in range(model.cfg.n_layers):
        keys = effective_keys(cache["pattern", layer])[..., 16:].mean((0, 2))
        for head in heads.flatten().tolist():

            def without(z, hook, head=head):
                return torch.where(heads == head, z.mean((0, 1), keepdim=True), z)

            rise = loss(model, [(f"blocks.{layer}.attn.hook_z", without)]) - whole
            rows.append((model.name_or_path, f"L{layer}H{head}", keys[head].item(), rise))
    return pd.DataFrame(rows, columns=["model", "head", "effective keys", "rise of the loss"])


heads = pd.concat([head_summary(model) for model in (addlm, twin)], ignore_index=True)
px.scatter(
    heads,
    x="effective keys",
    y="rise of the loss",
    color="model",
    symbol="model",
    text="head",
    log_x=True,
    title="AddLM's heads use few keys each; what a model loses without a head, in nats per character",
).update_traces(textposition="top center")

# %% [markdown]
# Why does a query's best key win? The probe asks how many coordinates carry the key's advantage, and how much of the
# advantage is the key's own bias.

# %%
scores = read_scores(addlm, tokens, f"windows of {n_ctx} characters of two sonnets")
scores

# %%
scores.figure()

# %% [markdown]
# How much does the cut matter? The next figure gives the trained model fewer or more keys than the sixteen that it was
# trained with.

# %%
by_keys = {str(k or "all"): loss(with_top_k(addlm, k)) for k in INFERENCE_KEYS}
spread = max(by_keys[k] for k in ("8", "16", "32", "all")) - min(by_keys[k] for k in ("8", "16", "32", "all"))
finding = f"From eight keys on the loss differs by {spread:.3f} nats at most; with one key it is {by_keys['1']:.2f}"
loss_by_keys(
    {"addlm-0.8m, trained with 16 keys": by_keys},
    finding,
    Provenance(len(tokens), None, scores.provenance.source),
    "loss",
)

# %% [markdown]
# ## 4. Adding in the same algebra
#
# Language has no right answer to compare a mechanism with, but addition has. `addlm-adder-two-digit` and
# `addlm-adder-ten-digit` have two layers of the same parts, with three and eight keys per query. Do they work?

# %%
small, large = models.load("addlm-adder-two-digit"), models.load("addlm-adder-ten-digit")
interp.certify(small)

# %%
interp.accuracy_by_chain(large, n_per_length=100)

# %% [markdown]
# The small model is right on all pairs: they were all tried, and none was left to a sample. No failure of the large
# model is known, but that rests on a sample, and no proof covers two layers. Where do its heads look?

# %%
attention = interp.attention_by_role(large, n=512)
attention.figure("heads")

# %%
attention.figure(layer=0, head=0)

# %% [markdown]
# In the first layer, two heads read the column's own digits and one head reads those of the previous column. The digit
# just written is the query's own token. MicroAdder reads the same three things. So is it the same algorithm? As in
# `05_which_algorithm.py`, the probe exchanges the digit written before for a plausible wrong one.

# %%
algorithm = interp.which_algorithm(large, n=200)
algorithm

# %%
algorithm.figure()

# %% [markdown]
# It chains through its own outputs, as the adders with ordinary weights do. What about the carry inside?

# %%
units = interp.carry_units(large, n=128, max_ablated=8)
units

# %%
units.figure()

# %% [markdown]
# Here the likeness ends. MicroAdder has two neurons, and each of them is a switch without which it fails. This model
# has many neurons. Some of them follow the carry, but none of those tried is needed alone.
#
# The ternary weights look as they do in the language model, spikes included:

# %%
integer_circuits(large)

# %%
ternary_entries(large).figure()

# %% [markdown]
# ## 5. What is saved, and what the paper claims
#
# The table counts the products of two numbers in one forward pass over 128 characters, by part of the model. How many
# of them does AddLM avoid?

# %%
ours, theirs = (count_multiplications(model) for model in (addlm, twin))
products = pd.DataFrame({"float": theirs.products, "AddLM": ours.products})
products.loc["all"] = products.sum()
products.style.format("{:,.0f}").set_caption(f"{ours.share_removed(theirs):.1%} of the multiplications are gone")

# %%
table(claims_table())
