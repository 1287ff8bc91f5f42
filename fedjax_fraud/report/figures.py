"""The pictures of a report: convergence by round and by megabyte, and who holds which share of rows and frauds.

Figures are plain ``Figure`` objects: no pyplot, no global state, no window. The same result gives the same SVG bytes.
"""

import io
import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, PercentFormatter, StrMethodFormatter

from . import facts
from .styles import COST_LOG_RATIO, GREY, INK, LOG_RATIO, line_styles
from .tables import BASELINES, CONDITIONS, best_settings, complete, curves, num_choices, summarise
from .wording import alpha_name, conditions_name, plural, setting_names

DPI = 150
_WIDTH = 9.6  # inches: 1440 pixels
_LONG_LABEL = 40  # characters; three columns of longer ones would not fit the figure


def by_conditions(result: Any) -> list[tuple[str, Any]]:
    """The parts of a result under one combination of conditions each, with its name; baselines are in all of them."""
    rounds = complete(result.rounds)
    baseline = rounds["algorithm"].isin(BASELINES)
    groups = list(rounds[~baseline].groupby(list(CONDITIONS), dropna=False, sort=True))
    if len(groups) < 2:
        return [("", result)]
    always = set(rounds["setting"][baseline])
    parts = []
    for _, group in groups:
        shown = always | set(group["setting"])
        tables = {
            name: table[table["setting"].isin(shown)]
            for name in ("rounds", "banks", "decisions")
            if (table := getattr(result, name, None)) is not None
        }
        name = conditions_name(group.iloc[0].to_dict(), rounds[~baseline])
        parts.append((name, result._replace(**tables)))
    return parts


def convergence(result: Any, conditions: str = "") -> Figure:
    """Pooled average precision by round and by cumulative megabytes, and by simulated seconds where anything can go
    wrong; a panel per alpha.

    A line is the mean over seeds that did not diverge, its band the 95 % t interval. Centralised training (dashed),
    each bank alone (dotted) and the prevalence (dash-dot, the score of a random ranking) are horizontal lines. Of
    several hyperparameter values the best is shown and named, see ``tables.best_settings``. With a single alpha the two
    panels stand side by side.

    Args:
      result: has ``rounds``, ``partitions`` and ``manifest``; one combination of conditions, see ``by_conditions``.
      conditions: its name, for the title.

    Returns: a figure, 1440 pixels wide for up to three alphas.
    """
    rounds = best_settings(result.rounds)
    summary = summarise(rounds)
    styles = line_styles(summary)
    table = curves(rounds)
    alphas = _alphas(table)
    axes_of = ("round", "mb", "time") if _is_timed(rounds) else ("round", "mb")
    figure, axes = _panels(len(axes_of), len(alphas))
    floor = _log_floor(table)
    # A band down to 0 has no end on a logarithmic axis.
    table["average_precision_low"] = table["average_precision_low"].clip(lower=floor or 0.0)
    for column, alpha in enumerate(alphas):
        panel = table[_same(table["alpha"], alpha)]
        for axis, x in zip(axes[:, column], axes_of, strict=True):
            _draw_curves(axis, panel, x, styles)
            _draw_levels(axis, summary[_same(summary["alpha"], alpha)], facts.prevalence(result.manifest))
        axes[0, column].set_title(_panel_title(alpha, len(alphas)), fontsize=10.5, color=INK)
    _scale(axes, table, summary, floor)
    _label(figure, axes, rounds, result.partitions["client"].nunique(), conditions)
    _legend(figure, result, summary, styles)
    return figure


def partition_heatmap(partitions: pd.DataFrame) -> Figure:
    """Each bank's share of the training rows (top) and of the frauds (bottom), a panel per alpha, a line per seed.

    Within a seed the banks stand from most to fewest rows, in the same order in both rows of panels; a mean over seeds
    would hide the skew, because each seed makes another bank the large one. A bank without fraud is marked by a cross.

    Args:
      partitions: one row per alpha, seed and client.

    Returns: a figure, 1440 pixels wide for up to three alphas.
    """
    alphas = _alphas(partitions)
    top = _largest_share(partitions)
    num_seeds = max(partitions.groupby("alpha", dropna=False)["seed"].nunique())
    height = min(max(2.0 + 0.42 * num_seeds, 4.2), 11.0)
    figure = _figure(len(alphas), height)
    axes = figure.subplots(2, len(alphas), squeeze=False, sharex="col", sharey="col")
    for column, alpha in enumerate(alphas):
        panel = partitions[_same(partitions["alpha"], alpha)]
        rows, frauds = _share_tables(panel)
        images = [
            _draw_shares(axes[0, column], rows, "Blues", top),
            _draw_shares(axes[1, column], frauds, "Oranges", top),
        ]
        _mark_zeros(axes[1, column], frauds)
        axes[0, column].set_title(_panel_title(alpha, len(alphas)), fontsize=10.5, color=INK)
        axes[1, column].set_xlabel("bank, by number of rows")
    _label_shares(figure, axes, images)
    return figure


def png_bytes(figure: Figure) -> bytes:
    """A figure as PNG."""
    sink = io.BytesIO()
    _lay_out(figure)
    figure.savefig(sink, format="png", dpi=DPI, metadata={"Software": None})
    return sink.getvalue()


def svg_bytes(figure: Figure) -> bytes:
    """A figure as SVG, the same bytes each time: fixed element names, no date."""
    sink = io.BytesIO()
    _lay_out(figure)
    with mpl.rc_context({"svg.hashsalt": "fedjax_fraud"}):
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return sink.getvalue()


def _lay_out(figure: Figure) -> None:
    """Places everything, once: a figure that keeps its layout engine is drawn twice each time it is saved."""
    if figure.get_layout_engine() is None:
        return
    figure.get_layout_engine().execute(figure)
    with mpl.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)


def _is_timed(rounds: pd.DataFrame) -> bool:
    """Whether simulated time is known and more than a multiple of the rounds."""
    federated = complete(rounds[~rounds["algorithm"].isin(BASELINES)])
    usual = all((federated[name] == ideal).all() for name, ideal in CONDITIONS.items())
    return bool(federated["seconds"].notna().all()) and not usual


def in_brackets(conditions: str) -> str:
    """The name of some conditions behind a title."""
    return f" ({conditions})" if conditions else ""


def _alphas(frame: pd.DataFrame) -> list[float]:
    """The alphas of a frame in rising order, NaN last."""
    return sorted(frame["alpha"].unique(), key=lambda alpha: (math.isnan(alpha), alpha))


def _same(values: pd.Series, alpha: float) -> pd.Series:
    """Where a column equals an alpha; NaN equals NaN."""
    return values.isna() if math.isnan(alpha) else values == alpha


def _figure(num_panels: int, height: float) -> Figure:
    """An empty figure for a row of panels, with a margin around it; ``height`` in inches."""
    figure = Figure(figsize=(max(_WIDTH, 2.7 * num_panels), height), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    return figure


def _panels(num_lines: int, num_alphas: int) -> tuple[Figure, np.ndarray]:
    """A figure and its axes ``[lines, alphas]``: by round, by megabyte, by second. One alpha: side by side."""
    side_by_side = num_alphas == 1
    height = 4.6 if side_by_side else 1.2 + 2.8 * num_lines
    figure = _figure(num_lines if side_by_side else num_alphas, height)
    shape = (1, num_lines) if side_by_side else (num_lines, num_alphas)
    axes = figure.subplots(*shape, squeeze=False, sharey=True)
    for axis in axes.flat:
        axis.grid(axis="y", color="#E3E3E3", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(GREY)
        axis.tick_params(which="both", colors=INK, labelsize=9)
    return figure, axes.reshape(num_lines, num_alphas)


def _panel_title(alpha: float, num_alphas: int) -> str:
    """The title of a column of panels."""
    if math.isnan(alpha):
        return "" if num_alphas == 1 else "no alpha"
    return f"Dirichlet \N{GREEK SMALL LETTER ALPHA} = {alpha_name(alpha)}"


def _draw_curves(axis: Axes, panel: pd.DataFrame, x: str, styles: dict[str, tuple]) -> None:
    """One line with its band for each algorithm."""
    for algorithm, (colour, dashes, marker) in styles.items():
        line = panel[(panel["algorithm"] == algorithm) & panel["average_precision"].notna()]
        every = max(1, len(line) // 10)
        low, high = line["average_precision_low"], line["average_precision_high"]
        axis.fill_between(line[x], low, high, color=colour, alpha=0.14, linewidth=0)
        axis.plot(
            *(line[x], line["average_precision"]),
            color=colour,
            linestyle=dashes,
            linewidth=1.8,
            marker=marker,
            markersize=4.5,
            markevery=every,
            markeredgewidth=0,
        )


def _draw_levels(axis: Axes, summary: pd.DataFrame, prevalence: float) -> None:
    """The baselines and the prevalence as horizontal lines."""
    scores = dict(zip(summary["algorithm"], summary["average_precision"], strict=True))
    levels = [(scores.get("centralised", np.nan), INK, "--"), (scores.get("local_only", np.nan), INK, ":")]
    for level, colour, dashes in [*levels, (prevalence, GREY, "-.")]:
        if math.isfinite(level):
            axis.axhline(level, color=colour, linestyle=dashes, linewidth=1.4, zorder=1.5)


def _log_floor(table: pd.DataFrame) -> float | None:
    """Where a logarithmic axis begins; None if the means are near enough to each other for a linear one."""
    means = table["average_precision"][table["average_precision"] > 0]
    return 0.7 * means.min() if len(means) and means.max() > LOG_RATIO * means.min() else None


def _scale(axes: np.ndarray, table: pd.DataFrame, summary: pd.DataFrame, floor: float | None) -> None:
    """Limits and scales, chosen from the means: one wide interval must not flatten every curve."""
    means = table["average_precision"][table["average_precision"] > 0]
    if floor is not None:
        axes[0, 0].set_yscale("log")
        top = max(means.max(), np.nan_to_num(summary["average_precision"]).max())
        axes[0, 0].set_ylim(floor, min(1.0, 1.6 * top))
        _plain_log_labels(axes[0, 0])
    else:
        levels = [means.max(), summary["average_precision"].max()]
        top = max([level for level in levels if math.isfinite(level)], default=1.0)
        highs = table["average_precision_high"]
        bands = highs[highs <= 1.3 * top]
        axes[0, 0].set_ylim(0, min(1.02, max(1.06 * top, 1.03 * bands.max() if len(bands) else 0)))
    for axis in axes[0]:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axis.set_xlim(0, 1.03 * table["round"].max())
    for line, x in zip(axes[1:], ("mb", "time"), strict=False):
        totals = table.groupby("algorithm")[x].max()
        wide = len(totals) > 1 and totals.min() > 0 and totals.max() > COST_LOG_RATIO * totals.min()
        for axis in line:
            axis.set_xscale("log" if wide else "linear")
            if not wide and totals.max() > 0:
                axis.set_xlim(0, 1.03 * totals.max())


def _plain_log_labels(axis: Axes) -> None:
    """0.02, 0.05, 0.1 instead of powers of ten; axes that share their scale share this."""
    axis.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    for part in ("major", "minor"):
        getattr(axis.yaxis, f"set_{part}_formatter")(StrMethodFormatter("{x:g}"))


def _label(figure: Figure, axes: np.ndarray, rounds: pd.DataFrame, num_banks: int, conditions: str) -> None:
    """Titles, axis names, units."""
    seeds = plural(rounds["seed"].nunique(), "seed")
    figure.suptitle(
        f"Average precision of the global model on the pooled test rows{in_brackets(conditions)}\n"
        f"mean over {seeds}, band: 95 % t interval; {plural(num_banks, 'bank')}",
        fontsize=12,
        color=INK,
    )
    names = ("communication round", "total traffic up and down [MB = 10⁶ bytes]", "simulated time [s]")
    for line, name in zip(axes, names, strict=False):
        for axis in line:
            axis.set_xlabel(name, fontsize=9)
    for axis in axes[:, 0] if axes.shape[1] > 1 else axes[:1, 0]:
        axis.set_ylabel("average precision (PR-AUC)", fontsize=9)


def _legend(figure: Figure, result: Any, summary: pd.DataFrame, styles: dict[str, tuple]) -> None:
    """One legend below the panels, where it covers no data."""
    choices = num_choices(result.rounds)
    names = dict(zip(summary["algorithm"], setting_names(summary), strict=True))
    handles = [
        _handle(names[algorithm], colour, dashes, choices[algorithm], marker)
        for algorithm, (colour, dashes, marker) in styles.items()
    ]
    finite = set(summary["algorithm"][summary["average_precision"].notna()])
    if "centralised" in finite:
        handles.append(_handle("Centralised (all rows in one place)", INK, "--", choices["centralised"]))
    if "local_only" in finite:
        handles.append(_handle("Local only (mean of banks' own models)", INK, ":", choices["local_only"]))
    prevalence = facts.prevalence(result.manifest)
    if math.isfinite(prevalence):
        handles.append(_handle(f"Prevalence {prevalence:.3g} (random ranking)", GREY, "-.", 1))
    longest = max(len(handle.get_label()) for handle in handles)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(3 if longest <= _LONG_LABEL else 2, len(handles)),
        frameon=False,
        fontsize=9,
        handlelength=3.4,
    )


def _handle(name: str, colour: str, dashes: Any, num_choices: int, marker: str = "") -> Line2D:
    """A legend entry, which says when it is the best of several."""
    label = f"{name}, best of {num_choices}" if num_choices > 1 else name
    return Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=4.5, linewidth=1.8, label=label)


def _share_tables(panel: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Shares of rows and of frauds, ``[seeds, banks]``, banks from large to small within a seed."""
    ordered = panel.sort_values(["seed", "num_examples", "client"], ascending=[True, False, True], kind="stable")
    ordered = ordered.assign(rank=ordered.groupby("seed").cumcount() + 1)
    tables = [ordered.pivot(index="seed", columns="rank", values=name) for name in ("num_examples", "num_positives")]
    rows, frauds = (table.div(table.sum(axis=1), axis=0) for table in tables)
    return rows, frauds


def _largest_share(partitions: pd.DataFrame) -> float:
    """The end of the colour scale: 1, or the largest share if all are small because there are many banks."""
    groups = partitions.groupby(["alpha", "seed"], dropna=False)[["num_examples", "num_positives"]]
    largest = (groups.max() / groups.sum()).max().max()
    return 1.0 if largest > 0.5 else float(largest)


def _draw_shares(axis: Axes, shares: pd.DataFrame, colours: str, top: float) -> Any:
    """One panel of shares, with numbers in the cells as long as they fit."""
    image = axis.imshow(shares.to_numpy(), cmap=colours, vmin=0, vmax=top, aspect="auto", interpolation="nearest")
    for set_ticks, labels in ((axis.set_xticks, shares.columns), (axis.set_yticks, shares.index)):
        every = math.ceil(len(labels) / 12)
        set_ticks(range(0, len(labels), every), labels[::every], fontsize=8)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if shares.shape[1] > 5 or shares.shape[0] > 20:
        return image
    for (row, column), share in np.ndenumerate(shares.to_numpy()):
        if share > 0:
            colour = "white" if share > 0.6 * top else INK
            axis.text(column, row, _share_text(share), ha="center", va="center", fontsize=7.5, color=colour)
    return image


def _share_text(share: float) -> str:
    """A share in percent, small ones with one digit that is not zero; 100 means all."""
    if 0.995 <= share < 1:
        return ">99 %"
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def _mark_zeros(axis: Axes, shares: pd.DataFrame) -> None:
    """A cross in each cell of a bank without fraud."""
    rows, columns = np.nonzero(shares.to_numpy() == 0)
    axis.scatter(columns, rows, marker="x", s=18 if shares.shape[1] <= 20 else 4, color=INK, linewidths=0.9)


def _label_shares(figure: Figure, axes: np.ndarray, images: list) -> None:
    """Titles and the two colour bars."""
    figure.suptitle("Who holds the training rows and the frauds (cross: no fraud)", fontsize=12, color=INK)
    names = ("share of rows", "share of frauds")
    for line, image, name in zip(axes, images, names, strict=True):
        line[0].set_ylabel("seed", fontsize=9)
        bar = figure.colorbar(
            image, ax=list(line), format=PercentFormatter(1.0, decimals=0, symbol=" %"), aspect=14, pad=0.015
        )
        bar.set_label(name, fontsize=9)
        bar.ax.tick_params(labelsize=8)
        bar.outline.set_visible(False)
