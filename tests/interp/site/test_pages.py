"""What all pages share: figures as parts of a page, tables, the document around them."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
import pytest

from interp.core.results import Provenance
from interp.core.sections import Section
from interp.figures import theme
from interp.figures.figure_panels import Panel, compose
from interp.figures.traces import bars, cells, points
from interp.site.pages import document, figure_data, figure_html, section_html, style, table_html
from interp.site.pages.figure import as_markup, figure_script, least_width
from interp.site.pages.words import as_read, heading


def some_figure(note: str = "") -> go.Figure:
    figure = go.Figure().add_scatter(x=[1, 2], y=[3, 4], name=note)
    return theme.finish(figure, "A title <b>that</b> states it", Provenance(2, 0, "points"), width=800)


def data_of(html: str) -> dict:
    (text,) = re.findall(r"<script type='application/json'>(.*?)</script>", html, flags=re.DOTALL)
    return json.loads(text)


def test_a_figures_title_becomes_a_caption_and_its_own_width_goes():
    for page in (figure_html(some_figure()), figure_data(some_figure())):
        assert "<figcaption><strong>A title that states it</strong>" in page and "n = 2 points" in page
    layout = data_of(figure_data(some_figure()))["layout"]
    assert "text" not in layout.get("title", {}) and "width" not in layout
    assert data_of(figure_data(some_figure(), fixed=True))["layout"]["width"] == 800


def test_the_shared_template_is_left_to_the_script_and_another_one_is_kept():
    page = figure_data(some_figure())
    assert "data-template='shared'" in page and "template" not in data_of(page)["layout"]
    assert json.dumps(list(pio.templates["plotly_white"].layout.colorway)) in figure_script()
    other = some_figure().update_layout(template="plotly_dark")
    assert "data-template" not in figure_data(other) and "template" in data_of(figure_data(other))["layout"]


def test_text_in_a_figure_cannot_end_its_script():
    page = figure_data(some_figure("</script><script>alert(1)</script>"))
    assert page.count("</script>") == 1
    assert data_of(page)["data"][0]["name"] == "</script><script>alert(1)</script>"


ATTACK = "<img src=x onerror=alert(1)>"


def test_a_name_in_a_title_is_text_in_the_caption_and_signs_stay_signs():
    figure = go.Figure().add_scatter(x=[1], y=[2])
    theme.finish(figure, f"{ATTACK} p < 0.05 and H<sub>0</sub> &lt; 1", Provenance(2, 0, ATTACK), width=2000)
    for page in (figure_html(figure), figure_data(figure)):
        (caption,) = re.findall("<figcaption>(.*?)</figcaption>", page, flags=re.DOTALL)
        assert "<img" not in caption and caption.count(html.escape(ATTACK)) == 2
        assert "p &lt; 0.05 and H<sub>0</sub> &lt; 1" in caption
    assert as_markup("<br onclick=x><script>&amp;</script>") == (
        "&lt;br onclick=x&gt;&lt;script&gt;&amp;&lt;/script&gt;"
    )


def test_data_cannot_open_a_comment_or_a_script_in_their_element():
    text = "<!--<script>"
    for page in (figure_data(some_figure(text)), document("t", "", {"name": text}, "c")):
        assert text not in page


def test_a_score_of_a_model_whose_name_is_a_script_is_text():
    import models

    model = models.build("microadder-57")
    model.name_or_path = ATTACK
    shown = models.score(model, ["1+2", "3+4"])._repr_html_()
    assert "<img" not in shown and html.escape(ATTACK) in shown


def test_columns_of_numbers_stand_right_and_text_is_escaped():
    page = table_html(pd.DataFrame({"n": [1000, 2], "x": [0.123456, float("nan")], "what": ["<b>", "b"]}))
    assert "<th scope='col' class='number'>n</th>" in page and "<td class='number'>1,000</td>" in page
    assert "<td class='number'>0.1235</td>" in page and "<td class='number'>–</td>" in page
    assert "<td class='short'>&lt;b&gt;</td>" in page and "<th scope='col'>what</th>" in page


def test_a_section_draws_its_figures_as_it_is_told():
    section = Section("A < B", "One.\n\nTwo.", (), (some_figure(),), level=3)
    assert section_html(section, figure_data).count("application/json") == 1
    assert "<h3>A &lt; B</h3>\n<p>One.</p>\n<p>Two.</p>" in section_html(section)


def test_a_document_is_one_file_with_its_data():
    page = document("A & B", "<p>body</p>", {"x": "</script>"}, "python -m studies reproduce a:b")
    assert "<title>A &amp; B</title>" in page and "<code>python -m studies reproduce a:b</code>" in page
    assert page.count("* plotly.js v") == 1 and 'id="data">{"x": "\\u003c/script>"}</script>' in page


# ---- words


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("restores 50.2% of logit_diff (-11.7)", "restores 50.2% of the logit difference (-11.7)"),
        ("breaks 54% of the logit_diff", "breaks 54% of the logit difference"),
        ("carry_in in blocks.0.hook_resid_mid at query", "carry in in L0 mid at query"),
        ("digit_sum in blocks.0.attn.hook_v at own digits", "digit sum in L0 values at own digits"),
        ("at blocks.2.hook_attn_out, 0.845", "at L2.attn, 0.845"),
        ("to 3.9e+00 degrees, below 3.1e-05", "to 3.9 degrees, below 3.1 × 10⁻⁵"),
        ("all 10^20 pairs, off by 2.9 x 10^-8", "all 10²⁰ pairs, off by 2.9 × 10⁻⁸"),
        ("trained on ten-digit-addition-delimited", "trained on ten-digit addition between delimiters"),
        ("addlm-0.8m, d_model 5, W_E, n_e2, 0x1e5", "addlm-0.8m, d_model 5, W_E, n_e2, 0x1e5"),
    ],
)
def test_sentences_are_shown_without_names_of_code_and_floats(stored: str, read: str):
    assert as_read(stored) == read


def test_a_tables_cells_and_headings_are_those_of_a_reader():
    frame = pd.DataFrame({"smallest_margin": [3e-5, 1.0], "d_model": ["1.881", "+0.145"], "all": [True, False]})
    frame["keys"] = [[2.3210472334, 1.5], []]
    html = table_html(frame)
    assert "<th scope='col' class='number'>smallest margin</th><th scope='col' class='number'>d_model</th>" in html
    assert "<td class='number'>3.000 × 10⁻⁵</td><td class='number'>1.881</td>" in html
    assert "<td class='short'>yes</td><td class='short'>2.321, 1.5</td>" in html and "<td class='short'>no</td>" in html


def test_a_short_text_stays_on_one_line_and_a_long_one_does_not():
    html = table_html(pd.DataFrame({"model": ["microadder-57-by-hand", "one two three four five six seven"]}))
    assert "<td class='short'>microadder-57-by-hand" in html and "<td class='long'>one two" in html
    assert heading("smallest_margin") == "smallest margin" and heading("d_model") == "d_model"


# ---- room for text


def panels(n: int, **axis: str) -> go.Figure:
    each = [Panel([points([1], [1], "a")], f"L0 neuron {i}: on with carry out", **axis) for i in range(n)]
    return compose(each, "A title", Provenance(2, 0, "points"), columns=n)


def test_a_figure_is_scrolled_where_its_panels_titles_would_meet_and_not_where_they_do_not():
    assert least_width(panels(1, x="step", y="loss")) == 340  # a telephone's column
    assert 620 < (least_width(panels(4, x="a + b in the column (digit sum)")) or 0) <= 990
    assert (least_width(panels(1, x="share of the targets that are right, with its interval")) or 0) > 380
    stated = panels(4).update_layout(meta={"least_width": 700})
    assert least_width(stated) == 700


def test_numbers_in_cells_have_room():
    def grids(number: str) -> go.Figure:
        each = [Panel([cells(np.eye(3), text=[[number] * 3] * 3)]) for _ in range(3)]
        return compose(each, "A title", Provenance(2, 0, "points"), columns=3)

    assert (least_width(grids("0.000531")) or 0) > 620 and least_width(grids("1")) is None


def test_names_below_bars_stand_in_lines_above_the_legend_and_only_if_they_must():
    def named(n: int) -> go.Figure:
        layer = bars([f"L0 neuron {i} zeroed" for i in range(n)], np.ones(n), "a")
        return compose([Panel([layer])], "A title", Provenance(2, 0, "points"))

    many, few = named(9), named(3)
    assert many.layout.xaxis.ticktext[0] == "L0 neuron 0<br>zeroed" and few.layout.xaxis.ticktext is None
    assert many.layout.margin.b > few.layout.margin.b and many.layout.legend.y < few.layout.legend.y


# ---- themes


def test_text_stands_out_from_its_ground_in_both_themes():
    themes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", rule))
        for rule in re.findall(r":root[^{]*{([^}]*--ink[^}]*)}", style())
    ]
    assert len(themes) == 2
    for colours in themes:
        for name in ("ink", "soft", "accent", "focus"):
            assert _contrast(colours[name], colours["paper"]) >= 4.5, name
        assert _contrast(colours["ink"], colours["tint"]) >= 4.5 and _contrast(colours["edge"], colours["paper"]) >= 3


def _contrast(colour: str, ground: str) -> float:
    """WCAG 2 contrast of two colours."""
    low, high = sorted(map(_luminance, (colour, ground)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * letter for letter in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
