"""Every threshold that decides what a sentence claims, with its reason.

A finding is called a word ("detector", "causal", "no circle", "reproduced") where a measured value passes one of these.
Tolerances for float rounding are not here but where they are used.
"""

#: ``auroc_given_rivals`` from which a neuron is called a detector: with any rival signal held fixed, it is wrong about
#: at most one pair of columns in twenty.
SEPARATES = 0.95
#: ``effect_given_rivals`` from which a detector is called causal: ablating it costs a tenth more of the digits on one
#: side.
CAUSAL = 0.1
#: Problems that must have a signal, and as many that must lack it, before a neuron is said to tell them apart. Of many
#: neurons and signals, some separate any three examples.
FEWEST_WITH_SIGNAL = 10
#: A neuron is called a switch if its input ranges do not overlap and its output has two states: one of them spans at
#: most a tenth of the output's range (FLAT), and at least a tenth lies empty between them (EMPTY). The flat state must
#: be the neuron's and not its input's: its slope there is at most half of that over the whole range (SQUASHED).
FLAT, EMPTY, SQUASHED = 0.1, 0.1, 0.5
#: A test is called significant at this level; how many comparisons there were is said next to it.
SIGNIFICANT = 0.05

#: How far one number for several keys may be off for any of them: by a quarter, as a factor. Beyond that it misleads.
ALIKE = 1.25
#: Share of the variance of what attention writes from which a fit to it is said to be what is written: most of it.
#: Below, the fit's weights are not given.
EXPLAINS = 0.5
#: A difference below 1/200 of an attention row is not mentioned. It is small next to the weights of 0.04 to 0.4 that
#: addition in base 10 needs.
FAINT = 0.005
#: Largest standard deviation over inputs of an attention weight that float32 rounding of the norms can cause: below it,
#: attention is said to depend on positions only (in the sample).
POSITION_ONLY = 1e-5
#: Sarle's coefficient, (skewness^2 + 1) / kurtosis, from which values over inputs are called bimodal, and the fewest
#: inputs for that. It is 1 for two values, 5/9 for uniform ones, and 0.73 for two peaks that lie six of their standard
#: deviations apart. Values that stay near their mean (a standard deviation below half of it) are not called so.
BIMODAL, FEWEST_FOR_MODES, VARIES = 0.7, 30, 0.5
#: Share of a head's weight from which it is said to play a role: most of it.
MAJORITY = 0.5
#: Weight on BOS from which a head is said to rest.
RESTING = 0.9

#: Distance from the circle, in radii, from which points are not called a circle.
POOR = 0.05
#: Root mean square deviation from even steps around a circle, as a share of a step, up to which points are called even:
#: of normal deviations, 95% then lie nearer to their own place than to the next.
EVEN = 0.25
#: Difference of BIC that counts as strong evidence (Kass and Raftery 1995, J. Am. Stat. Assoc. 90, 773).
STRONG = 6.0

#: Share of right answers above which a model is said to do a task: more often right than not. Others are not explained.
ABLE = 0.5
#: Gradient symmetricity and distance irrelevance of a pizza (at least, at most) and of a clock (at most, at least).
#: Zhong et al. 2023 publish 0.994 and 0.17 for their pizza (model A), 0.334 and 0.85 for their clock (model B); what
#: lies between the two has the marks of neither.
PIZZA_MARKS, CLOCK_MARKS = (0.9, 0.5), (0.5, 0.5)
#: Share of the answers from which a model is said to follow an algorithm: in nine of ten cases. Below, it mixes.
FOLLOWS = 0.9
#: Loss of right digits from which a head is said to be needed.
NEEDED = 0.1
#: Share recovered by patching below which no cell is named.
LEAST_SAID = 0.01
#: Share of the whole model's answers that a swapped part must give to be said to keep them.
KEPT = 0.95
