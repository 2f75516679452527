"""Tasks from a format and a function: tokens, text, domain, splits and variables follow from the two."""

import itertools
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
import models
from interp.proofs.verdict.wrong_answers import answer_text
from models.errors import UserError
from models.tasks import Task, TenDigitAddition, TwoDigitAddition, formatted
from models.tasks.counter_rng import row_keys
from models.tasks.expressions import Expression
from models.tasks.formats.string_task import function
from models.tasks.named.addition import PADDED_TOKENS, DelimitedAddition, PaddedAddition, UnendedAddition
from models.tasks.refusals import TooManyToCount
from models.tasks.task_definitions import task_of_text
from models.weight_maps.dense import DenseWeights
from studies.adderboard.framed_addition import Frame, framed_addition

ZEROS = {**{str(i): i for i in range(10)}, "+": 0, "=": 0, "<EOS>": 0}
#: Today's formats, and the same as text.
TWINS: dict[str, tuple[Task, dict[str, Any]]] = {
    "MicroAdder's": (TenDigitAddition(), {"format": "{a:10r}+{b:10r}={s:11r}<EOS>", "vocabulary": ZEROS}),
    "unended": (UnendedAddition(), {"format": "{a:10r}+{b:10r}={s:11r}", "vocabulary": ZEROS}),
    "delimited": (
        DelimitedAddition(),
        {"format": "{a:10r}+{b:10r}={s:11r}<EOS>", "vocabulary": [*"0123456789+=", "<EOS>", "_"]},
    ),
    "padded": (PaddedAddition(), {"format": "{a:10}+{b:10}={s:11r}<EOS>", "vocabulary": PADDED_TOKENS}),
    "two digits": (TwoDigitAddition(), {"format": "{a:2}{b:2}{s:3r}"}),
    "framed": (
        framed_addition(Frame((3,), (10, 10), (11,), True, True, "0123456789+=")),
        {"format": "3{a:10}++{b:10}={s:11}", "vocabulary": "0123456789+="},
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_todays_formats_are_instances_with_the_same_tokens(name: str):
    ours, definition = TWINS[name]
    task = formatted(answer="a + b", variables="addition", **definition)
    problems = ours.sample(300, torch.Generator().manual_seed(0))
    for method in ("encode", "encode_prompt", "targets"):
        assert torch.equal(getattr(task, method)(problems), getattr(ours, method)(problems))
    assert [r.label for r in task.roles] == [r.label for r in ours.roles]
    assert tuple(task.query_positions) == tuple(ours.query_positions)
    assert (task.input_length, task.d_vocab, task.domain) == (ours.input_length, ours.d_vocab, ours.domain)
    assert task.decode(task.targets(problems)) == problems.sum(1).tolist()
    assert torch.equal(task.chain_length(problems), ours.chain_length(problems))
    variables = task.variables(problems)
    assert all(torch.equal(variables[key], value) for key, value in ours.variables(problems).items())
    for x, y in zip(task.encode_rows(problems), ours.encode_rows(problems), strict=True):
        assert torch.equal(x, y)


operators = st.sampled_from(["+", "-"])


@settings(max_examples=50)
@given(st.integers(0, 999), operators, st.integers(0, 999), st.booleans(), st.integers(2, 16))
def test_text_tokens_and_answers_agree(a: int, op: str, b: int, reverse: bool, base: int):
    r = "r" if reverse else ""
    answers = {"+": lambda x, y: x + y, "-": "a - b"}
    task = formatted(f"<BOS>{{a:10{r}}}{{op}}{{b:10{r}}}={{s:+11{r}}}<EOS>", answers, base=base)
    text = f"{a:010b}{op}{b:010b}" if base == 2 else f"{a}{op}{b}"
    (problem,) = task.as_problems([text]).tolist()
    assert problem == [a, "+-".index(op), b]
    assert task.problem_text(problem) == text
    assert task.decode(task.targets([(a, op, b)])) == [a + b if op == "+" else a - b]
    # the tokens of the sequence spell the numbers, digit by digit, without the task's own code
    texts = [task.vocabulary[token] for token in task.encode([(a, op, b)])[0].tolist()]
    spelt = texts[1:11][:: 1 if reverse else -1]
    assert sum(int(text) * base**i for i, text in enumerate(spelt)) == a
    assert texts[0] == "<BOS>" and texts[11] == op


def test_a_domain_is_what_where_allows_and_is_counted_exactly():
    pairs = list(itertools.product(range(100), range(100)))
    for rule, wanted in {
        "a >= b": [a >= b for a, b in pairs],
        "a < b": [a < b for a, b in pairs],
        "a != b": [a != b for a, b in pairs],
        "(a + b) % 3 == 0": [(a + b) % 3 == 0 for a, b in pairs],
    }.items():
        task = formatted("{a:2}-{b:2}={s:+2}", "a - b", where=rule)
        listed = task.domain.every()
        assert task.domain.size == len(listed) == sum(wanted)
        assert listed.tolist() == [list(pair) for pair, good in zip(pairs, wanted, strict=True) if good]
        assert task.domain.holds(torch.tensor(pairs)).tolist() == wanted
        assert task.domain.holds(task.sample(100, torch.Generator().manual_seed(0))).all()


@given(
    st.integers(1, 4), st.integers(1, 4), st.sampled_from(["a < b", "b <= a", "a > b", "a == b", "a >= b", "b != a"])
)
def test_an_order_of_operands_is_counted_without_listing(wide: int, narrow: int, rule: str):
    task = formatted(f"{{a:{wide}}}-{{b:{narrow}}}={{s:+4}}", "a - b", base=3, where=rule)
    everything = itertools.product(range(3**wide), range(3**narrow))
    assert task.domain.size == sum(eval(rule, {"a": a, "b": b}) for a, b in everything)


def test_a_large_domain_is_counted_for_a_rule_with_a_machine_only():
    assert formatted("{a:10}-{b:10}={s:10}", "a - b", where="a >= b").domain.size == (10**20 + 10**10) // 2
    of_residue = [len(range(residue, 10**10, 7)) for residue in range(7)]
    dividing = sum(of_residue[residue] * of_residue[-residue % 7] for residue in range(7))
    task = formatted("{a:10}-{b:10}={s:+10}", "a - b", where="(a + b) % 7 != 0")
    assert task.domain.size == 10**20 - dividing
    with pytest.raises(TooManyToCount):
        _ = formatted("{a:7}-{b:7}={s:+7}", "a - b", where="a * b != 7").domain.size


SMALL = formatted("{a:2}+{b:2}={s:3}", "a + b", variables="addition", held_out=0.25, seed=3)
LARGE = formatted("{a:10}-{b:10}={s:10}", "a - b", where="a >= b", variables="subtraction", held_out=500)


@pytest.mark.parametrize("task", [SMALL, LARGE], ids=["listed", "drawn"])
def test_training_never_sees_what_is_held_out(task: Any):
    held = task.held_out.problems
    drawn = task.held_out.training(row_keys(0, 1, 20_000, torch.device("cpu")), long_carries=0.5)
    own = {tuple(row) for row in held.tolist()}
    assert not own & {tuple(row) for row in drawn.tolist()} and task.domain.holds(drawn).all()
    assert not own & {tuple(row) for row in task.held_out.validation(500, 0).tolist()}
    assert torch.equal(drawn[:100], task.held_out.training(row_keys(0, 1, 100, torch.device("cpu")), long_carries=0.5))
    plain = task.held_out.training(row_keys(0, 1, 20_000, torch.device("cpu")))
    longest = 2 if task is SMALL else 5
    far, rare = ((task.chain_length(problems) >= longest).float().mean() for problems in (drawn, plain))
    assert far > 1.5 * rare


def test_a_small_domain_is_split_without_a_rest():
    keys = row_keys(0, 0, 400_000, torch.device("cpu"))
    drawn = {tuple(row) for row in SMALL.held_out.training(keys).tolist()}
    held = {tuple(row) for row in SMALL.held_out.problems.tolist()}
    assert len(held) == 2500 and len(drawn) == 7500 and not held & drawn


@given(
    st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 4095)), min_size=1, max_size=20),
    st.sampled_from([2, 4, 8]),
    st.booleans(),
)
def test_borrows_and_chains_are_those_of_written_subtraction(pairs: list[tuple[int, int]], base: int, complement: bool):
    n = base**12
    if complement:
        task = formatted("{a:12}-{b:12}={s:13}", lambda a, b: (a - b) % n + n * (a < b), base, variables="complement")
    else:
        task = formatted("{a:12}-{b:12}={s:+12}", "a - b", base=base, variables="subtraction")
    found = task.variables(pairs)
    for i, (a, b) in enumerate(pairs):
        high, low, borrow, chain = *((a, b) if complement else (max(a, b), min(a, b))), 0, 0
        assert found["s"][i, 12] == (a < b) if complement else found["negative"][i].item() == (a < b)
        for column in range(12):
            x, y = high // base**column % base, low // base**column % base
            assert found["borrow_in"][i, column] == borrow and found["chain"][i, column] == chain
            assert found["s"][i, column] == (x - y - borrow) % base
            chain = (chain + 1 if borrow else 0) if x == y else int(x < y)
            borrow = int(x - y - borrow < 0)


@given(st.integers(0, 999), st.integers(0, 999))
def test_comparison_keeps_the_order_of_the_highest_column_that_differs(a: int, b: int):
    task = formatted("{a:3}<{b:3}={s:1}", "a < b", variables="comparison")
    found = task.variables([(a, b)])
    assert found["order"][0, 2].item() == (a > b) - (a < b)
    assert task.decode(task.targets([(a, b)])) == [a < b]


def test_ones_own_variables_are_functions_of_digits():
    task = formatted("{a:2}+{b:2}={s:3}", "a + b", variables={"tens": lambda a, b: a[:, 1] * b[:, 1]})
    assert task.variables(["37+48"])["tens"].tolist() == [[12]]
    assert task.variables(["37+48"])["s"].tolist() == [[5, 8, 0]]


@pytest.mark.parametrize(
    "arguments",
    [
        ("{a:2+{b:2}={s:3}", "a + b"),
        ("a+b", "a + b"),
        ("{a:2}+{a:2}={s:3}", "a + b"),
        ("{a:2}+{b:2}={s:2}", "a + b"),  # 99 + 99 does not fit
        ("{a:2}-{b:2}={s:2}", "a - b"),  # a negative answer in an unsigned field
        ("{a:2}+{b:2}={s:3}", "a + c"),
        ("{a:2}+{b:2}={s:3}", "a.b"),
        ("{a:2}+{b:2}={s:3}", "a // (b - 1)"),
        ("{a:2}+{b:2}={s:3}", lambda a, b: a / b),
        ("{a:2}+{b:2}={s:3}", lambda a, b: 1 / 0),
        ("{a:2}+{b:2}={s:3}", 7),
        ("{a:2}+{b:2}={s:3}", {"+": "a + b"}),  # no field {op}
        ("{a:16}+{b:16}={s:17}", "a + b"),
        ("{s:3}={a:2}+{b:2}", lambda a, b: a + b),
    ],
    ids=map(str, range(14)),
)
def test_a_definition_that_cannot_be_is_refused(arguments: Any):
    with pytest.raises(UserError):
        formatted(*arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"base": 1},
        {"vocabulary": "0123456789"},
        {"vocabulary": {**{str(i): 0 for i in range(10)}, "+": 10, "=": 11}},
        {"where": "a > 100"},
        {"where": "c > 1"},
        {"variables": "addtion"},
        {"held_out": 0.0},
        {"held_out": 10**9},
        {"held_out": 2.5},
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, Any]):
    with pytest.raises(UserError):
        formatted("{a:2}+{b:2}={s:3}", "a + b", **options)


_NUMBERS = st.sampled_from(["0", "1", "9", "63", str(2**62 - 1), str(2**62), "9" * 50])
_LEAVES = st.one_of(st.sampled_from(["a", "b", "c", "a < b", "1.5", "'a'", "\0", ""]), _NUMBERS)
_EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from([*"+-*%^&|@;=", "//", "**", "/", "<", "==", "<<"]), part).map(
            lambda p: "({} {} {})".format(*p)
        ),
        st.tuples(st.sampled_from(["abs", "min", "gcd", "-", "not ", "eval"]), part).map(lambda p: "{}({})".format(*p)),
        part.map(lambda p: "-" * 60 + p),
    ),
    max_leaves=12,
)
_FORMATS = st.sampled_from(
    [
        "{a:2}+{b:2}={s:9}",
        "{a}{b}",
        "{s:3}",
        "{a:1}{op}{b:1}={s:+3}",
        "{a:99}={s:2}",
        "{",
        "",
        "{a:2}\0={s:3}",
        "a\n{a}",
    ]
)
_OPTIONS = st.sampled_from(
    ["", "where=", "base=", "held_out=", "seed=", "op + =", "variables=", "vocabulary=", "name=", "other="]
)


@settings(max_examples=100)
@given(_FORMATS, _EXPRESSIONS, _OPTIONS, st.one_of(_EXPRESSIONS, st.sampled_from(["nan", "inf", "-1", "1e400", "10"])))
def test_every_text_gives_a_task_or_one_sentence(format: str, answer: str, option: str, value: str):
    try:
        task = task_of_text(f"{format}; {answer}; {option}{value}")
    except UserError as error:
        assert "\n" not in str(error)
        return
    problems = task.sample(8, torch.Generator().manual_seed(0))
    assert len(task.targets(problems)) == 8


@pytest.mark.parametrize(
    "answer",
    [
        "-" * 3000 + "a",
        "-" * 500 + "a",
        "a + " + "9" * 5000,
        "+".join("a" * 500),
        "(" * 500 + "a" + ")" * 500,
        "((((9**63)**63)**63)**63) * a",
        "a * 9**60",
        "2**62 * 2**62 * a",
        "a**20",
        "a + 1 // 0",
        "a // 0",
        "5",
    ],
)
def test_values_on_the_way_are_bounded(answer: str):
    """So that no answer takes long, or wraps around."""
    with pytest.raises(UserError):
        formatted("{a:4}={s:9}", answer)


@given(st.integers(0, 99), st.integers(0, 99), _EXPRESSIONS)
def test_an_expression_is_pythons(a: int, b: int, text: str):
    """Equal to Python's own whole numbers, comparisons counting as 0 or 1, or refused."""
    try:
        function = Expression(text)
        found = function(a=torch.tensor([a]), b=torch.tensor([b]), c=torch.tensor([1]))
    except UserError:
        return
    names = {"a": a, "b": b, "c": 1, "gcd": math.gcd, "min": min, "abs": abs}
    assert int(torch.as_tensor(found).reshape(-1)[0]) == int(eval(function.text, names))


@pytest.mark.parametrize("unseen", ["\0", "\n", "\u2028", "\u202e", "\u200b", "\x1b"])
def test_a_character_that_cannot_be_seen_is_refused(unseen: str):
    for arguments in (("{a:1}" + unseen + "={s:1}", "a"), ("{a:1}{op}{b:1}={s:2}", {"+" + unseen: "a + b"})):
        with pytest.raises(UserError):
            formatted(*arguments)
    with pytest.raises(UserError):
        formatted("{a:1}={s:1}", "a", name="mine" + unseen)


@pytest.mark.parametrize(
    "bad", ["57-48", "57+", "1 2", [(1, 2, 3)], [(100, 1)], [(-1, 2)], [(1.5, 2)], [], [True], "９+1"]
)
def test_what_is_no_problem_is_refused(bad: Any):
    with pytest.raises(UserError):
        SMALL.encode(bad)


@pytest.mark.parametrize("bad", [(1, 2), "1-2"])
def test_a_problem_outside_where_is_refused(bad: Any):
    with pytest.raises(UserError):
        LARGE.encode(bad)


def test_a_definition_as_text_makes_the_task_again():
    again = formatted(**LARGE.definition)
    problems = LARGE.sample(50, torch.Generator().manual_seed(1))
    assert again.definition == LARGE.definition and torch.equal(again.encode(problems), LARGE.encode(problems))
    assert torch.equal(again.held_out.problems, LARGE.held_out.problems)
    assert formatted("{a:2}+{b:2}={s:3}", lambda a, b: a + b).definition is None


MAJORITY = function("01", length=9, answer=lambda bits: bits.sum(1) > 4)


@given(st.lists(st.integers(0, 1), min_size=9, max_size=9))
def test_a_function_of_tokens_gives_its_answer(bits: list[int]):
    text = "".join(map(str, bits))
    assert MAJORITY.decode(MAJORITY.targets([text])) == [sum(bits) > 4]
    assert MAJORITY.problem_text(MAJORITY.as_problems([text])[0].tolist()) == text
    assert MAJORITY.token_text(MAJORITY.encode([text])[0]) == text


def test_every_string_is_a_problem_once():
    assert MAJORITY.domain.size == 512
    texts = [MAJORITY.problem_text(row) for row in MAJORITY.numbers(MAJORITY.domain.every())]
    assert texts == [f"{i:09b}" for i in range(512)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("0", 3, lambda t: t.sum(1)),
        ("01", 0, lambda t: t.sum(1)),
        ("01", 3, lambda t: t[:, :, None]),
        ("01", 3, lambda t: t.sum(1)),
    ],
    ids=["one token", "no length", "a table", "an answer of 3"],
)
def test_a_function_of_tokens_that_cannot_be_is_refused(arguments: Any):
    with pytest.raises(UserError):
        function(*arguments)


@pytest.mark.parametrize(
    "format, answer, family",
    [
        ("{a:2}+{b:2}={s:4}", "a * b", "addition"),
        ("{a:2}+{b:2}={s:3}", "a + b", "subtraction"),
        ("{a:2}-{b:2}={s:3}", "(a - b) % 1000", "complement"),  # 9, not 1, where a borrow is left
        ("{a:2}-{b:2}={s:2}", "(a - b) % 100", "complement"),  # no digit shows the borrow
        ("{a:2}-{b:2}={s:+2}", "b - a", "subtraction"),  # the digits are right and the sign is not
        ("{a:2}?{b:2}={s:3}", "a + b", "comparison"),
        ("{a:2}?{b:2}={s:1}", "0 * a * b", "comparison"),
    ],
)
def test_variables_that_do_not_give_the_answers_are_refused(format: str, answer: str, family: str):
    with pytest.raises(UserError):
        formatted(format, answer, variables=family)


MIXED: dict[str, Any] = {"format": "{a:2}{op}{b:2}={s:+3}", "answer": {"+": "a + b", "-": "a - b"}}


@pytest.mark.parametrize(
    "variables",
    [
        "addition",
        {"+": "addition"},
        {"+": "addition", "*": "subtraction"},
        {"+": "subtraction", "-": "addition"},
        {"+": "addition", "-": "substraction"},
    ],
)
def test_families_that_are_not_those_of_the_operators_are_refused(variables: Any):
    with pytest.raises(UserError):
        formatted(**MIXED, variables=variables)


def test_each_operator_has_the_variables_of_its_own_family():
    mixed = formatted(**MIXED, variables={"+": "addition", "-": "subtraction"})
    alone = {
        0: formatted("{a:2}+{b:2}={s:+3}", "a + b", variables="addition"),
        1: formatted("{a:2}-{b:2}={s:+3}", "a - b", variables="subtraction"),
    }
    problems = mixed.domain.problems(mixed.domain.numbered(torch.arange(mixed.domain.size)))
    found, names = mixed.variables(problems), {0: "carry", 1: "borrow"}
    for op, task in alone.items():
        rows = problems[:, 1] == op
        own = task.variables(problems[rows][:, [0, 2]])
        for name in ("a", "b", "s", "chain", "generate", "propagate"):
            assert torch.equal(found[name][rows], own[name])
        for end in ("in", "out"):
            assert torch.equal(found[f"carry_or_borrow_{end}"][rows], own[f"{names[op]}_{end}"])
        assert torch.equal(mixed.chain_length(problems[rows]), task.chain_length(problems[rows][:, [0, 2]]))
    made = formatted(**mixed.definition)
    assert torch.equal(made.variables(problems)["chain"], found["chain"])


@pytest.mark.parametrize("where", [None, "a >= b"])
def test_what_is_allowed_stands_on_the_device_of_the_problems(where: str | None):
    task = formatted("{a:2}-{b:2}={s:+2}", "a - b", where=where)
    assert task.allowed(torch.zeros(3, 2, dtype=torch.int64, device="meta")).device.type == "meta"


def test_hard_problems_of_either_operator_have_long_chains_more_often_than_uniform_ones():
    mixed = formatted("{a:8}{op}{b:8}={s:+9}", MIXED["answer"], variables={"+": "addition", "-": "subtraction"})
    keys = row_keys(0, 0, 4_000, torch.device("cpu"))
    easy, hard = (mixed.held_out.training(keys, share) for share in (0.0, 1.0))
    for op in (0, 1):
        long = [(mixed.chain_length(drawn[drawn[:, 1] == op]) >= 4).double().mean() for drawn in (easy, hard)]
        assert long[1] > 4 * long[0]


def test_a_rule_that_allows_a_quarter_is_drawn_and_each_row_alone_is_the_same():
    task = formatted("{a:10}*{b:10}={s:10}", "(a + b) % 1000", where="(a + b) % 4 == 0")
    keys = row_keys(0, 0, 300, torch.device("cpu"))
    drawn = task.held_out.training(keys)
    assert (drawn.sum(1) % 4 == 0).all()
    assert torch.equal(torch.cat([task.held_out.training(key) for key in keys[:20].split(1)]), drawn[:20])


def test_a_problem_is_written_as_its_task_writes_it_everywhere():
    task = formatted("{a:1}-{b:1}={s:+1}", "a - b")
    config = models.TransformerConfig(
        n_layers=1, d_model=4, n_heads=1, d_head=4, d_mlp=4, d_vocab=task.d_vocab, n_ctx=5, act_fn="relu"
    )
    weights = DenseWeights(config)
    weights.initialise(torch.Generator().manual_seed(0))
    model = models.ArithmeticTransformer(weights, task)
    found = interp.attack(model, runs=50)
    assert found.wrong and "-" in found.text(found.wrong[0].problem)
    assert task.as_problems([found.text(found.wrong[0].problem)]).tolist() == [list(found.wrong[0].problem)]


@pytest.mark.parametrize(
    "format, answer",
    [("{a:1}-{b:1}={s:+1}", "a - b"), ("{a:1}-{b:1}={s:+2r}", "a - b"), ("{a:1}+{b:1}={s:2}", "a + b")],
)
def test_answers_that_are_written_differently_read_differently(format: str, answer: str) -> None:
    """-0 is not what a task writes for 0, so that it is no number: no two rows of tokens have one text."""
    task = formatted(format, answer)
    width = task.parsed.answer_fields[0].n_tokens
    rows = torch.cartesian_prod(*[torch.arange(task.d_vocab)] * width).view(-1, width)
    assert len({answer_text(task, row) for row in rows}) == len(rows)
    problems = task.as_problems([(a, b) for a in range(10) for b in range(10)])
    assert task.decode(task.targets(problems)) == [
        a - b if "-" in answer else a + b for a in range(10) for b in range(10)
    ]


@pytest.mark.parametrize("width", [1, 4, 18, 40])
def test_in_base_two_numbers_are_strings_of_bits_in_both_directions(width: int) -> None:
    task = formatted(f"{{a:{width}}}^{{b:{width}r}}={{s:{width}}}", "a ^ b", base=2)
    problems = task.sample(20, torch.Generator().manual_seed(0))
    texts = [task.problem_text(row) for row in problems.tolist()]
    assert torch.equal(task.as_problems(texts), problems)
    for text, targets in zip(texts, task.targets(problems), strict=True):
        a, b = text.split("^")
        assert {len(a), len(b)} == {width} and {*a, *b} <= {"0", "1"}
        assert task.answer_text(targets) == "".join(str(int(x != y)) for x, y in zip(a, b, strict=True))
    with pytest.raises(UserError):
        task.as_problems(["2^3"])


def test_a_difference_in_tens_complement_is_said_as_the_difference() -> None:
    task = formatted("{a:3}-{b:3}={s:4r}", "(a - b) % 10**3 + 10**3 * (a < b)", variables="complement")
    for a, b in ((3, 9), (0, 999), (9, 3), (5, 5)):
        said = task.answer_text(task.targets([(a, b)])[0])
        assert int(said.partition(" ")[0]) == a - b and ("written" in said) == (a < b)
    assert task.answer_text(torch.tensor([10, 0, 0, 0])) == "-000"


WRITTEN = {
    "max(44,60)": ("max({a:2},{b:2})={m:2}", "max(a, b)"),
    "$44.5+$60.5": ("${a:2}.5+${b:2}.5={s:3}", "a + b + 1"),
    "44": ("{a:2}=0x{s:2}", "a"),
    "44 60": ("{a:2}{b:2}{s:3}", "a + b"),
    "44+60": ("<sum>{a:2}+{b:2}->{s:3}", "a + b"),
    "(44) (60)": ("({a:2}) ({b:2}) is {s:3}", "a + b"),
    "44<60": ("{a:2}<{b:2}?{s:1}", "1 * (a < b)"),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_problems_text_is_whole_and_what_the_model_reads_is_read_too(text: str) -> None:
    """With all that stands behind the last operand; and the prompt as its tokens spell it is the same problem."""
    task = formatted(*WRITTEN[text])
    numbers = tuple(map(int, re.findall(r"\d\d", text)))
    (problem,) = task.as_problems([numbers]).tolist()
    written = task.problem_text(numbers)
    assert written == text
    prompt = "".join(task.vocabulary[token] for token in task.encode_prompt([numbers])[0].tolist())
    for said in (text, written, prompt, f" {written} "):
        assert task.as_problems([said]).tolist() == [problem], said
