"""`interp list` fits a terminal of 80 columns, and wrong arguments need no torch."""

from __future__ import annotations

import contextlib
import csv
import inspect
import io
import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

import pytest

import models
from benchmarks.circuits.command import PROGRAM as CIRCUITS
from interp.cli import list_models, main
from interp.cli.commands import INTERP, Program, find_command, parse
from interp.cli.own_flags import OWN_FLAGS, accepted
from interp.cli.parsing import marks, parameters
from interp.core.stored_data import digest, keep, kept
from models.errors import UserError
from models.files import stored_names
from models.files.stored_names import CONFIG, WEIGHTS
from models.registry import REGISTERING, constructed
from studies.__main__ import PROGRAM as STUDIES
from studies.adderboard.command import PROGRAM as BOARD


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_every_model_that_can_be_loaded_stands_in_eighty_columns_under_its_whole_name(capsys) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    listed = {line.split()[0] for line in lines if line.strip()}
    assert listed >= {*models.zoo_names(), *constructed()} and "position-coupling-1l2h" not in listed


def test_all_lists_what_is_not_trained_and_json_and_csv_hold_the_same(tmp_path: Path, capsys) -> None:
    assert main(["list", "--all", "--csv", "--json", str(tmp_path / "list.json")]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    stored = json.loads((tmp_path / "list.json").read_text())["result"]["rows"]
    # Another test may have registered a sweep's models in this process.
    assert {row["model"] for row in rows} == {row["model"] for row in stored} <= set(models.names(sweeps=True))
    assert {row["model"] for row in rows} >= {"position-coupling-1l2h", *models.zoo_names(), *constructed()}
    sizes = {row["model"]: int(row["parameters"]) for row in rows}
    assert sizes["microadder-57"] == 57 and sizes["adder-456"] == 456


@pytest.mark.parametrize("command", ["", *(name for name in INTERP.commands if name != "train")])
def test_help_stands_in_eighty_columns(command: str, capsys) -> None:
    with contextlib.suppress(SystemExit):
        assert main([*command.split(), "--help"]) == 0
    usage, _, lines = capsys.readouterr().out.partition("\n")
    assert max(map(len, lines.splitlines())) <= 80
    for example in () if command else INTERP.examples:
        assert parse(example.split()[1:], places=False)
        assert f"  {example}\n" in f"{usage}{lines}"


def excluded() -> list[str]:
    """The patterns of weight files that an installed package does without."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    return project["tool"]["setuptools"]["exclude-package-data"]["models"]


def test_the_examples_of_help_name_models_that_an_installed_package_has() -> None:
    words = {word for example in INTERP.examples for word in example.split()}
    named = words & {*models.zoo_names()}
    assert named and not any(fnmatch(f"zoo/{name}/model.safetensors", each) for name in named for each in excluded())


def test_what_an_installed_package_does_not_have_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """In a copy of the zoo without the files that are left out of the package."""
    left = {name for name in models.zoo_names() if any(fnmatch(f"zoo/{name}/{WEIGHTS}", each) for each in excluded())}
    for name in models.zoo_names():
        (tmp_path / name).mkdir()
        (tmp_path / name / CONFIG).touch()
        if name not in left:
            (tmp_path / name / WEIGHTS).touch()
    monkeypatch.setattr(stored_names, "ZOO", tmp_path)
    assert main(["list", "--json", str(tmp_path / "list.json")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    rows = json.loads((tmp_path / "list.json").read_text())["result"]["rows"]
    assert {row["model"] for row in rows if not row["installed"]} == left and left
    at = {line.split()[0]: index for index, line in enumerate(lines)}
    for name in (*models.zoo_names(), *constructed()):
        alone = len(lines[at[name]].split()) == 1  # a long name, whose row is the next line
        own = lines[at[name] + alone]
        assert (list_models.LEFT_OUT in own) == (name in left)
        assert len(own) <= 80  # other tests may have registered models with longer names


def test_help_names_every_command_and_every_flag_that_is_accepted_and_no_other(capsys) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in INTERP.commands:
        assert f"interp {name}" in shown
    for name in (name for name in INTERP.commands if name != "train"):
        with contextlib.suppress(SystemExit):
            main([name, "--help"])
        lines = capsys.readouterr().out
        for flag in OWN_FLAGS:
            assert (f"  {flag}: " in lines) == (flag in accepted(find_command(name)))
    assert main(["list", "--task", "{a:2}+{b:2}={s:3}; a + b"]) == 2
    assert main(["list", "--trust"]) == 2
    capsys.readouterr()


@pytest.mark.parametrize("program", [INTERP, STUDIES, BOARD, CIRCUITS], ids=lambda program: program.words)
def test_every_option_of_a_command_is_explained_and_no_other(program: Program) -> None:
    """By the docstring of its function, or with the type that several commands share."""
    for name in program.commands:
        function = find_command(name, program)
        options = {each.name: marks(each.annotation) for each in parameters(function, [])}
        shared = {each for each, beside in options.items() if any(getattr(mark, "help", None) for mark in beside)}
        made = {each for each, beside in options.items() if any(getattr(mark, "name", None) == "" for mark in beside)}
        explained = set(re.findall(r"^    (\w+): ", inspect.getdoc(function) or "", re.MULTILINE))
        assert explained | shared | made == set(options) and not explained & shared, name


@pytest.mark.parametrize("command", ["ask microadder-57 attention_by_role", "compare microadder-57 microadder-11"])
def test_how_many_problems_is_called_as_in_python_too(command: str) -> None:
    for option in ("--n", "--problems"):
        assert parse([*command.split(), option, "64"]).problems == 64


def test_an_error_on_a_terminal_cuts_no_name(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["score", "microader-57"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 80
    words = {word.strip(",") for line in lines for word in line.split()}
    assert {name for name in sorted(models.zoo_names()) if name < "microadder-18"} <= words


@pytest.mark.parametrize("wrong", ["--sedes", "--name", "--recipe-name", "--no-sedes"])
def test_an_unknown_option_of_train_is_bad_input(wrong: str, capsys) -> None:
    assert main(["train", "microadder-57", wrong, "2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("wrong", ["microader-57", "position-coupling-1l2h", "", "57+48"])
def test_a_name_is_refused_in_the_words_of_load(wrong: str, capsys) -> None:
    with pytest.raises(UserError) as by_load:
        models.load(wrong)
    assert main(["certify", wrong]) == 2
    assert " ".join(capsys.readouterr().err.split()).endswith(" ".join(str(by_load.value).split()))


def test_wrong_arguments_are_refused_before_torch_is_imported() -> None:
    lines = [
        ["list", "--hel"],
        ["scroe"],
        ["score"],
        ["certify", "a", "b"],
        ["ask", "--x"],
        ["explore"],
        ["compare", "microadder-57"],
        ["report", "--out", "."],
        ["list", "--json", "."],
        ["solve", "microadder-57"],
        ["score", "nowhere/model.pt"],
        ["publish", "nowhere"],
        ["board", "nowhere"],
    ]
    code = """
import json, sys
from interp.cli import main
outcomes = []
for line in json.loads(sys.argv[1]):
    try:
        status = main(line)
    except SystemExit as stop:
        status = stop.code
    outcomes.append([line, status, "torch" in sys.modules])
print("\\n" + json.dumps(outcomes))
"""
    command = [sys.executable, "-c", code, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [[line, 2, False] for line in lines]


def test_the_kept_table_of_models_is_made_of_what_is_there_now() -> None:
    """`python -m interp.cli.list_models` writes it again."""
    assert json.loads(list_models.FILE.read_text())["made_of"] == digest(list_models.sources())


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_the_kept_table_of_models_is_the_one_that_is_made_now() -> None:
    kept = json.loads(list_models.FILE.read_text())
    names = {row["model"] for row in kept["table"]["rows"]}
    # Other tests' models are registered in this process, and the order is that in which modules were imported; a new
    # module that registers some changes the digest.
    made = {row["model"]: row for row in list_models.table()["rows"] if row["model"] in names}
    assert {row["model"]: row for row in kept["table"]["rows"]} == json.loads(json.dumps(made))


def test_the_kept_table_depends_on_every_module_that_registers_models() -> None:
    root = list_models.ZOO.parent.parent
    assert {root / f"{module.replace('.', '/')}.py" for module in REGISTERING} <= set(list_models.sources())


def test_a_table_that_was_made_of_other_files_is_made_again(tmp_path: Path) -> None:
    source, file = tmp_path / "a.json", tmp_path / "table.json"
    source.write_text("1")
    keep(file, [source], {"rows": [1]})
    assert kept(file, [source], lambda: {"rows": [2]}) == {"rows": [1]}
    source.write_text("2")
    assert kept(file, [source], lambda: {"rows": [2]}) == {"rows": [2]}
    assert kept(tmp_path / "nothing.json", [source], lambda: {"rows": [3]}) == {"rows": [3]}


def test_list_imports_no_torch() -> None:
    code = "import sys; from interp.cli import main; main(['list'])"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_the_version_is_that_of_the_package(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"carrylens {version('carrylens')}"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["solve"], "MODEL"),
        (["solve", "microadder-57", "57+48", "--bogus"], "'--bogus'"),
        (["score", "microadder-57", "--jsn", "x.json"], "'--json'"),
        (["score", "microadder-57", "--json"], "--json"),
        (["train", "microadder-57", "--seeds", "abc"], "'abc'"),
        (["train", "microadder-57", "--sedes", "3"], "'--seeds'"),
        (["train", "microadder-57", "--problems.carry-mix.fade-ned", "3"], "'--problems.carry-mix.fade-end'"),
        (["train", "microadder-57", "--data", "nofile"], "nofile"),
        (["certify", "microadder-57", "--arithmetic", "flaot32"], "'float32'"),
        (["certify", "addlm-adder-ten-digit", "--check"], "addlm-adder-ten-digit"),
        (["ask", "microadder-57", "carry_units", "more"], "'more'"),
    ],
)
def test_what_the_parser_refuses_is_one_sentence_that_names_it(arguments, named, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert named in error and len(error.strip().splitlines()) == 1
    assert not any(tmp_path.iterdir())


def test_only_names_that_are_close_are_proposed(capsys) -> None:
    assert main(["bogus"]) == 2
    assert "Did you mean" not in capsys.readouterr().err
    assert main(["scroe"]) == 2
    assert "'score'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_stored_proof_is_checked_without_a_path(capsys) -> None:
    assert main(["certify", "microadder-57", "--check"]) == 0
    assert capsys.readouterr().out.startswith("holds: certified")
