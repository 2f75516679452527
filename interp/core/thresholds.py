"""Every number that decides what a sentence claims, with its reason.

A finding is put in words ("detector", "causal", "no circle", "reproduced") where a measured value passes one of these.
What is only the rounding of floats stands where it is used.
"""

#: ``auroc_apart`` from which a neuron is called a detector: with every rival signal held fixed, it is wrong about one
#: pair of columns in twenty.
SEPARATES = 0.95
#: ``effect_apart`` from which a detector is called causal: ablating it costs a tenth more of the digits on one side.
CAUSAL = 0.1
#: What earns a neuron the name of a switch, besides ranges of its input that do not overlap. Its two states can be read
#: off its output to a tenth of the output's range: one state moves by no more, no less lies empty between the two. And
#: it is the neuron that holds still, not its input: there it passes on at most half of what it does over its range.
FLAT, EMPTY, SQUASHED = 0.1, 0.1, 0.5
#: A test is called significant at this level; how many comparisons there were is said next to it.
SIGNIFICANT = 0.05

#: One number for several keys misleads if it is far off for one of them: it may be a quarter off.
ALIKE = 1.25
#: A difference below 1/200 of a row is not mentioned. It is small next to the weights of 0.04 to 0.4 that addition in
#: base 10 asks for.
FAINT = 0.005
#: Largest standard deviation over inputs of an attention weight that float32 rounding of the norms can cause: attention
#: below it is said to depend on positions alone, in the sample.
POSITION_ONLY = 1e-5
#: Share from which a head is said to play a role: most of its weight.
MAJORITY = 0.5
#: Weight on BOS from which a head is said to rest.
RESTING = 0.9

#: Distance from the circle, in radii, from which points are not called one.
POOR = 0.05
#: The radius of an arc that has shrunk to a point: places lie at 3.5 and more from the middle, so that digits this
#: close move the stream's direction by less than a third of its length.
SHRUNK = 1.0
#: Difference of BIC that counts as strong evidence (Kass and Raftery 1995, J. Am. Stat. Assoc. 90, 773).
STRONG = 6.0

#: Share of right answers above which a model does a task: more often right than not. Others are not explained.
ABLE = 0.5
#: Loss of right digits from which a head is said to be needed.
NEEDED = 0.1
#: Share recovered by patching below which no cell is named, and below which a cell is left out of a table.
LEAST_SAID, RECOVERED = 0.01, 0.05
#: Drop of accuracy up to which a parameter is said to cost nothing.
HARMLESS = 0.01
#: Share of the whole model's answers with which a swapped part is said to keep them.
KEPT = 0.95
#: Rise of the share that follows, from which a layer is said to gather.
LEAST_RISE = 0.05

#: Largest half-width of a 95% interval that still confirms a paper's number, as a share of it; and of a counted rate,
#: absolute, since a rate may be 0.
CONFIRMS, CONFIRMS_RATE = 0.1, 0.05

#: How far a gap of attention scores may lie from ln 10, in nats, to be called base ten: a twentieth of the weight.
ALIKE_GAPS = 0.05
#: Models of one architecture whose aligned parameters lie closer than this share of the closest untrained pair are of
#: one class.
ONE_CLASS = 0.5
