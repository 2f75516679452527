"""What the README prints is what the commands print."""

from pathlib import Path

from interp.cli import main
from interp.papers.headlines import table

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_table_of_models_is_the_commands_output(capsys):
    assert main(["list", "--markdown"]) == 0
    table = capsys.readouterr().out.strip()
    assert table in README


def test_what_it_says_of_the_papers_numbers_is_about_behaviour_and_as_counted():
    _, counted = table().of_kind("behaviour").sentence().split(". ", 1)
    assert counted in " ".join(README.split())
