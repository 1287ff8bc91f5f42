"""The picture of calibration: what the models predicted beside what happened, a panel per alpha."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from . import figures, styles
from .decisions import reliability, reliability_span
from .tables import BASELINES, best_settings, num_choices, summarise
from .wording import plural, setting_names

CENTRALISED_STYLE = (styles.INK, "--", "")


def calibration_figure(result: Any, conditions: str = "") -> Figure:
    """Observed fraud rate against predicted probability in ten bins of equal mass, a panel per alpha.

    A point is the mean over seeds that did not diverge, its bar the 95 % t interval of the rate; on the grey line the
    prediction is right. Both axes are logarithmic; below the smallest rate that can be seen the vertical one is linear,
    so that bins without fraud stand at 0. Probabilities below 1e-6 lie beyond the left edge. Of several hyperparameter
    values the best is shown, see ``tables.best_settings``.

    Args:
      result: has ``rounds``, ``decisions`` and ``manifest``; one combination of conditions, as in ``figures``.
      conditions: its name, for the title.
    """
    rounds = best_settings(result.rounds)
    summary = summarise(rounds)
    diverged = set(rounds["setting"][rounds["diverged"].astype(bool)])
    curves = reliability(result.decisions[result.decisions["setting"].isin(rounds["setting"])], diverged)
    looks = styles.line_styles(summary)
    if (summary["algorithm"] == "centralised").any():
        looks["centralised"] = CENTRALISED_STYLE
    alphas = figures._alphas(summary)
    figure = figures._figure(len(alphas), 4.6)
    axes = figure.subplots(1, len(alphas), squeeze=False, sharex=True, sharey=True)[0]
    span = reliability_span(curves)
    for axis, alpha in zip(axes, alphas, strict=True):
        _draw(axis, curves[figures._same(curves["alpha"], alpha)] if len(curves) else curves, looks, span)
        axis.set_title(figures._panel_title(alpha, len(alphas)), fontsize=10.5, color=styles.INK)
        axis.set_xlabel("mean predicted probability", fontsize=9)
    axes[0].set_ylabel("observed fraud rate", fontsize=9)
    seeds = plural(rounds["seed"].nunique(), "seed")
    figure.suptitle(
        f"Calibration on the pooled test rows, ten bins of equal mass{figures.in_brackets(conditions)}\n"
        f"mean over {seeds}, bar: 95 % t interval; on the grey line the probability is right",
        fontsize=12,
        color=styles.INK,
    )
    choices, names = num_choices(result.rounds), dict(zip(summary["algorithm"], setting_names(summary), strict=True))
    handles = [
        figures._handle(names[name], colour, dashes, choices[name], marker)
        for name, (colour, dashes, marker) in looks.items()
        if name not in BASELINES or name == "centralised"
    ]
    handles.append(Line2D([], [], color=styles.GREY, linewidth=1.0, label="observed = predicted"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=2 if len(handles) > 6 else min(3, len(handles)),
        frameon=False,
        fontsize=9,
        handlelength=3.4,
    )
    return figure


def _draw(axis: Axes, panel: pd.DataFrame, looks: dict[str, tuple], span: tuple[float, float, float]) -> None:
    """One line for each algorithm, with bars, over the line of perfect calibration."""
    low, high, smallest = span
    axis.set_xscale("log")
    axis.set_yscale("symlog", linthresh=smallest, linscale=0.4)
    axis.set_xlim(low / 1.6, min(1.0, high * 1.6))
    line = np.geomspace(low / 1.6, min(1.0, high * 1.6), 200)
    axis.plot(line, line, color=styles.GREY, linewidth=1.0, zorder=1)
    for algorithm, (colour, dashes, marker) in looks.items():
        points = panel[panel["algorithm"] == algorithm].sort_values("bin", kind="stable")
        points = points[points["probability"] > 0]
        bars = np.nan_to_num(
            np.stack([points["rate"] - points["rate_low"].clip(lower=0), points["rate_high"] - points["rate"]])
        )
        axis.errorbar(
            *(points["probability"], points["rate"], np.maximum(bars, 0)),
            color=colour,
            linestyle=dashes,
            linewidth=1.5,
            marker=marker or "d",
            markersize=4,
            markeredgewidth=0,
            elinewidth=0.9,
            capsize=0,
        )
    top = min(1.0, high * 2.0)
    axis.set_yticks([0.0, *(10.0**power for power in range(math.ceil(math.log10(smallest)), 1) if 10.0**power <= top)])
    axis.set_ylim(-0.12 * smallest, top)
    axis.xaxis.set_major_locator(LogLocator(numticks=5))
    for side in (axis.xaxis, axis.yaxis):
        side.set_minor_locator(NullLocator())
    axis.grid(color="#E3E3E3", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(styles.GREY)
    axis.tick_params(colors=styles.INK, labelsize=9)
