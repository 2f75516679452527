"""Every listed probe about formats of every kind: a right result, or one sentence that refuses it."""

from __future__ import annotations

import pytest
import torch

import models
from interp.core.probe import Probe, registered
from interp.core.samples import draw
from models.errors import UserError
from models.tasks import FormattedTask, formatted, problem_pairs
from models.weight_maps.dense import DenseWeights
from tests.comparing import numbers_are_finite

#: Digits of base 3 keep domains small; what varies is the form.
FORMATS: dict[str, FormattedTask] = {
    "a copy": formatted("{a:3}={s:3}", "a", base=3),
    "digits reversed, with a word": formatted("<rev>{a:3}={s:3r}", "a", base=3),
    "a prefix of the answer": formatted("{a:2}=0x{s:2}", "a", base=3),
    "a sum without its last carry": formatted("{a:2}+{b:2}={s:2}", "(a + b) % 9", base=3),
    "in parentheses": formatted("max({a:2},{b:2})={m:2}", "max(a, b)", base=3),
    "with a sign": formatted("{a:2}-{b:2}={s:+2}", "a - b", base=3),
    "units first": formatted("{a:2r}+{b:2r}={s:3r}", "a + b", base=3, variables="addition"),
    "one token a number": formatted("{a}+{b}={s}", "(a + b) % 5", base=5),
    "numbers that touch": formatted("{a:1}{b:1}{s:2}", "a * b", base=5),
    "an answer of one bit": formatted("{a:2}<{b:2}={s:1}", "1 * (a < b)", base=3),
    "three numbers": formatted("{a:1}+{b:1}+{c:1}={s:2}", "a + b + c", base=3),
    "of other widths": formatted("{a:3}*{b:1}={s:4}<end>", "a * b", base=3),
    "a difference of some pairs": formatted("{a:2}-{b:2}->{d:2}", "a - b", base=3, where="a >= b"),
}


@torch.no_grad()
def exact(task: FormattedTask, seed: int = 0) -> models.ArithmeticTransformer:
    """A random model of two layers, whose unembedding is fitted by least squares to all rows of a small domain."""
    problems = draw(task, None, 1000, 0).problems  # all that there are
    rows = len(problems) * len(task.target_roles)
    config = models.TransformerConfig(
        n_layers=2, d_model=rows + 8, n_heads=2, d_head=8, d_mlp=rows, d_vocab=task.d_vocab, n_ctx=task.input_length,
        normalization_type="LN", dtype="float64",
    )  # fmt: skip
    weights = DenseWeights(config).double()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in weights.own().items():
        wide = 1.0 if name.startswith(("embed", "pos")) else 3 / parameter.shape[-2] ** 0.5 if parameter.ndim > 1 else 0
        parameter.copy_(wide * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        if name.endswith(".w"):
            parameter.fill_(1)
    model = models.ArithmeticTransformer(weights, task, name="fitted")
    _, cache = model.run_with_cache(task.encode(problems))
    features = cache["ln_final.hook_normalized"][:, list(task.query_positions)].flatten(0, 1)
    wanted = torch.nn.functional.one_hot(task.targets(problems).flatten(), task.d_vocab).double()
    weights.own()["unembed.W_U"].copy_(10 * torch.linalg.lstsq(features, wanted, driver="gelsd").solution)
    return model


SHORT = {"n": 27, "max_ablated": 1, "permutations": 9, "width": None, "minutes": 0.05,
         "n_fit": 8, "runs": 50, "batch": 8}  # fmt: skip
#: Those that search, by the minute; other tests ask them about other domains.
SLOW = {"attack", "certify", "certified_circuits", "smallest_circuit", "all_circuits", "edge_attribution"}


def some_pairs(task: FormattedTask) -> object:
    """Pairs of problems whose answers differ in a digit."""
    return problem_pairs(task, "variable", variable="s", column=0, n=8)


def asked(probe: Probe, model: models.ArithmeticTransformer) -> str:
    """ "answered", or the sentence that refuses it."""
    options = {name: value for name, value in SHORT.items() if probe.takes(name)}
    try:
        subjects = [model]
        if "pairs" in probe.subjects:
            subjects.append(some_pairs(model.task))
        elif probe.subjects != ("model",):
            return "of other subjects"
        found = probe.ask(*subjects, **options)
        assert numbers_are_finite(found.sentence()) and len(found.to_dataframe()) >= 0
    except UserError as error:
        sentence = str(error)
        assert "\n" not in sentence and sentence[-1] in ".!?", f"{probe.name}: {sentence}"
        return sentence
    return "answered"


QUICK = ("in parentheses",)  # the others take a minute in all


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FORMATS]
)
def test_every_listed_probe_answers_or_refuses_in_a_sentence(name: str) -> None:
    model = exact(FORMATS[name])
    found = models.score(model, FORMATS[name].sample(50, torch.Generator().manual_seed(1)))
    assert found.correct == found.n > 30
    listed = [each for each in registered().values() if not each.why_not(model) and each.name not in SLOW]
    found = {each.name: asked(each, model) for each in listed}
    assert sum(said == "answered" for said in found.values()) >= 9, found
    assert found["attention_by_role"] == found["activation_patching"] == "answered", found
