"""The command ``interp fetch-data``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class FetchData:
    """Download the text that AddLM is trained on (1.1 MB), check its SHA-256, and keep it in the user's cache."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = "tinyshakespeare"
    """Which text."""
    out: Path | None = None
    """Where to put it; by default where training looks for it."""
    data: Path | None = None
    """Take a local copy instead of the download."""

    def run(self) -> None:
        from models.files.texts import VARIABLE, cache_path, fetch, get_corpus

        corpus = get_corpus(self.name)
        path = fetch(corpus, self.out, self.data)
        print(f"{path}: {corpus.characters:,} characters, SHA-256 as it should be")
        if path != cache_path(corpus):
            print(f"To train on it, set {VARIABLE}={path} or give --data.")
