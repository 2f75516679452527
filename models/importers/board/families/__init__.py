"""The architectures of public AdderBoard models: how each one's numbers become the weights of the one transformer.

A family is recognised by the names of its parts. What it makes of them is checked afterwards against the file's own
forward pass (:mod:`models.importers.board`), so that a file which computes something else is refused, not imported.
Linear parts are read by what they do to unit vectors, however they are written down.
"""

from models.importers.board.families import five_heads, fixed_scores, numeral, period, qwen, sinusoids, trained

#: In this order they are asked whether a file is theirs.
FAMILIES = (
    qwen.qwen, period.array_of_six, period.two_numbers, period.tied_gate, period.phase, five_heads.five_heads,
    sinusoids.directions, sinusoids.nano, fixed_scores.fixed_scores, numeral.numeral, trained.tied_values,
    trained.repeated,
)  # fmt: skip
