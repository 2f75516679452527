"""The explorer's forward in JavaScript is torch's: logits, activations, answers, edits, means, contributions."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from interp.causal.ablation import Head, Neuron, mean_activations
from interp.probes.lens.residual_points import variable_index
from interp.site.explorer import ExploredModel
from interp.site.explorer.own_tasks import own_task, shown_variable
from interp.site.explorer.pack import task_data
from models.errors import UserError
from models.evaluation import predict
from models.tasks.formats.formatted_task import formatted
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.task import Task
from models.transformer.part_names import in_block, read_part
from models.weight_maps.dense import DenseWeights
from tests.interp.conftest import stock_copy
from tests.javascript import Asked
from tests.other_tasks import column_addition, exact_adder, modular_addition
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")
#: Every architecture, and one problem each.
CASES = {
    "microadder-57": "57+48",
    "microadder-100": "9999999999+1",
    "microadder-11": "57+48",
    "adder-3-by-hand": "9999999999+1",
    "adder-456": "9999989999+1",
    "adder-582": "57+48",
    "toygpt-learned-pre": "58+42",
    "toygpt-rotary-post": "58+42",
    "toygpt-none-none": "58+42",
    "addlm-adder-two-digit": "7+95",
    "addlm-adder-ten-digit": "57+48",
    "position-coupling-hand-built": "57+48+96",
    "position-coupling-1l4h-small": "9999+1",
    "position-coupling-2l2h-small": "57+48",
    "position-coupling-1l4h-fire-small": "57+48",  # which is wrong on it
    "position-coupling-1l4h-no-scratchpad-small": "57+48",
    "position-coupling-1l4h-no-zero-start-small": "57+48",  # which is not trained
    "multiplication-hand-built": "57*48",
    "multiplication-coupling-2l4h-small": "12*34",
    "parity-hand-built": "01011",
    "parity-coupling-1l4h-rope-small": "0110",
    "parity-coupling-1l4h-nope-no-scratchpad-small": "0101",
}
#: One of each format, written and read in `make test`.
FORMATS = (
    "microadder-57", "adder-582", "toygpt-learned-pre", "addlm-adder-two-digit", "position-coupling-hand-built",
    "position-coupling-1l4h-no-scratchpad-small", "position-coupling-1l4h-no-zero-start-small",
    "multiplication-hand-built", "parity-hand-built", "parity-coupling-1l4h-nope-no-scratchpad-small",
)  # fmt: skip
HELD = ["microadder-57", "adder-456", "toygpt-learned-pre", "position-coupling-1l4h-small"]
RUN = """
const model = unpack(data.pack, data.pack.data.length - 1), { task, cfg } = data.pack;
const layouts = data.problems.map((text) => layoutOf(text, task, cfg));
"""


@cache
def subject(name: str) -> ExploredModel:
    return ExploredModel(models.load(name) if name in models.zoo_names() else models.build(name, seed=0))


def texts(task: Task, n: int, seed: int = 1) -> list[str]:
    problems = task.sample(n + n // 5, torch.Generator().manual_seed(seed))
    return list(dict.fromkeys(task.problem_text(numbers) for numbers in task.numbers(problems)))[:n]


def forced_logits(javascript: Asked, of: ExploredModel, problems: list[str]) -> list[Any]:
    body = RUN + "return layouts.map((each) => run(model, each, { forced: each.right }).logits.map((x) => [...x]));"
    return javascript(body, {"pack": of.to_dict(problems), "problems": problems})


@torch.no_grad()
def differences(of: ExploredModel, problems: list[str], found: list[Any], double: bool = False) -> np.ndarray:
    """Of each problem: the largest difference of a logit from torch's, as a share of its largest logit."""
    shares = []
    model = of.model
    weights = {key: value.double() for key, value in model.effective_weights().items()} if double else None
    for problem, logits in zip(problems, found, strict=True):
        task = of.task.for_problems([problem])
        tokens = task.encode(of.parse(problem))
        there = model(tokens, weights=weights)[0, list(task.query_positions)].double()
        here = torch.tensor(logits, dtype=torch.float64)
        shares.append(float((here - there).abs().max() / there.abs().max()))
    return np.array(shares)


def many(name: str, n: int) -> list[str]:
    """Problems of a model's task; of several shapes where the task has several."""
    task = subject(name).task
    if isinstance(task, SequenceTask):
        shapes = [(2, 2), (3, 3), (4, 3), (2, 4)]
        return [text for shape in shapes for text in texts(task.at(*shape), n // len(shapes))]
    return texts(task, n)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *((name, n) for name, n in zip(HELD, (6, 6, 3, 4), strict=True)),
        *(pytest.param(name, 1000, marks=pytest.mark.slow) for name in HELD),
    ],
)
def test_logits_are_torchs_to_one_in_ten_thousand(javascript: Asked, name: str, n: int):
    problems = many(name, n)
    assert len(set(problems)) == n
    found = forced_logits(javascript, subject(name), problems)
    assert differences(subject(name), problems, found).max() < 1e-4  # float32's rounding, torch's
    assert differences(subject(name), problems, found, double=True).max() < 1e-9


@pytest.mark.parametrize("name", sampled(CASES, *FORMATS[1::2]))
def test_every_architecture_is_torchs_in_double_precision(javascript: Asked, name: str):
    """Where float32 rounding is far from the last digits: the same function, not only nearly the same numbers."""
    of, problems = subject(name), [CASES[name]]
    shares = differences(of, problems, forced_logits(javascript, of, problems), double=True)
    assert shares.max() < (1e-5 if "rotary" in name or "rope" in name else 1e-9)  # torch's angles are in float32


@pytest.mark.parametrize("name", sampled(CASES, *FORMATS[::2]))
def test_a_problem_is_written_and_read_as_the_task_does(javascript: Asked, name: str):
    of = subject(name)
    problems = [CASES[name], *(texts(of.task, 5, seed=3) if name != "parity-hand-built" else ["0110", "1"])]
    body = (
        RUN
        + """return layouts.map((each) => { const made = run(model, each); return { ...each, tokens: made.tokens,
      ids: each.ids && each.ids(made.tokens), answer: made.answer, number: numberOf(each, task, each.right) }; });"""
    )
    found = javascript(body, {"pack": of.to_dict(problems), "problems": problems})
    for problem, each in zip(problems, found, strict=True):
        task = of.task.for_problems([problem])
        parsed = of.parse(problem)
        assert each["prompt"] == task.encode_prompt(parsed)[0].tolist()
        assert each["right"] == task.targets(parsed)[0].tolist()
        assert each["queries"] == list(task.query_positions) and each["length"] == task.input_length
        roles = [(role.kind, role.label, role.column, role.index) for role in task.roles]
        assert [(r["kind"], r["label"], r["column"]) for r in each["roles"]] == [role[:3] for role in roles]
        assert each["number"] == str(task.decode(task.targets(parsed))[0])
        greedy = predict(of.model, parsed, method="greedy", task=task)[0].tolist()
        assert each["answer"] == greedy
        if each["ids"] is not None and of.model.position_limits:
            assert each["ids"] == task.position_ids(torch.tensor([each["tokens"]]))[0].tolist()
        placed = [at for line in each["lines"] for at in (*line["cells"].values(), *line["extra"])]
        assert sorted(placed) == list(range(task.input_length))
        variables = task.variables(parsed)
        for truth, role, token in zip(each["truths"], task.target_roles, each["right"], strict=True):
            if role.column is None:
                continue
            if "carry_in" in variables:
                index = variable_index(role, variables["carry_in"].shape)
                assert truth["carry"] == (None if index is None else int(variables["carry_in"][(0, *index)]))
            said = truth["sentence"].partition("write ")[2] or truth["sentence"].rpartition(" is ")[2]
            assert said[0] == task.token_text([token])


@pytest.mark.parametrize("name", ["microadder-57", "toygpt-rotary-post", "addlm-adder-two-digit", "adder-582"])
def test_every_activation_is_there_by_its_hook_name(javascript: Asked, name: str):
    of, problem = subject(name), CASES.get(name, "57+48")
    body = (
        RUN
        + """const plain = (x) => (typeof x === "number" ? (Number.isFinite(x) ? x : null) : Array.from(x, plain));
      const made = run(model, layouts[0]); return { tokens: made.tokens, acts: plain(Object.entries(made.acts).map(
      ([name, x]) => [x])).map(([x], i) => [Object.keys(made.acts)[i], x]) };"""
    )
    found = javascript(body, {"pack": of.to_dict(), "problems": [problem]})
    _, cache = of.model.run_with_cache(torch.tensor([found["tokens"]]))
    acts = dict(found["acts"])
    ignored = {"blocks.0.attn.hook_top_k_mask", "blocks.1.attn.hook_top_k_mask"}
    assert set(acts) == set(cache) - ignored
    for hook, positions in acts.items():
        there = cache[hook][0].double()
        if hook.endswith(("hook_attn_scores", "hook_pattern")):
            for query, heads in enumerate(positions):
                mine = torch.tensor(heads).double()
                assert torch.allclose(mine, there[:, query, : query + 1], atol=2e-3, rtol=1e-4), hook
        else:
            mine = torch.tensor(positions).double().reshape(there.shape)
            assert torch.allclose(mine, there, atol=2e-3, rtol=1e-3), hook


# ---- edits


EDITED = [
    ("microadder-57", ("L0N1",)),
    ("microadder-57", ("L0H0", "L0N0")),
    ("adder-456", ("L0N7",)),
    ("toygpt-learned-pre", ("L1H2", "L3N511", "L2.attn")),
    ("position-coupling-1l4h-small", ("L0H1", "L0.mlp")),
    ("addlm-adder-two-digit", ("L0H1", "P")),
]


@pytest.mark.parametrize(
    ("name", "parts", "method", "scale"),
    [
        pytest.param(*edited, *by, marks=[pytest.mark.slow] * ((index + at) % 2))
        for index, edited in enumerate(EDITED)
        for at, by in enumerate((("zero", 0), ("mean", 2)))
    ],
)
def test_an_edited_run_is_that_of_the_same_hooks_in_torch(javascript: Asked, name, parts, method, scale):
    of, problem = subject(name), CASES[name]
    task, generator = of.task.for_problems([problem]), torch.Generator().manual_seed(0)
    sample = task.sample(12, generator)
    drawn = [task.problem_text(numbers) for numbers in task.numbers(sample)]
    drawn = [text for text in drawn if of.task.for_problems([text]).input_length == task.input_length]
    body = (
        RUN
        + """const sample = data.drawn.map((x) => layoutOf(x, task, cfg));
      const means = data.method === "mean" ? meansOf(model, sample) : null;
      const made = run(model, layouts[0], { edits: data.edits, means });
      return { tokens: made.tokens, logits: made.logits.map((x) => [...x]) };"""
    )
    edits = {part: {"scale": scale} for part in parts}
    data = {"pack": of.to_dict(), "problems": [problem], "drawn": drawn, "edits": edits, "method": method}
    found = javascript(body, data)
    hooks: dict[str, list[tuple[Any, ...]]] = {}
    for part in parts:
        hook, where = _hook(of, part)
        hooks.setdefault(hook, []).append(where)
    tokens = torch.cat([task.encode(of.parse(text)) for text in drawn])
    means = mean_activations(of.model, tokens, list(hooks))

    def act(value: torch.Tensor, hook: Any) -> torch.Tensor:
        out = value.clone()
        for where in hooks[hook.name]:
            base = means[hook.name].to(value.dtype)[where] if method == "mean" else torch.zeros(())
            out[(slice(None), *where)] = base + scale * (value[(slice(None), *where)] - base)
        return out

    with torch.no_grad():
        there = of.model.run_with_hooks(torch.tensor([found["tokens"]]), fwd_hooks=[(hook, act) for hook in hooks])
    there = there[0, list(task.query_positions)].double()
    here = torch.tensor(found["logits"], dtype=torch.float64)
    assert ((here - there).abs().amax(1) < 2e-4 * there.abs().amax(1)).all()


def _hook(of: ExploredModel, part: str) -> tuple[str, tuple[Any, ...]]:
    every = slice(None)
    if part == "P":
        return "hook_pos_embed", (every, every)
    layer, kind, index = read_part(part)
    if kind == "head":
        return Head(layer, index).hook, (every, index, every)
    if kind == "neuron":
        return Neuron(layer, index).hook, (every, index)
    return in_block(layer, f"hook_{kind}_out"), (every, every)


@pytest.mark.parametrize(("site", "hook"), [("L0 mid", "blocks.0.hook_resid_mid"), ("L0H0", "blocks.0.attn.hook_z")])
def test_a_patch_brings_a_second_problems_activation_at_one_position_or_all(javascript: Asked, site: str, hook: str):
    of, task = subject("microadder-57"), subject("microadder-57").task
    base, source, query = "57+48", "51+43", task.query_positions[1]
    body = (
        RUN
        + """const source = run(model, layouts[1]);
      return [true, [data.query]].map((patch) => { const made = run(model, layouts[0],
        { edits: { [data.site]: { scale: 1, patch } }, source, forced: layouts[0].right });
        return made.logits.map((x) => [...x]); });"""
    )
    everywhere, here = javascript(
        body, {"pack": of.to_dict(), "problems": [base, source], "site": site, "query": query}
    )
    _, cache = of.model.run_with_cache(
        torch.cat([task.encode_prompt(of.parse(source)), task.targets(of.parse(source))[:, :-1]], 1)
    )
    tokens = task.encode(of.parse(base))
    for found, positions in ((everywhere, slice(None)), (here, [query])):

        def patch(value: torch.Tensor, hook: Any, positions=positions) -> torch.Tensor:
            out = value.clone()
            out[:, positions] = cache[hook.name][:, positions]
            return out

        there = of.model.run_with_hooks(tokens, fwd_hooks=[(hook, patch)])[0, list(task.query_positions)].double()
        found = torch.tensor(found, dtype=torch.float64)
        assert ((found - there).abs().amax(1) < 2e-4 * there.abs().amax(1)).all()


@settings(max_examples=3, deadline=None)
@given(a=st.integers(0, 10**10 - 1), b=st.integers(0, 10**10 - 1), target=st.integers(0, 9), digit=st.integers(0, 9))
def test_a_digit_that_was_changed_is_what_later_steps_read(javascript: Asked, a: int, b: int, target: int, digit: int):
    of, problem = subject("microadder-57"), f"{a}+{b}"
    body = (
        RUN
        + "const made = run(model, layouts[0], { forced: data.forced });"
        + "return [made.answer, made.tokens, made.written];"
    )
    answer, tokens, written = javascript(
        body, {"pack": of.to_dict(), "problems": [problem], "forced": {str(target): digit}}
    )
    row, queries = of.task.encode_prompt(of.parse(problem)), of.task.query_positions
    said = []
    for i in range(len(queries)):  # token by token: the definition of greedy
        said.append(int(of.model(row)[0, -1].argmax()))
        row = torch.cat((row, torch.tensor([[digit if i == target else said[-1]]])), 1)
    assert answer == said and tokens == row[0, : len(tokens)].tolist() and written[target] == digit


# ---- what components add


@pytest.mark.parametrize(
    ("name", "against"),
    sampled(
        product(
            ("microadder-57", "adder-456", "toygpt-learned-pre", "position-coupling-hand-built"),
            ("mean", "runner-up"),
        ),
        ("microadder-57", "mean"), ("adder-456", "runner-up"), ("position-coupling-hand-built", "mean"),
    ),
)  # fmt: skip
def test_what_parts_write_adds_up_to_the_contrast_and_edges_into_a_part_to_what_it_writes(
    javascript: Asked, name, against
):
    of = subject(name)
    body = (
        RUN
        + """const made = run(model, layouts[0]);
      return made.answer.map((token, target) => { const logits = made.logits[target];
        const { c, value } = contrastOf(logits, token, data.against), given = contributions(model, made, target, c);
        const writes = unitWrites(model, made, target, c), units = writes && writes.reduce((a, b) => a + b, 0);
        return { value, given, units, logits: [...logits], token }; });"""
    )
    problem = CASES[name]
    found = javascript(body, {"pack": of.to_dict(), "problems": [problem], "against": against})
    weights = of.model.all_weights()
    biases = any(float(weights[key].detach().abs().max()) for key in weights if ".b_" in key or key.endswith(".b"))
    for each in found:
        rest = np.delete(each["logits"], each["token"])
        lead = each["logits"][each["token"]] - (np.mean(each["logits"]) if against == "mean" else rest.max())
        assert each["value"] == pytest.approx(lead, abs=1e-9)
        parts, given = each["given"]["parts"], each["given"]
        size = max(abs(part["value"]) for part in parts)
        assert given["kind"] == "direct"
        assert sum(part["value"] for part in parts) + given["biases"] == pytest.approx(lead, abs=1e-6 * size)
        if not biases:
            assert abs(given["biases"]) < 1e-6 * size
            for (
                part
            ) in parts:  # a head's values are linear; so is a part of a ReLU, and nearly one of a GELU that is open
                into = [edge["value"] for edge in given["edges"] if edge["to"] == part["name"]]
                if part["kind"] == "head":
                    assert sum(into) == pytest.approx(part["value"], abs=1e-6 * size)
        units = [part["value"] for part in parts if part["kind"] in ("unit", "mlp")]
        assert sum(units) == pytest.approx(each["units"], abs=1e-6 * size)


def test_behind_post_norms_a_parts_number_is_what_the_lead_loses_without_it(javascript: Asked):
    of, problem = subject("position-coupling-1l4h-small"), "57+48"
    body = (
        RUN
        + """const made = run(model, layouts[0]), token = made.answer[6];
      const contrast = contrastOf(made.logits[6], token, "runner-up");
      const given = contributions(model, made, 6, contrast.c);
      return { tokens: made.tokens, query: layouts[0].queries[6], token, ...contrast, given };"""
    )
    found = javascript(body, {"pack": of.to_dict(), "problems": [problem]})
    assert found["given"]["kind"] == "removal"
    for head in range(4):

        def drop(value: torch.Tensor, hook: Any, head: int = head) -> torch.Tensor:
            out = value.clone()
            out[:, found["query"], head] = 0
            return out

        with torch.no_grad():
            logits = of.model.run_with_hooks(
                torch.tensor([found["tokens"]]), fwd_hooks=[("blocks.0.attn.hook_z", drop)]
            )[0, found["query"]]
        left = float(logits[found["token"]] - logits[found["against"]])
        (part,) = (part for part in found["given"]["parts"] if part["name"] == f"L0H{head}")
        assert part["value"] == pytest.approx(found["value"] - left, abs=1e-3)


def test_the_plane_has_the_digits_principal_axes_and_logit_differences_in_it(javascript: Asked):
    of = subject("microadder-57")
    body = (
        RUN
        + """const plane = planeOf(model, 10), made = run(model, layouts[0]);
      const points = made.acts["blocks.0.hook_resid_post"].map((x) => plane.project(x));
      return { ...plane, points, tokens: made.tokens };"""
    )
    found = javascript(body, {"pack": of.to_dict(), "problems": ["57+48"]})
    weights = of.model.all_weights()
    u = (weights["unembed.W_U"] * weights["ln_final.w"][:, None]).T.double().detach().numpy()
    u -= u.mean(0)
    values = np.linalg.svd(u, compute_uv=False) ** 2
    assert found["share"] == pytest.approx(values[:2].sum() / values.sum(), rel=1e-9)
    digits = np.array(found["digits"])
    assert np.allclose((digits**2).sum(0), values[:2], rtol=1e-6)
    if found["share"] > 1 - 1e-9:  # then the plane holds all of what tells digits apart
        logits = of.model(torch.tensor([found["tokens"]]))[0].detach().numpy()
        inside = np.array(found["points"]) @ digits.T
        assert np.allclose(inside, logits - logits.mean(1, keepdims=True), atol=0.02)


# ---- models and tasks of others


@pytest.mark.slow
def test_a_transformer_lens_model_runs_as_the_same_model(javascript: Asked):
    ours = models.load("microadder-57")
    stock = ExploredModel(stock_copy(ours), task=ours.task)
    (a,), (b,) = (forced_logits(javascript, of, ["58+42"]) for of in (stock, ExploredModel(ours)))
    assert np.allclose(a, b, atol=1e-4)


def test_a_task_that_the_page_does_not_know_comes_as_a_table(javascript: Asked):
    task: Any = column_addition(7, python=True)
    of = ExploredModel(exact_adder(task))
    pack = of.to_dict(["12 30"])
    assert pack["task"]["kind"] == "table" and "12 30" in pack["task"]["rows"]
    body = (
        RUN + "return layouts.map((each) => [run(model, each).answer, each.right, numberOf(each, task, each.right)]);"
    )
    (answer, right, number), _ = javascript(
        body, {"pack": pack, "problems": ["12 30", next(iter(pack["task"]["rows"]))]}
    )
    held = javascript("return held(data);", pack["task"])
    assert f"{len(pack['task']['rows'])} of the 2,401 problems" in held
    assert answer == right == task.targets([(12, 30)])[0].tolist() and number == "42"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("microadder-57", "57-48"),
        ("microadder-57", "1"),
        ("microadder-57", "99999999999+1"),
        ("microadder-57", ""),
        ("toygpt-learned-pre", "100+1"),
        ("position-coupling-1l4h-small", "+".join(["9999"] * 40)),
        ("parity-hand-built", "012"),
    ],
)
def test_what_the_model_cannot_read_is_a_sentence(javascript: Asked, name: str, problem: str):
    with pytest.raises(UserError):
        subject(name).parse(problem)
    body = """const { task, cfg } = data.pack;
      try { layoutOf(data.problem, task, cfg); return null; }
      catch (error) { return [error instanceof ProblemError, error.message]; }"""
    known, said = javascript(body, {"pack": subject(name).to_dict(), "problem": problem})
    assert known and said.endswith(".") and len(said) > 20


def test_residues_are_read_in_their_base(javascript: Asked):
    of = ExploredModel(exact_adder(modular_addition(13)))
    pack = of.to_dict(["12 11"])
    body = RUN + "return layouts.map((each) => numberOf(each, task, run(model, each).answer));"
    assert pack["task"]["base"] == 13
    assert javascript(body, {"pack": pack, "problems": ["12 11"]}) == ["10"]


#: Tasks of one's own as text: signs, orders, bases, several operators, rules, tokens that are not the digits' values.
OWN = {
    "signed": formatted("{a:2}-{b:2}={s:+3}", "a - b", variables="subtraction"),
    "units first": formatted("{a:3r}+{b:3r}={s:4r}<EOS>", "a + b", variables="addition"),
    "one token each": formatted("{a}{b}=", "(a + b) % 13", base=13, variables="addition"),
    "operators": formatted(
        "{a:3}{op}{b:3}={s:+4}", {"+": "a + b", "-": "a - b"}, variables={"+": "addition", "-": "subtraction"}
    ),
    "a rule": formatted("{a:2}-{b:2}={s:2}", "a - b", where="a >= b"),
    "a rule by operator": formatted("{a:2}{op}{b:2}={s:4}", {"*": "a * b", "-": "a - b"}, where={"-": "b <= a"}),
    "other ids": formatted("{a:2}+{b:2}={s:3}", "a + b", base=3, vocabulary=["2", "+", "0", "=", "1"]),
    "complement": formatted("{a:4}-{b:4}={s:5r}", "(a - b) % 10**4 + 10**4 * (a < b)", variables="complement"),
    "three": formatted("<{a:2},{b:2};{c:2}>={s:3}!", "a + b + c", variables="addition"),
    "all operations": formatted(
        "{a:2},{b:2}={s:+5}",
        "abs(a - 2 * b) ** 2 - min(a, 7) * max(b, 3) + (-a) // 7 % 5 + gcd(a, b) - (a ^ b) + (a & b | 3)",
    ),
    "bits": formatted("{a:5}^{b:5}={s:5}", "a ^ b", base=2),
    "comparison": formatted("{a:3}<{b:3}={s:1}", "a < b", variables="comparison"),
    "the larger": formatted("max({a:2},{b:2})={m:2}", "max(a, b)", variables="max"),
    "products": formatted("{a:3}*{b:2}={s:5r}", "a * b", variables="multiplication"),
    "cents": formatted("${a:2}.{a:2}+${b:2}.{b:2}=${s:3}.{s:2}", "a + b", variables="addition"),
    "thousands": formatted("{a:1},{a:3}-{b:4r}={s:+1},{s:3};", "a - b", variables="subtraction"),
    "two answers": formatted("{a:2}/{b:1}={q:2}r{r:1}", "a // b, a % b", where="b > 0"),
    "a scratchpad": formatted("{a:2}*{b:2}={x:3r}+{y:4}={s:4}", "a * (b % 10), a * (b // 10) * 10, a * b"),
    "pieces in base 16": formatted("{a:1}:{a:2}-{b:2}={s:+2}.{s:1}", "a - b", base=16),
    "several numbers": formatted("<rev>{a:3}>{b:2r}:{c:1}={x:3},{y:2};{z:1}!", "c + 10 * b // 7, b, a % 10"),
    "own variables": formatted(
        "{a:2}+{b:2}={s:3}", "a + b", variables={"pair": lambda a, b: a * b, "both": lambda a, b: a + b}
    ),
}


def untrained(task: Task) -> models.ArithmeticTransformer:
    config = models.TransformerConfig(1, 16, 2, 8, 32, task.d_vocab, task.input_length, act_fn="gelu")
    torch.manual_seed(0)
    weights = DenseWeights(config)
    for parameter in weights.parameters():
        parameter.data.normal_(0, 0.5)  # so that answers differ
    return models.ArithmeticTransformer(weights, task).eval()


@pytest.mark.parametrize("name", OWN)
def test_a_task_that_is_text_is_encoded_in_the_page_as_it_is_here(javascript: Asked, name: str):
    task = OWN[name]
    problems = task.sample(60, torch.Generator().manual_seed(3))
    texts = [task.problem_text(row) for row in problems.tolist()]
    said = task_data(task) | own_task(task, texts, lambda text: (text, None))
    assert not said["rows"]
    body = """return data.texts.map((text) => {
      const layout = layoutOf(text, data.task, { n_ctx: 99 }), { shown } = encodedBy(text, data.task);
      return { ...layout, shown, number: numberOf(layout, data.task, layout.right) }; });"""
    found = javascript(body, {"task": said, "texts": texts})
    shown = [shown_variable(task, problem) for problem in problems.split(1)]
    carried = task.families and name != "one token each"  # where nothing comes into the only column
    assert any(value is not None for row in shown for value in row) == bool(carried or name == "own variables")
    targets = task.targets(problems)
    for i, row in enumerate(found):
        assert row["problem"] == texts[i] and row["shown"] == shown[i]
        assert row["prompt"] == task.encode_prompt(problems)[i].tolist()
        assert row["right"] == targets[i].tolist()
        assert row["number"] == task.answer_text(targets[i : i + 1]).rpartition("written ")[2].rstrip(")")
        placed = [at for line in row["lines"] for at in (*line["cells"].values(), *line["extra"])]
        assert sorted(placed) == list(range(task.input_length)) and len({*row["keys"]}) == len(targets[i])


def test_a_string_of_tokens_is_one_line_and_its_answer_is_text(javascript: Asked):
    task = models.tasks.function("0123456789abcdef", 4, "sorted")
    of = ExploredModel(untrained(task))
    body = RUN + "return layouts.map((each) => [each, numberOf(each, task, each.right)]);"
    ((layout, answer),) = javascript(body, {"pack": of.to_dict(["20fa"]), "problems": ["20fa"]})
    assert answer == "02af" and layout["lines"][0]["cells"] == {str(i): i for i in range(4)}
    assert layout["truths"][2]["sentence"] == "The right token is a."


@pytest.mark.parametrize("name", ["cents", "thousands", "two answers", "pieces in base 16"])
def test_what_a_model_answers_in_the_page_is_what_it_answers_here(javascript: Asked, name: str):
    task = OWN[name]
    of, problems = ExploredModel(untrained(task)), task.sample(40, torch.Generator().manual_seed(7))
    texts = [task.problem_text(row) for row in problems.tolist()]
    found = javascript(
        RUN + "return layouts.map((each) => run(model, each).answer);", {"pack": of.to_dict(), "problems": texts}
    )
    assert found == predict(of.model, problems, method="greedy", task=task).tolist()
    assert len({*map(tuple, found)}) > 1


def test_a_number_in_pieces_is_one_line_with_its_point_in_its_place(javascript: Asked):
    task = OWN["cents"]
    said = task_data(task) | own_task(task, (), lambda text: (text, None))
    body = "return layoutOf('$16.25+$3.05', data, { n_ctx: 99 }).lines;"
    lines = javascript(body, said)
    assert [line["label"] for line in lines] == ["", "a", "b", "s"]
    assert lines[1]["cells"] == {"3": 1, "2": 2, "1.5": 3, "1": 4, "0": 5}  # as in $16.25


def test_an_answer_is_right_where_all_of_its_tokens_are(javascript: Asked):
    """As the task compares it; and its text has its sign."""
    body = """const layout = layoutOf(data.text, data.task, { n_ctx: 99 });
      const changed = (i) => layout.right.map((token, j) => (i === j ? data.other[i] : token));
      return [layout.right, ...layout.right.map((_, i) => changed(i))]
        .map((tokens) => [tokens, numberOf(layout, data.task, tokens)]);"""
    names = ("signed", "operators", "other ids", "three", "cents", "thousands", "two answers", "pieces in base 16")
    for name in names:
        task = OWN[name]
        said = task_data(task) | own_task(task, (), lambda text: (text, None))
        for problem in task.sample(8, torch.Generator().manual_seed(5)).split(1):
            right = task.targets(problem)[0].tolist()
            other = [(token + 1) % task.d_vocab for token in right]
            text = task.problem_text(problem[0].tolist())
            for tokens, number in javascript(body, {"task": said, "text": text, "other": other}):
                (decoded,) = task.decode(torch.tensor([tokens]))
                assert task.parsed.in_pieces or decoded is None or int(number) == decoded
                assert number == task.answer_text(torch.tensor(tokens)).partition(" (")[0]


def test_what_is_no_problem_of_such_a_task_is_a_sentence(javascript: Asked):
    body = """try { return encodedBy(data.text, data.task).problem; }
      catch (error) { return [error instanceof ProblemError]; }"""
    for name, text in (("a rule", "12-30"), ("signed", "100-1"), ("signed", "1+1"), ("a rule by operator", "5-6")):
        task = OWN[name]
        with pytest.raises(UserError):
            task.as_problems([text])
        said = task_data(task) | own_task(task, (), lambda text: (text, None))
        assert javascript(body, {"text": text, "task": said}) == [True]
