"""Whether two answers are equal on all pairs is derived: never wrongly, and for the answers that people write."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import formatted
from models.tasks.altered_tasks import altered
from models.tasks.expressions import Expression
from models.tasks.machines.equal_expressions import first_difference
from models.tasks.refusals import NoMachine

LIMIT = 9
NAMES = ("a", "b")


def values(text: str, ordered: bool) -> torch.Tensor:
    """An expression's values on all pairs below ``LIMIT``."""
    pairs = torch.cartesian_prod(torch.arange(LIMIT), torch.arange(LIMIT))
    pairs = pairs[pairs[:, 0] >= pairs[:, 1]] if ordered else pairs
    found = torch.as_tensor(Expression(text)(a=pairs[:, 0], b=pairs[:, 1])).long()
    return found.expand(len(pairs))


leaves = st.sampled_from(["a", "b", "1", "2", "7", "9"])
operators = st.sampled_from(["+", "-", "*", "//", "%", "<", "<=", "==", "!=", ">", ">="])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(operators, inner, inner).map(lambda each: f"({each[1]} {each[0]} {each[2]})")
    called = st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
        lambda each: f"{each[0]}({each[1]}, {each[2]})"
    )
    return pair | called | inner.map(lambda each: f"abs({each})") | inner.map(lambda each: f"(-{each})")


expressions = st.recursive(leaves, grown, max_leaves=7)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(expressions, expressions, st.booleans())
def test_what_is_derived_of_two_expressions_holds_on_every_pair(one, other, ordered):
    try:
        known = [values(text, ordered) for text in (one, other)]
    except UserError:
        return  # such as a division by zero, which a task refuses as well
    try:
        differs = first_difference(one, other, NAMES, LIMIT, ordered)
    except NoMachine:
        return
    if differs is None:
        assert torch.equal(*known)
    else:
        a, b = (torch.tensor([number]) for number in differs)
        at = [torch.as_tensor(Expression(text)(a=a, b=b)).long().item() for text in (one, other)]
        assert at[0] != at[1]
        assert not ordered or differs[0] >= differs[1]


@settings(deadline=None, max_examples=100)
@given(expressions, st.integers(-3, 3).filter(bool))
def test_no_expression_is_equal_to_itself_and_a_number_more(text, more):
    try:
        values(text, False)
        values(f"{text} + {more}", False)
        assert first_difference(text, f"{text} + {more}", NAMES, LIMIT) is not None
    except (UserError, NoMachine):
        return


SIGNED = "(a - b) % 10**10 + 10**10 * (a < b)"


@pytest.mark.parametrize(
    ("one", "other", "ordered"),
    [
        ("b + a", "(a + b) % 10**11", False),
        ("min(a, b) + max(a, b)", "a + b", False),
        ("a - b", "(a - b) % 10**10", True),
        ("abs(a - b)", "(a - b) % 10**10", True),
        ("(a - b) % (2 * 10**10)", SIGNED, False),
        ("a - b + (a < b) * 2 * 10**10", SIGNED, False),
        ("(a >= b) * (a - b) + (b > a) * (2 * 10**10 - b + a)", SIGNED, False),
    ],
)
def test_the_ways_to_write_an_answer_are_derived_to_be_equal(one, other, ordered):
    assert first_difference(one, other, NAMES, 10**10, ordered) is None


@pytest.mark.parametrize(
    ("planted", "differs"),
    [
        (" + (a == b)", lambda a, b: a == b),
        (" + (a == 0) * (b == 1234567890)", lambda a, b: (a, b) == (0, 1234567890)),
        (" - (a // 9999999999) * (b == 0)", lambda a, b: (a, b) == (9999999999, 0)),
        (" + (a + b == 3)", lambda a, b: a + b == 3),
        (" + (max(a, b) < 1)", lambda a, b: a == b == 0),
    ],
)
def test_an_answer_that_differs_on_few_pairs_is_found_with_such_a_pair(planted, differs):
    assert differs(*first_difference(SIGNED + planted, SIGNED, NAMES, 10**10))


@pytest.mark.parametrize(
    "text", ["a * b", "a + b + (a % 1000 == 777)", "gcd(a, b)", "a ^ b", "(a * b) * 0", "a + b // a"]
)
def test_what_has_no_pieces_is_not_decided(text):
    with pytest.raises(NoMachine):
        first_difference(text, "a + b", NAMES, 10**10)


def test_a_task_is_altered_by_a_method_of_ones_own_on_it_or_in_a_class():
    task = formatted("{a:2r}+{b:2r}={s:3r}", "a + b")
    kind = type(task)
    assert altered(task) is None

    class Own(kind):
        def targets(self, problems):
            return super().targets(problems)

    assert altered(Own("{a:2r}+{b:2r}={s:3r}", "a + b")) == "Own.targets"
    task.targets = task.targets
    assert altered(task) == "FormattedTask.targets"


def test_a_method_from_a_text_alters_a_task():
    """As the code after ``python -c`` has it."""
    made = {"__name__": "__main__", "kind": type(formatted("{a:2r}+{b:2r}={s:3r}", "a + b"))}
    exec("class Own(kind):\n    def targets(self, problems):\n        return super().targets(problems)", made)
    assert altered(made["Own"]("{a:2r}+{b:2r}={s:3r}", "a + b")) == "Own.targets"


def test_a_method_replaced_in_the_package_alters_its_tasks(monkeypatch):
    task = formatted("{a:2r}+{b:2r}={s:3r}", "a + b")
    monkeypatch.setattr(type(task), "allowed", lambda self, problems: torch.ones(len(problems), dtype=torch.bool))
    assert altered(task) == "FormattedTask.allowed"
