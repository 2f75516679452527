"""`make check` runs the tests that mirror what was changed."""

from __future__ import annotations

from tests.mirrored_tests import mirrored

KNOWN = [
    "tests/interp/core/test_stats.py",
    "tests/interp/core/test_probe.py",
    "tests/interp/proofs/columns/test_certify.py",
    "tests/models/zoo/test_zoo.py",
]


def test_a_module_is_mirrored_by_the_test_of_its_name_in_the_same_room() -> None:
    assert mirrored(["interp/core/stats.py", "docs/guide.md", "Makefile"], KNOWN) == ["tests/interp/core/test_stats.py"]


def test_a_test_that_was_moved_into_another_folder_of_its_package_is_found_by_name() -> None:
    assert mirrored(["interp/proofs/certify.py"], KNOWN) == ["tests/interp/proofs/columns/test_certify.py"]
    assert mirrored(["models/certify.py"], KNOWN) == []


def test_a_package_is_mirrored_by_the_test_of_its_folder_and_a_test_by_itself() -> None:
    assert mirrored(["models/zoo/__init__.py"], KNOWN) == ["tests/models/zoo/test_zoo.py"]
    assert mirrored(["tests/interp/core/test_probe.py"], KNOWN) == ["tests/interp/core/test_probe.py"]
