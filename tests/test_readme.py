"""What the README and docs/zoo.md print is what the commands print, and the README's snippet runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from interp.cli import main
from tests.docs_blocks import blocks
from tests.headline_table import whole_table

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.fixture
def zoo(capsys) -> str:
    assert main(["list", "--markdown"]) == 0
    return capsys.readouterr().out


def test_the_page_of_the_zoo_is_the_commands_output(zoo):
    assert (ROOT / "docs" / "zoo.md").read_text() == zoo


def test_the_eight_models_are_rows_of_that_table_under_its_header(zoo):
    rows = README.split("## Models\n")[1].split("\n## ")[0].splitlines()
    rows = [row for row in rows if row.startswith("|")]
    of_all = [row for row in zoo.splitlines() if row.startswith("|")]
    assert rows[:2] == of_all[:2]
    assert len(rows[2:]) == len(set(rows[2:])) == 8
    assert set(rows[2:]) <= set(of_all[2:])


def test_it_fits_three_screens():
    assert len(README.splitlines()) <= 110


@pytest.mark.slow
def test_what_it_says_of_the_papers_numbers_is_about_behaviour_and_as_counted():
    _, counted = whole_table().of_kind("behaviour").sentence().split(". ", 1)
    assert counted in " ".join(README.split())


@pytest.mark.slow
def test_its_snippet_shows_something_as_a_script(tmp_path: Path):
    snippet, _ = blocks(README)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", snippet.text], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all 10^20 pairs" in done.stdout and "torch.Size([2, 1," in done.stdout
    assert (tmp_path / "compare.html").stat().st_size > 10_000


def test_its_program_adds():
    _, program = blocks(README)
    names: dict = {}
    exec(program.text, names)
    for a, b in ((0, 0), (57, 48), (9_999_999_999, 1), (9_999_999_999, 9_999_999_999), (1_234_567_890, 9_876_543_219)):
        digits = [[x // 10**i % 10 for i in range(10)] for x in (a, b)]
        assert sum(d * 10**i for i, d in enumerate(names["add"](*digits))) == a + b


def test_its_pictures_are_there_and_small():
    pictures = [ROOT / path for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)]
    assert pictures and all(0 < picture.stat().st_size <= 1_500_000 for picture in pictures)
