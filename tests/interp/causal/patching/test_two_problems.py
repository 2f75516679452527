"""Two problems that are typed are the pair that models.tasks.pairs makes of them."""

from pathlib import Path

import numpy as np
import pytest

import interp
import models
from interp.cli import mcp_tools
from interp.cli.commands import main
from models.errors import UserError
from models.tasks import pairs

ADDER = models.load("microadder-57")


@pytest.mark.parametrize("typed", [("15+27", "15+22"), (["15+27", "16+27"], ["15+22", "16+22"]), ((15, 27), (15, 22))])
def test_problems_that_are_typed_are_patched_as_their_pairs_are(typed):
    found = interp.activation_patching(ADDER, *typed, site="z")
    same = interp.activation_patching(ADDER, pairs(ADDER.task, *typed), site="z")
    np.testing.assert_array_equal(found.table["mean"], same.table["mean"])
    other = interp.activation_patching(ADDER, "15+27", "15+21", site="z")
    assert not np.array_equal(found.table["mean"], other.table["mean"])


def test_other_questions_about_pairs_take_them_too_and_what_is_no_pair_is_refused():
    found = interp.path_patching(ADDER, ["15+27", "16+27"], ["15+22", "16+22"])
    assert found.to_dataframe().equals(
        interp.path_patching(ADDER, pairs(ADDER.task, ["15+27", "16+27"], ["15+22", "16+22"])).to_dataframe()
    )
    for bad in (("15+27", "15+27"), ("15+27", "15*22"), ("15+27",)):
        with pytest.raises(UserError):
            interp.activation_patching(ADDER, *bad)


def test_the_command_and_the_tool_take_two_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "patch.html"
    assert main(["patch", "microadder-57", "15+27", "15+22", "--site", "z", "--out", str(page)]) == 0
    said = capsys.readouterr().out
    assert "15 + 27 or 15 + 22" in said and page.exists()
    assert main(["patch", "microadder-57", "15+27", "15+27"]) == 2
    reply = mcp_tools.patch("microadder-57", clean="15+27", corrupted="15+22", site="z")
    assert "15 + 27 or 15 + 22" in str(reply)
    for wrong in ({"clean": "15+27"}, {"pairs": "made carry", "clean": "15+27", "corrupted": "15+22"}, {}):
        with pytest.raises(UserError):
            mcp_tools.patch("microadder-57", **wrong)
