"""``certificates/check.py``: a checker that uses nothing of this project proves what is claimed, and nothing else."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import math
import random
import struct
import sys
from pathlib import Path

import mpmath
import pytest
import torch

import models
from interp.proofs.columns import checker_export
from interp.proofs.columns.checker_export import TASKS, write_standalone
from interp.proofs.stored_verdicts import stored_certificate
from models.errors import UserError
from tests.interp.proofs.conftest import certificate, zoo
from tests.sampling import sampled

FOLDER = Path(__file__).parents[4] / "certificates"
UNENDED = ("microadder-22", "microadder-18")  # they write no end token
SUBTRACTORS = ("subtractor-47", "subtractor-2480", "complement-subtractor")
NAMES = ("microadder-57", "adder-456", *UNENDED, *SUBTRACTORS)


@pytest.fixture(scope="module")
def checker():
    spec = importlib.util.spec_from_file_location("standalone_checker", FOLDER / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


@pytest.fixture(scope="module", params=[
    NAMES[0], pytest.param(NAMES[1], marks=pytest.mark.slow), *UNENDED, SUBTRACTORS[0],
    *(pytest.param(name, marks=pytest.mark.slow) for name in SUBTRACTORS[1:]),
])  # fmt: skip
def case(request, checker):
    """The checker's model and ours."""
    return checker.Model(read(request.param)), models.load(request.param)


def test_it_imports_the_standard_library_alone():
    tree = ast.parse((FOLDER / "check.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported and imported <= set(sys.stdlib_module_names)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_files_are_about_the_models_of_the_zoo(name):
    found, model, file = stored_certificate(name), models.load(name), read(name)
    assert found is not None and file["fingerprint"] == found.fingerprint
    for key, stored in file["weights"].items():
        assert [float.fromhex(x) for x in stored] == model.effective_weights()[key].double().flatten().tolist()
    assert file["config"] == model.config.to_dict() | {"task": model.task.name}


@pytest.mark.slow
def test_a_written_file_is_the_stored_one(tmp_path, monkeypatch):
    monkeypatch.setattr(checker_export, "check_one_layer", lambda *_: None)  # which test_stored_verdicts.py has checked
    found = stored_certificate("microadder-57")
    assert found is not None
    path = write_standalone(found, models.load("microadder-57"), tmp_path / "again.json")
    again, stored = json.loads(path.read_text()), read("microadder-57")
    del again["basis"], stored["basis"]  # a singular vector, whose last digits depend on the library
    assert again == stored


def test_every_pair_of_the_first_steps_is_proved(checker, monkeypatch):
    class OfTwoSteps(checker.Model):
        def __init__(self, file):
            super().__init__(file)
            self.steps = 2

    monkeypatch.setattr(checker, "Model", OfTwoSteps)
    smallest, _ = checker.check(read("microadder-57"))
    assert checker.fixed(read("microadder-57")["margin"]) < smallest < checker.LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("name", ["microadder-57", *UNENDED, *SUBTRACTORS])
def test_every_pair_is_proved(checker, name):
    smallest, model = checker.check(read(name))
    found = stored_certificate(name)
    assert found is not None and model.fingerprint == found.fingerprint
    # Above what is claimed, and not above the smallest margin that the model has.
    assert checker.fixed(read(name)["margin"]) < smallest < found.smallest_margin * checker.ONE


@pytest.mark.slow
def test_every_pair_is_proved_of_456_parameters(checker):
    smallest, _ = checker.check(read("adder-456"))
    found = stored_certificate("adder-456")
    assert found is not None
    assert checker.fixed(read("adder-456")["margin"]) < smallest < found.smallest_margin * checker.ONE


@pytest.mark.parametrize("target", sampled([0, 5, -2, -1], 0, -1))
def test_problems_lie_in_the_intervals_of_their_leaves_and_above_their_bounds(checker, case, target):
    theirs, model = case
    target %= theirs.steps
    rng = random.Random(target)
    pairs = [(rng.randrange(10**10), rng.randrange(10**10)) for _ in range(40)]
    if theirs.sign == 1:
        pairs += [(a, 10**10 - 1 - a + rng.randrange(2)) for a, _ in pairs]  # long carries
    else:
        pairs += [(a, max(0, a - rng.randrange(2) * 10 ** rng.randrange(10))) for a, _ in pairs]  # long borrows
        pairs = [(max(pair), min(pair)) for pair in pairs] if not theirs.written_out else pairs
    tokens = model.task.encode(torch.tensor(pairs))
    wanted = model.task.targets(torch.tensor(pairs))[:, target]
    position = model.task.query_positions[target]
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
    lead = logits[:, position].double()
    right = lead.gather(1, wanted[:, None])[:, 0]
    lead = right - lead.scatter(1, wanted[:, None], -math.inf).max(1).values
    basis = torch.tensor([[x / checker.ONE for x in row] for row in theirs.basis], dtype=torch.float64)
    written = cache["blocks.0.hook_attn_out"][:, position].double() @ basis.T
    own = min(target, 9)
    queries = {}
    for row, (a, b) in enumerate(pairs):
        token = int(tokens[row, position])
        if token not in queries and len(queries) > 1:
            continue
        query = queries.setdefault(token, checker.Query(theirs, target, token))
        power = 10**own
        x, y, carry = a // power % 10, b // power % 10, theirs.sign * ((a % power + theirs.sign * (b % power)) // power)
        leaf = (carry, ((x, y, (x + theirs.sign * (y + carry)) % 10),))
        assert leaf in [found for _, _, found in query.leaves()]
        low, high = query.ends(leaf)
        # What is off the basis, and rounding, is bounded apart.
        slack = sum(theirs.off) / checker.ONE
        for k, value in enumerate(written[row].tolist()):
            assert low[k] / checker.ONE - slack <= value <= high[k] / checker.ONE + slack
        stream, loose = theirs.stream(token, query.position), 0.05 if theirs.end else 0.1
        at = [int(value * checker.ONE) for value in written[row].tolist()]
        near = theirs.lowest_lead(stream, int(wanted[row]), at, at)
        assert near / checker.ONE <= float(lead[row]) <= near / checker.ONE + 0.2 + loose * abs(float(lead[row]))
        whole = checker.proved(theirs, stream, int(wanted[row]), low, high, 1)
        assert whole is not None and whole / checker.ONE <= float(lead[row])


def test_the_pairs_in_all_leaves_of_a_query_are_those_with_its_token(checker, case):
    theirs, model = case
    for target in {0, 3, min(10, theirs.steps - 1), theirs.steps - 1}:
        counts = [
            sum(number for number, _, _ in checker.Query(theirs, target, token).leaves())
            for token in theirs.tokens[checker.EQUALS + target]
        ]
        assert sum(counts) == model.task.domain.size
        if 0 < target < 11:
            assert max(counts) - min(counts) <= 10**19 // 10  # every digit about equally often


def test_functions_lie_in_their_intervals(checker):
    one = checker.ONE
    rng = random.Random(0)
    with mpmath.workdps(70):
        root = mpmath.sqrt(2 * mpmath.pi)
        assert checker.ROOT_TWO_PI < root * mpmath.mpf(10) ** 60 < checker.ROOT_TWO_PI + 1
        for x in [0.0, 1.0, -1.0, 11.999, -11.999, 13.0, -13.0, *(rng.uniform(-9, 9) for _ in range(60))]:
            n = int(mpmath.mpf(x) * one)
            exact = mpmath.mpf(n) / one

            def within(ends, value):
                return ends[0] <= value * one <= ends[1] and ends[1] - ends[0] <= one >> 50

            assert within(checker.exp(n), mpmath.exp(exact))
            density = mpmath.exp(-exact * exact / 2) / root
            assert within(checker.density(n), density)
            values, slopes = checker.gelu(n)
            cdf = mpmath.ncdf(exact)
            assert within(values, exact * cdf) and within(slopes, cdf + exact * density)


def test_forms_hold_the_values_of_their_points(checker):
    one, rng = checker.ONE, random.Random(1)

    def form(size, error):
        return checker.Form(
            int(rng.uniform(-3, 3) * one), [int(rng.uniform(-size, size) * one) for _ in range(2)], int(error * one)
        )

    def point(form, s, e):
        return (form.c + sum(a * x for a, x in zip(form.a, s, strict=True)) + form.e * e) / one

    for _ in range(200):
        size = rng.choice([1e-6, 1e-2, 0.3])
        forms = [form(size, size / 10) for _ in range(4)]
        s = [rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]) for _ in range(2)]
        values = [point(f, s, rng.uniform(-1, 1)) for f in forms]

        def holds(found, exact, s=s):
            centre = point(found, s, 0.0)
            assert abs(exact - centre) <= found.e / one + 1e-12 * (1 + abs(exact))

        holds(forms[0] * forms[1], values[0] * values[1])
        gelu = values[0] * 0.5 * math.erfc(-values[0] / math.sqrt(2))
        holds(checker.gelu_of(forms[0]), gelu)
        row = checker.Row([int(rng.uniform(-2, 2) * one) for _ in forms])
        total = sum(v * n / one for v, n in zip(values, row.numbers, strict=True))
        holds(row.of(forms).shifted(checker.BITS), total)
        scale = checker.inverse_scale(forms, one // 10**5)
        if scale is not None:
            exact = 1 / math.sqrt(sum(v * v for v in values) / 4 + 1e-5)
            holds(scale[0], exact)
            assert scale[1] / one <= exact * (1 + 1e-12) and exact <= scale[2] / one * (1 + 1e-12)


@pytest.mark.parametrize("name", sampled(["microadder-57", *UNENDED], *UNENDED[:1]))
def test_tampered_files_are_rejected_or_say_the_same(checker, name):
    """100 files with one character changed: what is accepted for proof has the same weights and config."""
    text, rng = json.dumps(read(name)), random.Random(2)
    original, same = json.loads(text), 0
    for _ in range(100):
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice('0123456789abcdef.-+p"[]{}, ') + text[at + 1 :]
        try:
            file = json.loads(changed)
            checker.require(isinstance(file, dict), "")
            checker.Model(file)
        except (checker.Rejected, ValueError, KeyError, TypeError, IndexError):
            continue
        numbers = {name: [float.fromhex(x) for x in rows] for name, rows in file["weights"].items()}
        expected = {name: [float.fromhex(x) for x in rows] for name, rows in original["weights"].items()}
        assert numbers == expected and file["config"] == original["config"]
        same += 1
    assert same < 10


CHANGES = {
    "no scale": {"attn_scale": 0.0},
    "a negative scale": {"attn_scale": -2.0},
    "eps beyond floats": {"eps": 10**400},
    "a switch that it has never heard of": {"soft_cap": 30.0},
    "two layers": {"n_layers": 2},
    "a truth for a number": {"d_model": True},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_config_that_the_checker_does_not_know_is_rejected(checker, change, tmp_path):
    """Its fingerprint is right."""
    file = read("microadder-57")
    file["config"] |= change
    digest = hashlib.sha256(json.dumps(file["config"], sort_keys=True).encode())
    weights = models.load("microadder-57").effective_weights()
    for name in sorted(file["weights"]):
        digest.update(f"{name} {tuple(weights[name].shape)} torch.float32".encode())
        digest.update(weights[name].detach().contiguous().numpy().tobytes())
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(file | {"fingerprint": digest.hexdigest()}))
    assert checker.main([str(path)]) == 1


def renamed(file: dict) -> dict:
    """The file with the fingerprint of its weights and config, whatever they are."""
    digest = hashlib.sha256(json.dumps(file["config"], sort_keys=True).encode())
    shapes = models.load(file["model"]).effective_weights()
    for name, rows in sorted(file["weights"].items()):
        digest.update(f"{name} {tuple(shapes[name].shape)} torch.float32".encode())
        digest.update(struct.pack(f"<{len(rows)}f", *map(float.fromhex, rows)))
    return file | {"fingerprint": digest.hexdigest()}


@pytest.mark.parametrize("name", sampled(UNENDED, UNENDED[-1]))
def test_a_model_that_never_ends_is_no_proof_that_it_ends(checker, name):
    """The same weights, called a model of the task with an end token: its twelfth token is not proved."""
    file = read(name)
    assert renamed(file) == file
    file["config"]["task"] = "ten-digit-addition"
    model = checker.Model(renamed(file))
    query = checker.Query(model, model.steps - 1, 1)
    stream = model.stream(1, query.position)
    bounds = [checker.proved(model, stream, right, *query.ends(leaf), 1) for _, right, leaf in query.leaves()]
    assert bounds and None in bounds


@pytest.mark.parametrize("name", UNENDED)
def test_an_unended_model_with_another_weight_is_rejected(checker, name):
    """Digits 3 and 4 change places in the head."""
    file = read(name)
    head = file["weights"]["unembed.W_U"]
    for at in range(0, len(head), 10):
        head[at + 3], head[at + 4] = head[at + 4], head[at + 3]
    with pytest.raises(checker.Rejected, match="no proof"):
        checker.check(renamed(file))


def test_both_sides_know_the_same_tasks(checker):
    assert set(checker.TASKS) == set(TASKS)


def test_a_margin_that_the_model_does_not_have_is_rejected(checker):
    with pytest.raises(checker.Rejected):
        checker.check(read("microadder-57") | {"margin": (4.6).hex()})  # step 1 has a margin of 4.46


def test_weights_of_a_model_that_errs_are_rejected(checker):
    """The fingerprint is right, and the model is not."""
    model = models.load("microadder-75")
    from interp.proofs.verdict.identity import fingerprint

    weights = {name: value for name, value in model.effective_weights().items() if name in model.weight_shapes}
    file = read("microadder-57") | {
        "fingerprint": fingerprint(model),
        "config": model.config.to_dict() | {"task": model.task.name},
        "weights": {name: [x.hex() for x in w.detach().double().flatten().tolist()] for name, w in weights.items()},
    }
    with pytest.raises(checker.Rejected) as problem:
        checker.check(file)
    assert "no proof" in str(problem.value)


def test_nonsense_is_rejected_with_a_status(checker, tmp_path, capsys):
    nonsense = {"empty.json": "", "list.json": "[]", "other.json": '{"format": 2}', "deep.json": "[" * 100_000}
    for name, text in nonsense.items():
        (tmp_path / name).write_text(text)
        assert checker.main([str(tmp_path / name)]) == 1
    assert checker.main([str(tmp_path / "missing.json")]) == 1
    assert checker.main([]) == 2
    assert capsys.readouterr().out.count(".json: rejected.") == len(nonsense) + 1


def test_what_a_file_says_cannot_look_like_a_verdict(checker, tmp_path, capsys):
    """A key with a line break and a lone surrogate; a rejection is one line of ASCII."""
    path = tmp_path / "forged.json"
    for key in ("x\nother.json: proved. The model", "\ud800"):
        text = json.dumps({"model": "microadder-57"} | read("microadder-57") | {"config": {key: 1}})
        path.write_text(text)
        assert checker.main([str(path)]) == 1
        said = capsys.readouterr().out
        assert said.isascii() and said.count("\n") == 1 and said.startswith(f"{path}: rejected.")


def test_a_key_that_occurs_twice_is_rejected(checker, tmp_path, capsys):
    """Other readers may take the first one."""
    text = json.dumps(read("microadder-57"))
    path = tmp_path / "twice.json"
    path.write_text(text[:-1] + ', "margin": "0x1p-10"}')
    assert checker.main([str(path)]) == 1
    assert "twice" in capsys.readouterr().out


def test_models_that_the_checker_does_not_know_are_refused(tmp_path):
    with pytest.raises(UserError):
        write_standalone(certificate("microadder-57", "float"), zoo("microadder-57"), tmp_path / "x.json")
    other = stored_certificate("microadder-133")
    assert other is not None
    with pytest.raises(UserError):
        write_standalone(other, models.load("microadder-133"), tmp_path / "x.json")
    assert list(Path(tmp_path).iterdir()) == []


@pytest.mark.parametrize("name", ["addlm-adder-two-digit", "toygpt-learned-pre", "modular-addition-59"])
def test_of_models_with_another_task_or_more_layers_the_checker_s_own_reason_is_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not what a proof of this package would lack."""
    monkeypatch.setattr(checker_export, "read_adder", None)
    with pytest.raises(UserError):
        checker_export.require_checkable(models.load(name))
