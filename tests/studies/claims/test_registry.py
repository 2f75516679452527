"""The registry: quotes that are in the papers, commands that exist, and numbers that come from stored results."""

import importlib.util
import json
import math
import re
import shutil
from pathlib import Path

import pytest

import models
from interp.cli.commands import parse
from interp.core.stored_data import digest
from models.errors import UserError
from studies.__main__ import PROGRAM
from studies.claims import Store, registered, table
from studies.claims.headline import KINDS
from studies.claims.headlines import BESIDE
from studies.claims.rules import Within
from studies.commands import headlines as headlines_command
from studies.papers import DATA, PAPERS
from studies.runs.study import find_study, studies
from tests.studies.headline_table import whole_table

TEXTS = {paper: f"{paper}.txt" for paper in PAPERS} | {"microadder": "microadder-57.txt"}
#: Counted or run on models that are built for it, or read from nothing but them.
AT_ONCE = (
    "python -m studies headlines",
    "python -m studies reproduce addlm:claims",
)


def normal(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("paper", PAPERS)
def test_every_quote_stands_in_the_paper_or_in_the_facts_beside_it(paper, shared_dir):
    text = normal((shared_dir / "papers" / TEXTS[paper]).read_text())
    facts = normal((shared_dir / "FACTS.md").read_text())
    for headline in registered(paper):
        quote = normal(headline.quote or headline.printed)
        assert normal(headline.printed) in quote
        beside = headline.where.startswith(("not in the paper", "5.1, list lost"))
        assert quote in (facts if beside else text), (headline.where, headline.claim)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_paper_has_numbers_and_no_two_of_them_are_alike(paper):
    rows = registered(paper)
    assert len(rows) >= 15
    assert len({(row.claim, row.printed, row.where) for row in rows}) == len(rows)
    assert all(row.claim.endswith(".") and "\\" not in row.printed and "\ufffd" not in row.printed for row in rows)


def test_every_command_exists():
    commands = sorted({row.command for row in registered() if row.command})
    assert len(commands) > 50
    for command in commands:
        program, *rest = command.split()
        if rest[:2] == ["-m", "studies"]:
            parsed = parse(rest[2:], program=PROGRAM)
            assert rest[2] in PROGRAM.commands
            assert parsed.paper in PAPERS if rest[2] == "headlines" else find_study(parsed.figure), command
            continue
        if program == "python":
            assert rest[0] == "-m"
            spec = importlib.util.find_spec(rest[1])
            assert spec is not None and spec.origin is not None and "def main" in Path(spec.origin).read_text()
            continue
        assert program == "interp", command
        name, *arguments = rest
        parse(rest, places=False)
        if name in ("train", "score", "certify"):
            assert arguments[0] in models.names(sweeps=True), command


def test_every_experiment_of_the_papers_is_named_by_a_row_or_is_beside_them_for_a_reason():
    ran = [target for target, study in studies().items() if study.run is not None]
    targets = [target for target in ran if target.partition(":")[0] in PAPERS]
    named = {word for row in registered() for word in row.command.split()}
    missing = [target for target in targets if target not in named and target not in BESIDE]
    assert not missing
    assert all(target in targets and target not in named and reason for target, reason in BESIDE.items())


def test_every_paper_of_the_zoo_is_named():
    papers = {models.get_spec(models.zoo.read_entry(name)["model"]).paper for name in models.zoo_names()}
    assert len(papers - {None}) == len(PAPERS) == len({row.paper for row in registered()})


@pytest.mark.usefixtures("without_shape_checks")
def test_an_empty_store_measures_nothing(tmp_path):
    result = table(store=Store(tmp_path, tmp_path, tmp_path))
    for row in result.rows:
        if row.verdict not in ("not measured", "not run", "not testable"):
            assert row.headline.command.startswith(AT_ONCE), row.headline
            continue
        assert row.ours is None and row.shown == "–" and row.why
    assert sum(row.verdict == "not measured" for row in result.rows) > 100


def copied(tmp_path: Path) -> Store:
    """A store that may be changed, with MicroAdder's results."""
    shutil.copytree(models.zoo.ZOO / "microadder-57", tmp_path / "zoo" / "microadder-57")
    for name in ("microadder-causal", "microadder-carry-mix"):
        target = tmp_path / "data" / f"{name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DATA / f"{name}.json", target)
    return Store(tmp_path / "zoo", tmp_path / "data")


def row_of(store: Store, claim: str):
    (headline,) = [row for row in registered("microadder") if row.claim == claim]
    return headline.evaluate(store)


def test_ours_and_the_verdict_follow_what_is_stored(tmp_path):
    store = copied(tmp_path)
    claim = "Seeds that grok with the carry mix, 57 parameters."
    assert row_of(store, claim).verdict == "differs"
    path = tmp_path / "zoo" / "microadder-57" / "config.json"
    config = json.loads(path.read_text())
    made = config["training"]
    made |= {"seeds_grokked": made["seeds_tried"], "repeats": []}
    path.write_text(json.dumps(config))
    changed = row_of(store, claim)
    assert changed.verdict == "compatible" and changed.ours.counts == (made["seeds_tried"],) * 2

    claim = (
        "57 parameters find carry propagation through their own outputs, which one layer is said to be unable to do."
    )
    assert row_of(store, claim).verdict == "reproduced"
    path = tmp_path / "data" / "microadder-causal.json"
    stored = json.loads(path.read_text())
    for fact in stored["facts"]:
        if "microadder-57: answers of the chained algorithm after a plausible" in fact["quantity"]:
            fact |= {"value": 0.0, "low": 0.0, "high": 0.004}
    path.write_text(json.dumps(stored))
    assert row_of(store, claim).verdict == "differs"


def test_a_changed_certificate_is_an_error_and_not_a_number(tmp_path):
    store = copied(tmp_path)
    (tmp_path / "zoo" / "microadder-57" / "certificate.json.gz").write_bytes(b"changed")
    with pytest.raises(UserError, match=r"certificate\.json\.gz"):
        row_of(store, "57 parameters add all pairs of ten-digit numbers.")


def test_without_its_certificate_a_model_is_not_proved(tmp_path):
    store = copied(tmp_path)
    path = tmp_path / "zoo" / "microadder-57" / "config.json"
    config = json.loads(path.read_text())
    del config["sha256"]["certificate.json.gz"]
    path.write_text(json.dumps(config))
    row = row_of(store, "57 parameters add all pairs of ten-digit numbers.")
    assert row.verdict == "not measured" and "certificate" in row.why


def test_the_kept_table_is_made_of_what_is_there_now():
    """`python -m studies.commands.headlines` writes it again."""
    assert json.loads(headlines_command.FILE.read_text())["made_of"] == digest(headlines_command.sources())


@pytest.mark.slow
def test_the_kept_table_is_the_one_that_is_made_now():
    kept = json.loads(headlines_command.FILE.read_text())
    whole = whole_table()
    assert kept["table"]["all"] == json.loads(json.dumps(whole.to_dict()))
    assert all(kept["table"][paper]["sentence"] == whole.of_paper(paper).sentence() for paper in PAPERS)


@pytest.mark.usefixtures("without_shape_checks")
def test_no_bound_that_was_written_after_a_number_sits_just_beyond_it():
    for row in (headline.evaluate(Store()) for headline in registered() if headline.bound_after):
        if row.verdict == "reproduced":
            rule, (low, high) = row.headline.rule, row.ours.ends
            assert isinstance(rule, Within)
            if len(rule.bounds) == 1:
                (bound,), end = rule.bounds, low if rule.most == math.inf else high
                # Near 1 a share has no room: there the error has to be well below the one that the bound allows.
                clear = row.headline.unit == "%" and 1 - end < (1 - bound) / 2
                assert clear or abs(end - bound) > 0.02 * abs(bound), row.headline.claim


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("paper", "claim", "verdict"),
    [
        ("microadder", "Fewest parameters that training from scratch needs.", "differs"),  # 18, certified
        ("microadder", "Every rung of the ladder answers all of AdderBoard.", "differs"),  # 75 does not
        ("microadder", "At d_model 6 the three norms' gains differ: their similarities.", "differs"),  # outside
        ("microadder", "Step at which 57 parameters grok.", "undecided"),  # one seed against one
        ("adder-456", "Errors of 582 parameters in 100,000.", "compatible"),  # 0 errors do not confirm 1
        ("adder-456", "Step at which 456 parameters begin to grok.", "undecided"),  # the interval holds every step
        ("microadder", "Tied values and output fail at 170 parameters.", "differs"),  # a seed answers 10,008 of 10,010
        ("microadder", "Rank-1 attention output fails at 170 parameters.", "undecided"),  # nor do the 170 succeed
        ("microadder", "Sharpness-aware minimisation fails.", "undecided"),  # nor do the 67 succeed in these steps
        ("microadder", "A learned ellipse of digits comes out as a circle: ratio of its axes.", "undecided"),
        ("microadder", "Radius that learned positions come to, 74 parameters.", "undecided"),  # where they begin
        ("microadder", "Untied, values and output are not alike.", "differs"),  # the other sign
        ("microadder", "From step 80,000 on all sums stay right, 74 parameters.", "differs"),  # of three seeds one does
        ("microadder", "What the MLP of 67 parameters writes lies almost entirely where the head reads.", "differs"),
        ("adder-456", "Keys and values encode alike, 512 parameters.", "differs"),
        ("toygpt", "Pre-LN and post-LN end with about the same training loss.", "compatible"),  # of five seeds
        ("position-coupling", "One layer of two heads fails at longer digits, alone of twelve.", "undecided"),
        ("position-coupling", "Exact match has no trend with the number of layers.", "differs"),
        ("position-coupling", "Trained heads look where the construction looks.", "differs"),  # not those of 10 x 10
        (
            "position-coupling",
            "With scratchpad, NoPE and FIRE generalise to about 1.3 times the trained sizes and no farther.",
            "not run",  # not right in their training range
        ),
        ("addlm", "The true tropical product trains.", "differs"),  # no better than letter pairs
        ("addlm", "Cost of ternary weights alone.", "undecided"),  # a single seed of each
    ],
)
def test_verdicts_that_an_audit_found_too_generous(paper, claim, verdict):
    (row,) = [row for row in registered(paper) if row.claim == claim]
    assert row.evaluate(Store()).verdict == verdict


def test_the_papers_numbers_of_its_weights_come_out_of_the_published_weights(published_checkpoint):
    """The same measures as ours; of the 67's norm gains the paper prints others than it published."""
    of = {(row.ours.model, row.ours.text): row for row in registered("microadder") if getattr(row.ours, "model", "")}

    def printed(name: str, text: str) -> bool:
        row = of[name, text]
        number = name.rpartition("-")[2]
        found = row.ours(Store(), models.load(published_checkpoint(f"microadder_{number}p.pt")))
        return row.stated[0].agrees(found.value)

    for text in ("abs(w.arc_A)", "abs(np.degrees(9 * w.arc_stride))", "np.degrees(w.q_angle)", "w.out_A @ w.out_B"):
        assert printed("microadder-57", text), text
    assert printed("microadder-57", "max(w.norm_w) / min(w.norm_w)") and printed("microadder-57", "np.argmax(w.norm_w)")
    assert printed("microadder-67", "np.degrees(w.q_angle)")
    assert not printed("microadder-67", "max(w.norm_w) / min(w.norm_w)")


@pytest.mark.slow
def test_the_sentence_counts_every_row_once_and_says_which_are_at_a_smaller_scale():
    whole = whole_table()
    for kind in KINDS:
        found = whole.of_kind(kind)
        (part,) = re.findall(rf"Of the {len(found.rows)} [a-z ]+, ([^.]+)\.", whole.sentence())
        counts = [int(n) for n in re.findall(r"(\d+) (?!at a smaller)", part)]
        smaller = [int(n) for n in re.findall(r"\((\d+) at a smaller scale\)", part)]
        assert sum(counts) == len(found.rows)
        assert sum(smaller) == sum(n for label, n in found.counts().items() if label.endswith("scale"))


def test_gpu_minutes_of_a_row_are_those_of_the_cost_of_a_training_step():
    from models.families.position_coupling_variants import FIGURES
    from studies.position_coupling.cost import training_seconds

    why = [row for row in registered() if "GPU minutes" in row.why]
    assert len(why) >= 3
    for row in why:
        (minutes,) = re.findall(r"about (\d+) GPU minutes", row.why)
        figure = "fig1" if "6l8h" in row.why else re.findall(r":(fig\d+)", row.command)[0]
        variant = FIGURES[figure].paper["Position Coupling, scratchpad"]
        assert round(training_seconds(variant, variant.recipe(), "cuda") / 60) == int(minutes), row.claim
