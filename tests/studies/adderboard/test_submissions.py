"""Public AdderBoard models: files that are run when they may be, equal to their own models, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import models
from interp.cli.commands import main
from models.errors import UserError
from studies.adderboard.isolation import UNCONFINED, _no_bubblewrap, run_isolated
from studies.adderboard.mlx_names import Model, ModelArgs
from studies.adderboard.submissions import asked_pairs, converted, load_submission, submission_of
from tests.studies.adderboard.submissions import HARD, OTHER, QWEN, TIED_VALUES, own_module

#: A threshold of the carry one lower, so that a column without a carry is wrong where it is nine.
WRONG = HARD.replace("2 * CONST - 188.0, 2 * CONST - 189.0", "2 * CONST - 178.0, 2 * CONST - 179.0")
NUMBERS = {
    "other gains": ("1.1, 0.9, 1.3, 0.7", "1.4, 0.2, 1.3, -0.7"),
    "other speed": ("ROPE_THETA = 3.0", "ROPE_THETA = 7.5"),
    "other eps": ("eps=1e-6", "eps=1e-3"),
}
FORWARDS = {
    "relu": ("F.silu", "F.relu"),
    "embedding": ("x = self.embedding(tokens)", "x = self.embedding(tokens) * 1.01"),
    "scale": ("/ math.sqrt(4)", "/ 3.0"),
    "norm": ("self.norm_final(x) @", "self.norm2(x) @"),
    "order": ("turn(self.q_norm(q))", "self.q_norm(turn(q))"),
    "one digit": ("return self.norm_final(x)", "x = x + (len(tokens[0]) > 30) / 9\n        return self.norm_final(x)"),
}
_ADD = HARD[HARD.index("def add(") :]
SAME = {
    "tied values": TIED_VALUES,
    "hard": HARD,
    "wrong": WRONG,
    "prints": "import os\nprint('x' * 99999)\nos.write(1, b'!')\n" + HARD,
    "claims": HARD.replace("sum(p.numel() for p in model.parameters())", "3"),
    "torn": HARD + "\n'''\nnot run\n",
    "unknown main": HARD + "\nif __name__ == '__main__':\n    raise RuntimeError\n",
    **{name: TIED_VALUES.replace(*change) for name, change in NUMBERS.items()},
}
REFUSED = {
    **{name: TIED_VALUES.replace(*change) for name, change in FORWARDS.items()},
    "empty": "",
    "syntax": "def build_model(:",
    "no model": "class A:\n    pass\n",
    "no adder": HARD.replace("def add(", "def other("),
    "raises": "raise RuntimeError('no\x1b')\n",
    "recursion": "def f():\n    return f()\nX = f()\n",
    "not a number": HARD.replace("SHARP = 1000.0, 0.01, 64.0", "SHARP = 1000.0, 0.01, float('nan')"),
    "too large": "import torch\nX = torch.ones(10**10)\n",
    "missing": "import a_module_that_is_not_there\n" + HARD,
    "checkpoint": "import torch\nX = torch.load('checkpoint_57p.pt')\n" + HARD,
    "adds itself": WRONG.replace(_ADD, "def add(model, a, b):\n    return a + b\n"),
    "adds beside": WRONG.replace("return int(", "return a + b or int("),
    "one pair": HARD.replace("self.out_scale)", "self.out_scale * (1 - 2 * int(tokens[0, 1:11].sum() == 50)))"),
    "another family": HARD.replace("rope_offsets", "offsets"),
}


def write(folder: Path, text: str, name: str = "ours_76p.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


class Loaded:
    """Models of many files, all of which run in one process."""

    def __init__(self, folder: Path, texts: dict[str, str], seconds: float = 300.0):
        self.paths = {name: write(folder, text, f"{name.replace(' ', '_')}.py") for name, text in texts.items()}
        arguments = {"paths": list(map(str, self.paths.values())), "pairs": asked_pairs()}
        self.tensors, self.facts = run_isolated(
            "tests.studies.adderboard.programs:described", arguments, seconds, trust=UNCONFINED
        )

    def load(self, name: str, checkpoint: Path | None = None) -> models.ArithmeticTransformer:
        """As :func:`load_submission` does. Raises UserError for a file that failed."""
        path = self.paths[name]
        facts = self.facts[str(path)]
        if "error" in facts:
            raise UserError(facts["error"])
        return converted(path, self.of(name), facts, asked_pairs(), checkpoint)

    def of(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of one file."""
        prefix = f"{self.paths[name]}:"
        return {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    for old, _ in (*NUMBERS.values(), *FORWARDS.values()):
        assert TIED_VALUES.count(old) == 1
    assert WRONG != HARD and len(_ADD) > 100
    return Loaded(tmp_path_factory.mktemp("ours"), SAME | REFUSED | {"qwen": QWEN})


@pytest.mark.parametrize("name", SAME)
def test_a_file_is_the_model_that_python_makes_of_it(name: str, ours: Loaded) -> None:
    """Logits within 2e-5 of the largest one, and the same choices."""
    model, own = ours.load(name), own_module(SAME[name].partition("\n'''\nnot run")[0].replace("__main__", "no"))
    tokens = model.task.encode(model.task.sample(6, torch.Generator().manual_seed(1)))
    theirs = torch.cat([own.build_model()[0](row).detach() for row in tokens.split(1)])
    logits = model(tokens)
    assert torch.equal(logits.argmax(-1), theirs.argmax(-1))
    assert ((logits - theirs).abs() <= 2e-5 * theirs.abs().amax()).all()


@pytest.mark.parametrize("name", REFUSED)
def test_another_file_is_refused(name: str, ours: Loaded) -> None:
    with pytest.raises(UserError):
        ours.load(name)
    assert ours.paths[name].read_text() == REFUSED[name]


def test_reasons_name_what_is_wrong(ours: Loaded) -> None:
    said = {
        "raises": "RuntimeError", "missing": "a_module_that_is_not_there",
        "not a number": "finite", "adds itself": "forward pass", "one pair": "what was read of it says",
        "one digit": "after 01300000000000000000000013", "relu": "tied values", "checkpoint": "checkpoint_57p.pt",
    }  # fmt: skip
    for name, reason in said.items():
        with pytest.raises(UserError, match=reason):
            ours.load(name)


def test_what_is_known_of_a_file(ours: Loaded) -> None:
    model = ours.load("tied values")
    found = submission_of(model)
    assert found is not None and (found.family, found.stated, found.free, found.bits) == ("tied values", 128, 128, 4096)
    assert model.config.rotary_base == 3.0 and model.config.use_qk_norm and model.config.gated_mlp
    assert model.task.encode_prompt([(57, 48)])[0].tolist()[:4] == [0, 7, 5, 0]
    assert torch.equal(model.W_K, model.W_V)
    claimed, torn = submission_of(ours.load("claims")), submission_of(ours.load("torn"))
    assert claimed is not None and (claimed.stated, claimed.free) == (3, 92)
    assert torn is not None and len(torn.remarks) == 1 and submission_of(models.load("microadder-57")) is None


@pytest.mark.parametrize(
    "change",
    [
        {"config": None},
        {"config": {"n_layers": 10**9}},
        {"config": {"d_model": -1}},
        {"config": {"unknown": 1}},
        {"frame": {"before": [99]}},
        {"frame": 7},
        {"answers": [0]},
        {"answers": ["x"] * 34},
        {"free": "many"},
        {"free": 10**400},
        {"free": -1},
        {"free": 1.5},
        {"free": float("inf")},
        {"bits": -8},
        {"bits": True},
        {"answers": [float("inf")] * 34},
        {"metadata": 3},
        {"family": None},
        {"remarks": 1},
    ],
)
def test_a_forged_answer_is_refused(change: dict[str, Any], ours: Loaded) -> None:
    """Whatever a file makes its process say: another kind of value, sizes that fill the memory, too few answers."""
    path = ours.paths["hard"]
    facts = ours.facts[str(path)]
    with pytest.raises(UserError):
        converted(path, ours.of("hard"), facts | change, asked_pairs(), None)


def test_what_a_file_says_of_itself_is_short_and_can_be_printed(ours: Loaded) -> None:
    path, long = ours.paths["hard"], "\x1b[31m\n" + "x" * 10**6
    said = {"remarks": [long] * 1000, "metadata": {"name": long, "author": [long], "params": 10**400, long: 1}}
    found = submission_of(converted(path, ours.of("hard"), ours.facts[str(path)] | said, asked_pairs(), None))
    assert found is not None and len(found.remarks) <= 20
    texts = [*found.remarks, *found.metadata, *found.metadata.values()]
    assert all(len(str(text)) <= 300 and str(text).isprintable() for text in texts)


@pytest.mark.parametrize("name", ["own/embed.W_E", "own/blocks.0.mlp.b_in", "wide/blocks.0.attn.W_Q", "wide/logits"])
@pytest.mark.parametrize(
    "forge", [None, lambda x: x[:1], lambda x: x.reshape(-1, 1), lambda x: x * torch.nan, lambda x: 2 * x]
)
def test_forged_tensors_are_refused(name: str, forge: Any, ours: Loaded) -> None:
    """One tensor that is missing, of another shape, not a number or another one."""
    path, tensors = ours.paths["hard"], ours.of("hard")
    tensor = tensors.pop(name)
    if forge is not None:
        tensors[name] = forge(tensor)
    with pytest.raises(UserError):
        converted(path, tensors, ours.facts[str(path)], asked_pairs(), None)


def test_right_and_wrong_arithmetic_is_scored_so(ours: Loaded) -> None:
    problems = [(57, 48), (9999999999, 1), (5555555555, 4444444445)]
    assert models.score(ours.load("hard"), problems).accuracy == 1.0
    assert models.score(ours.load("wrong"), [(4, 5), (57, 42)]).accuracy == 0.0


def test_a_file_with_names_of_mlx_is_read(ours: Loaded) -> None:
    model = ours.load("qwen")
    found = submission_of(model)
    assert (
        found is not None
        and found.family == "Qwen3 blocks"
        and found.free
        == sum(p.numel() for name, p in model.weight_map.named_parameters() if "b_" not in name and "/b" not in name)
        - 2 * 2 * 3 * 2
    )  # each layer's key head, and value head, stands twice
    assert any("mlx" in remark for remark in found.remarks)


def test_qwen_blocks_are_those_of_transformers() -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = {
        "hidden_size": 6, "num_hidden_layers": 2, "intermediate_size": 5, "num_attention_heads": 4, "head_dim": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-3, "vocab_size": 9, "rope_theta": 50.0,
        "max_position_embeddings": 20,
    }  # fmt: skip
    for tied in (True, False):
        theirs = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=tied)).eval()
        ours = Model(ModelArgs(**shape, tie_word_embeddings=tied))
        ours.load_state_dict(theirs.state_dict(), strict=not tied)
        tokens = torch.randint(9, (3, 20), generator=torch.Generator().manual_seed(0))
        assert torch.allclose(ours(tokens), theirs(tokens).logits, atol=1e-6)


def test_a_file_is_not_run_without_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "raise RuntimeError('it ran')\n")
    for load in (models.load, load_submission):
        with pytest.raises(UserError, match="trust=True"):
            load(path)
    assert main(["solve", str(path), "57+48"]) == 2 and "--trust" in capsys.readouterr().err
    write(tmp_path, HARD)
    assert main(["solve", str(path), "57+48", "--trust", "unconfined"]) == 0 and "105" in capsys.readouterr().out


@pytest.mark.parametrize("size", [None, 2 << 20])
def test_what_is_no_text_is_refused(size: int | None, tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    with pytest.raises(UserError):
        load_submission(path, trust=UNCONFINED)
    path.write_bytes(b"\xff\xfe" if size is None else b" " * size)
    with pytest.raises(UserError):
        load_submission(path, trust=UNCONFINED)


@pytest.mark.slow
@pytest.mark.parametrize("trust", [True, UNCONFINED])
def test_an_unknown_architecture_with_a_known_checkpoint_is_the_checkpoints(
    trust: bool | str, checkpoint: Any, tmp_path: Path
) -> None:
    if trust is True and (why := _no_bubblewrap()):
        pytest.skip(f"nothing can be confined here: {why}")
    path = write(tmp_path, OTHER, "other_9p.py")
    model = load_submission(path, checkpoint("microadder_57p.pt").parent, trust=trust)
    found = submission_of(model)
    assert found is not None and any("unconfined" in remark for remark in found.remarks) == (trust == UNCONFINED)
    assert found is not None and (found.free, found.stated) == (57, 9)
    assert models.score(model, [(57, 48), (9999999999, 1)]).accuracy == 1.0


#: Family and parameters of each public file's own model.
PUBLIC = {
    "hand_coded/Lokimorty_10p.py": ("period 19, gated, structured", 10),
    "hand_coded/SeuperHakkerJa_28p.py": ("five hard heads", 24),
    "hand_coded/SeuperHakkerJa_93p.py": ("five hard heads", 93),
    "hand_coded/Wonderfall_121p.py": ("Qwen3 blocks", 121),
    "hand_coded/Wonderfall_139p.py": ("Qwen3 blocks", 139),
    "hand_coded/Wonderfall_27p.py": ("period 19, phase", 26),
    "hand_coded/alexlitz_36p.py": ("one numeral", 86),
    "hand_coded/bingbangboom-lab_148p.py": ("Qwen3 blocks", 148),
    "hand_coded/cosminscn_130p.py": ("sinusoids, nanoGPT", 130),
    "hand_coded/fblissjr_33p.py": ("fixed scores", 141),
    "hand_coded/kswain98_8p.py": ("period 19, gated, derived", 2),
    "hand_coded/lichengliu03_50p.py": ("sinusoids, directions", 50),
    "hand_coded/prasannakotyal_116p.py": ("Qwen3 blocks", 116),
    "hand_coded/xangma_177p.py": ("Qwen3 blocks", 177),
    "hand_coded/xangma_197p.py": ("Qwen3 blocks", 197),
    "hand_coded/yieldthought_20p.py": ("period 19, phase", 20),
    "hand_coded/zcbtrak_6p.py": ("period 19, gated, array", 6),
    "trained/Lokimorty_39p.py": ("repeated block", 39),
    "trained/dimopep_140p.py": ("tied values", 140),
    "trained/evindor_57p.py": ("MicroAdderWeights", 57),
    "trained/evindor_67p.py": ("MicroAdderWeights", 67),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_submission_is_read(shared_dir: Path, name: str) -> None:
    """Its logits and answers are compared where it is loaded."""
    path = shared_dir / "board" / name
    if not path.is_file():
        pytest.skip("needs the public submissions")
    model = load_submission(path, shared_dir / "checkpoints", trust=UNCONFINED)
    found = submission_of(model)
    assert found is not None and (found.family, found.free) == PUBLIC[name]
    assert models.score(model, model.task.sample(16, torch.Generator().manual_seed(0))).accuracy == 1.0


def test_a_public_submission_that_needs_another_file_is_refused(shared_dir: Path) -> None:
    for name, needed in (
        ("hand_coded/Arch222_31p", "tiny_transformer_adder"),
        ("trained/evindor_57p", "checkpoint_57p"),
    ):
        path = shared_dir / "board" / f"{name}.py"
        if not path.is_file():
            pytest.skip("needs the public submissions")
        with pytest.raises(UserError, match=needed):
            load_submission(path, trust=UNCONFINED)
