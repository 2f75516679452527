"""The architectures of public AdderBoard models: how each one's numbers become the weights of the one transformer.

A family is recognised by the names of its parts. The result is then checked against the file's own forward pass and
answers (:mod:`studies.adderboard.submissions`), so that a file that computes something else is refused. Linear parts
are read by what they do to unit vectors, however they are written.
"""

from studies.adderboard.families import five_heads, fixed_scores, numeral, period, qwen, sinusoids, trained

#: The families, in the order in which they are tried.
FAMILIES = (
    qwen.qwen, period.array_of_six, period.two_numbers, period.tied_gate, period.phase, five_heads.five_heads,
    sinusoids.directions, sinusoids.nano, fixed_scores.fixed_scores, numeral.numeral, trained.tied_values,
    trained.repeated, trained.arc_decoder,
)  # fmt: skip
