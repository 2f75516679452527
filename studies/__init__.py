"""Studies of papers, and what only they need: not installed, and not needed to use or change the library.

Readers of the studies' files are registered when this package is imported; their modules are, when a file is read.
"""

from studies import checkpoints as checkpoints
