"""A verdict's file: bytes, JSON or gzipped JSON, and the types of its fields. Files are not trusted."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from typing import Any

from interp.core.as_json import replied
from models import UserError
from models.files import parse_json

LARGEST_FILE = 2**26  # most bytes of a certificate, unpacked; the zoo's have up to 0.7 MB


def parse_verdict(data: bytes, path: object) -> dict[str, Any]:
    """The result of :meth:`Verdict.to_dict`, from a file's bytes, JSON or gzipped JSON.

    Raises:
        UserError: a damaged file, not a JSON object, or one that unpacks to more than a certificate can have.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(LARGEST_FILE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is damaged ({error}); restore it from where it came from.") from None
    if len(data) > LARGEST_FILE:
        raise UserError(f"{path} is larger than a certificate can be ({LARGEST_FILE >> 20} MB).")
    value = replied(parse_json(data, path))
    texts = ("model", "fingerprint", "task", "method", "status")
    versions, seconds = value.get("versions", {}), value.get("seconds", 0.0)
    if (
        not all(isinstance(value.get(name, ""), str) for name in texts)
        or not isinstance(versions, dict)
        or not all(isinstance(version, str) for version in versions.values())
        or not is_number(seconds)
    ):
        raise UserError(f"{path} is not a complete certificate: a field has another type than a certificate's.")
    return value


def stored_shape(value: dict[str, Any]) -> tuple[int, ...]:
    """A file's ``shape``. Raises ValueError if it is not a list of counts."""
    if not all(is_count(size) for size in value["shape"]):
        raise ValueError("a shape that is none")
    return tuple(value["shape"])


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number, as a float holds it."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_count(value: Any, limit: int | None = None) -> bool:
    """Whether a JSON value is a whole number that is at least 0 and below ``limit``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0 and (limit is None or value < limit)
