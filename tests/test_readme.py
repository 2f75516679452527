"""What the README and docs/zoo.md print is what the commands print, and the README's snippet runs."""

import ast
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import transformers

import models
from benchmarks.circuits.bench_runs import RESULTS
from benchmarks.circuits.page import PAGE, README_TEMPLATE, TEMPLATE, filled, values
from interp.cli import main
from interp.proofs.stored_verdicts import stored_verdict
from models.number_format import shown
from tests.docs_blocks import blocks

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def zoo() -> str:
    with redirect_stdout(StringIO()) as out:
        assert main(["list", "--markdown"]) == 0
    return out.getvalue()


def test_the_page_of_the_zoo_is_the_commands_output(zoo):
    assert (ROOT / "docs" / "zoo.md").read_text() == zoo


def test_the_eight_models_have_the_parameters_and_the_evidence_of_that_table(zoo):
    rows = README.split("## Models\n")[1].split("\n## ")[0].splitlines()
    shown = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")][2:]
    header, _, *of_all = [row.strip("|").split("|") for row in zoo.splitlines() if row.startswith("| ")]
    known = {
        cells[0].strip(): dict(zip(map(str.strip, header), map(str.strip, cells), strict=True)) for cells in of_all
    }
    assert len(shown) == 8
    for name, parameters, right, command in shown:
        entry = known[name]
        assert parameters == entry["parameters"] and command.strip("`").startswith(f"interp certify {name}")
        evidence, _, counts = entry["all inputs"].partition(":")
        assert evidence.split(",")[0] in right and (not counts or counts.strip() in right)
        known_right, _, n = counts.strip().partition(" of ")
        assert right.startswith("yes") == (known_right == n)


def test_it_fits_four_screens():
    assert len(README.splitlines()) <= 145


@pytest.mark.slow
def test_its_first_snippet_prints_what_stands_below_it():
    _, snippet, printed, *_ = blocks(README)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", snippet.text], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == printed.text.split()


def test_a_bound_of_one_model_is_the_stored_proofs_or_said_to_be_another_proofs():
    stored = stored_verdict("microadder-57")
    assert stored is not None
    bound = shown(float(stored.lower_bound))
    (said,) = re.findall(r"every margin proved above ([\d.]+)", README)
    of_files = " ".join((ROOT / "certificates/README.md").read_text().split())
    (of_check,) = re.findall(r"`microadder-57.json` \| 57 \| more than ([\d.]+)", of_files)
    assert said == bound and f"above {bound}." in of_files
    assert stored.lower_bound < float(of_check) < stored.smallest_margin


@pytest.mark.slow
def test_its_lines_on_ones_own_model_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On random weights, what presumes a model that can subtract is refused, and all else is answered."""
    own, *_ = blocks(README)
    monkeypatch.chdir(tmp_path)
    size = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 12, "n_positions": 7}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**size)).save_pretrained("my-gpt2")
    names: dict = {}
    refused = []
    for line in ast.parse(own.text).body:
        try:
            exec(ast.unparse(line), names)
        except models.UserError as error:
            refused.append(str(error))
    assert len(refused) == 1 and "more than 50% must be right" in refused[0]


def test_what_one_can_do_with_ones_own_model_stands_in_ten_lines():
    own, *_ = blocks(README)
    assert len(own.text.splitlines()) <= 10 and README.index(own.text) < README.index("microadder")


def test_its_transformerlens_calls_run():
    *_, calls, _ = blocks(README)
    names = {"adder": models.load("microadder-57")}
    exec(calls.text, names)
    assert names["cache"]["pattern", 0].shape[:2] == (1, 1)


def test_its_program_adds():
    *_, program = blocks(README)
    names: dict = {}
    exec(program.text, names)
    for a, b in ((0, 0), (57, 48), (9_999_999_999, 1), (9_999_999_999, 9_999_999_999), (1_234_567_890, 9_876_543_219)):
        digits = [[x // 10**i % 10 for i in range(10)] for x in (a, b)]
        assert sum(d * 10**i for i, d in enumerate(names["add"](*digits))) == a + b


def test_its_pictures_are_there_and_small():
    pictures = [ROOT / path for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)]
    assert pictures and all(0 < picture.stat().st_size <= 1_500_000 for picture in pictures)


@pytest.mark.skipif(not RESULTS.is_file(), reason="the benchmark has not been run")
def test_the_section_and_the_page_of_the_benchmark_are_what_is_written_from_the_stored_rows():
    known = values()
    assert filled(README_TEMPLATE.read_text().format_map(known)).rstrip() in README
    assert PAGE.read_text() == filled(TEMPLATE.read_text().format_map(known))
