"""Picture of :class:`interp.probes.stress.StressSuites`."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.stress import StressSuites

_SYMBOLS = {"sampled": "circle", "exhaustive": "square"}
COLOURS = (theme.GREY, theme.BLUE, theme.VERMILION, theme.ORANGE, theme.GREEN, theme.PURPLE)


@drawing(StressSuites)
def stress_suites(result: StressSuites) -> go.Figure:
    """Error rate of every case, log scale: a dot with its interval, or only the upper bound where nothing was wrong."""
    figure = go.Figure()
    names = list(dict.fromkeys(case.suite for case in result.cases))
    labels = [_label(case.suite, case.case) for case in result.cases]
    for suite, colour in zip(names, COLOURS, strict=True):
        cases = result.suite(suite)
        wrong = [case for case in cases if case.errors]
        figure.add_scatter(
            x=[case.errors / case.rate.n for case in wrong],
            y=[_label(suite, case.case) for case in wrong],
            error_x=theme.error_bars(
                [case.errors / case.rate.n for case in wrong],
                [case.low for case in wrong],
                [case.high for case in wrong],
                thickness=1.2,
            ),
            mode="markers",
            marker={"size": 9, "color": colour, "symbol": [_SYMBOLS[case.rung] for case in wrong]},
            name=suite,
            showlegend=False,
            text=[f"{case.errors:,} of {case.rate.n:,} wrong" for case in wrong],
            hovertemplate="%{y}: %{text} (%{x:.1e})<extra></extra>",
        )
        right = [case for case in cases if not case.errors and case.rung == "sampled"]
        figure.add_scatter(
            x=[case.rate.error_bound for case in right],
            y=[_label(suite, case.case) for case in right],
            mode="markers",
            marker={"symbol": "triangle-left-open", "size": 10, "color": colour, "line": {"width": 1.6}},
            showlegend=False,
            text=[f"all {case.rate.n:,} right" for case in right],
            hovertemplate="%{y}: %{text}; error rate below %{x:.1e} (95%)<extra></extra>",
        )
        whole = [case for case in cases if not case.errors and case.rung != "sampled"]
        figure.add_scatter(
            x=[1.2e-5 for _ in whole],  # beside the axis and not on its labels
            y=[_label(suite, case.case) for case in whole],
            mode="text",
            text=[f"none of all {case.rate.n:,}" for case in whole],
            textfont={"color": colour, "size": 12},
            textposition="middle right",
            showlegend=False,
            hoverinfo="skip",
        )
    figure.update_yaxes(categoryorder="array", categoryarray=labels[::-1], tickfont={"size": 11})
    figure.update_xaxes(title="error rate", type="log", exponentformat="power", dtick=1, range=[-5, 0.05])
    note = "Dots: sampled, with 95% interval; triangles: nothing wrong, 95% upper bound; squares: every problem tried"
    figure = theme.finish(
        figure, result.sentence(), result.provenance, width=740, height=260 + 17 * len(labels), note=note
    )
    return figure.update_layout(width=960, margin={"l": 220})  # the title has the width beside the labels


def _label(suite: str, case: str) -> str:
    return f"{suite}: {case}"
