"""The recipes fit one screen and do what they say; the page of errors says what the refusals say."""

import contextlib
import copy
import io
import re
import shlex
from pathlib import Path

import pytest
import torch

import interp
import models
from interp.cli import main
from interp.core import probe as registry
from models.tasks import problem_pairs
from tests.docs_blocks import blocks
from tests.test_docs import rows

DOCS = Path(__file__).parents[1] / "docs"
RECIPES = sorted((DOCS / "recipes").glob("*.md"))
SLOW = ("certificate", "compare", "load", "program", "prove", "train", "train_until_certified")  # seconds to minutes
SCREEN = 55
DECIMAL = r"\d+\.\d+"


def said_in_order(expected: str, said: str) -> bool:
    """Whether the output has the words that are shown, ``...`` standing for anything. Whole numbers are the same, and
    others within one of their last digit, as processors round differently."""
    pieces = [re.split(f"({DECIMAL})", " ".join(part.split())) for part in expected.split("...")]
    pattern = ".*".join(
        "".join(f"({DECIMAL})" if i % 2 else re.escape(piece) for i, piece in enumerate(part)) for part in pieces
    )
    found = re.fullmatch(pattern, " ".join(said.split()))
    shown = [piece for part in pieces for piece in part[1::2]]
    return found is not None and all(
        abs(float(one) - float(other)) <= 1.001 * 10.0 ** -len(one.partition(".")[2])
        for one, other in zip(shown, found.groups(), strict=True)
    )


def run(block_language: str, text: str, names: dict) -> str:
    """What a block prints, run in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        if block_language == "python":
            exec(compile(text, "recipe", "exec"), names)
        else:
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "interp" and main(arguments) == 0, line
    return "\n".join(line for line in said.getvalue().splitlines() if not line.startswith("wrote "))


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem in SLOW)) for p in RECIPES]
)
def test_a_recipe_fits_a_screen_and_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_PROBES", registry.registered())
    monkeypatch.setattr("interp.public_names.known", lambda name: registry._PROBES[name].ask)
    text, names, said = page.read_text(), {"__name__": "__main__"}, ""
    assert len(text.splitlines()) <= SCREEN
    for block in blocks(text):
        if block.language == "text":
            assert said_in_order(block.text, said), f"shown:\n{block.text}\nsaid:\n{said}"
        else:
            said = run(block.language, block.text, names)


def test_output_that_differs_from_what_is_shown_is_found():
    assert said_in_order("a b\nc ... e", "a  b c d e") and not said_in_order("a b", "a c")
    assert said_in_order("12 of 99.8%", "12 of 99.9%") and not said_in_order("12 of 99.8%", "12 of 98.8%")
    assert not said_in_order("12 of 99.8%", "13 of 99.8%")


def test_every_recipe_is_on_the_first_page_and_shows_an_output():
    router = (DOCS / "README.md").read_text()
    for page in RECIPES:
        assert f"(recipes/{page.name})" in router
        assert page.stem == "mcp" or any(block.language == "text" for block in blocks(page.read_text())), page.stem


REFUSALS = rows((DOCS / "errors.md").read_text(), "call")


@pytest.fixture(scope="module")
def named() -> dict:
    """The names that the page of errors uses."""
    adder = models.load("microadder-57")
    broken = copy.deepcopy(adder)
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    found = {"adder": adder, "broken": broken, "training": copy.deepcopy(adder).train()}
    found |= {"untrained": models.build("microadder-57"), "two_layers": models.load("position-coupling-2l2h-small")}
    return found | {
        "pairs": problem_pairs(adder.task, "made carry", column=4, n=64),
        "interp": interp,
        "models": models,
    }


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row[1])
def test_a_refusal_says_what_the_page_says(row: list[str], named: dict, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("submission.py").write_text("raise SystemExit\n")
    with pytest.raises(models.UserError) as refusal:
        eval(row[0], dict(named))
    assert row[1] in str(refusal.value)


def test_there_is_a_page_of_refusals():
    assert len(REFUSALS) >= 12
