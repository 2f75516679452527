"""Tests of models of text need the text, which nothing downloads unasked."""

import pytest

from models.errors import UserError
from models.files.texts import TINYSHAKESPEARE, read_corpus


def text_at_hand() -> bool:
    try:
        read_corpus(TINYSHAKESPEARE)
    except UserError:
        return False
    return True


needs_text = pytest.mark.skipif(not text_at_hand(), reason="tinyshakespeare is not here: interp fetch-data")
