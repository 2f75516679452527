"""Transformers that do arithmetic, as weight maps in front of one hooked forward pass.

import models
adder = models.load("microadder-57")            # trained by this project
fresh = models.build("microadder-57", seed=3)   # fresh parameters
"""

import models.addlm
import models.addlm_adder
import models.hand_built.adders
import models.hand_built.coupled_addition
import models.hand_built.microadder
import models.hand_built.multiplication
import models.hand_built.parity
import models.low_rank_adder
import models.microadder_continued
import models.position_coupling_figures
import models.toygpt  # noqa: F401  these register their models
from models import tasks, zoo
from models.config import TransformerConfig
from models.errors import UserError
from models.evaluation import Score, score
from models.registry import build, get_spec, names, register
from models.text_scores import TextLoss, text_loss
from models.transformer import ArithmeticTransformer
from models.zoo import load, save_entry, zoo_names

__all__ = [
    "ArithmeticTransformer",
    "Score",
    "TextLoss",
    "TransformerConfig",
    "UserError",
    "build",
    "get_spec",
    "load",
    "names",
    "register",
    "save_entry",
    "score",
    "tasks",
    "text_loss",
    "zoo",
    "zoo_names",
]
