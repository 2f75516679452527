"""Picture of :class:`interp.probes.stress.StressSuites`."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import hover, points, words
from interp.figures.panels import Panel, compose
from interp.probes.stress import StressSuites

_SYMBOLS = {"sampled": "circle", "exhaustive": "square"}
COLOURS = (theme.GREY, theme.BLUE, theme.VERMILION, theme.ORANGE, theme.GREEN, theme.PURPLE)


@drawing(StressSuites)
def stress_suites(result: StressSuites) -> go.Figure:
    """Error rate of every case, log scale: a dot with its interval, or only the upper bound where nothing was wrong."""
    names = list(dict.fromkeys(case.suite for case in result.cases))
    layers = []
    for suite, colour in zip(names, COLOURS, strict=True):
        cases = result.suite(suite)
        wrong = [case for case in cases if case.errors]
        right = [case for case in cases if not case.errors and case.rung == "sampled"]
        whole = [case for case in cases if not case.errors and case.rung != "sampled"]
        at = [_label(suite, case.case) for case in wrong], [_label(suite, case.case) for case in right]
        layers += [
            points(
                [case.errors / case.rate.n for case in wrong], at[0], suite, colour,
                [_SYMBOLS[case.rung] for case in wrong], bar={"thickness": 1.2},
                ends_x=([case.low for case in wrong], [case.high for case in wrong]), showlegend=False,
                text=[f"{case.errors:,} of {case.rate.n:,} wrong" for case in wrong], **hover("{y}: {text} ({x:.1e})"),
            ),
            points(
                [case.rate.error_bound for case in right], at[1], None, colour, "triangle-left-open", 10,
                text=[f"all {case.rate.n:,} right" for case in right],
                **hover("{y}: {text}; error rate below {x:.1e} (95%)"),
            ),
            words(
                [1.2e-5 for _ in whole],  # beside the axis and not on its labels
                [_label(suite, case.case) for case in whole], [f"none of all {case.rate.n:,}" for case in whole],
                colour, textposition="middle right",
            ),
        ]  # fmt: skip
    labels = [_label(case.suite, case.case) for case in result.cases]
    x = {"title": "error rate", "type": "log", "exponentformat": "power", "dtick": 1, "range": [-5, 0.05]}
    y = {"categoryorder": "array", "categoryarray": labels[::-1], "tickfont": {"size": 11}}
    note = "Dots: sampled, with 95% interval; triangles: nothing wrong, 95% upper bound; squares: every problem tried"
    return compose(
        [Panel(layers, x=x, y=y)], result.sentence(), result.provenance, note=note, width=960,
        height=260 + 17 * len(labels), margin={"l": 220},
    )  # fmt: skip


def _label(suite: str, case: str) -> str:
    return f"{suite}: {case}"
