"""Interchange interventions: does a model compute with the variables of a symbolic algorithm, and where?

    interchange_intervention  one hypothesis "this variable lives at this site", at one site or at many, with controls
    which_algorithm           which of several algorithms a model's answers follow where they disagree
    causal_scrubbing          how much of the loss is kept when everything is resampled that a hypothesis calls
                              irrelevant

The algorithms are those of :mod:`models.tasks.columns.addition_algorithms`.
"""

from interp.causal.interchange.causal_scrubbing import causal_scrubbing
from interp.causal.interchange.interchange_intervention import InterchangeIntervention, interchange_intervention
from interp.causal.interchange.scrubbing_hypothesis import Claim, scrubbing_hypothesis
from interp.causal.interchange.which_algorithm import WhichAlgorithm, which_algorithm
from interp.core.places import Place
