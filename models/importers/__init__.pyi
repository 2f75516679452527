from .format_guess import says_its_task as says_its_task
from .format_search import TRIED as TRIED
from .stock import from_transformer_lens as from_transformer_lens
