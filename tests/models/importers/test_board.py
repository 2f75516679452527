"""Public AdderBoard models from their texts: what is read, what is refused, and equality with the file's own model."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import models
from models.errors import UserError
from models.importers.board import expressions, load_submission, stated_parameters
from models.importers.board.reading import interpreter_for_files, read
from tests.models.importers.submissions import HARD, TEXTS, TIED_VALUES, own_logits

#: The interpreter evaluates a node at a time; what it hands out is checked by the values.
pytestmark = pytest.mark.usefixtures("without_shape_checks")


#: Files with sinusoids in float32 whatever they compute in; with scores of up to 10^6 roundings are some of a
#: weight's percents (the choices are the same).
LOOSE = {
    "cosminscn_130p.py": {"float32": 0.2, "float64": 2e-2},
    "lichengliu03_50p.py": {"float64": 1e-3},
    "Lokimorty_39p.py": {"float64": 1e-4},
}


def write(folder: Path, text: str, name: str = "ours_76p.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def own_process() -> Iterator[Executor]:
    """Runs each file's own model in a process of its own, forked from one that has done nothing but import torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        yield pool


def rows_of(model: models.ArithmeticTransformer, n: int = 6) -> list[list[int]]:
    problems = model.task.sample(n, torch.Generator().manual_seed(1))
    tokens, first = model.task.encode(problems), model.task.query_positions[0] + 1
    return [row[: first + 2 * i % 11].tolist() for i, row in enumerate(tokens)]


def compare(model: models.ArithmeticTransformer, path: Path, dtype: str, own_process: Executor) -> None:
    """The same choices; logits within 2e-5 of the largest one in float32, 1e-7 in float64 (``LOOSE``: see there)."""
    rows = rows_of(model)
    theirs = torch.tensor(own_process.submit(own_logits, str(path), rows, dtype).result(300), dtype=torch.float64)
    if dtype == "float64":
        model.double()
    with torch.no_grad():
        ours = torch.stack([model(torch.tensor([row]))[0, -1].double() for row in rows])
    assert torch.equal(ours.argmax(1), theirs.argmax(1) if theirs.shape[1] > 1 else theirs[:, 0].long())
    if theirs.shape[1] > 1:
        finite = theirs.abs() < 1e11
        size = theirs.masked_fill(~finite, 0).abs().amax(1, keepdim=True)
        tolerance = 2e-5 if dtype == "float32" and model.dtype == torch.float32 else 1e-7
        tolerance = LOOSE.get(path.name, {}).get(dtype, tolerance)
        assert ((ours - theirs).abs() <= tolerance * size)[finite].all()


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_text_of_our_own_is_the_model_that_python_makes_of_it(
    name: str, dtype: str, tmp_path: Path, own_process: Executor
) -> None:
    path = write(tmp_path, TEXTS[name])
    compare(models.load(path), path, dtype, own_process)


def test_what_is_read_of_a_text(tmp_path: Path) -> None:
    model = models.load(write(tmp_path, TIED_VALUES))
    assert sum(p.numel() for p in model.parameters()) == stated_parameters(model) == 128
    assert model.config.rotary_base == 3.0 and model.config.use_qk_norm and model.config.gated_mlp
    assert model.task.encode_prompt([(57, 48)])[0].tolist()[:4] == [0, 7, 5, 0]
    assert torch.equal(model.W_K, model.W_V)
    _, cache = model.run_with_cache(model.task.encode([(57, 48)]))
    assert cache["blocks.0.attn.q_norm.hook_normalized"].shape == (1, 34, 1, 4)


def test_a_text_that_adds_rightly_scores_so(tmp_path: Path) -> None:
    model = models.load(write(tmp_path, HARD))
    assert models.score(model, [(57, 48), (9999999999, 1), (5555555555, 4444444445)]).accuracy == 1.0


@pytest.mark.parametrize(
    ("old", "new"),
    [("1.1, 0.9, 1.3, 0.7", "1.4, 0.2, 1.3, -0.7"), ("ROPE_THETA = 3.0", "ROPE_THETA = 7.5"), ("eps=1e-6", "eps=1e-3")],
)
def test_the_same_architecture_with_other_numbers(old: str, new: str, tmp_path: Path, own_process: Executor) -> None:
    assert TIED_VALUES.count(old) == 1
    path = write(tmp_path, TIED_VALUES.replace(old, new))
    changed, first = models.load(path), models.load(write(tmp_path, TIED_VALUES, "first.py"))
    tokens = first.task.encode([(57, 48)])
    assert not torch.allclose(changed(tokens), first(tokens))
    compare(changed, path, "float64", own_process)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("F.silu", "F.relu"),
        ("x = self.embedding(tokens)", "x = self.embedding(tokens) * 1.01"),
        ("/ math.sqrt(4)", "/ 3.0"),
        ("self.norm_final(x) @", "self.norm2(x) @"),
        ("turn(self.q_norm(q))", "self.q_norm(turn(q))"),
    ],
)
def test_another_forward_pass_is_refused(old: str, new: str, tmp_path: Path) -> None:
    assert TIED_VALUES.count(old) == 1
    with pytest.raises(UserError):
        models.load(write(tmp_path, TIED_VALUES.replace(old, new)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def build_model(:",
        "import os\nX = os.listdir('/')\n",
        "X = open('/etc/passwd').read()\n",
        "X = ().__class__\n",
        "X = (lambda: 0).__globals__\n",
        "import torch\nX = torch.load('weights.pt')\n",
        "import torch\nX = torch.zeros(10**9)\n",
        "X = [0] * 10**9\n",
        "X = 9 ** 9 ** 9\n",
        "X = f'{1:1000000000}'\n",
        "while True:\n    pass\n",
        "def f():\n    return f()\nX = f()\n",
        "X = eval('1')\n",
        "X = __import__('os')\n",
        "import subprocess\nsubprocess.run(['true'])\n",
        "X = 'a' % 3\n",
        "X = '{0.__class__}'.format(1)\n",
        "class A:\n    pass\n",
        "import numpy as np\nX = np.fromfile('/etc/passwd')\n",
        "import torch\nX = torch.ones(2).storage()\n",
        "X = [1]\nfor i in range(64):\n    X = X + X\n",
        "X = 'ab'\nfor i in range(64):\n    X += X\n",
        "X = [1]\nfor i in range(64):\n    X.extend(X)\n",
        "X = 'a' * 10**6\nX = X.replace('a', X)\n",
        "X = 'a' * 10**6\nX = ''.join([X for i in range(10**5)])\n",
        "X = [[0] * 10**6 for i in range(3000)]\n",
        "import torch\nX = torch.ones(1000).repeat(2 * 10**6)\n",
        "import torch\nX = torch.ones(10**6)\nX = torch.cat([X for i in range(20000)])\n",
    ],
)
def test_what_is_no_model_is_refused_and_nothing_runs(text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(expressions, "MOST_STEPS", 200_000)
    with pytest.raises(UserError):
        read(write(tmp_path, text))


def test_no_word_gives_access_to_python() -> None:
    interpreter = interpreter_for_files()
    names = set(interpreter.builtins.names)
    assert not names & {"open", "exec", "eval", "compile", "__import__", "globals", "vars", "type", "input", "super"}
    assert not {"os", "sys", "subprocess", "pickle", "builtins", "importlib", "io"} & set(interpreter.words)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    text = 'import os, torch\nP = os.path.join("a", "checkpoint_57p.pt")\n'
    with pytest.raises(UserError) as error:
        load_submission(write(tmp_path, text))
    assert "checkpoint_57p.pt" in str(error.value)


BOARD = Path(__file__).resolve().parents[4] / "shared" / "board"
FILES = sorted(path.relative_to(BOARD).as_posix() for path in BOARD.glob("*/*.py")) or ["none"]
#: Texts without numbers of their own.
WITHOUT = {"hand_coded/Arch222_31p.py", "trained/evindor_57p.py", "trained/evindor_67p.py"}
#: Files whose own model does not run here, and what stops it: Apple's mlx, which is not among what the tests need; or a
#: table that stays in float32 when the model is asked in float64.
MLX = {
    *(f"hand_coded/{name}.py" for name in ("Lokimorty_10p", "Wonderfall_121p", "Wonderfall_139p", "Wonderfall_27p")),
    *(f"hand_coded/{name}.py" for name in ("xangma_177p", "xangma_197p")),
}
NOT_RUN: dict[tuple[str, str], type[Exception]] = {
    **{(name, dtype): ModuleNotFoundError for name in MLX for dtype in ("float32", "float64")},
    ("hand_coded/kswain98_8p.py", "float64"): RuntimeError,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_public_submission_is_the_model_that_python_makes_of_it(
    shared_dir: Path, name: str, dtype: str, own_process: Executor
) -> None:
    path = shared_dir / "board" / name
    if not path.is_file():
        pytest.skip("needs the public submissions")
    if name in WITHOUT:
        with pytest.raises(UserError):
            models.load(path)
        return
    model = models.load(path)
    if (name, dtype) in NOT_RUN and not (name in MLX and find_spec("mlx")):
        with pytest.raises(NOT_RUN[name, dtype]):
            own_process.submit(own_logits, str(path), rows_of(model), dtype).result(300)
        assert models.score(model, model.task.sample(16, torch.Generator().manual_seed(0))).accuracy == 1.0
        return
    compare(model, path, dtype, own_process)
