"""Texts that models are trained on. They are kept outside the package, checked by hash, and downloaded on request."""

from __future__ import annotations

import http.client
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from models.errors import UserError
from models.files.checkpoint import read_bytes, sha256, write_bytes_atomic

#: The environment variable that names a local copy: the file itself, or the folder it lies in.
VARIABLE = "CARRYLENS_DATA"


@dataclass(frozen=True)
class Corpus:
    """A text file that anyone can fetch."""

    name: str
    file: str
    url: str
    sha256: str
    characters: int


TINYSHAKESPEARE = Corpus(
    name="tinyshakespeare",
    file="tinyshakespeare.txt",
    url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    characters=1_115_394,
)


def cache_path(corpus: Corpus) -> Path:
    """Where ``interp fetch-data`` puts a text: the user's cache folder."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise UserError("There is no home folder to keep texts in: set XDG_CACHE_HOME, or give --out.") from None
    return folder / "carrylens" / corpus.file


def read_corpus(corpus: Corpus, path: Path | None = None) -> str:
    """The text, from ``path``, from where ``CARRYLENS_DATA`` points, or from the user's cache. Never downloads.

    Raises:
        UserError: the file is nowhere (the message says how to get it), or holds another text.
    """
    given = path or os.environ.get(VARIABLE)
    file = Path(given).expanduser() if given else cache_path(corpus)
    if file.is_dir():
        file = file / corpus.file
    if not file.exists():
        raise UserError(
            f"The text {corpus.name} is not at {file}: run `interp fetch-data`, or set {VARIABLE} to a copy of it."
        )
    return checked(corpus, read_bytes(file), str(file)).decode()


def checked(corpus: Corpus, data: bytes, source: str) -> bytes:
    """``data``, if it is exactly the right text. Raises UserError otherwise."""
    if sha256(data) != corpus.sha256:
        raise UserError(f"{source} is not {corpus.name}: its SHA-256 is {sha256(data)}, not {corpus.sha256}.")
    return data


def fetch(corpus: Corpus, target: Path | None = None, source: Path | None = None) -> Path:
    """Download a text (or copy ``source``), check it, and only then write it; returns where it is.

    Raises:
        UserError: no connection, or bytes that are not the text; then nothing is written.
    """
    target = target or cache_path(corpus)
    if source is not None:
        data, origin = read_bytes(source), str(source)
    else:
        origin = corpus.url
        try:
            with urllib.request.urlopen(corpus.url, timeout=60) as response:
                data = response.read()
        except (OSError, http.client.HTTPException) as error:  # the latter if the connection breaks off
            raise UserError(f"{corpus.url} could not be read ({error}); {corpus.name} was not fetched.") from None
    write_bytes_atomic(target, checked(corpus, data, origin))
    return target
