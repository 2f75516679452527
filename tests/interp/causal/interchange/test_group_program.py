"""Clock or pizza: decided on constructions of each, and not where the programs have nothing to do with the answers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import interp
import models
from interp.causal.interchange.group_program import UNDECIDED, _shares
from interp.core.modular.gradient_symmetricity import GroupMarks
from models.tasks import formatted
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights


def built(program: str, p: int = 29):
    return models.build(f"modular-{program}-hand-built", p=p)


def test_a_model_that_answers_as_one_program_to_one_change_and_as_the_other_to_the_other_follows_neither():
    found, other = (interp.group_program(built(name), n=600) for name in ("clock", "pizza"))
    table = pd.concat([found.table.query("change == 'scaled'"), other.table.query("change == 'interchanged'")])
    mixed = replace(found, table=table)
    assert not mixed.followed and mixed.verdict == UNDECIDED


@pytest.mark.parametrize("program, rival", [("clock", "pizza"), ("pizza", "clock")])
def test_a_program_is_named_only_with_its_marks(program, rival):
    found, other = (interp.group_program(built(name), n=600) for name in (program, rival))
    assert (found.followed, found.marks.program) == (program, program)
    crossed = replace(found, marks=other.marks)
    assert crossed.marks.program == rival and crossed.verdict == UNDECIDED


#: Gradient symmetricity and distance irrelevance that Zhong et al. 2023 print for their models A and B.
@pytest.mark.parametrize("program, marks", [("pizza", (0.9937, 0.17)), ("clock", (0.3336, 0.85))])
def test_the_published_models_have_the_marks_of_their_programs_and_are_not_denied_them(program, marks):
    """Also where the answers to changed embeddings are mostly neither program's, as those of model A are."""
    assert GroupMarks((marks[0],) * 3, marks[1], 2048).program == program
    found = interp.group_program(built(program), n=600)
    neither = found.table.assign(share=0.0, share_low=0.0)
    published = replace(found, table=neither, marks=GroupMarks((marks[0],) * 3, marks[1], 2048))
    assert published.marks.program == program and published.verdict == UNDECIDED


def test_few_pairs_decide_nothing():
    assert interp.group_program(built("pizza"), n=6).verdict == UNDECIDED


def test_another_order_of_tokens_changes_nothing():
    model, p = built("pizza"), 29
    order = [*torch.randperm(p, generator=torch.Generator().manual_seed(0)).tolist(), p]
    texts = [*map(str, range(p)), "="]
    task = formatted("{a}{b}=", f"(a + b) % {p}", base=p, vocabulary=[texts[i] for i in order])
    weights = {name: value.detach().double() for name, value in model.all_weights().items()}
    weights |= {"embed.W_E": weights["embed.W_E"][order], "unembed.W_U": weights["unembed.W_U"][:, order]}
    weights["unembed.b_U"] = weights["unembed.b_U"][order]
    moved = ArithmeticTransformer(ConstantWeights(model.config, weights), task, name="reordered").eval()
    for ask in (interp.restricted_loss, interp.group_symmetry, interp.group_program):
        one, other = (ask(each) for each in (model, moved))
        for measure in one.measures:
            values = [[each.value for each in found.estimates(measure.name)] for found in (one, other)]
            assert values[0] == pytest.approx(values[1], abs=2e-3), measure.name


def test_a_share_is_that_of_the_answers_where_the_programs_differ() -> None:
    predicted = np.array([[0, 1, 2, 3], [0, 1, 0, 1]])
    clock, pizza = _shares("scaled", np.array([0, 0, 2, 1]), np.array([0, 1, 5, 5]), predicted)
    assert (clock["share"], pizza["share"], clock["share_untrained"], clock["n"]) == (0.5, 0.5, 0.0, 2)
    alike = _shares("scaled", predicted[0], predicted[0], predicted[[0, 0]])
    assert [row["n"] for row in alike] == [0, 0] and np.isnan(alike[0]["share"])
