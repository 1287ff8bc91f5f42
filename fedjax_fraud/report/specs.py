"""How the page's charts are drawn: Vega-Lite specifications made with Altair, without the rows.

The page's script hands a specification its rows under the names ``rows`` and ``levels``. Colours are variables of the
stylesheet, so that light, dark and print need no second chart.
"""

import math
from collections.abc import Callable, Collection

import altair as alt
import numpy as np
import pandas as pd

from . import decisions, styles

Looks = dict[str, tuple]  # algorithm -> colour, dashes, marker, as in ``styles``
SCORES = {
    "average_precision": "Average precision (PR-AUC)",
    "roc_auc": "ROC-AUC",
    "log_loss": "Log loss",
}
_SHORT = {"average_precision": "average precision", "roc_auc": "ROC-AUC", "log_loss": "log loss"}
BOUNDS = {"average_precision": (0.0, 1.0), "roc_auc": (0.0, 1.0), "log_loss": (0.0, math.inf)}
HOLDINGS = {"num_examples": "Training rows", "num_positives": "Frauds", "kl": "KL [nats]"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_AXIS_TITLES = {
    "round": "communication round",
    "mb": "traffic up and down so far [MB]",
    "time": "simulated time [s]",
}
_MOST_NUMBERED = 8  # banks whose numbers have room in their cells
_REACH = 0.35  # how far beyond the means a frame may grow for the intervals, of the means' range
_FROM_ZERO = 0.6  # a frame begins at 0 if the smallest mean is below this share of the largest
_AXIS_HEIGHT = 46  # pixels of a horizontal axis with its title
_STEP = 13  # pixels of an algorithm within a category

# Markers as paths in a square of side 2, for charts and legends alike; Matplotlib's letters.
MARKERS = {
    "o": "M-.75,0A.75,.75,0,1,1,.75,0A.75,.75,0,1,1,-.75,0Z",
    "s": "M-.65,-.65H.65V.65H-.65Z",
    "^": "M0,-.85L.85,.65H-.85Z",
    "v": "M0,.85L.85,-.65H-.85Z",
    "<": "M-.85,0L.65,-.85V.85Z",
    ">": "M.85,0L-.65,-.85V.85Z",
    "D": "M0,-.95L.95,0L0,.95L-.95,0Z",
    "d": "M0,-1L.65,0L0,1L-.65,0Z",
    "P": "M-.3,-.85H.3V-.3H.85V.3H.3V.85H-.3V.3H-.85V-.3H-.3Z",
    "X": "M0,-.4L.5,-.9L.9,-.5L.4,0L.9,.5L.5,.9L0,.4L-.5,.9L-.9,.5L-.4,0L-.9,-.5L-.5,-.9Z",
    "h": "M-.45,-.8H.45L.9,0L.45,.8H-.45L-.9,0Z",
    "p": "M0,-.9L.86,-.28L.53,.73H-.53L-.86,-.28Z",
    "*": "M0,-1L.27,-.35L.95,-.3L.43,.15L.6,.82L0,.45L-.6,.82L-.43,.15L-.95,-.3L-.27,-.35Z",
    "": "M0,0Z",
}
_DASHES = {"-": (1.0, 0.0), "--": (6.0, 4.0), ":": (2.0, 3.0), "-.": (8.0, 3.0, 2.0, 3.0)}
_DARK = {
    "#0072B2": "#4BA3DD",
    "#D55E00": "#F07B2E",
    "#009E73": "#2BC196",
    "#CC79A7": "#DE9BC0",
    "#E69F00": "#F0B430",
    "#56B4E9": "#7CC7F0",
    "#8C564B": "#C08B7E",
    "#000000": "#F2F2F2",
    "#999999": "#A8A8A8",
    styles.INK: "#E8EAED",
    styles.GREY: "#9AA0A6",
}

CONFIG = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--ink)",
        "gridColor": "var(--line)",
        "domainColor": "var(--axis)",
        "tickColor": "var(--axis)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 150,
    },
}


def colours(looks: Looks) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of the stylesheet for the algorithms' colours, light and dark."""
    used = dict.fromkeys(colour for colour, _, _ in looks.values())
    return {_variable(c): c for c in used}, {_variable(c): _DARK.get(c, c) for c in used}


def colour(looks: Looks, algorithm: str) -> str:
    """An algorithm's colour as the stylesheet names it."""
    return f"var({_variable(looks[algorithm][0])})"


def dashes(looks: Looks, algorithm: str) -> list[float]:
    """An algorithm's dashes in pixels."""
    pattern = looks[algorithm][1]
    return list(_DASHES[pattern]) if isinstance(pattern, str) else [round(2.0 * length, 1) for length in pattern[1]]


def marker(looks: Looks, algorithm: str) -> str:
    """An algorithm's marker as a path in a square of side 2."""
    return MARKERS[looks[algorithm][2]]


# ---- specifications ---------------------------------------------------------------------------------------------


def curves(looks: Looks, table: pd.DataFrame, levels: pd.DataFrame, score: str, axis: str) -> dict:
    """Lines with bands over levels."""
    wide = _spans_orders(table[score])
    both = pd.concat([table, levels], ignore_index=True)
    y = _over(score, SCORES[score], _scale(both, score, BOUNDS[score], logarithmic=wide))
    level = alt.Chart(alt.NamedData("levels")).mark_rule(strokeWidth=1.5)
    level = level.encode(y=y(""), stroke=_colour(looks, "stroke"), strokeDash=_dash(looks), tooltip=_tooltip(score))
    return _finished(alt.layer(level, *_lines(looks, score, _x_axis(table, axis), y, SCORES[score])), 280)


def _lines(looks: Looks, value: str, x: alt.X, y: Callable[[str], alt.Y], label: str) -> list[alt.Chart]:
    """A band, a line and points for each algorithm."""
    band = _rows().mark_area(opacity=0.16).encode(x=x, y=y("_low"), y2=f"{value}_high:Q", fill=_colour(looks, "fill"))
    line = (
        _rows().mark_line(strokeWidth=2).encode(x=x, y=y(""), stroke=_colour(looks, "stroke"), strokeDash=_dash(looks))
    )
    costs = [alt.Tooltip("round:Q", title="Round"), alt.Tooltip("mb:Q", format=".4~g", title="MB")]
    points = _rows().mark_point(size=42, strokeWidth=0, fillOpacity=1)
    points = points.encode(
        *(x, y(""), _colour(looks, "fill"), _shape(looks)), tooltip=[*_tooltip(value, label), *costs]
    )
    return [band, line, points]


def drift(looks: Looks, table: pd.DataFrame) -> dict:
    """Drift by round: lines with bands."""
    y = _over(
        "drift",
        "norm of update minus mean update",
        _scale(table, "drift", (0.0, math.inf), logarithmic=_spans_orders(table["drift"])),
    )
    return _finished(alt.layer(*_lines(looks, "drift", _x_axis(table, "round"), y, "Drift")), 240)


def dots(
    looks: Looks,
    table: pd.DataFrame,
    value: str,
    title: str,
    order: Collection[str],
    bounds: tuple[float, float] = (0.0, 1.0),
    *,
    ticks: str = "",
    level: float = math.nan,
) -> dict:
    """A point with its bar for each algorithm, side by side within each ``category``.

    Args:
      looks: colours, dashes and markers.
      table: the rows of all panels, for a common frame; columns ``value`` with ``_low`` and ``_high``.
      value, title: what the horizontal axis shows.
      order: the algorithms from top to bottom.
      bounds: what the value cannot leave.
      ticks: a column whose value is marked across each category; none if empty.
      level: a value marked across all categories; none if NaN.
    """
    scale = _scale(table, value, bounds)
    places = {"y": _category(table), "yOffset": alt.YOffset("algorithm:N", sort=list(order))}
    chart = alt.layer(*_points_with_bars(looks, value, title, scale, places))
    if ticks:
        mark = _rows().mark_tick(color="var(--muted)", thickness=2, size=_STEP)
        chart += mark.encode(
            x=alt.X(f"{ticks}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5, format="~g")), **places
        )
    if math.isfinite(level):
        rule = _still().mark_rule(color="var(--muted)", strokeDash=list(_DASHES["-."]))
        chart += rule.encode(x=alt.X(datum=level))
    return _finished(chart, _AXIS_HEIGHT + table["category"].nunique() * (_STEP * len(order) + 2 * _STEP))


def differences(looks: Looks, table: pd.DataFrame, metric: str) -> dict:
    """A point with its bar for each algorithm, over a line at 0."""
    title = f"{_SHORT[metric]} minus FedAvg's"
    zero = pd.concat([table, pd.DataFrame({metric: [0.0]})])
    scale = _scale(zero, metric, (-math.inf, math.inf))
    line = _still().mark_rule(color="var(--ink)", strokeWidth=1).encode(x=alt.X(datum=0))
    return _finished(
        alt.layer(line, *_points_with_bars(looks, metric, title, scale, {"y": _category(table)})),
        _AXIS_HEIGHT + 34 * table["category"].nunique(),
    )


def _points_with_bars(looks: Looks, value: str, title: str, scale: alt.Scale, places: dict) -> list[alt.Chart]:
    """Intervals as bars with their means as points; a bank's own model is hollow."""
    axis = alt.Axis(tickCount=5, format="~g")
    mean, low = (alt.X(f"{value}{end}:Q", title=title, scale=scale, axis=axis) for end in ("", "_low"))
    bar = _rows().mark_rule(strokeWidth=2)
    bar = bar.encode(x=low, x2=f"{value}_high:Q", stroke=_colour(looks, "stroke"), **places)
    hollow = alt.condition("datum.algorithm === 'local_only'", alt.value("var(--surface)"), _colour(looks, "fill"))
    point = _rows().mark_point(size=70, strokeWidth=2, fillOpacity=1)
    point = point.encode(
        *(mean, _colour(looks, "stroke"), _shape(looks)), fill=hollow, tooltip=_tooltip(value), **places
    )
    return [bar, point]


def heat_map(table: pd.DataFrame, name: str, named: bool) -> dict:
    """A cell for each bank and seed, shaded by what it holds, with the number where there is room."""
    top = float(table[name].max()) if table[name].notna().any() else 1.0
    several = table["rank"].max() > _MOST_NUMBERED
    axis = alt.Axis(labelAngle=-35 if named else 0, labelLimit=110, domain=False, ticks=False, labelOverlap=True)
    x = alt.X("bank:N", sort=None, title="bank" if named else "bank, by number of rows", axis=axis)
    y = alt.Y("seed:O", title="seed", axis=alt.Axis(domain=False, ticks=False))
    shade = alt.FillOpacity(f"{name}:Q", scale=alt.Scale(domain=[0, top or 1.0], range=[0.03, 0.6]), legend=None)
    tooltip = [
        alt.Tooltip("seed:O", title="Seed"),
        alt.Tooltip("bank:N", title="Bank"),
        *(alt.Tooltip(f"{key}:Q", title=title, format=_number_format(key)) for key, title in HOLDINGS.items()),
    ]
    cells = _rows().mark_rect(fill="var(--heat)", stroke="var(--surface)", strokeWidth=1.5)
    layers = [cells.encode(x=x, y=y, fillOpacity=shade, tooltip=tooltip)]
    if not several:
        text = _rows().mark_text(fontSize=11, fill="var(--ink)")
        layers.append(text.encode(x=x, y=y, text=alt.Text(f"{name}:Q", format=_number_format(name))))
    cross = _rows().transform_filter("datum.num_positives === 0 && datum.num_examples > 0")
    cross = cross.mark_text(text="\u00d7", fontSize=13, dx=0 if several else 30, fill="var(--ink)").encode(x=x, y=y)
    return _finished(alt.layer(*layers, cross), _AXIS_HEIGHT + (40 if named else 0) + 24 * table["seed"].nunique())


def calibration(looks: Looks, table: pd.DataFrame) -> dict:
    """Points with bars along lines, over the line of perfect calibration."""
    low, high, smallest = decisions.reliability_span(table)
    left, right, top = low / 1.6, min(1.0, high * 1.6), min(1.0, high * 2.0)
    x = alt.X(
        "probability:Q",
        title="mean predicted probability",
        scale=alt.Scale(type="log", domain=[left, right], nice=False, clamp=True),
        axis=alt.Axis(format="~g", tickCount=4),
    )
    powers = [10.0**power for power in range(math.ceil(math.log10(smallest)), 1) if 10.0**power <= top]
    scale = alt.Scale(type="symlog", constant=smallest, domain=[0, top], nice=False, clamp=True)
    y = _over("rate", "observed fraud rate", scale, values=[0.0, *powers])
    line = [{"probability": p, "rate": p} for p in np.geomspace(left, right, 60)]
    right_line = alt.Chart(alt.InlineData(values=line)).mark_line(color="var(--muted)", strokeWidth=1)
    curve = _rows().mark_line(strokeWidth=1.5)
    curve = curve.encode(x=x, y=y(""), stroke=_colour(looks, "stroke"), strokeDash=_dash(looks))
    bar = _rows().mark_rule(strokeWidth=1.5).encode(x, y("_low"), _colour(looks, "stroke"), y2="rate_high:Q")
    tooltip = [*_tooltip("rate", "Observed", ".3~g"), alt.Tooltip("probability:Q", title="Predicted", format=".3~g")]
    point = _rows().mark_point(size=42, strokeWidth=0, fillOpacity=1)
    point = point.encode(x, y(""), _colour(looks, "fill"), _shape(looks), tooltip=tooltip)
    return _finished(alt.layer(right_line.encode(x=x, y=y("")), bar, curve, point), 280)


def _finished(chart: alt.LayerChart, height: int) -> dict:
    """A specification as wide as its place, without what the page sets once for all charts."""
    size = alt.AutoSizeParams(type="fit", contains="padding")
    spec = chart.properties(width="container", height=height, autosize=size).to_dict(validate=False)
    return {name: part for name, part in spec.items() if name not in ("$schema", "config")}


def _rows() -> alt.Chart:
    """A layer of the rows that the page's script hands over."""
    return alt.Chart(alt.NamedData("rows"))


def _still() -> alt.Chart:
    """A layer that shows no row: one mark at a given place."""
    return alt.Chart(alt.InlineData(values=[{}]))


def _category(table: pd.DataFrame) -> alt.Y:
    """The categories of all panels from top to bottom in the order of the rows; a line break in one is a line break."""
    scale = alt.Scale(domain=list(dict.fromkeys(table["category"])), paddingInner=0.3, paddingOuter=0.15)
    axis = alt.Axis(labelExpr=r"split(datum.label, '\n')", domain=False, ticks=False, labelPadding=8)
    return alt.Y("category:N", sort=None, title=None, axis=axis, scale=scale)


def _x_axis(table: pd.DataFrame, axis: str) -> alt.X:
    """Rounds, traffic or time; logarithmic where the algorithms' totals differ much."""
    whole = axis == "round"
    totals = table.groupby("algorithm")[axis].max()
    wide = not whole and len(totals) > 1 and 0 < totals.min() * styles.COST_LOG_RATIO < totals.max()
    scale = alt.Scale(type="log") if wide else alt.Scale(domain=[0, float(table[axis].max()) or 1.0], nice=False)
    marks = dict(tickMinStep=1, format="d") if whole else dict(format="~g")
    return alt.X(f"{axis}:Q", title=_AXIS_TITLES[axis], scale=scale, axis=alt.Axis(grid=False, tickCount=6, **marks))


def _over(value: str, title: str, scale: alt.Scale, **settings) -> Callable[[str], alt.Y]:
    """The vertical place of a value or, given ``_low``, of its bound; the title stands above the axis, to be read."""
    place = dict(titleAngle=0, titleAlign="left", titleAnchor="start", titleX=0, titleY=-10, titleBaseline="bottom")
    if scale["type"] == "log":
        settings.setdefault("values", _log_ticks(*scale["domain"]))
    axis = alt.Axis(domain=False, ticks=False, **place, **({"tickCount": 5, "format": "~g"} | settings))
    return lambda end: alt.Y(f"{value}{end}:Q", title=title, axis=axis, scale=scale)


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten within a frame; powers alone if those are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _spans_orders(means: pd.Series) -> bool:
    """Whether some means are so far apart that a linear axis would hide the small ones."""
    positive = means[means > 0]
    return len(positive) > 0 and bool(positive.max() > styles.LOG_RATIO * positive.min())


def _scale(table: pd.DataFrame, name: str, bounds: tuple[float, float], *, logarithmic: bool = False) -> alt.Scale:
    """A frame for the means of all panels. What leaves it is cut."""
    means = table[name][np.isfinite(table[name].astype(float))]
    positive = means[means > 0]
    if logarithmic:
        ends = [0.7 * float(positive.min()), min(bounds[1], 1.4 * float(means.max()))]
        return alt.Scale(type="log", domain=ends, nice=False, clamp=True)
    low, high = _frame(table, name, bounds) if len(means) else (0.0, 1.0)
    return alt.Scale(domain=[low, high], nice=False, zero=False, clamp=True)


def _frame(table: pd.DataFrame, name: str, bounds: tuple[float, float]) -> tuple[float, float]:
    """The means, with a margin, and the intervals as far as they do not flatten the means."""
    low, high = float(np.nanmin(table[name])), float(np.nanmax(table[name]))
    if bounds[0] == 0.0 and low < _FROM_ZERO * high:
        low = 0.0
    reach = _REACH * ((high - low) or abs(high) or 1.0)
    low = max(bounds[0], low - reach, float(np.nanmin([low, *table[f"{name}_low"]])))
    high = min(bounds[1], high + reach, float(np.nanmax([high, *table[f"{name}_high"]])))
    margin = 0.04 * (high - low)
    return low if low == bounds[0] else low - margin, high + margin


def _colour(looks: Looks, channel: str) -> alt.Fill | alt.Stroke:
    """The algorithms' colours."""
    kind = alt.Fill if channel == "fill" else alt.Stroke
    scale = alt.Scale(domain=list(looks), range=[colour(looks, name) for name in looks])
    return kind("algorithm:N", scale=scale, legend=None)


def _dash(looks: Looks) -> alt.StrokeDash:
    """The algorithms' dashes."""
    scale = alt.Scale(domain=list(looks), range=[dashes(looks, name) for name in looks])
    return alt.StrokeDash("algorithm:N", scale=scale, legend=None)


def _shape(looks: Looks) -> alt.Shape:
    """The algorithms' markers."""
    scale = alt.Scale(domain=list(looks), range=[marker(looks, name) for name in looks])
    return alt.Shape("algorithm:N", scale=scale, legend=None)


def _tooltip(value: str, label: str = "", digits: str = ".4f") -> list[alt.Tooltip]:
    """Algorithm, mean and interval."""
    ends = (("", label or SCORES.get(value, "Mean")), ("_low", "95 % interval from"), ("_high", "to"))
    numbers = [alt.Tooltip(f"{value}{end}:Q", title=title, format=digits) for end, title in ends]
    return [alt.Tooltip("name:N", title="Algorithm"), *numbers]


def _number_format(name: str) -> str:
    """How the heat map writes what a bank holds."""
    return ".3f" if name == "kl" else ","


def _variable(colour: str) -> str:
    """The name of a colour in the stylesheet."""
    return f"--c-{colour.lstrip('#').lower()}"
