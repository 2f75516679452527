"""Small public adders of ten-digit numbers, from AdderBoard: what each is, and a verdict on all 10^20 pairs.

    python -m studies.adderboard FOLDER --trust       a page with a row per submission

Where this package is importable, ``models.load("submission.py", trust=True)`` reads a submission.

submissions      a program becomes a model: it runs in a process of its own (isolation), where an adapter for its
                 architecture (families) computes effective weights from its parts (child, reading, mlx_names)
numbers          the same for numbers that are published as JSON
framed_addition  the task: ten-digit addition in a submission's own prompt
few_keys         a proof for constructions with sharp scores (proof_methods registers it)
board_rows       a row per submission; own_rows: the zoo's adders; board_page: the page
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.importers.readers import File, Format, LoadOptions, Reader, register

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer


def _submission(file: File, asked: LoadOptions) -> ArithmeticTransformer:
    from studies.adderboard.submissions import load_submission

    return load_submission(file.path, trust=asked.trust)


FORMAT = Format(
    "public AdderBoard submission (`.py`), in a checkout of this project",
    '`models.load("submission.py", trust=True)`: it [runs confined](board.md#how-a-file-is-run)',
    "its logits and its answers to 34 pairs, in that process",
    "running it without `trust`; unknown architectures; other logits or answers",
)
register(Reader("a public AdderBoard submission", (".py",), lambda file: True, _submission, formats=(FORMAT,)))
