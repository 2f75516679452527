"""A figure from nothing: trained, evaluated, drawn, and continued after every kind of stop."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

import models
from interp.cli.commands import main
from models.errors import UserError
from models.families.position_coupling import SMALL, CouplingVariant, DecoderSize
from models.families.position_coupling_variants import FIGURES, PaperFigure, register_variant
from studies.__main__ import PROGRAM
from studies.position_coupling.cost import duration, training_seconds
from studies.position_coupling.exact_match_grid import PAPER_GRID
from studies.position_coupling.grid_panels import GridPanel, GridPanels
from studies.position_coupling.studies import largest_of, reproduce, show_panels, sources_of
from studies.runs import study as studies
from studies.runs.study import Made, Settings
from tests.quick_recipes import change_recipe

TINY = {
    "coupled": SMALL["addition"].replace(size=DecoderSize(1, 2, 8, 8), longest=2, most=2, limits=(4, 4), set_size=64),
    "without": SMALL["addition"].replace(
        size=DecoderSize(1, 2, 8, 8), longest=2, most=2, limits=(4, 4), set_size=64, positions="none"
    ),
}


@pytest.fixture(scope="module")
def tiny() -> Iterator[dict[str, CouplingVariant]]:
    """A figure "tiny" of two models that train in a second."""
    with pytest.MonkeyPatch.context() as patch:
        for variant in TINY.values():
            change_recipe(
                patch, register_variant(variant),
                steps=12, warmup_steps=1, batch_size=4, validation_size=4, eval_every=4, snapshots=0,
            )  # fmt: skip
        figures = dict(FIGURES) | {"tiny": PaperFigure("Two models", "addition", TINY, TINY)}
        patch.setattr("studies.position_coupling.studies.FIGURES", figures)
        study = studies.Study("position-coupling:tiny", "Two models", partial(reproduce, "tiny"))
        studies.studies()
        patch.setitem(studies._STUDIES, study.target, study)
        patch.setitem(studies._SHOWS, study.target, show_panels)
        yield TINY


@dataclass(frozen=True)
class Done:
    """A job that nothing disturbed; only read, or copied."""

    folder: Path
    page: Made | None
    said: list[str]

    def copied(self, to: Path) -> Path:
        return shutil.copytree(self.folder, to)


@pytest.fixture(scope="module")
def one_seed(tiny, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder, said = tmp_path_factory.mktemp("one"), []
    return Done(folder, job(folder, said), said)


@pytest.fixture(scope="module")
def two_seeds(one_seed: Done, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The same job continued with a second seed."""
    folder, said = one_seed.copied(tmp_path_factory.mktemp("two") / "runs"), []
    return Done(folder, job(folder, said, seeds=2), said)


def job(out: Path, said: list[str] | None = None, **options) -> Made | None:
    say = (lambda text: None) if said is None else said.append
    return reproduce("tiny", Settings(out, problems=3, progress=False, say=say, device="cpu", **options))


def panels_of(page: Made | None) -> GridPanels:
    assert page is not None
    return GridPanels.from_dict(page.data)


def test_from_nothing_to_a_page_with_its_data(tiny, one_seed: Done):
    panels, said = panels_of(one_seed.page), one_seed.said
    assert [panel.label for panel in panels.panels] == list(tiny)
    assert panels.panels[0].grids[0].about["offsets"] == "ids start at 1"
    assert panels.panels[1].grids[0].about["offsets"] == "no position ids"
    assert "2 of 2 runs left to train" in said[0] and "2 of 2 panels" in said[-1]


def test_the_second_time_nothing_is_trained_or_evaluated(one_seed: Done, tmp_path: Path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("done already")

    monkeypatch.setattr("studies.runs.training_runs.train", never)
    monkeypatch.setattr("studies.position_coupling.exact_match_grid._count", never)
    said: list[str] = []
    again = job(one_seed.copied(tmp_path / "runs"), said)
    assert again is not None and one_seed.page is not None and again.data == one_seed.page.data
    assert "nothing left to train" in said[0]


def test_a_job_that_runs_out_of_time_ends_like_one_that_does_not(tiny, one_seed: Done, tmp_path: Path, monkeypatch):
    from models.training import train

    # Each slice trains a few steps only, however fast the machine is.
    stops = cycle((7, 12))

    def slice_of(*arguments, **options):
        return train(*arguments, **options | {"minutes": None, "stop_at_step": next(stops)})

    monkeypatch.setattr("studies.runs.training_runs.train", slice_of)
    said: list[str] = []
    for _ in range(12):
        page = job(tmp_path / "cut", said, minutes=5.0)
        if page is not None and len(page.data["panels"]) == len(tiny):
            break
    else:
        raise AssertionError("never done")
    assert any(text.startswith("Not finished") for text in said)
    assert page is not None and one_seed.page is not None and page.data == one_seed.page.data


def test_no_time_means_no_training(tiny, tmp_path: Path):
    said: list[str] = []
    assert job(tmp_path, said, minutes=0.0) is None
    assert "The same command goes on." in said[-1]


def test_more_seeds_keep_the_first_and_show_the_median(one_seed: Done, two_seeds: Done):
    runs = {path.relative_to(one_seed.folder) for path in one_seed.folder.rglob("config.json")}
    assert len(runs) == 2 and len(list(two_seeds.folder.rglob("config.json"))) == 4
    for run in runs:
        assert (two_seeds.folder / run).stat().st_mtime_ns == (one_seed.folder / run).stat().st_mtime_ns
    assert [panel.seeds_text for panel in panels_of(two_seeds.page).panels] == ["median of 2 seeds"] * 2


def test_a_stored_result_is_extended_by_seeds_and_models_without_its_weights(two_seeds: Done, tmp_path: Path):
    whole = panels_of(two_seeds.page).to_dict()
    one = GridPanels.from_dict(whole).panels[0]
    stored = write(tmp_path / "stored.json", GridPanel(one.label, one.grids[:1]))
    said: list[str] = []
    assert panels_of(job(tmp_path / "here", said, seeds=2, extend=stored)).to_dict() == whole
    assert "3 of 3 runs left to train" in said[0] and f"Grids kept from {stored}: 1." in said
    trained = sorted(path.parent.name for path in (tmp_path / "here").rglob("config.json"))
    assert trained == ["seed-0", "seed-1", "seed-1"]


def test_what_a_stored_result_has_is_shown_when_time_is_up_before_it(tiny, one_seed: Done, tmp_path: Path):
    last = panels_of(one_seed.page).panels[-1]
    stored = write(tmp_path / "stored.json", last)
    panels = panels_of(job(tmp_path / "here", minutes=0.0, extend=stored))
    assert [panel.label for panel in panels.panels] == [last.label] and panels.planned == len(tiny)


def write(path: Path, *panels: GridPanel) -> Path:
    path.write_text(json.dumps(GridPanels("Stored", panels).to_dict()))
    return path


def test_a_result_that_does_not_fit_is_not_extended(one_seed: Done, tmp_path: Path):
    panel = panels_of(one_seed.page).panels[0]
    other = replace(panel.grids[0], model=TINY["without"].name)
    cases = {
        "panel 'neither'": GridPanel("neither", panel.grids),
        "chosen among 5": GridPanel(panel.label, panel.grids, chosen_among=5),
        "ask for --seeds 2": GridPanel(panel.label, panel.grids * 2),
        f"has {other.model} with": GridPanel(panel.label, (other,)),
    }
    for sentence, unfit in cases.items():
        with pytest.raises(UserError, match=sentence):
            job(tmp_path / "none", extend=write(tmp_path / "stored.json", unfit))
    stored = write(tmp_path / "stored.json", panel)
    with pytest.raises(UserError, match=r"with 3 problems .* with 4 problems"):
        reproduce("tiny", Settings(tmp_path / "none", problems=4, say=lambda _: None, device="cpu", extend=stored))
    with pytest.raises(UserError, match="start at 1.* start at 2"):
        job(tmp_path / "none", extend=stored, offsets="start 2")
    with pytest.raises(UserError, match="--extend"):
        studies.reproduce("toygpt:fig1", Settings(tmp_path / "none", extend=stored))
    assert not (tmp_path / "none").exists()


def test_a_stored_small_model_is_used_for_one_seed_and_never_for_a_median(tiny, tmp_path: Path, monkeypatch):
    name = TINY["coupled"].name
    monkeypatch.setattr(models, "zoo_names", lambda: [name])
    monkeypatch.setattr(models, "load", lambda asked: models.build(asked, seed=7))
    monkeypatch.setattr(models.zoo, "read_entry", lambda asked: {"training": {"seeds_tried": 5}})
    said: list[str] = []
    panels = panels_of(job(tmp_path, said))
    assert f"coupled: the stored {name}" in said and "1 of 2 runs left" in said[0]
    assert panels.panels[0].seeds_text == "1 seed, chosen among 5"
    assert not (tmp_path / "position-coupling" / name / "seed-0").exists()
    said.clear()
    assert job(tmp_path, said, seeds=2)
    assert not any("the stored" in text for text in said)


def test_a_run_with_another_recipe_is_refused(one_seed: Done, tmp_path: Path, monkeypatch):
    out = one_seed.copied(tmp_path / "runs")
    change_recipe(monkeypatch, TINY["coupled"].name, lr=0.5)
    with pytest.raises(UserError, match=r"recipe\.lr is 0\.001 there and 0\.5 now"):
        job(out)


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("size", ["small", "paper"])
def test_every_figure_has_a_plan(name, size, tmp_path: Path):
    sources = sources_of(name, Settings(tmp_path, size, device="cpu"))
    task = next(iter(sources.values()))[0].variant.make_task()
    largest = largest_of(sources)
    assert len(largest) == len(task.shape)
    assert all(1 < size <= most for size, most in zip(largest, PAPER_GRID[task.name], strict=True))
    files = [source.grid_file for several in sources.values() for source in several]
    assert len(set(files)) == len(files) == len(sources)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["position-coupling:fig2"], "fig2"),
        (["position-coupling:fig15"], "Did you mean 'fig"),
        (["position-couplng:fig1"], "Did you mean 'position-coupling'?"),
        (["fig1"], "PAPER:WHAT"),
        (["position-coupling:fig1", "--seeds", "0"], "--seeds must be at least 1"),
        (["position-coupling:fig1", "--offsets", "maybe"], "Offsets are 'random'"),
        (["position-coupling:fig1", "--size", "paper", "--device", "cpu"], "--yes to start anyway"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, sentence, capsys, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments], PROGRAM) == 2
    error = capsys.readouterr().err.strip()
    assert sentence in error and len(error.splitlines()) == 1 and "Traceback" not in error
    assert not any(tmp_path.iterdir())


def test_the_command_is_the_same(tiny, tmp_path: Path, capsys):
    where = ["--out", str(tmp_path), "--problems", "4", "--device", "cpu"]
    assert main(["reproduce", "position-coupling:tiny", *where], PROGRAM) == 0
    assert "2 of 2 panels" in capsys.readouterr().out
    page = tmp_path / "position-coupling" / "tiny.html"
    text = page.read_text()
    data = json.loads(text.split('id="data">')[1].split("</script>")[0].replace("<\\/", "</"))
    assert data == GridPanels.load(page.with_suffix(".json")).to_dict()
    assert "http" not in text.replace(text.split("<script>")[1].split("</script>")[0], "").split("<body>")[1]


def test_a_larger_model_is_said_to_take_longer():
    small, paper = FIGURES["fig1"].small, FIGURES["fig1"].paper
    label = "Position Coupling, scratchpad"
    quick = training_seconds(small[label], small[label].recipe(), "cpu")
    slow = training_seconds(paper[label], paper[label].recipe(), "cpu")
    assert 20 < quick < 3600 and slow > 86_400
    assert training_seconds(paper[label], paper[label].recipe(), "cuda") < slow / 100


def test_durations_are_said_in_a_fitting_unit():
    assert [duration(s) for s in (40.0, 1500.0, 12_600.0, 1e6)] == ["40 s", "25 minutes", "3.5 hours", "12 days"]
