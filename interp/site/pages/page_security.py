"""A content security policy for every page: it runs the scripts that it was written with, and loads nothing.

Scripts in a page are allowed by their SHA-256, so that a handler or a script that gets into the page later (from its
address, say) does not run. Pages of a site also load scripts and styles that lie next to them.
"""

from __future__ import annotations

import base64
import hashlib
import re

MADE_BY = "carrylens"
_HEAD = re.compile(r'<meta charset="utf-8">\n?')
_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)
_DATA = re.compile(r"""type=['"]application/json['"]""")


def secured(page: str) -> str:
    """A page with its policy, and with the name of this package as its generator, at the start of its head."""
    hashes, files = [], ""
    for attributes, code in _SCRIPT.findall(page):
        if " src=" in attributes:
            files = "'self' file: "
        elif not _DATA.search(attributes):
            digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
            hashes.append(f"'sha256-{digest}'")
    scripts = files + " ".join(dict.fromkeys(hashes)) or "'none'"
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline' 'self' file:; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    said = (
        f'<meta name="generator" content="{MADE_BY}">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    )
    return _HEAD.sub(lambda found: f"{found[0].rstrip()}\n{said}\n", page, count=1)
