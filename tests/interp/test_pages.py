"""What all pages share: figures as parts of a page, tables, the document around them."""

from __future__ import annotations

import json
import re

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio

from interp.figures import theme
from interp.pages import Section, document, figure_data, figure_html, table_html
from interp.pages.figure import template_json
from interp.results import Provenance


def some_figure(note: str = "") -> go.Figure:
    figure = go.Figure().add_scatter(x=[1, 2], y=[3, 4], name=note)
    return theme.finish(figure, "A title <b>that</b> states it", Provenance(2, 0, "points"), width=800)


def data_of(html: str) -> dict:
    (text,) = re.findall(r"<script type='application/json'>(.*?)</script>", html, flags=re.DOTALL)
    return json.loads(text)


def test_a_figures_title_becomes_a_caption_and_its_own_width_goes():
    for html in (figure_html(some_figure()), figure_data(some_figure())):
        assert "<figcaption><strong>A title that states it</strong>" in html and "n = 2 points" in html
    layout = data_of(figure_data(some_figure()))["layout"]
    assert "text" not in layout.get("title", {}) and "width" not in layout
    assert data_of(figure_data(some_figure(), fixed=True))["layout"]["width"] == 800


def test_the_shared_template_is_left_to_the_script_and_another_one_is_kept():
    html = figure_data(some_figure())
    assert "data-template='shared'" in html and "template" not in data_of(html)["layout"]
    assert json.loads(template_json())["layout"]["colorway"] == list(pio.templates["plotly_white"].layout.colorway)
    other = some_figure().update_layout(template="plotly_dark")
    assert "data-template" not in figure_data(other) and "template" in data_of(figure_data(other))["layout"]


def test_text_in_a_figure_cannot_end_its_script():
    html = figure_data(some_figure("</script><script>alert(1)</script>"))
    assert html.count("</script>") == 1
    assert data_of(html)["data"][0]["name"] == "</script><script>alert(1)</script>"


def test_columns_of_numbers_stand_right_and_text_is_escaped():
    html = table_html(pd.DataFrame({"n": [1000, 2], "x": [0.123456, float("nan")], "what": ["<b>", "b"]}))
    assert "<th scope='col' class='number'>n</th>" in html and "<td class='number'>1,000</td>" in html
    assert "<td class='number'>0.1235</td>" in html and "<td class='number'>–</td>" in html
    assert "<td>&lt;b&gt;</td>" in html and "<th scope='col'>what</th>" in html


def test_a_section_draws_its_figures_as_it_is_told():
    section = Section("A < B", "One.\n\nTwo.", (), (some_figure(),), level=3)
    assert section.to_html(figure_data).count("application/json") == 1
    assert "<h3>A &lt; B</h3>\n<p>One.</p>\n<p>Two.</p>" in section.to_html()


def test_a_document_is_one_file_with_its_data():
    page = document("A & B", "<p>body</p>", {"x": "</script>"}, "interp reproduce a:b")
    assert "<title>A &amp; B</title>" in page and "<code>interp reproduce a:b</code>" in page
    assert page.count("* plotly.js v") == 1 and 'id="data">{"x": "<\\/script>"}</script>' in page
