"""How an algorithm looks: the same colour, dashes and marker in every picture and on the page."""

import pandas as pd

from .tables import BASELINES

LOG_RATIO = 30  # an axis of scores is logarithmic when its curves span more than this
COST_LOG_RATIO = 8  # and one of costs when the totals of the algorithms do
INK = "#222222"
GREY = "#7A7A7A"

# Okabe and Ito's palette, which stays apart for colour-blind readers; lines also differ in dashes and markers.
STYLES = {
    "fedavg": ("#0072B2", "-", "o"),
    "fedprox": ("#D55E00", (0, (6, 1.5)), "s"),
    "scaffold": ("#009E73", (0, (4, 1.2, 1.2, 1.2)), "^"),
}
_OTHER_STYLES = (
    ("#CC79A7", (0, (2, 1)), "D"),
    ("#E69F00", (0, (8, 2, 2, 2)), "v"),
    ("#56B4E9", (0, (3, 1, 1, 1, 1, 1)), "P"),
    ("#8C564B", (0, (5, 3)), "X"),
    ("#F0E442", "-", "d"),
    ("#000000", (0, (1, 1)), "<"),
    ("#999999", (0, (7, 2)), ">"),
    ("#CC79A7", "-", "h"),
    ("#E69F00", (0, (2, 1)), "p"),
    ("#56B4E9", "-", "*"),
)
BASELINE_STYLES = {"local_only": (INK, ":", "o"), "centralised": (INK, "--", "d")}
PREVALENCE_STYLE = (GREY, "-.", "")
BASELINE_NAMES = {
    "local_only": "Local only (the bank's own model)",
    "centralised": "Centralised (all rows in one place)",
}


def line_styles(summary: pd.DataFrame) -> dict[str, tuple]:
    """Colour, dashes and marker of each federated algorithm, the usual three always the same."""
    names = [name for name in dict.fromkeys(summary["algorithm"]) if name not in BASELINES]
    others = [name for name in names if name not in STYLES]
    spare = {name: _OTHER_STYLES[place % len(_OTHER_STYLES)] for place, name in enumerate(others)}
    return {name: STYLES.get(name) or spare[name] for name in names}
