"""The pages under docs/ are true: tables are the models', blocks of code run, and every command exists.

A new page is covered as soon as it is there. The executed notebooks, which their own tests run, are left out.
"""

import importlib.util
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

import interp
import models
from interp.cli.commands import parse
from interp.cli.own_flags import taken_out
from interp.core.probe import find_probe
from interp.public_names import EVERYDAY
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps import DenseWeights
from studies.__main__ import PROGRAM as STUDIES
from studies.runs.study import find_study
from tests.docs_blocks import blocks, commands
from tests.toy_task import ToyAddition

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


# ---- how to add things


def said_as(expected: str, said: str) -> bool:
    """Whether the output is as shown, ``...`` standing for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None


def follow(page: Path, root: Path, packages: Path | str = "", python: str = sys.executable) -> None:
    """Do in ``root`` what a page says, with ``packages`` on the path."""
    environment = os.environ | {"PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}

    def run(command: list[str]) -> str:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    said, pending = "", ""
    for block in [*blocks(page.read_text()), None]:
        if block is not None and block.language == "python" and block.title is None:
            pending += block.text  # blocks in a row are one program, as the cells of a notebook are
            continue
        if pending:
            run([python, "-c", pending])
            pending = ""
        if block is None:
            break
        if block.title is not None:
            path = root / block.title
            assert not path.exists(), f"{block.title} is there already"
            path.write_text(block.text)
        elif block.language == "sh":
            programs = {"python": [python], "interp": [python, "-m", "interp.cli"]}
            commands = [shlex.split(line) for line in block.text.splitlines()]
            said = "".join(run([*programs[command[0]], *command[1:]]) for command in commands)
        elif block.language == "text":
            assert said_as(block.text, said), f"shown:\n{block.text}\nsaid:\n{said}"
        else:
            raise AssertionError(f"nobody knows what to do with a block of {block.language}")


#: Pages that are said to need nothing but the installed package.
OUTSIDE = ("add_a_model", "add_a_probe", "add_a_task", "read_your_files")
#: Pages that need other packages; tests/test_other_libraries.py runs them.
OTHERS = ("if_you_know",)
PARTS = (".", "papers", "recipes")
TEXTS = [
    ROOT / "README.md",
    ROOT / "AGENTS.md",
    *(page for part in PARTS for page in sorted((DOCS / part).glob("*.md"))),
]
#: Pages that `make docs` adds.
WRITTEN = ("api/", "studies/", "stories/", "explore.md")
LONG = ("guide", "position_coupling", "add_a_method")
PAGES = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in LONG))
    for page in TEXTS
    if page.parent in (DOCS, DOCS / "papers") and page.stem not in (*OUTSIDE, *OTHERS) and blocks(page.read_text())
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed_to_the_letter(page: Path, tmp_path: Path):
    follow(page, tmp_path, packages=ROOT)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with this project's wheel and, below it, the other packages of this one."""
    root = tmp_path_factory.mktemp("installed")
    source = root / "source"
    for name in ("models", "interp"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(root), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(root / "venv")
    (packages,) = root.glob("venv/lib/python*/site-packages")
    (wheel,) = root.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(packages), str(wheel)], check=True)
    (packages / "others.pth").write_text(str(next(path for path in sys.path if (Path(path) / "torch").is_dir())))
    return root / "venv" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_needs_the_installed_package_only(name: str, installed: Path, tmp_path: Path):
    where = [str(installed), "-c", "import interp, models; print(interp.__file__, models.__file__)"]
    environment = os.environ | {"PYTHONPATH": ""}
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert all(Path(file).is_relative_to(installed.parents[1]) for file in found.split())
    follow(DOCS / f"{name}.md", tmp_path, python=str(installed))


@pytest.mark.slow
def test_the_wheel_is_small_and_runs_the_readmes_commands(installed: Path, tmp_path: Path):
    """What it leaves out is refused in a sentence: the weights of larger models."""
    (wheel,) = installed.parents[2].glob("*.whl")
    assert wheel.stat().st_size < 10e6
    commands = dict.fromkeys(re.findall(r"`interp ([^`]+)`", (ROOT / "README.md").read_text()))
    elsewhere = ("train", "bench", "mcp")  # minutes, or a server
    run = "import sys; from interp.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    for command in (*commands, "solve toygpt-long 57+48"):
        words = command.split()
        if words[0] in elsewhere:
            continue
        done = subprocess.run([str(installed), "-c", run, *words], cwd=tmp_path, env=environment, capture_output=True)
        left_out = "toygpt-long" in words
        assert done.returncode in ((2,) if left_out else (0, 1)), (command, done.stderr[-500:])
        assert not left_out or len(done.stderr.decode().strip().splitlines()) == 1


def is_there(words: list[str]) -> bool:
    """Whether a command exists, with its options, models, studies and probes. Raises UserError where it does not."""
    program, first, *rest = words
    if program == "make":
        return re.search(rf"^{first}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
    if program == "python":
        if rest[:1] == ["studies"]:
            command = parse(rest[1:], places=False, program=STUDIES)
            return rest[1] != "reproduce" or find_study(command.figure) is not None
        return importlib.util.find_spec(rest[0]) is not None if first == "-m" else (ROOT / first).exists()
    if program == ".":  # the activation line
        return first == ".venv/bin/activate"
    assert program == "interp", words
    if first == "--help":
        return True
    command = parse(taken_out(words[1:]), places=False)
    return first != "ask" or command.probe is None or find_probe(command.probe) is not None


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_every_command_on_the_page_exists(page: Path):
    missing = [words for words in commands(page.read_text()) if not is_there(words)]
    assert not missing


@pytest.mark.slow  # hundreds of parsers
def test_every_command_on_the_cards_of_the_zoo_exists():
    """But for those that begin with the commit of an earlier version."""
    cards = {path.parent.name: commands(path.read_text()) for path in (ROOT / "models" / "zoo").glob("*/card.md")}
    assert cards.keys() == set(models.zoo.zoo_names())
    found = [(name, words) for name, of_card in cards.items() for words in of_card if words[:2] != ["git", "checkout"]]
    assert len(found) > len(cards) and not [each for each in found if not is_there(each[1])]


def test_commands_are_found_and_wrong_ones_are_not_there():
    page = "x `make lab` and `interp ask NAME`\n\n    interp certify microadder-57 --minutes 1  # a proof\n\n`a.b`\n"
    assert commands(page) == [["interp", "certify", "microadder-57", "--minutes", "1"], ["make", "lab"]]
    assert is_there(["make", "lab"]) and not is_there(["make", "coffee"])
    for wrong in ("certify microader-57", "ask microadder-57 carry_unit", "cretify x"):
        with pytest.raises(UserError):
            is_there(["interp", *wrong.split()])
    with pytest.raises(UserError):
        is_there(["python", "-m", "studies", "reproduce", "toygpt:nothing"])


@pytest.mark.parametrize("page", [*TEXTS, ROOT / "llms.txt"], ids=lambda page: page.stem)
def test_every_link_and_named_file_is_there(page: Path):
    """Links to pages that `make docs` writes are not looked for."""
    text = page.read_text()
    linked = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    places = [page.parent / link for link in linked if link and not link.startswith(WRITTEN)]
    places += [ROOT / name for name in re.findall(r"^\| `([\w/]+\.(?:py|md))` \|", text, re.MULTILINE)]
    assert not [place for place in places if not place.exists()]


# ---- the tables


def rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the tables whose first column has this heading."""
    found = []
    for table in re.findall(rf"^\| {heading} \|.*?\n\n", page + "\n\n", re.DOTALL | re.MULTILINE):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        found += [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines[2:]]
    return found


def _every_hook() -> list[ArithmeticTransformer]:
    """Models that between them fire every hook there is."""
    shape = {"n_layers": 1, "d_model": 12, "n_heads": 3, "d_head": 5, "d_mlp": 7, "d_vocab": 10, "n_ctx": 8}
    switches = (
        {"normalization_type": "LN"},
        {"norm_placement": "both", "gated_mlp": True},
        {"positional_embedding_type": "rotary", "d_head": 4},
        {"attn_scores": "neg_l1", "attn_top_k": 3},
    )
    found = []
    for chosen in switches:
        weight_map = DenseWeights(TransformerConfig(**(shape | chosen)))
        weight_map.initialise(torch.Generator().manual_seed(0))
        found.append(ArithmeticTransformer(weight_map, ToyAddition()))
    return found


def test_the_table_of_hooks_is_what_the_models_fire_in_order_and_shape():
    table = {row[0]: row[1].split() for row in rows((DOCS / "hooks.md").read_text(), "hook")}
    order, seen = list(table), set()
    for model in _every_hook():
        cfg, tokens = model.cfg, torch.zeros(2, 6, dtype=torch.long)
        size = {"b": 2, "p": 6, "q": 6, "k": 6, "H": 3, "D": 12, "d": cfg.d_head, "M": 7, "V": 10, "1": 1}
        for switch in (model.set_use_attn_in, model.set_use_split_qkv_input):  # not both at once
            model.set_use_attn_result(True)
            model.set_use_hook_mlp_in(True)
            switch(True)
            _, cache = model.run_with_cache(tokens)
            switch(False)
            assert sorted(cache, key=order.index) == list(cache)
            seen |= set(cache)
        _, cache = model.run_with_cache(tokens)
        for name, value in cache.items():
            assert value.shape == tuple(size[letter] for letter in table[name]), name
    assert seen == set(table)


def test_the_table_of_roles_is_the_tasks():
    page = (DOCS / "hooks.md").read_text()
    groups = {row[0]: row[1].split(", ") for row in rows(page, "task")}
    kinds = {row[0] for row in rows(page, "kind")}
    found: dict[str, set[str]] = {}
    for name in models.names():
        task = models.build(name).task
        if task.name not in groups:
            continue
        found.setdefault(task.name, {role.kind for role in task.roles})
        for target in range(len(task.query_positions)):
            assert list(task.relative_roles(target)) == groups[task.name]
    assert set(found) == set(groups)
    assert set().union(*found.values()) == kinds


# ---- the reference


@pytest.mark.parametrize("package", [interp, models], ids=["interp", "models"])
def test_every_public_name_says_what_it_is(package):
    silent = [name for name in package.__all__ if not (getattr(package, name).__doc__ or "").strip()]
    assert not silent


def test_the_reference_begins_with_the_names_of_everyday_use():
    assert [row[0] for row in rows((DOCS / "reference.md").read_text(), "name")] == [f"interp.{x}" for x in EVERYDAY]


@pytest.mark.parametrize("name", ["calls", "families", "files", "importers", "training", "transformer", "weight_maps"])
def test_names_that_come_on_first_use_are_there_from_then_on(name: str):
    """What reads a package's names without asking for them (pdoc, dir) finds them."""
    package = importlib.import_module(f"models.{name}")
    assert package.__all__ and all(getattr(package, each) is not None for each in package.__all__)
    assert set(package.__all__) <= vars(package).keys()


# ---- proofs


def test_every_theorem_names_a_function_and_a_test_that_are_there():
    found = rows((DOCS / "proofs.md").read_text(), "theorem or claim")
    assert len(found) > 20
    for _, function, test in found:
        where, _, name = function.rpartition(".")
        package = "" if where.startswith(("interp.", "models.")) else "interp.proofs."
        holder = pkgutil.resolve_name(package + where)
        assert hasattr(holder, name), function
        file, case = test.split("::")
        assert f"def {case}(" in (ROOT / "tests" / "interp" / "proofs" / file).read_text(), test
