from .guess_from_model import says_its_task as says_its_task
from .stock import from_transformer_lens as from_transformer_lens
from .ways_to_write import TRIED as TRIED
