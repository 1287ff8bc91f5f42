"""The picture of what joining buys each bank: its own model, the federated ones, all rows in one place."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from . import figures, styles
from .bank_tables import bank_table
from .decisions import joining_order
from .tables import best_settings, num_choices
from .wording import plural, setting_names

MOST_BANKS = 10
_WIDTH = 0.62  # of the distance between two banks


def banks_figure(result: Any, conditions: str = "") -> Figure:
    """Average precision on each bank's own test rows, banks from the largest on, a panel per alpha.

    A point is the mean over the seeds in which the bank's test rows have two classes, its bar the 95 % t interval;
    diverged settings are left out. Algorithms stand side by side within a bank, from the bank's own model to the
    centralised one. Of several hyperparameter values the best is shown. A bank without a score has no point.

    Args:
      result: has ``rounds``, ``banks`` and ``manifest``; one combination of conditions, see ``figures.by_conditions``.
      conditions: its name, for the title.
    """
    rounds = best_settings(result.rounds)
    diverged = set(rounds["setting"][rounds["diverged"].astype(bool)])
    table = bank_table(result.banks[result.banks["setting"].isin(rounds["setting"])], diverged)
    looks = styles.line_styles(table) | styles.BASELINE_STYLES
    order = joining_order(table)
    alphas = figures._alphas(rounds)
    figure = figures._figure(len(alphas), 4.6)
    axes = figure.subplots(1, len(alphas), squeeze=False, sharey=True)[0]
    num_banks = int(table["bank_rank"].max()) if len(table) else 1
    for axis, alpha in zip(axes, alphas, strict=True):
        panel = table[figures._same(table["alpha"], alpha)] if len(table) else table
        _draw(axis, panel[panel["bank_rank"] <= MOST_BANKS], order, looks)
        axis.set_title(figures._panel_title(alpha, len(alphas)), fontsize=10.5, color=styles.INK)
        axis.set_xlabel("bank (1 = the largest)", fontsize=9)
        axis.set_xlim(0.5, min(num_banks, MOST_BANKS) + 0.5)
    axes[0].set_ylabel("average precision on its own rows", fontsize=9)
    axes[0].set_ylim(*_limits(table))
    seeds, banks = plural(rounds["seed"].nunique(), "seed"), plural(num_banks, "bank")
    shown = f"the largest {MOST_BANKS} of {banks}" if num_banks > MOST_BANKS else banks
    figure.suptitle(
        f"What joining buys each bank{figures.in_brackets(conditions)}\n"
        f"mean over {seeds}, bar: 95 % t interval; {shown}",
        fontsize=12,
        color=styles.INK,
    )
    choices, names = num_choices(result.rounds), dict(zip(table["algorithm"], setting_names(table), strict=True))
    handles = [_handle(styles.BASELINE_NAMES.get(name, names[name]), *looks[name], choices[name]) for name in order]
    if handles:
        figure.legend(
            handles=handles, loc="outside lower center", ncols=min(3, len(handles)), frameon=False, fontsize=9
        )
    return figure


def _limits(table: pd.DataFrame) -> tuple[float, float]:
    """From 0 to above the means; a wide interval must not flatten them."""
    means, highs = table["average_precision"].dropna(), table["average_precision_high"].dropna()
    top = float(means.max()) if len(means) else 1.0
    bars = highs[highs <= 1.5 * top]
    return 0.0, min(1.03, 1.08 * max([top, *bars]))


def _handle(name: str, colour: str, dashes: Any, marker: str, num_choices: int) -> Line2D:
    """A legend entry: a marker, as in the picture; hollow for a bank's own model."""
    handle = figures._handle(name, colour, "none", num_choices, marker)
    handle.set(markerfacecolor="white" if dashes == ":" else colour, markeredgecolor=colour, markersize=6)
    return handle


def _draw(axis: Axes, panel: pd.DataFrame, order: list[str], looks: dict[str, tuple]) -> None:
    """Every algorithm's point at every bank, side by side."""
    step = _WIDTH / max(len(order) - 1, 1)
    for place, algorithm in enumerate(order):
        colour, dashes, marker = looks[algorithm]
        rows = panel[panel["algorithm"] == algorithm].sort_values("bank_rank")
        rows = rows[np.isfinite(rows["average_precision"].astype(float))]
        mean = rows["average_precision"]
        low, high = rows["average_precision_low"].clip(lower=0), rows["average_precision_high"].clip(upper=1)
        axis.errorbar(
            rows["bank_rank"] + (place - (len(order) - 1) / 2) * step,
            mean,
            np.maximum(np.nan_to_num(np.stack([mean - low, high - mean])), 0),
            color=colour,
            linestyle="none",
            marker=marker,
            markersize=5,
            markerfacecolor="white" if dashes == ":" else colour,
            elinewidth=1.3,
            capsize=0,
        )
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=11))
    axis.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    axis.set_axisbelow(True)
    for bank in range(1, int(panel["bank_rank"].max()) if len(panel) else 1):
        axis.axvline(bank + 0.5, color="#E3E3E3", linewidth=0.8, zorder=0.5)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(styles.GREY)
    axis.tick_params(colors=styles.INK, labelsize=9)
