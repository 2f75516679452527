"""What the README prints is what the commands print."""

from pathlib import Path

from interp.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_table_of_models_is_the_commands_output(capsys):
    assert main(["list", "--markdown"]) == 0
    table = capsys.readouterr().out.strip()
    assert table in README
