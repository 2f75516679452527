"""The modules that register models."""

#: The modules that register models; :mod:`models.registry` imports them before it looks for a name.
REGISTERING = (
    "models.addlm",
    "models.addlm_adder",
    "models.hand_built.adders",
    "models.hand_built.coupled_addition",
    "models.hand_built.free_addition",
    "models.hand_built.microadder",
    "models.hand_built.multiplication",
    "models.hand_built.parity",
    "models.low_rank_adder",
    "models.microadder_continued",
    "models.position_coupling_figures",
    "models.toygpt",
)
