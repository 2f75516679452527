"""Clock or pizza: decided on constructions of each, and not where the programs have nothing to do with the answers."""

import pytest
import torch

import interp
import models
from interp.causal.interchange.group_program import CHANGES, MIXED, NONE
from models.errors import UserError
from models.tasks import formatted
from models.transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights
from tests.sampling import sampled


def built(program: str, p: int = 29):
    return models.build(f"modular-{program}-hand-built", p=p)


@pytest.mark.parametrize("program, rival", [("clock", "pizza"), ("pizza", "clock")])
@pytest.mark.parametrize("p", sampled([11, 29, 59], 29))
def test_the_program_that_was_built_is_followed_and_its_rival_is_not(program, rival, p):
    found = interp.group_program(built(program, p), n=600)
    assert found.verdict == program
    for change in CHANGES:
        assert found.share(program, change).low > 0.8 and found.share(rival, change).high < 0.2
        assert found.share(program, change, of="untrained").value < 0.3


def test_a_table_has_no_fourier_program():
    assert interp.group_program(built("table", 13), n=200).verdict == NONE


def test_a_model_that_answers_as_one_program_to_one_change_and_as_the_other_to_the_other_follows_neither():
    found, other = (interp.group_program(built(name), n=600) for name in ("clock", "pizza"))
    answers = found.answers.copy(deep=True)
    answers["model"].loc[{"change": "scaled"}] = other.answers["model"].sel(change="scaled")
    mixed = type(found)(found.model, found.group, found.frequencies, answers, found.causal, found.provenance)
    assert mixed.verdict == MIXED


def test_few_pairs_decide_nothing():
    assert interp.group_program(built("pizza"), n=6).verdict == MIXED


def test_a_model_that_cannot_add_is_refused():
    model = built("clock")
    model.add_perma_hook("unembed.hook_out", lambda logits, hook: logits.roll(1, -1))
    with pytest.raises(UserError, match="more than 50% must be right"):
        interp.group_program(model)


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
        columns = ["value", "low", "high", "share"]
        one, other = (ask(each).to_dataframe() for each in (model, moved))
        for column in one.columns.intersection(columns):
            assert one[column].to_numpy() == pytest.approx(other[column].to_numpy(), abs=2e-3), column


def test_where_the_programs_never_differ_no_share_is_told():
    found = interp.group_program(built("pizza"), n=400)
    same = found.answers.copy(deep=True)
    same["predicted"].loc[{"program": "pizza"}] = same["predicted"].sel(program="clock")
    alike = type(found)(found.model, found.group, found.frequencies, same, found.causal, found.provenance)
    assert alike.verdict == MIXED and "nan" not in alike.sentence()
