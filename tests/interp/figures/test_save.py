"""A figure is written in the format that its file's name says, and turned dark where asked."""

from __future__ import annotations

import colorsys
import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go
import pytest

import interp
import models
from interp.figures import theme
from models.errors import UserError
from tests.sampling import sampled

LEADS = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}
BROWSER = any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))


@pytest.fixture(scope="module")
def result():
    return interp.circle_fit(models.load("microadder-57").W_E)


def test_a_result_is_written_as_its_obvious_figure(result, tmp_path: Path):
    path = interp.save_figure(result, tmp_path / "new" / "circle.json")
    assert path == tmp_path / "new" / "circle.json"
    assert go.Figure(json.loads(path.read_text())) == go.Figure(json.loads(result.figure().to_json()))


def test_a_page_holds_all_that_it_needs(result, tmp_path: Path):
    text = interp.save_figure(result.figure(), str(tmp_path / "circle.HTML")).read_text()
    assert "* plotly.js v" in text and "<script src" not in text


@pytest.mark.parametrize("suffix", sampled(["svg", "pdf", "png"], "svg"))
def test_a_picture_is_of_its_format(result, tmp_path: Path, suffix: str):
    if find_spec("kaleido") is None or not BROWSER:
        pytest.skip("needs kaleido and Chromium")
    path = interp.save_figure(result, tmp_path / f"circle.{suffix}")
    assert path.read_bytes()[:64].lstrip().startswith(LEADS[suffix])


@pytest.mark.parametrize("name", ["circle", "circle.gif", "circle.svg.gz"])
def test_another_suffix_is_refused_and_nothing_is_written(result, tmp_path: Path, name: str):
    with pytest.raises(UserError):
        interp.save_figure(result, tmp_path / name)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", LEADS)
def test_without_kaleido_a_picture_says_what_to_install(result, tmp_path: Path, monkeypatch, suffix: str):
    monkeypatch.setattr("interp.figures.save_figure.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"carrylens\[figures\]"):
        interp.save_figure(result, tmp_path / f"circle.{suffix}")
    assert not any(tmp_path.iterdir())


def test_a_browser_that_does_not_start_is_an_error_of_one_sentence(result, tmp_path: Path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("\nNo Chrome.\nMore.")

    monkeypatch.setattr("interp.figures.save_figure.find_spec", lambda name: object())
    monkeypatch.setattr(go.Figure, "to_image", fails)
    with pytest.raises(UserError, match=r"No Chrome\.\)"):
        interp.save_figure(result, tmp_path / "circle.pdf")


def test_a_dark_figure_keeps_data_and_hues_and_turns_lightness_over(result):
    light = result.figure()
    before = light.to_json()
    found = interp.dark(light)
    assert light.to_json() == before and interp.dark(result) == found
    assert found.layout.template.layout.paper_bgcolor == "rgba(24, 24, 24, 1)"
    for trace, of in zip(found.to_plotly_json()["data"], light.to_plotly_json()["data"], strict=True):
        assert trace["x"] == of["x"] and trace["y"] == of["y"] and trace.get("name") == of.get("name")
    for colour in (theme.BLUE, theme.VERMILION, theme.GREEN):
        bar = interp.dark(go.Figure(go.Bar(y=[1], marker={"color": colour}, text=colour))).data[0]
        assert bar.text == colour
        r, g, b, opacity = (float(level) for level in bar.marker.color.removeprefix("rgba(")[:-1].split(","))
        old = colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))
        new = colorsys.rgb_to_hls(r / 255, g / 255, b / 255)
        assert opacity == 1 and abs(old[0] - new[0]) < 0.05 and new[1] > old[1]


def test_the_scale_of_a_dark_heat_map_begins_on_the_dark_ground():
    drawn = go.Figure(go.Heatmap(z=[[0.0, 1.0]], colorscale="Greys_r"))
    scale = interp.dark(drawn).data[0].colorscale
    assert scale[0][1] == "rgba(231, 231, 231, 1)" and scale[-1][1] == "rgba(24, 24, 24, 1)"
