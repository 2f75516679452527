"""No model that was changed is called right unless it is: every weight, every bias, every switch of the config.

Each method judges a small model of its own. A change is planted in one tensor of the weights or in one field of the
config, and the verdict on the changed model is held against its own answers: a refusal, an open verdict, a refutation
by a problem that it really gets wrong, or a certificate of a model that answers rightly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

import interp
import models
from interp.proofs.certify import method_for
from models.errors import UserError
from models.evaluation import predict
from models.families.hand_built.construction import Construction
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import weight_shapes
from models.weight_maps.dense import DenseWeights
from tests.interp.proofs.conftest import zoo
from tests.other_tasks import column_addition, exact_adder
from tests.sampling import sampled
from tests.studies.adderboard.submissions import HARD

pytestmark = pytest.mark.usefixtures("without_shape_checks")

#: Other values of every field of the config.
FIELDS: dict[str, tuple[Any, ...]] = {
    "n_layers": (2,),
    "d_model": (1,),  # so many more
    "n_heads": (1,),
    "d_head": (2,),
    "d_mlp": (1, None),
    "d_vocab": (1,),
    "n_ctx": (1,),
    "act_fn": ("gelu", "gelu_new", "relu", "silu"),
    "gated_mlp": (True, False),
    "normalization_type": ("LN", "RMS", None),
    "norm_placement": ("pre", "post", "both", "none"),
    "norm_eps_outside": (True, False),
    "eps": (0.5, 0.0),
    "final_norm": (True, False),
    "positional_embedding_type": ("standard", "coupled", "rotary", "fire", "none"),
    "n_position_levels": (1, 2),
    "n_position_ids": (7, None),
    "rotary_base": (7.0,),
    "rotary_adjacent_pairs": (False,),
    "fire_c": (0.5,),
    "fire_L0": (4.0,),
    "fire_normaliser": ("min",),
    "rotary_scaling_factor": (3.0,),
    "rotary_dim": (2,),
    "rotary_frequencies": ((0.7,),),
    "parallel_attn_mlp": (True,),
    "use_qk_norm": (True,),
    "attn_bias": (True,),
    "norm_groups": (2, 5),
    "attn_softmax": ("softmax1",),
    "final_gain": (True,),
    "layer_mix": (True,),
    "attn_scores": ("neg_l1", "max_plus"),
    "attn_scale": (4.0, 64.0),
    "attn_top_k": (1, 3),
    "attn_window": (0, 1),
    "d_vocab_out": (-1, 1, 2),  # fewer or more than are read
    "dropout": (0.5,),
    "dtype": ("float64", "bfloat16", "float16"),
}
MORE = ("d_model", "n_heads", "d_head", "d_mlp", "d_vocab", "n_ctx", "d_vocab_out")


@dataclass(frozen=True)
class Subject:
    """A model that a method certifies, the task that it is asked about (None: its own), and problems to try."""

    model: Callable[[], ArithmeticTransformer]
    tasks: Callable[[Any], list[Any]]
    shape: tuple[int, ...] = ()


@cache
def _few_keys() -> ArithmeticTransformer:
    with TemporaryDirectory() as folder:
        path = Path(folder, "ours.py")
        path.write_text(HARD)
        return models.load(path, trust="unconfined")


SUBJECTS = {
    "addition": Subject(
        lambda: models.build("position-coupling-hand-built", max_operands=2, max_digits=2),
        lambda model: [model.task.at(m, n) for m, n in ((1, 1), (2, 1), (1, 2), (2, 2))],
    ),
    "multiplication": Subject(
        lambda: models.build("multiplication-hand-built", max_digits=2),
        lambda model: [model.task.at(m, n) for m, n in ((1, 1), (2, 1), (1, 2), (2, 2))],
    ),
    "parity": Subject(
        lambda: models.build("parity-hand-built", max_bits=5),
        lambda model: [model.task.at(bits) for bits in range(1, 6)],
    ),
    "prefix tree": Subject(lambda: exact_adder(column_addition(2)), lambda model: [model.task]),
    "columns": Subject(lambda: zoo("microadder-22"), lambda model: [model.task]),
    "few keys": Subject(_few_keys, lambda model: [model.task]),
    "near keys": Subject(
        lambda: zoo("position-coupling-1l4h-ids40-window-2x2-steps10000-small"),
        lambda model: [model.task.at(2, 1)],
        (2, 1),
    ),
}
#: A submission's file takes seconds to run.
QUICK = sampled(SUBJECTS, *(name for name in SUBJECTS if name != "few keys"))
METHODS = {name: name for name in ("prefix tree", "few keys")} | {
    "near keys": "finite machine",
    "addition": "hand-built",
    "multiplication": "hand-built",
    "parity": "hand-built",
    "columns": "branch and bound over columns",
}


def rebuilt(model: ArithmeticTransformer, config: TransformerConfig, weights: dict[str, torch.Tensor]) -> Any:
    """The model with another config, and with these weights, which random numbers enlarge where that is larger."""
    generator = torch.Generator().manual_seed(0)
    fitted = {}
    for name, shape in weight_shapes(config).items():
        own = weights.get(name)
        if own is None and weights.get(name.replace("blocks.1", "blocks.0")) is not None and config.n_layers == 2:
            own = weights[name.replace("blocks.1", "blocks.0")]
        drawn = torch.randn(shape, generator=generator) * 0.5
        if own is not None and own.ndim == len(shape):
            common = tuple(slice(0, min(size)) for size in zip(own.shape, shape, strict=True))
            drawn[common] = own[common].float()
        elif own is None and name.endswith((".b_Q", ".b_K", ".b_V", ".b_O", ".b_in", ".b_out", ".b_U", ".b")):
            continue
        fitted[name] = drawn
    return holding(model, config, fitted)


def holding(model: ArithmeticTransformer, config: TransformerConfig, weights: dict[str, torch.Tensor]) -> Any:
    old = model.weight_map
    if isinstance(old, Construction):
        new: Any = Construction(config, weights, old.options, old.dims)
    else:
        new = DenseWeights.holding(config, weights).to(getattr(torch, config.dtype))
    new.position_limits = old.position_limits
    return ArithmeticTransformer(new, model.task, name=model.name_or_path)


def changes(model: ArithmeticTransformer) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(what is changed, the changed model) for every tensor of the weights and every field of the config."""
    with torch.no_grad():
        own = {name: value.detach().clone() for name, value in model.effective_weights().items()}
    for name, shape in model.weight_shapes.items():
        for kind in ("one entry", "all entries"):

            def changed(name: str = name, shape: Any = shape, kind: str = kind) -> Any:
                generator = torch.Generator().manual_seed(len(name))
                value = own[name].clone(memory_format=torch.contiguous_format) if name in own else torch.zeros(shape)
                if kind == "all entries":
                    value = value + torch.randn(shape, generator=generator).to(value.dtype)
                else:
                    at = int(torch.randint(value.numel(), (), generator=generator))
                    value.view(-1)[at] += 3.0
                return holding(model, model.config, own | {name: value})

            yield f"{name}, {kind}", changed
    for field, values in FIELDS.items():
        for value in values:
            now = getattr(model.config, field)
            if field in MORE and value is not None:
                value += model.config.n_logits if field == "d_vocab_out" else now
            elif field == "d_mlp":
                value = 0
            if value != now:
                changed = lambda field=field, value=value: rebuilt(model, model.config.replace(**{field: value}), own)  # noqa: E731
                yield f"{field} = {value}", changed


def is_wrong(model: Any, task: Any, problems: Any, method: str = "teacher_forced") -> bool:
    return bool((predict(model, problems, method, task=task).cpu() != task.targets(problems).cpu()).any())


def problems_of(task: Any) -> Any:
    try:
        return task.domain.at(torch.arange(min(task.domain.size, 1000)))
    except UserError:
        return torch.cat((task.sample(300, torch.Generator().manual_seed(0)), torch.tensor([[9999999999, 1], [0, 0]])))


def judged(subject: Subject, made: Callable[[], Any]) -> str:
    """The verdict on a changed model; raises AssertionError where its answers contradict it."""
    try:
        model = made()
        task = model.task.at(*subject.shape) if subject.shape else None
        found = interp.certify(model, task=task, tolerance=None)
    except UserError:
        return "refused"
    with torch.inference_mode():
        if found.status == "certified":
            assert not any(is_wrong(model, each, problems_of(each)) for each in subject.tasks(model))
        if found.status == "refuted":
            one = found.counterexample
            task = model.task.at(*one.shape) if one.shape else model.task
            assert is_wrong(model, task, task.as_problems([one.problem]), "greedy")
    return found.status


def test_every_field_of_the_config_is_changed() -> None:
    assert set(FIELDS) == set(TransformerConfig.__dataclass_fields__)


@pytest.mark.parametrize("name", QUICK)
def test_each_method_certifies_the_model_that_it_is_given(name: str) -> None:
    subject = SUBJECTS[name]
    model = subject.model()
    task = model.task.at(*subject.shape) if subject.shape else model.task
    assert method_for(model, task).name == METHODS[name]
    if name not in ("columns", "few keys"):
        assert interp.certify(model, task=task if subject.shape else None).status == "certified"


#: Changes in the quick suite.
SAMPLE = dict.fromkeys(SUBJECTS, 6) | {"parity": 40, "near keys": 3, "columns": 2}


@pytest.mark.parametrize("name", sampled(SUBJECTS, *(set(SUBJECTS) - {"few keys", "columns", "near keys"})))
def test_a_planted_change_is_refused_or_judged_rightly(name: str) -> None:
    """Some of them; the slow test has all."""
    planted = list(changes(SUBJECTS[name].model()))
    step = max(1, len(planted) // SAMPLE[name])
    for what, made in planted[::step]:
        verdict = judged(SUBJECTS[name], made)
        if METHODS[name] == "hand-built":
            assert verdict != "certified", what


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_all_planted_changes_are_refused_or_judged_rightly(name: str) -> None:
    for _, made in changes(SUBJECTS[name].model()):
        judged(SUBJECTS[name], made)
