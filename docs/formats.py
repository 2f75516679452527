"""The table of docs/read_your_files.md, made from the readers: ``python docs/formats.py`` writes it into the page."""

from __future__ import annotations

import re
from pathlib import Path

from models.importers import file_readers as file_readers
from models.importers.adopt import FORMAT
from models.importers.readers import formats_table
from models.plugins import import_plugins
from models.zoo import zoo_names as zoo_names

PAGE = Path(__file__).with_name("read_your_files.md")
TABLE = re.compile(r"^\| file .*?\|$(?=\n\n)", re.MULTILINE | re.DOTALL)


def table() -> str:
    """All formats, in Markdown."""
    import_plugins()
    return formats_table(more=(FORMAT,))


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    print(f"wrote {PAGE.name}")
