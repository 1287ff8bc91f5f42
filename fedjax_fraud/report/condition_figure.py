"""The picture of what goes wrong: the final score under every combination of conditions of a sweep."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import facts
from .figures import DPI
from .styles import GREY, INK, line_styles
from .tables import BASELINES, CONDITIONS, best_settings, summarise
from .wording import algorithm_name, alpha_name, conditions_name, setting_names

_NUMBERS = ("stragglers", "participation", "drop_after", "drop_before", "fault_rate", "deadline", "noise_multiplier")
_KINDS = ("fault", "policy", "cohort")
_AXES = {
    "fault": "kind of fault",
    "policy": "policy",
    "cohort": "how the cohort is drawn",
    "stragglers": "share of stragglers in the cohort",
    "participation": "share of the banks asked in a round",
    "drop_after": "probability of a bank to be gone after training",
    "drop_before": "probability of a bank to be gone before training",
    "fault_rate": "probability of an update to be faulty",
    "noise_multiplier": "noise over the clipping norm",
    "deadline": "deadline of a round [s]",
}


def conditions(result: Any) -> Figure:
    """Final pooled average precision with its 95 % interval against the condition that varies most.

    A column of panels per alpha; a line of panels for each combination of the other conditions that vary, and a line
    for each algorithm, at its best hyperparameters. Where the conditions cannot tell two combinations apart (nobody is
    late without stragglers, whatever the policy), the one that was run stands in every panel that it belongs to.

    Args:
      result: has ``rounds`` and ``manifest``; at least two combinations of conditions.
    """
    summary = summarise(best_settings(result.rounds))
    federated = summary[~summary["algorithm"].isin(BASELINES)]
    varied = [name for name in CONDITIONS if federated[name].nunique(dropna=False) > 1]
    across = max(
        (name for name in _NUMBERS if name in varied),
        key=lambda name: federated[name].nunique(),
        default=next((name for name in _KINDS if name in varied), None),
    )
    others = [name for name in varied if name != across]
    lines = _panel_rows(federated, across, others)
    alphas = sorted(federated["alpha"].unique(), key=lambda alpha: (math.isnan(alpha), alpha))
    figure = Figure(figsize=(max(9.6, 3.0 * len(alphas)), 1.6 + 2.5 * len(lines)), dpi=DPI, layout="constrained")
    axes = figure.subplots(len(lines), len(alphas), squeeze=False, sharex=True, sharey=True)
    styles = line_styles(summary)
    for row, (name, part) in zip(axes, lines, strict=True):
        for axis, alpha in zip(row, alphas, strict=True):
            same = part["alpha"].isna() if math.isnan(alpha) else part["alpha"] == alpha
            _draw(axis, part[same], across, styles)
            axis.set_title(", ".join(filter(None, (_alpha_title(alpha), name))), fontsize=10, color=INK)
            prevalence = facts.prevalence(result.manifest)
            if math.isfinite(prevalence):
                axis.axhline(prevalence, color=GREY, linestyle="-.", linewidth=1.2, zorder=1.5)
        row[0].set_ylabel("average precision (PR-AUC)", fontsize=9)
    if across in _KINDS:
        kinds = sorted(set(federated[across]))
        axes[0, 0].set_xticks(range(len(kinds)), kinds)
        axes[0, 0].set_xlim(-0.5, len(kinds) - 0.5)
    for axis in axes[-1]:
        axis.set_xlabel(_AXES.get(across, "combination of conditions"), fontsize=9)
    axes[0, 0].set_ylim(bottom=0)
    figure.suptitle(
        "Average precision after the last round under each condition\n"
        "mean over seeds, bars: 95 % t interval; dash-dot: prevalence",
        fontsize=12,
        color=INK,
    )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False, fontsize=9)
    return figure


def _panel_rows(federated: pd.DataFrame, across: str | None, others: list[str]) -> list[tuple[str, pd.DataFrame]]:
    """The combinations of the other conditions, each with its rows and those for which they make no difference."""
    if not others:
        return [("", federated)]
    matters = {
        "policy": (federated["stragglers"] > 0) | np.isfinite(federated["deadline"]),  # anybody late
        "clip_norm": federated["noise_multiplier"] > 0,
    }
    differs = matters.get(others[0], pd.Series(False, federated.index)) if len(others) == 1 else None
    shared = federated[~differs] if differs is not None and differs.any() else federated.iloc[:0]
    own = federated.drop(shared.index)
    rows = []
    for _, group in own.groupby(others, dropna=False, sort=True):
        name = conditions_name({key: group.iloc[0][key] for key in CONDITIONS}, federated[others])
        rows.append((name, pd.concat([shared, group])))
    return rows


def _draw(axis: Axes, part: pd.DataFrame, across: str | None, styles: dict[str, tuple]) -> None:
    """The algorithms of one panel, side by side where they would cover each other."""
    axis.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    names = dict(zip(part["algorithm"], setting_names(part), strict=True))
    present = [algorithm for algorithm in styles if algorithm in names]
    for place, algorithm in enumerate(present):
        colour, dashes, marker = styles[algorithm]
        line = part[part["algorithm"] == algorithm]
        line = line.sort_values(across) if across else line
        x = _places(line, across, part)
        spread = (np.ptp(x) or 1.0) * 0.015 * (place - (len(present) - 1) / 2)
        mean, low, high = (line[f"average_precision{end}"].to_numpy(float) for end in ("", "_low", "_high"))
        reach = [np.where(np.isfinite(low), mean - low, 0), np.where(np.isfinite(high), high - mean, 0)]
        look = dict(color=colour, linestyle=dashes, marker=marker, markersize=4.5, linewidth=1.6, capsize=2.5)
        axis.errorbar(
            *(x + spread, mean),
            yerr=np.stack(reach),
            **look,
            label=names.get(algorithm, algorithm_name(algorithm)),
        )


def _places(line: pd.DataFrame, across: str | None, part: pd.DataFrame) -> np.ndarray:
    """Where the rows of a line stand on the horizontal axis."""
    if across is None:
        return np.arange(len(line), dtype=float)
    if across in _KINDS:
        return line[across].map(sorted(set(part[across])).index).to_numpy(float)
    return line[across].to_numpy(float)


def _alpha_title(alpha: float) -> str:
    """The alpha of a column of panels."""
    return "" if math.isnan(alpha) else f"\N{GREEK SMALL LETTER ALPHA} = {alpha_name(alpha)}"
