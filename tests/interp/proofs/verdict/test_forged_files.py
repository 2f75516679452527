"""Certificates in whose files a field was changed are refused when they are read, and refutations without a proof of
theirs when they are checked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

import models
from interp.proofs.certify import check_certificate
from interp.proofs.stored_verdicts import stored_certificate
from interp.proofs.verdict.verdict import Verdict
from models.errors import UserError
from models.files.stored_names import ZOO


def file_of(name: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((ZOO / name / "certificate.json.gz").read_bytes()))


def at(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the field at a path."""

    def change(found: dict[str, Any]) -> None:
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = value

    return change


FORGED = {
    "no noise": ("induction-6", at("noise", value=None)),
    "no distance from ties": ("induction-6", at("near", value=None)),
    "answers that depend on the batch": ("induction-6", at("open", value=1)),
    "a score of no target": ("induction-6", at("score", "per_target", value={})),
    "a refutation that is none": ("microadder-75", at("counterexample", value=None)),
    "an operator by operator proof of no operator": ("mixed-ten-digits", at("parts", value={})),
    "text in the place of a number": ("induction-6", at("size", value="many")),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_file_with_such_a_field_is_not_read(what: str) -> None:
    name, change = FORGED[what]
    found = file_of(name)
    assert Verdict.from_dict(found, name).status in ("certified", "refuted")
    change(found)
    with pytest.raises(UserError):
        Verdict.from_dict(found, name)


def test_a_refutation_without_its_counterexample_does_not_hold() -> None:
    verdict, model = stored_certificate("microadder-75"), models.load("microadder-75")
    assert verdict is not None and verdict.status == "refuted"
    with pytest.raises(UserError):
        check_certificate(verdict.replace(counterexample=None), model)
