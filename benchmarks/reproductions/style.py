"""How the pictures of the reproductions look."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

# Okabe and Ito's colours, which colour-blind readers tell apart; dashes differ too.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)


def panels(num_rows: int, num_columns: int, *, height: float = 2.9, width: float = 3.7) -> tuple[Figure, np.ndarray]:
    """A figure and its axes ``[rows, columns]``."""
    figure = Figure(figsize=(width * num_columns, height * num_rows + 0.5), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False)
    for panel in axes.flat:
        panel.grid(which="major", color="#DDDDDD", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def by_round(panel: Axes, last: int) -> None:
    """Rounds along the axis: whole numbers."""
    panel.set_xlim(0, last)
    panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def log_scale(panel: Axes, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers at the powers of ten, at least one of which is shown."""
    panel.set(yscale="log", ylim=(min(low, 10 ** np.floor(np.log10(high))), high))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def legend_above(figure: Figure, panel: Axes, columns: int = 6) -> None:
    """One legend for all panels, outside them."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)), frameon=False)


def seeds(panel: Axes, x: np.ndarray, curves: np.ndarray, **line) -> None:
    """The mean over seeds as a thick line and each seed as a thin one; ``curves``: ``[seeds, rounds]``."""
    panel.plot(x, np.mean(curves, axis=0), linewidth=2.0, zorder=3, **line)
    for curve in curves:
        panel.plot(x, curve, color=line.get("color"), linewidth=0.5, alpha=0.5, zorder=2)
