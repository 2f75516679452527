"""Prefix trees: every problem once, no wrong verdict, and bounds that hold what the model computes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import interp
import models
from interp.cli import main
from interp.proofs import check_certificate, load_certificate
from interp.proofs.listed import prefix_method, prefix_tree, top_key_choices
from interp.proofs.listed.exhaustive import certify_exhaustively
from interp.proofs.listed.prefix_forward import PrefixForward
from interp.proofs.listed.prefix_leads import bounds_of
from interp.proofs.listed.prefix_method import certify_prefixes, why_not
from interp.proofs.listed.prefix_tree import Rows, Tree
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, Rounding
from interp.proofs.verdict import time_limit
from interp.proofs.verdict.subject import Subject
from models.errors import UserError
from models.evaluation import margins, predict
from models.tasks import Parity, TenDigitAddition, function
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from studies.checkpoints.pooled_decoder import PooledDecoder
from tests.interp.proofs.conftest import dense, in_shape, zoo
from tests.other_tasks import column_addition, exact_adder, modular_addition
from tests.sampling import every_third, sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")

PLAIN = TransformerConfig(2, 8, 2, 4, 12, 3, 6, act_fn="relu", normalization_type=None)
#: One model a switch that the forward pass has.
CONFIGS = {
    "no norms": PLAIN,
    "LN pre": replace(PLAIN, normalization_type="LN", act_fn="gelu_new"),
    "RMS post, eps outside": replace(PLAIN, normalization_type="RMS", norm_placement="post", norm_eps_outside=True),
    "both": replace(PLAIN, normalization_type="LN", norm_placement="both", act_fn="gelu"),
    "final norm alone": replace(PLAIN, normalization_type="RMS", norm_placement="none"),
    "no final norm": replace(PLAIN, normalization_type="LN", final_norm=False, act_fn="silu"),
    "rotary": replace(PLAIN, positional_embedding_type="rotary"),
    "rotary halves": replace(PLAIN, positional_embedding_type="rotary", rotary_adjacent_pairs=False),
    "no positions": replace(PLAIN, positional_embedding_type="none"),
    "gated": replace(PLAIN, gated_mlp=True, act_fn="gelu_new"),
    "no MLP": replace(PLAIN, d_mlp=0),
    "L1, two best keys": replace(PLAIN, attn_scores="neg_l1", attn_top_k=2, attn_scale=1.0),
    "max plus": replace(PLAIN, attn_scores="max_plus"),
    "three layers": replace(PLAIN, n_layers=3, normalization_type="LN", act_fn="gelu_new"),
}


def drawn(config: TransformerConfig, task: Any, seed: int = 0, scale: float = 0.5) -> ArithmeticTransformer:
    model = ArithmeticTransformer(DenseWeights(config), task, name="drawn")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.weight_map.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (name.endswith("/w")))
    return model


def in_parts(rows: Rows, n: int) -> list[Rows]:
    """The rows, n at a time."""
    return [rows[at : at + n] for at in range(0, len(rows), n)]


def bounds(model: Any, task: Any, rounding: Rounding, rows_at_once: int = 40, by_cases: bool = False, of: Any = None):
    """(margins by torch, lower, upper) of all problems (or those numbered ``of``) and targets, in the rows' order."""
    rows = Rows.of(task)
    rows = rows if of is None else rows[of]
    weights = model.effective_weights()
    low, high = [], []
    for part in in_parts(rows, rows_at_once):
        found = bounds_of(PrefixForward(model.config, weights, rounding), part, by_cases)
        low.append(found[0])
        high.append(found[1])
    problems = task.domain.at(rows.index)
    if rounding is REAL:
        weights = {name: value.double() for name, value in weights.items()}
    logits = model(task.encode(problems), weights=weights)[:, list(task.query_positions)]
    return margins(logits, task.targets(problems)), torch.cat(low), torch.cat(high)


# ---- the tree


@pytest.mark.parametrize("task", [column_addition(3), column_addition(2), Parity(5), function("01", 6, "balanced")])
def test_each_prefix_is_one_node(task: Any):
    rows = Rows.of(task)
    tokens = task.encode(task.domain.at(rows.index)).tolist()
    ids = task.position_ids(torch.tensor(tokens)).tolist()
    last = max(task.query_positions) + 1
    steps = [[(token, *at) for token, at in zip(t, i, strict=True)] for t, i in zip(tokens, ids, strict=True)]
    prefixes = {(p, tuple(row[: p + 1])) for row in steps for p in range(last)}
    assert rows.n_nodes == len(prefixes) and sorted(rows.index.tolist()) == list(range(len(rows)))
    for part in in_parts(rows, 5):
        tree = Tree.of(part)
        for row, numbers in zip(part.tokens.tolist(), tree.number.tolist(), strict=True):
            assert [int(tree.tokens[node]) for node in numbers] == row
            for position, node in enumerate(numbers):
                (at,) = (tree.above[position][:, -1] == node).nonzero()[:, 0].tolist()
                assert tree.above[position][at].tolist() == numbers[: position + 1]


# ---- bounds


@pytest.mark.parametrize("name", every_third(CONFIGS))
def test_margins_of_all_problems_lie_within_their_bounds(name: str):
    task = column_addition(3)
    model = drawn(CONFIGS[name], task)
    with torch.no_grad():
        for rounding, slack in ((REAL, 1e-10), (FLOAT32, 0.0)):
            found, low, high = bounds(model, task, rounding)
            assert (low - slack <= found).all() and (found <= high + slack).all()
            assert float((high - low).max()) < (1e-6 if rounding is REAL else torch.inf)


@pytest.mark.parametrize("name", ["no norms", "LN pre", "final norm alone"])
def test_errors_through_the_last_mlp_hold_what_every_order_of_it_computes(name: str):
    """A last stream whose parts are moved by all that their balls allow keeps every product within its bound."""
    task = column_addition(3)
    model = drawn(replace(CONFIGS[name], act_fn="relu"), task)
    with torch.no_grad():
        forward = PrefixForward(model.config, model.effective_weights(), FLOAT32)
        rows = Rows.of(task)
        stream, _ = forward.final(Tree.of(rows), rows.queries)
        assert stream.mlp is not None
        before, read = stream.mlp.x, stream.mlp.read
        w = {key: value.double() for key, value in model.effective_weights().items()}
        w_in, w_out, b_in = (w[f"blocks.1.mlp.{part}"] for part in ("W_in", "W_out", "b_in"))
        vectors = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        allowed = forward._through_last_mlp(stream, vectors)
        of = lambda m, y: (m + (y @ w_in + b_in).clamp_min(0) @ w_out + w["blocks.1.mlp.b_out"]) @ vectors  # noqa: E731
        middle, reach = stream.whole.mid @ vectors, 0.0
        for seed in range(40):
            torch.manual_seed(seed)
            moved = [ball.mid + torch.randn_like(ball.rad).sign() * ball.rad * 0.3 for ball in (before, read.ball)]
            for vector, most in read.along:
                moved[1] = moved[1] + torch.randn_like(most).sign() * most * vector
            inside = (moved[1] - read.ball.mid).norm(dim=1) <= read.whole.norm
            off = (of(*moved) - middle).abs()[inside]
            assert (off <= allowed[inside]).all()
            reach = max(reach, float((off / allowed[inside]).max())) if len(off) else reach
        assert reach > 0.01


def test_coupled_positions_are_part_of_a_prefix():
    model = zoo("parity-coupling-1l4h-small")
    task = in_shape(model, 4)
    with torch.no_grad():
        found, low, high = bounds(model, task, REAL)
    assert (low - 1e-9 <= found).all() and (found <= high + 1e-9).all() and float((high - low).max()) < 1e-6


def test_bounds_without_float32s_rounding_do_not_hold_what_float32_computes():
    task = column_addition(3)
    model = drawn(CONFIGS["no norms"], task)
    with torch.no_grad():
        _, low, high = bounds(model, task, REAL)
        logits = bounds(model, task, FLOAT32)[0]
    assert ((logits < low) | (logits > high)).any()


# ---- verdicts


@cache
def adder() -> ArithmeticTransformer:
    return exact_adder(column_addition(3, 1))


def right_on_all(model: Any) -> tuple[int, int]:
    problems = model.task.domain.every()
    said = predict(model, problems, "greedy", 1)
    return int((said == model.task.targets(problems)).all(1).sum()), len(problems)


@pytest.mark.parametrize("seeds", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_no_perturbed_model_gets_a_wrong_verdict(seeds: int):
    """Small changes keep an adder right and large ones do not; between, some are open."""
    task, met = column_addition(3, 1), {"certified": 0, "refuted": 0, "undecided": 0}
    for seed in range(seeds):
        model = exact_adder(task)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 10 ** (-3.5 + 3 * (seed % 10) / 10))
        arithmetic = ("interval", "float32")[seed // 10 % 2]
        found = certify_prefixes(model, arithmetic)  # pyright: ignore[reportArgumentType]
        right, n = right_on_all(model)
        met[found.status] += 1
        assert found.right <= right and found.wrong <= n - right
        if found.status != "undecided":
            assert (found.status == "certified") == (right == n)
    assert min(met["certified"], met["refuted"]) >= seeds // 5


@pytest.mark.parametrize("arithmetic", ["interval", "float32"])
def test_one_planted_error_is_found(arithmetic: Any):
    task = modular_addition(12)
    model = exact_adder(task)
    assert certify_prefixes(model, arithmetic).status == "certified"
    with torch.no_grad():
        dict(model.weight_map.named_parameters())["embed/W_E"][11, 13] += 1  # 11 counts as 12
    found = certify_prefixes(model, arithmetic)
    right, n = right_on_all(model)
    assert found.status == "refuted" and 0 < found.wrong <= n - right
    assert found.counterexample is not None
    ((a, b),) = task.numbers(found.counterexample.problem)
    assert 11 in (a, b) and int(found.counterexample.predicted) != (a + b) % 12


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["interval", "float32"])
def test_two_layers_trained_are_proved(arithmetic: Any):
    found = interp.certify(zoo("addlm-adder-two-digit"), arithmetic=arithmetic)
    assert (found.status, found.arithmetic, found.n, found.prefixes) == ("certified", arithmetic, 10_000, 31_110)
    run = certify_exhaustively(zoo("addlm-adder-two-digit"))
    loss = {"interval": 1e-2, "float32": 6.0}[arithmetic]
    assert run.smallest_margin - loss < found.smallest_margin < run.smallest_margin + 1e-5
    if arithmetic == "interval":
        assert found.witness == run.witness and found.provenance.strength == "certified in intervals"


def test_without_cases_rounding_leaves_some_problems_of_two_layers_open():
    """In their cases, bounds of the same problems hold what float32 and what float64 compute."""
    model, task = zoo("addlm-adder-two-digit"), zoo("addlm-adder-two-digit").task
    rows = Rows.of(task)
    place = dict(zip(rows.index.tolist(), range(len(rows)), strict=True))
    some = torch.tensor([place[100 * a + b] for a, b in ((49, 10), (19, 40), (20, 20), (49, 33), (83, 83), (12, 34))])
    with torch.no_grad():
        _, before, _ = bounds(model, task, FLOAT32, of=some)
        found, low, high = bounds(model, task, FLOAT32, by_cases=True, of=some)
        doubled, *_ = bounds(model, task, REAL, of=some)
    assert (before[:, 2] <= 0).tolist() == [True] * 5 + [False] and (low > 9).all()
    for leads in (found, doubled):
        assert (low <= leads).all() and (leads <= high).all()


TIES = CONFIGS["L1, two best keys"]


def with_ties(seed: int) -> ArithmeticTransformer:
    """A model in which many keys tie over the reals: digits and positions alike in pairs, a norm first."""
    config = replace(TIES, n_layers=3, normalization_type="LN") if seed % 2 else TIES
    model = drawn(config, column_addition(3), seed)
    weights = dict(model.weight_map.named_parameters())
    with torch.no_grad():
        weights["embed/W_E"][1::2] = weights["embed/W_E"][0::2][: len(weights["embed/W_E"][1::2])]
        weights["pos_embed/W_pos"][1::2] = weights["pos_embed/W_pos"][0::2][: len(weights["pos_embed/W_pos"][1::2])]
        if seed % 3:
            for parameter in weights.values():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) * 1e-7)
    return model


@pytest.mark.parametrize("seed", sampled(range(6), 0, 2))
def test_margins_lie_within_their_bounds_in_some_case(seed: int):
    model = with_ties(seed)
    with torch.no_grad():
        for rounding, slack in ((REAL, 1e-9), (FLOAT32, 0.0)):
            found, low, high = bounds(model, model.task, rounding, by_cases=True)
            assert (low - slack <= found).all() and (found <= high + slack).all()
            whole = bounds(model, model.task, rounding)
            assert float((high - low).median()) <= float((whole[2] - whole[1]).median())


def test_bounds_without_one_of_the_cases_do_not_hold_what_the_model_computes(monkeypatch: pytest.MonkeyPatch):
    """Cases are needed: the first or the last choice alone is not what every model does."""
    kept = top_key_choices.choices
    for one in (slice(1), slice(-1, None)):
        monkeypatch.setattr(top_key_choices, "choices", lambda *args, one=one: kept(*args)[one])
        with torch.no_grad():
            outside = []
            for seed in range(0, 6, 2):
                found, low, high = bounds(with_ties(seed), column_addition(3), FLOAT32, by_cases=True)
                outside.append(bool(((found < low) | (found > high)).any()))
        assert any(outside)


def test_what_is_asked_for_is_what_is_done():
    model = adder()
    assert interp.certify(model).arithmetic == "float32"
    assert interp.certify(model, arithmetic="interval").arithmetic == "interval"
    assert interp.certify(model, arithmetic="float").method == "exhaustive"
    broken = exact_adder(column_addition(3, 1))
    with torch.no_grad():
        dict(broken.weight_map.named_parameters())["unembed/W_U"].zero_()
    assert interp.certify(broken).method == "exhaustive"  # which counts the wrong ones
    assert interp.certify(broken, arithmetic="float32").status == "refuted"


@pytest.mark.parametrize(
    "switch",
    [
        {"attn_softmax": "softmax1"}, {"attn_bias": True}, {"layer_mix": True}, {"use_qk_norm": True},
        {"final_gain": True}, {"positional_embedding_type": "rotary", "rotary_scaling_factor": 2.0},
    ],
)  # fmt: skip
def test_a_switch_that_the_tree_does_not_know_is_refused(switch: dict[str, Any]):
    model = drawn(replace(PLAIN, **switch), column_addition(3))
    assert why_not(Subject(model)) is not None
    with pytest.raises(UserError):
        certify_prefixes(model, "interval")


@pytest.mark.parametrize("change", ["hook", "training", "double", "fire", "large"])
def test_what_it_cannot_judge_is_refused(change: str):
    model: Any = exact_adder(column_addition(3, 1))
    if change == "hook":
        model.add_hook("blocks.0.hook_mlp_out", lambda value, hook: value)
    elif change == "training":
        model.train()
    elif change == "double":
        model = model.double()
    elif change == "fire":
        model = zoo("parity-coupling-1l4h-fire-small")
    task = TenDigitAddition() if change == "large" else in_shape(model, 4) if change == "fire" else model.task
    assert (why_not(Subject(model, task)) is None) == (change in ("hook", "training"))
    with pytest.raises(UserError):
        certify_prefixes(model, "float32", task)


@pytest.mark.parametrize("error", [KeyboardInterrupt, time_limit.TimeUp])
def test_what_was_decided_before_the_end_is_said(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]):
    def stops(parts: Any, *args: Any):
        yield parts[0]
        raise error

    monkeypatch.setattr(prefix_method, "watched", stops)
    monkeypatch.setattr(prefix_tree, "ROWS", 4)
    found = interp.certify(adder())
    assert (found.status, found.right, found.wrong, found.n) == ("undecided", 4, 0, 9)
    assert found.obstacle and int(found.smallest.n.sel(target="s0").sum()) == 4
    with pytest.raises(UserError):
        check_certificate(found, adder())


def test_a_time_limit_leaves_it_undecided():
    found = interp.certify(zoo("addlm-adder-two-digit"), minutes=1e-9)
    assert found.status == "undecided" and found.right == 0 and found.obstacle


# ---- files, the command line, the picture


def test_a_certificate_survives_its_file_and_is_proved_again(tmp_path: Path):
    path, model = tmp_path / "certificate.json.gz", adder()
    found = certify_prefixes(model)
    path.write_text(json.dumps(found.to_dict()))
    again = load_certificate(path)
    assert again.to_dict() == found.to_dict() and again.smallest.identical(found.smallest)
    assert check_certificate(again, model).smallest_margin == found.smallest_margin
    other = drawn(model.config, model.task)
    with pytest.raises(UserError):
        check_certificate(again, other)


@pytest.mark.parametrize("change", ["margin", "n", "prefixes", "status", "arithmetic", "fingerprint"])
def test_a_tampered_certificate_does_not_hold(tmp_path: Path, change: str):
    path, model = tmp_path / "certificate.json", adder()
    path.write_text(json.dumps(certify_prefixes(model, "float32").to_dict()))
    value = json.loads(path.read_text())
    if change == "margin":
        value["smallest"]["rows"][0]["margin"] += 0.01
    elif change == "status":
        wrong = {"problem": "1 + 1", "predicted": "3", "expected": "2", "target": "s0", "shape": []}
        value |= {"status": "refuted", "counterexample": wrong}
    else:
        value |= {"n": value["n"] - 1, "right": value["n"] - 1} if change == "n" else {}
        value |= {"prefixes": 1} if change == "prefixes" else {}
        value |= {"arithmetic": "interval", "fingerprint": "0" * 64} if change == "fingerprint" else {}
        value |= {"arithmetic": "float"} if change == "arithmetic" else {}
    path.write_text(json.dumps(value))
    with pytest.raises(UserError):
        check_certificate(load_certificate(path), model)


def test_the_picture_and_the_table_have_every_target():
    found = certify_prefixes(adder(), "interval")
    assert list(found.figure().data[0].x) == ["s0", "s1"]
    table = found.to_dataframe()
    assert table.groupby("target").n.sum().tolist() == [9, 9] and (table.margin > 0).all()
    assert found.smallest_margin == table.margin.min()


# ---- the published decoder of balanced brackets


def file_of(tmp_path: Path, **changes: Any) -> Path:
    sizes = {"n": 4, "d": 8, "heads": 2, "ff": 6, "layers": 2, "causal": True, "pool": "sum"} | changes.pop("cfg", {})
    maps = PooledDecoder(4, 8, 2, 6, 2)
    generator, weights = torch.Generator().manual_seed(0), {}
    for name, shape in maps.shapes.items():
        value = torch.randn(shape, generator=generator) * 0.5
        hexes = [float(x).hex() for x in value.flatten().tolist()]
        weights[name] = hexes if value.ndim == 1 else [hexes[i : i + shape[1]] for i in range(0, len(hexes), shape[1])]
    path = tmp_path / "drawn.weights.json"
    path.write_text(json.dumps({"cfg": sizes, "state_dict_hex": weights | changes}))
    return path


def published_forward(weights: dict[str, torch.Tensor], tokens: torch.Tensor, heads: int, layers: int) -> torch.Tensor:
    """The published definition, step by step."""
    z = weights["tok.weight"][tokens] + weights["pos"]
    n, d = z.shape[1:]
    for layer in range(layers):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in weights.items()}
        q, k, v = (((z @ w[f"W{x}.weight"].T).view(-1, n, heads, d // heads).transpose(1, 2)) for x in "qkv")
        scores = q @ k.transpose(-1, -2) / (d // heads) ** 0.5
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n, d)
        z = z + mixed @ w["Wo.weight"].T
        z = z + torch.relu(z @ w["mlp1.weight"].T + w["mlp1.bias"]) @ w["mlp2.weight"].T + w["mlp2.bias"]
    hidden = torch.relu(z.sum(1) @ weights["h1.weight"].T + weights["h1.bias"])
    return hidden @ weights["h2.weight"].T + weights["h2.bias"]


def test_the_imported_decoder_computes_what_the_published_one_does(tmp_path: Path):
    path = file_of(tmp_path)
    model = models.load(path)
    read = lambda value: [read(one) for one in value] if isinstance(value, list) else float.fromhex(value)  # noqa: E731
    weights = {
        name: torch.tensor(read(value)) for name, value in json.loads(path.read_text())["state_dict_hex"].items()
    }
    tokens = model.task.domain.every()
    with torch.no_grad():
        found = model(tokens)[:, -1]
    assert torch.allclose(found, published_forward(weights, tokens, 2, 2), atol=1e-4)
    assert sum(p.numel() for p in model.parameters()) == sum(value.numel() for value in weights.values())
    verdict = certify_prefixes(model, "interval")
    right = (found.argmax(1) == model.task.targets(tokens)[:, 0]).sum()
    assert (verdict.right, verdict.wrong, verdict.prefixes) == (int(right), 16 - int(right), 30)


@pytest.mark.parametrize(
    "changes",
    [
        {"cfg": {"pool": "mean"}}, {"cfg": {"causal": False}}, {"cfg": {"n": True}}, {"cfg": {"n": "4"}},
        {"pos": [["0x1p0"] * 8] * 3}, {"pos": [["1,0"] * 8] * 4}, {"pos": [["inf"] * 8] * 4}, {"other": ["0x1p0"]},
        {"pos": [["0x1.000000001p0"] * 8] * 4},
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, changes: dict[str, Any]):
    with pytest.raises(UserError):
        models.load(file_of(tmp_path, **changes))


def test_brackets_are_balanced_where_a_stack_says_so():
    task = function("01", 8, "balanced")
    problems = task.domain.every()
    right = task.targets(problems)[:, 0].tolist()
    assert sum(right) == 14 and task.kind_of_problems == "strings of 8 bits"
    for row, balanced in zip(task.numbers(problems), right, strict=True):
        text = "".join("()"[bracket] for bracket in row)
        while "()" in text:
            text = text.replace("()", "")
        assert bool(balanced) == (text == "")
    assert torch.equal(task.as_problems([task.problem_text(problems[77].tolist())]), problems[77:78])
    for wrong in ("0101", "01010102", 3, [[[0] * 8]], torch.zeros(2, 8), "0x010101"):
        with pytest.raises(UserError):
            task.as_problems(wrong if not isinstance(wrong, list) else torch.tensor(wrong))


def test_the_command_line_says_the_verdict_and_exits_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, verdict = file_of(tmp_path), tmp_path / "verdict.json"
    assert main(["certify", str(path), "--arithmetic", "interval", "--json", str(verdict)]) == 1
    assert capsys.readouterr().out.startswith("refuted: ")
    assert main(["certify", str(path), "--check", str(verdict)]) == 1
    name = "parity-coupling-1l4h-small"
    assert main(["certify", name, "--shape", "4", "--arithmetic", "interval", "--json", str(verdict)]) == 0
    assert "certified in interval arithmetic: all 16 strings of 4 bits" in capsys.readouterr().out
    assert main(["certify", name, "--check", str(verdict)]) == 0
    assert dense("addlm-adder-two-digit").task.name == "two-digit-addition"


# ---- underflow


def vanishing(n: int, outside: bool, eps: float) -> tuple[ArithmeticTransformer, torch.Tensor]:
    """A model and the one string of n bits whose last residual stream is 2^-75: its square is zero in float32.

    The head writes minus the string, read as a fraction, into a dimension in which a bias writes this string's. Over
    the reals every logit of 1 leads, as the stream's direction is all that the last norm keeps.
    """
    bits = [(0b1011001101 >> (n - 1 - place)) & 1 for place in range(n)]
    config = TransformerConfig(
        1, 6, 1, 1, 0, 2, n, norm_placement="none", eps=eps, norm_eps_outside=outside, attn_scale=1.0
    )
    model = ArithmeticTransformer(
        DenseWeights(config),
        function("01", n, lambda bits: torch.ones_like(bits[:, 0]), name="always-one"),
        name="vanishing",
    )
    w, t, d = model.weight_map.own(), 2.0**-80, 2.0**-60
    with torch.no_grad():
        for parameter in w.values():
            parameter.zero_()
        w["ln_final.w"].fill_(1.0)
        w["embed.W_E"][:, 0], w["embed.W_E"][1, 2], w["embed.W_E"][:, 4] = 2.0**-75, t, t
        w["pos_embed.W_pos"][:, 3] = torch.arange(n) * torch.tensor(2.0).log() * t
        w["blocks.0.attn.W_Q"][0, 4, 0] = w["blocks.0.attn.W_K"][0, 3, 0] = w["blocks.0.attn.W_V"][0, 2, 0] = 1 / t
        w["blocks.0.attn.W_O"][0, 0, 1] = -d
        share = sum(bit * 2**place for place, bit in enumerate(bits)) / (2**n - 1)
        w["blocks.0.attn.b_O"][1] = d * share
        w["unembed.W_U"][0, 0], w["unembed.W_U"][1, 0], w["unembed.b_U"][1] = 1.0, 3.0, 10.0
    return model, torch.tensor([bits])


@pytest.mark.parametrize(("outside", "eps"), sampled([(False, 0.0), (True, 0.0), (True, 1e-30)], (False, 0.0)))
def test_squares_that_underflow_are_not_certified(outside: bool, eps: float) -> None:
    model, string = vanishing(10, outside, eps)
    assert predict(model, string).item() != 1
    assert certify_prefixes(model, "float32").status == "undecided"
    found = interp.certify(model)
    assert found.status == "refuted" and found.counterexample.problem == "".join(map(str, string.flatten().tolist()))


def test_an_epsilon_that_is_far_above_underflow_costs_no_bound() -> None:
    model, string = vanishing(10, False, 1e-5)
    assert predict(model, string).item() == 1 and certify_prefixes(model, "float32").status == "certified"


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("size", [2.0**-30, 2.0**-48, 2.0**-60, 2.0**-70])
def test_the_scales_of_small_vectors_are_enclosed(size: float, outside: bool) -> None:
    """In float32 with squares that underflow, or are flushed to zero, against the norm of the same vector."""
    x = torch.tensor([[0.3, -1.0, 0.7, 0.11]], dtype=torch.float64) * size
    least, _, most, lost = FLOAT32.scales(x, torch.zeros(1), 0.0, outside)
    square = x.float().pow(2)
    for kept in (square, torch.where(square < 2.0**-126, 0.0, square)):
        computed = kept.mean(-1, keepdim=True).sqrt().double()
        if bool(least > 0):
            assert bool((computed >= least / (1 + lost) * (1 - 2.0**-20)).all())
            assert bool((computed <= most / (1 - lost) * (1 + 2.0**-20)).all())
        else:
            assert size < 2.0**-45
