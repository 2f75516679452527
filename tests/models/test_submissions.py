"""Public AdderBoard models from their texts: what is read, what is refused, and equality with the file's own model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import models
from models.errors import UserError
from models.importers.board import load_submission, stated_parameters
from models.importers.board.reading import interpreter_for_files, read
from tests.models.submissions import HARD, TEXTS, TIED_VALUES

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


def own_logits(path: Path, rows: list[list[int]], dtype: str) -> torch.Tensor:
    """What the file's own model gives at the last token of each row, run by Python in another process."""
    code = (
        "import sys, json, importlib.util, torch; p, rows, dtype = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]\n"
        "torch.set_num_threads(1)\n"
        "spec = importlib.util.spec_from_file_location('submission', p); m = importlib.util.module_from_spec(spec)\n"
        "text = open(p).read(); cut = text.rfind(\"'''\")\n"
        "text = text if compile_ok(text) else text[:cut]\n"
    )
    code = (
        "import ast\n"
        "def compile_ok(t):\n"
        "    try: ast.parse(t); return True\n"
        "    except SyntaxError: return False\n"
        + code
        + "sys.modules['submission'] = m; exec(compile(text, p, 'exec'), m.__dict__)\n"
        "build = next((getattr(m, n) for n in ('build_model', 'build_adder') if hasattr(m, n)), None)\n"
        "if build is None:\n"
        "    model = (m.Qwen3_148 if hasattr(m, 'Qwen3_148') else m.Transformer)()\n"
        "    hasattr(m, 'set_weights') and m.set_weights(model)\n"
        "else:\n"
        "    model = build(); model = model[0] if isinstance(model, tuple) else model\n"
        "if dtype == 'float64' and hasattr(model, 'double'):\n"
        "    model = model.double(); torch.set_default_dtype(torch.float64)\n"
        "found = []\n"
        "with torch.no_grad():\n"
        "    for row in rows:\n"
        "        if hasattr(m, '_forward') and hasattr(m, 'PARAMS'):\n"
        "            import numpy as np; out = torch.from_numpy(m._forward(model.params, np.array([row])))\n"
        "        else:\n"
        "            out = model.forward(torch.tensor([row])); out = out[0] if isinstance(out, tuple) else out\n"
        "        found.append(out[0, -1].double().reshape(-1).tolist())\n"
        "print(json.dumps(found))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path), json.dumps(rows), dtype], capture_output=True, text=True, timeout=300
    )
    if ran.returncode:
        pytest.skip(ran.stderr.strip().splitlines()[-1])
    return torch.tensor(json.loads(ran.stdout.splitlines()[-1]), dtype=torch.float64)


def rows_of(model: models.ArithmeticTransformer, n: int = 6) -> list[list[int]]:
    problems = model.task.sample(n, torch.Generator().manual_seed(1))
    tokens, first = model.task.encode(problems), model.task.query_positions[0] + 1
    return [row[: first + 2 * i % 11].tolist() for i, row in enumerate(tokens)]


def compare(model: models.ArithmeticTransformer, path: Path, dtype: str) -> None:
    """The same choices; logits within 2e-5 of the largest one in float32, 1e-7 in float64 (``LOOSE``: see there)."""
    rows = rows_of(model)
    theirs = own_logits(path, rows, dtype)
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
def test_a_text_of_our_own_is_the_model_that_python_makes_of_it(name: str, dtype: str, tmp_path: Path) -> None:
    path = write(tmp_path, TEXTS[name])
    compare(models.load(path), path, dtype)


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
def test_the_same_architecture_with_other_numbers(old: str, new: str, tmp_path: Path) -> None:
    assert TIED_VALUES.count(old) == 1
    path = write(tmp_path, TIED_VALUES.replace(old, new))
    changed, first = models.load(path), models.load(write(tmp_path, TIED_VALUES, "first.py"))
    tokens = first.task.encode([(57, 48)])
    assert not torch.allclose(changed(tokens), first(tokens))
    compare(changed, path, "float64")


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
def test_what_is_no_model_is_refused_and_nothing_runs(text: str, tmp_path: Path) -> None:
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


BOARD = Path(__file__).resolve().parents[3] / "shared" / "board"
FILES = sorted(path.relative_to(BOARD).as_posix() for path in BOARD.glob("*/*.py")) or ["none"]
#: Texts without numbers of their own.
WITHOUT = {"hand_coded/Arch222_31p.py", "trained/evindor_57p.py", "trained/evindor_67p.py"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_public_submission_is_the_model_that_python_makes_of_it(shared_dir: Path, name: str, dtype: str) -> None:
    path = shared_dir / "board" / name
    if not path.is_file():
        pytest.skip("needs the public submissions")
    if name in WITHOUT:
        with pytest.raises(UserError):
            models.load(path)
        return
    compare(models.load(path), path, dtype)
