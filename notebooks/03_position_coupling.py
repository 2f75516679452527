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
# # Position Coupling: a transformer written by hand, and one that was trained
#
# The paper on Position Coupling (ICLR 2025) proves by construction that one layer with four heads adds many long
# numbers, and trains the same architecture to do it. This notebook first reads the construction table by table. Then it
# compares a trained model with it: where do the two run the same algorithm, and where do they differ?

# %%
import numpy as np
import pandas as pd

import interp
import models
from interp.figures.tables import findings, table
from interp.proofs.stored_verdicts import hand_built_sums
from studies.position_coupling.exact_match_grid import exact_match_grid
from studies.position_coupling.first_error_position import first_error_position
from studies.position_coupling.grid_panels import GridPanel, GridPanels

built = models.build("position-coupling-hand-built", max_operands=7, max_digits=2)  # it has no parameters at all
{"heads": built.config.n_heads, "dimensions": built.config.d_model, "neurons": built.config.d_mlp}

# %% [markdown]
# ## 1. Ids say which tokens belong together
#
# 57 + 48 + 96 is written as `$057+048+096=000>750>501>102`: first the operands, padded to one length, then the running
# sums 0, 57, 105 and 201, units first. Every token has two position ids. The first is its place in a number (units,
# tens, ...), and the second counts numbers. A digit of the sum has the ids of the digits that it is made of. This is
# the coupling.
#
# An id k becomes a code of plus and minus ones, the bits of k - 1, together with the code of the *next* id. Two codes
# of P bits have inner product P if they are the same, and P - 2 at most if they differ. The figure shows the paper's
# own example, whose ids start at 4 and 2 (Table 4).

# %%
example = interp.residual_by_dimension(built, "$057+048+096=000>750>501>102", offsets=(4, 2))
example.figure(stages=["tokens", "positions"], response_only=False)

# %% [markdown]
# ## 2. Four heads ask four questions
#
# A head compares one code of the query with one code of the keys. The first token `$` scores exactly as much as a
# match, and everything else scores so much less that it gets no weight. So a head shares its weight equally between `$`
# and whatever matches. The stream also shows when nothing matches: then all weight is on `$`.
#
# | head | query code | key code | hence attends to | value | fills |
# |---|---|---|---|---|---|
# | L0H0 | next place, number | place, next number | the two digits to be added now | 3 NUM | PRE_SUM |
# | L0H1 | place, number | place, next number | the two digits added before | 3 NUM | PRE_CARRY |
# | L0H2 | next place | place | every digit of the next place | IS_BOS | PRE_ARROW |
# | L0H3 | place, number | place, number | itself, and its operand if more follow | IS_BOS | PRE_EOS |
#
# L0H0 and L0H1 add: three tokens have one third of the weight each, and the value is multiplied by three. L0H2 and L0H3
# count: the weight left on `$` is 1 where a number has ended, and 1/2 instead of 1/3 in the last number.

# %%
example.figure("patterns")

# %% [markdown]
# ## 3. The MLP reads one number
#
# The digit to write is the sum of two digits and a carry, modulo ten. The previous column tells the carry: its two
# digits and the carry into it add up to the digit written there, or to ten more. So all neurons of SUM read
#
#     x = PRE_SUM + (PRE_CARRY - NUM) / 10
#
# which is the digit sum plus the carry, less a tenth if the previous column got a carry itself. The output for a
# digit has two plateaus, one around the digit itself and one around ten more. Where do the readings of real problems
# lie?

# %%
larger = models.build("position-coupling-hand-built", max_operands=10, max_digits=10)
units = interp.construction_units(larger, task=larger.task.at(4, 4))
units

# %%
units.figure()

# %% [markdown]
# ## 4. All tables at once
#
# The next figure shows everything on one page. Each row is a named dimension, and each block is what one part of the
# model writes. The last line is the token with the largest logit (10 ARROW for `>`, 100 EOS for `$`).

# %%
example

# %%
example.figure()

# %% [markdown]
# These are the paper's Tables 4, 8, 12, 16, 20 and 22. A test compares every printed entry with the model
# (`tests/parity/test_hand_built_tables.py`). A few printed entries contradict the paper's own formulas:

# %%
equals, second_arrow = example.first, example.first + 8
at = example.table["value"].sum("stage").isel(pos=[equals, second_arrow])
PRINTED = {"PRE_EOS": "1/2 and 1/3 in Table 23, 1/3 and 1/2 in Table 20", "EOS": "0 and -1 in Table 22"}
computed = {name: at.isel(dim=list(at.named.values).index(name)).values for name in PRINTED}
table(
    [(name, *computed[name], printed) for name, printed in PRINTED.items()],
    ["dimension", "computed under '='", "computed under the second '>'", "printed"],
)

# %% [markdown]
# No predicted token depends on these entries. One choice that the text leaves open does matter. Softmax has to be
# sharp, but with an "arbitrarily large" temperature float32 rounds the tie with `$` away. A temperature of 16 is
# enough, and exact.
#
# ## 5. A trained model next to it
#
# `position-coupling-1l4h-small` has the same architecture except for norms, gated neurons and 128 dimensions. It
# learned from sums of up to four numbers of up to four digits. Where do its heads look?

# %%
trained = models.load("position-coupling-1l4h-small")
patterns = interp.attention_by_role(trained, n=300)
patterns.figure("pattern", layer=0, head=0)

# %%
patterns.figure("pattern", layer=0, head=1)

# %% [markdown]
# There are two families of diagonals, as in the construction: the digits to be added, and those that decide the carry.
# The next probe says which of the four constructed heads each head plays, and how far its pattern agrees with that one.
# Its controls are shuffled tokens and untrained copies.

# %%
looks = interp.key_attention(trained)
looks

# %%
looks.figure()

# %% [markdown]
# The heads for digit sum and carry have counterparts. The arrow and EOS heads have none: three of the trained heads
# look at the digits to be added, and none counts. No trained head uses `$`, where every constructed head leaves a share
# of its weight:

# %%
reference = models.build("position-coupling-hand-built", max_operands=4, max_digits=4)
constant = interp.key_attention(reference, task=trained.task, n=50)
weight_on_bos = [
    (name, head, float(found.table.bos.sel(layer=0, head=head, role=role)))
    for name, found in (("constructed", constant), ("trained", looks))
    for (_, head), role in found.roles().items()
]
table(weight_on_bos, ["model", "head", "weight on $"])

# %% [markdown]
# ## 6. The same function by other means
#
# `interp.compare` compares everything that does not depend on a basis: what each head's circuits compute, what the
# logits are for every digit sum and carry, and how the embeddings lie. Distances run from 0 to 1. The distance to
# untrained copies says how far apart two models are that have nothing in common.

# %%
beside = interp.compare(trained, reference, n=64)
distances = beside.table
parts = distances["part"].isin(["responses", "embeddings"]) | (distances["quantity"] == "QK: query place, key place")
columns = ["quantity", "a", "b", "distance", "distance_untrained", "p_untrained", "distance_shuffled", "p_shuffled"]
caption = f"a: {beside.names[0]}, b: {beside.names[1]} (n = {beside.provenance.n} problems)"
shown = distances.loc[parts & (distances["nothing"] == ""), columns]
table(shown.rename(columns=lambda name: name.replace("p_", "p, ")), caption=caption)

# %% [markdown]
# (Three trained heads play the digit-sum head. Over all tokens, L0H2 is matched with it.) As functions of digit sum and
# carry, the two models are almost one. The scores of the two adding heads agree as far as they depend on places. The
# embeddings of digits and places are no nearer to each other than an untrained copy's are. And the two models work by
# different means.
#
# **Choosing.** The construction's scores ignore the digits, so its weights are constant. Trained heads weigh the two
# digits by their value, so that a head's mean pattern agrees with the constructed one better than its patterns do
# problem by problem:

# %%
spread = {
    (name, pattern): [
        found.table[column].sel(layer=0, head=at[1], role=role).item() for at, role in found.roles().items()
    ]
    for name, found in ((beside.names[0], looks), (beside.names[1], constant))
    for pattern, column in (("mean", "overlap"), ("each problem", "overlap_each"))
}
heads = [f"L0H{head}" for head in range(4)]
caption = "Overlap with the constructed head that a head plays"
pd.DataFrame(spread, index=heads).T.style.format(precision=3).set_caption(caption)

# %% [markdown]
# **Numbers.** The two adding heads of the construction write the digit's value along a line. What do the trained heads
# write?

# %%
writes = interp.ov_output_shape(trained)
findings({"hand-built": interp.ov_output_shape(reference, n=64), "trained": writes}, "model")

# %%
writes.figure()

# %% [markdown]
# How well does a step explain what a head writes, and how well does a straight line? For each trained head, the table
# compares the best step (digits below and from a threshold) with a line, both along the head's main direction.

# %%
digits, rows = np.arange(10), []
for head, name in enumerate(heads):
    line = writes.line_of.sel(layer=0, head=head).values
    steps = {k: np.corrcoef(line, digits >= k)[0, 1] ** 2 for k in range(1, 10)}
    best = max(steps, key=lambda k: steps[k])
    linear = np.corrcoef(line, digits)[0, 1] ** 2
    rows.append((name, best, f"{steps[best]:.1%}", f"{linear:.1%}"))
table(rows, ["head", "best step at", "explained by the step", "explained by a line"])

# %% [markdown]
# The carry head does not write a number. It says whether the digit is five or more, which is what a carry depends on.
#
# ## 7. Is the constructed pattern enough?
#
# If a trained head only looked at the right two digits, it would work as well with half of its weight on each. So the
# probe replaces the head's pattern by that one and counts right responses. There are three controls: patterns of other
# roles, the head's own mean over problems, and no head at all.

# %%
substituted = interp.pattern_patching(trained, n=150)
substituted

# %%
substituted.figure()

# %% [markdown]
# The heads give three different answers. L0H2 works with the constructed pattern, and with no other role's. L0H3 also
# works with the patterns of two other roles, so this test says nothing about its role. L0H0 and L0H1 do not work with
# it. With their own mean patterns, a third of the responses stay right, so it matters how they weigh the two digits in
# *this* problem. For L0H0 the ideal pattern does as well as its mean. For L0H1 it does far worse: its mean over
# problems is not the constructed half and half either. (`python -m studies reproduce comparison:swaps` goes on from
# here: it puts whole parts of one model in the place of the other's, through fitted maps.)
#
# ## 8. Beyond the sizes it was trained on
#
# How large may a problem be before the responses go wrong?

# %%
grids = [
    exact_match_grid(model, largest=(10, 10), n=40, progress=False)
    for model in (trained, models.build("position-coupling-hand-built", max_operands=10, max_digits=10))
]
panels = (
    GridPanel("trained", (grids[0],), chosen_among=8),  # seeds, on problems of two sizes beyond training
    GridPanel("hand-built", (grids[1],)),
)
GridPanels("Beyond training", panels).figure()

# %% [markdown]
# The trained model goes some way beyond its training sizes and then fails. It is the best of eight seeds; other seeds
# give other pictures. Where does a response go wrong first?

# %%
errors = first_error_position(trained, task=trained.task.at(7, 7), n=400)
errors

# %%
errors.figure()

# %% [markdown]
# First errors are mostly at digits. The model has no head of its own for boundaries, yet it does not fail there more
# often than elsewhere.
#
# ## 9. What is proved
#
# The right panel of the grid above is a sample of 40 problems per size. But the construction's patterns depend on ids
# alone, so every size has *one* pattern, whatever the digits are. With that pattern fixed, the MLP's possible inputs
# are a short list of intervals. This proves the answers to all problems of a size, with float32 rounding included:

# %%
interp.certify(larger)

# %% [markdown]
# A stored study has proved many sizes in this way:

# %%
hand_built_sums()

# %% [markdown]
# There is no such proof for the trained model, because its patterns depend on the digits. What can be said of it is
# measured. On the sizes that it was trained on, it computes the construction's function, and finds the digits to be
# added and the carry where the construction does. It has no counterpart of the two counting heads. It weighs digits by
# their value where the construction adds them. What it learned ends not far beyond its training sizes.
