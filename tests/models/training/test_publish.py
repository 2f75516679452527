"""From runs to a zoo entry: chosen without the test set, counted honestly, complete."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import models
from models.errors import UserError
from models.tasks.held_out import FIXED_TESTS
from models.tasks.named.adder_test_sets import ADDER_BOARD, FixedPairs
from models.training import train
from models.training.acceptance import Acceptance
from models.training.publish import curve_files, publish, ten_digit
from models.training.publish.report import Runs, Seed
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder, digest_of, log_spaced_steps
from models.training.stacked_objective import ParameterLayout
from models.training.warm_start import Start
from models.zoo.snapshots import load_snapshots
from studies.checkpoints import load_published
from tests.models.training.edited import edit_checkpoint, plant

# A learning rate so small that planted weights stay what they are.
STILL = Recipe(
    steps=40, batch_size=32, warmup_steps=5, eval_every=10, validation_size=64, snapshots=6, lr=1e-9, weight_decay=0.0
)


@pytest.fixture(scope="session")
def perfect(checkpoint) -> torch.Tensor:
    model = load_published(checkpoint("microadder_57p.pt"))
    return ParameterLayout(model).flatten(model)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that several tests publish, each trained once; only copied."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def run(tmp_path: Path, monkeypatch, perfect, trained: Path):
    """Make a run of four seeds (first seed given) in which the listed rows hold perfect weights; it is published by
    400 of the 10,010 test problems, and 200 others that choose between seeds."""
    whole = ADDER_BOARD.problems
    monkeypatch.setitem(FIXED_TESTS, "AdderBoard", FixedPairs(lambda: whole[:400]))
    monkeypatch.setattr(ten_digit, "SECOND_VALIDATION", 200)

    def make_run(name: str, first_seed: int, rows: list[int], **settings) -> Path:
        plant(monkeypatch, rows, perfect)
        options = {"recipe": STILL, "progress": False, "compile": False, "device": "cpu"} | settings
        if settings:
            train("microadder-57", tmp_path / name, seeds=4, first_seed=first_seed, **options)
            return tmp_path / name
        folder = trained / f"{first_seed} {rows}"
        if not folder.exists():
            train("microadder-57", folder, seeds=4, first_seed=first_seed, **options)
        return shutil.copytree(folder, tmp_path / name)

    return make_run


def test_an_entry_counts_seeds_over_all_runs_and_loads_as_the_chosen_one(tmp_path: Path, run, perfect, monkeypatch):
    folders = [run("a", 0, [2]), run("b", 4, [])]
    monkeypatch.setitem(FIXED_TESTS, "AdderBoard", ADDER_BOARD)
    older = json.loads((folders[0] / "config.json").read_text())
    del older["recipe"]["drop_seed_below"], older["digest"]  # as of a run made before there was this field
    (folders[0] / "config.json").write_text(json.dumps(older | {"digest": digest_of(older)}))
    folder, score = publish(folders, tmp_path / "entry")
    config = json.loads((folder / "config.json").read_text())
    made = config["training"]
    assert (made["seed"], made["seeds_tried"], made["seeds_grokked"]) == (2, 8, 1)
    assert made["grok_interval_95"] == pytest.approx([0.00316, 0.52651], abs=1e-5)  # Clopper-Pearson for 1 of 8
    assert made["commands"] == [
        "interp train microadder-57 --seeds 4 --first-seed 0",
        "interp train microadder-57 --seeds 4 --first-seed 4",
    ]
    assert score.correct == score.n == 10_010 == config["score"]["correct"]
    model = models.load(folder)
    torch.testing.assert_close(ParameterLayout(model).flatten(model), perfect, rtol=1e-5, atol=1e-6)


def test_an_entry_whose_seeds_did_not_start_at_random_says_where_and_how(tmp_path: Path, run):
    start = Start(
        dict(models.load("microadder-57").weight_map.named_parameters()), "the stored 57", "some command", 0.0
    )
    folder, _ = publish([run("a", 0, [], start=start)], tmp_path / "entry")
    made = json.loads((folder / "config.json").read_text())["training"]
    assert (made["seeds_grokked"], made["commands"], made["start"]) == (4, ["some command"], start.to_dict())
    card = (folder / "card.md").read_text()
    assert "from a start near the stored 57" in card and "    some command" in card and "random start" not in card
    assert "4 of 4 seeds from that start" in card
    with pytest.raises(UserError, match="or from another start; publish them apart"):
        publish([tmp_path / "a", run("b", 4, [2])], tmp_path / "other")


def test_an_entry_ships_snapshots_curves_metrics_and_a_card(tmp_path: Path, run):
    folder, _ = publish([run("a", 0, [2])], tmp_path / "entry")
    snapshots = load_snapshots(folder)
    assert [step for step, _ in snapshots] == log_spaced_steps(40, 6)
    curves, _ = models.files.checkpoint.load_weights(folder / "curves.safetensors")
    assert curves["exact"].shape == (4, 4) and curves["step"].tolist() == [10, 20, 30, 40]
    assert curves["exact"][2].tolist() == [1.0] * 4
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["exact"] for line in lines] == [1.0] * 4
    seeds = json.loads((folder / "seeds.json").read_text())
    assert [row["exact_on_test"] for row in seeds] == [None, None, 400, None]
    card = (folder / "card.md").read_text()
    assert "1 of 4 seeds answer the whole test set" in card and "sampled" in card
    assert "57 free parameters" in card and "interp train microadder-57 --seeds 4 --first-seed 0" in card
    assert "differs from the registered one" in card and "* `lr`: 1e-09 (registered: 0.02)" in card


def test_a_repeat_of_the_same_seeds_is_counted_apart_and_gives_no_weights(tmp_path: Path, run, perfect):
    folder, _ = publish([run("a", 0, [2])], tmp_path / "entry", repeats=[run("b", 0, [0, 1])])
    made = json.loads((folder / "config.json").read_text())["training"]
    assert (made["seed"], made["seeds_tried"], made["seeds_grokked"]) == (2, 4, 1)
    assert made["repeats"] == [{"seeds_tried": 4, "seeds_grokked": 2}]
    assert "rounds differently: 2 of 4 answer" in (folder / "card.md").read_text()
    model = models.load(folder)
    torch.testing.assert_close(ParameterLayout(model).flatten(model), perfect, rtol=1e-5, atol=1e-6)


def test_of_several_perfect_seeds_the_first_to_get_there_is_taken(tmp_path: Path, run):
    folder = run("a", 0, [1, 3])
    # Seed 3 was there at step 10.
    edit_checkpoint(folder, lambda entry: entry["state"]["seeds"][1].update(first_perfect_step=30))
    published, _ = publish([folder], tmp_path / "entry")
    made = json.loads((published / "config.json").read_text())["training"]
    assert (made["seed"], made["seeds_grokked"]) == (3, 2)


def test_a_seed_that_is_perfect_only_on_uniform_problems_is_taken_if_no_other_is(tmp_path: Path, run):
    folder = run("a", 0, [1, 3])

    def never_on_the_carry_rich_half(entry: dict) -> None:
        seeds = entry["state"]["seeds"]
        assert [row["first_uniform_step"] for row in seeds] == [None, 10, None, 10]
        for row in seeds:
            row["first_perfect_step"], row["best_exact"] = None, min(row["best_exact"], 0.99)

    edit_checkpoint(folder, never_on_the_carry_rich_half)
    published, score = publish([folder], tmp_path / "entry")
    made = json.loads((published / "config.json").read_text())["training"]
    assert made["seed"] in (1, 3) and made["first_perfect_step"] is None and score.correct == 400
    assert (made["seeds_once_perfect"], made["seeds_grokked"]) == (2, 2)
    card = (published / "card.md").read_text()
    assert "never perfect on the carry-rich half" in card and "2 of 4" in card
    curves, _ = models.files.checkpoint.load_weights(published / "curves.safetensors")
    assert curves["uniform"][1].tolist() == [1.0] * 4


def test_a_model_that_is_wrong_is_published_with_its_score(tmp_path: Path, run):
    folder = run("a", 0, [])
    published, found = publish([folder], tmp_path / "entry")
    config = models.zoo.read_entry(published)
    loaded = models.load(published)
    assert config["score"]["correct"] == found.correct == models.score(loaded).correct < 100
    made = config["training"]
    assert made["seeds_grokked"] == made["seeds_once_perfect"] == 0
    rows = json.loads((folder / "checkpoint.json").read_text())["state"]["seeds"]
    assert made["validation_exact"] == max(row["best_exact"] for row in rows)
    seeds = json.loads((published / "seeds.json").read_text())
    assert [row["exact_on_test"] is not None for row in seeds] == [row["seed"] == made["seed"] for row in seeds]


def test_a_run_loads_with_its_seeds_checkpoint_and_snapshots(tmp_path: Path, run, perfect):
    folder = run("a", 3, [2], stop_at_step=20)  # seeds 3 to 6, the perfect one is 5; not finished
    layout = ParameterLayout(models.build("microadder-57"))
    assert torch.allclose(layout.flatten(models.load(folder)), perfect, atol=1e-6)
    assert torch.equal(layout.flatten(models.load(str(folder))), layout.flatten(models.load(folder, seed=5)))
    other = models.load(folder, seed=4)
    assert not torch.allclose(layout.flatten(other), perfect, atol=1e-2)
    (checkpoint,) = folder.glob("checkpoint-*.safetensors")
    snapshots = sorted((folder / "snapshots").glob("*.safetensors"))
    assert len(snapshots) > 1
    tensors, _ = models.files.checkpoint.load_weights(snapshots[0])
    for file in (checkpoint, *snapshots):
        assert torch.allclose(layout.flatten(models.load(file)), perfect, atol=1e-6)  # the best seed's
        assert not torch.allclose(layout.flatten(models.load(file, seed=3)), perfect, atol=1e-2)
    first = dict(models.load(snapshots[0], seed=6).weight_map.named_parameters())
    assert all(torch.equal(first[name], value[3]) for name, value in tensors.items())
    for seed in (2, 7):
        with pytest.raises(UserError):
            models.load(folder, seed=seed)
    with pytest.raises(UserError):
        models.load("microadder-57", seed=5)
    (folder / "checkpoint.json").unlink()
    with pytest.raises(UserError):
        models.load(folder)
    assert models.load(snapshots[0], seed=6) is not None  # snapshots need no checkpoint


def test_runs_that_cannot_be_published_are_refused_and_nothing_is_written(tmp_path: Path, run):
    failed = run("failed", 0, [])
    path = failed / "checkpoint.json"
    entry = json.loads(path.read_text())
    for row in entry["state"]["seeds"]:
        row["status"], row["best_step"], row["best_exact"] = "failed", -1, -1.0
    whole = path.read_text()
    path.write_text(json.dumps(entry))
    with pytest.raises(UserError):
        publish([failed], tmp_path / "entry")
    path.write_text(whole)
    unfinished = run("unfinished", 4, [0], stop_at_step=20)
    with pytest.raises(UserError, match="is not finished"):
        publish([unfinished], tmp_path / "entry")
    other = run("other", 8, [0], recipe=STILL.replace(batch_size=48))
    with pytest.raises(UserError, match="another model or recipe"):
        publish([failed, other], tmp_path / "entry")
    with pytest.raises(UserError, match="a seed counts once"):
        publish([failed, run("again", 0, [0])], tmp_path / "entry")
    with pytest.raises(UserError, match="is not a run folder"):
        publish([tmp_path], tmp_path / "entry")
    assert not (tmp_path / "entry").exists()


def test_an_entry_that_is_there_is_not_overwritten_unasked(tmp_path: Path, run):
    folder, _ = publish([run("a", 0, [2])], tmp_path / "entry")
    card = (folder / "card.md").read_bytes()
    with pytest.raises(UserError, match="exists already"):
        publish([run("b", 4, [1])], tmp_path / "entry")
    assert (folder / "card.md").read_bytes() == card
    publish([tmp_path / "b"], tmp_path / "entry", overwrite=True)
    assert (folder / "card.md").read_bytes() != card


def test_early_stopped_seeds_end_their_curves_and_snapshots(tmp_path: Path, run):
    folder = run("a", 0, [2], recipe=STILL.replace(stop_after_perfect=2))
    assert RunFolder(folder).load_checkpoint()[2]["seeds"][2]["stopped_at"] == 20
    published, _ = publish([folder], tmp_path / "entry")
    curves, _ = models.files.checkpoint.load_weights(published / "curves.safetensors")
    assert curves["exact"][2, :2].tolist() == [1.0, 1.0] and curves["exact"][2, 2:].isnan().all()
    assert max(step for step, _ in load_snapshots(published)) <= 20


def test_curves_of_runs_of_different_lengths_are_one_table_with_nothing_after_a_seed_ended(tmp_path: Path):
    """As of models of text, whose loss is on validation; the runs come in any order of seeds."""
    model = models.build("microadder-57")
    folders, configs = [], []
    for first, ends in ((1, ("training", "training", "finished")), (0, ("training", "failed"))):
        folder = tmp_path / f"seed-{first}"
        folder.mkdir()
        lines = [
            {"step": 10 * i, "lr": 0.1, "loss": [first + i], "validation_loss": [i if first else None]}
            | {"status": [status]}
            for i, status in enumerate(ends, 1)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        folders.append(RunFolder(folder))
        configs.append({"first_seed": first, "seeds": 1})
    runs = Runs(model, ParameterLayout(model), folders, configs, [])
    chosen = Seed(folders[0], 0, {"seed": 1}, torch.zeros(57))
    for steps, n in ((None, 3), (20, 2)):
        files = curve_files(runs, chosen, steps)
        curves, _ = models.files.checkpoint.parse_weights(files["curves.safetensors"], "curves")
        assert curves.keys() == {"loss", "validation_loss", "seed", "step"}
        assert (curves["seed"].tolist(), curves["step"].tolist()) == ([1, 0], [10, 20, 30][:n])
        assert (
            curves["validation_loss"][0].tolist() == [1.0, 2.0, 3.0][:n] and curves["validation_loss"][1].isnan().all()
        )
        assert curves["loss"][1, :2].tolist() == [1.0, 2.0] and curves["loss"][1, 2:].isnan().all()
        own = [json.loads(line) for line in files["metrics.jsonl"].decode().splitlines()]
        assert [line["validation_loss"] for line in own] == [1, 2, 3][:n]


class OnlySeed:
    """A judge that accepts one seed, and remembers whom it saw."""

    option = "--fake"

    def __init__(self, seed: int):
        self.accepts, self.seen = seed, []

    def __call__(self, model, step: int, seed: int) -> Acceptance:
        self.seen.append(seed)
        facts = {"status": "certified", "arithmetic": "in floats", "targets": "all", "smallest_margin": 1.0}
        facts |= {"witness": [57, 48], "file": "why.txt"}
        return Acceptance(seed == self.accepts, "", facts, {"why.txt": b"because"})


def test_a_judge_chooses_the_first_perfect_seed_that_it_accepts_and_the_entry_keeps_its_evidence(tmp_path: Path, run):
    judge = OnlySeed(3)
    folder, _ = publish([run("a", 0, [1, 3])], tmp_path / "entry", judge=judge)
    entry = models.zoo.read_entry(folder)
    assert judge.seen == [1, 3] and entry["training"]["seed"] == 3 and entry["training"]["chosen_by"] == "--fake"
    assert models.zoo.entry_file(folder, "why.txt") == b"because" and entry["certificate"]["smallest_margin"] == 1.0


def test_without_an_accepted_seed_the_usual_rule_chooses(tmp_path: Path, run):
    folder, _ = publish([run("a", 0, [1, 3])], tmp_path / "entry", judge=OnlySeed(0))
    entry = models.zoo.read_entry(folder)
    assert entry["training"]["seed"] == 1 and "chosen_by" not in entry["training"] and "certificate" not in entry
