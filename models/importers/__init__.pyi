from .format_guess import TRIED as TRIED
from .format_guess import FormatGuess as FormatGuess
from .format_guess import says_its_task as says_its_task
from .stock import from_transformer_lens as from_transformer_lens
