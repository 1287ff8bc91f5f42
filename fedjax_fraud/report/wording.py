"""What things are called and how numbers are written, the same in the dossier, the figures and the terminal."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .tables import CONDITIONS, HYPERPARAMETERS, complete

DASH = "—"

_ALGORITHMS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "scaffold_option1": "SCAFFOLD, option I",
    "scaffold_weighted": "SCAFFOLD, weighted",
    "fednova": "FedNova",
    "feddyn": "FedDyn",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "fedadagrad": "FedAdagrad",
    "fedavgm": "FedAvgM",
    "fedprox_adaptive": "FedProx, adaptive mu",
    "mimelite": "MimeLite",
    "ditto": "Ditto",
    "centralised": "Centralised",
    "local_only": "Local only",
}
_SYMBOLS = {"client_lr": "lr", "mu": "mu", "server_lr": "server lr", "num_epochs": "epochs"}
_CONDITION_WORDS = {
    "participation": "{:.0%} asked",
    "cohort": "cohorts {}",
    "stragglers": "{:.0%} stragglers",
    "policy": "policy {}",
    "deadline": "deadline {:g} s",
    "drop_before": "{:.0%} gone before",
    "drop_after": "{:.0%} gone after",
    "fault": "faults {}",
    "fault_rate": "{:.0%} faulty",
    "noise_multiplier": "noise {:g}",
    "clip_norm": "clipped at {:g}",
}


def algorithm_name(algorithm: str) -> str:
    """How an algorithm is written, ``fedavg`` -> FedAvg; an unknown name stays as it is."""
    return _ALGORITHMS.get(algorithm, algorithm)


def alpha_name(alpha: float) -> str:
    """An alpha as text; NaN is a partition that has none (natural or IID)."""
    return "none" if math.isnan(alpha) else f"{alpha:g}"


def conditions_name(row: Mapping, among: pd.DataFrame) -> str:
    """The conditions of a row in words, those that vary in ``among``; empty if none does.

    Example:
      >>> table = pd.DataFrame({"stragglers": [0.0, 0.5]})
      >>> conditions_name({"stragglers": 0.5}, table)
      '50% stragglers'
    """
    varied = [name for name in CONDITIONS if name in among.columns and among[name].nunique(dropna=False) > 1]
    return ", ".join(_CONDITION_WORDS[name].format(row[name]) for name in varied)


def case_name(row: Mapping, among: pd.DataFrame) -> str:
    """An alpha and the conditions that vary, for the first column of a table."""
    return ", ".join(filter(None, (alpha_name(row["alpha"]), conditions_name(row, among))))


def skew_regime(alpha: float) -> str:
    """The skew that an alpha stands for, in words. The borders are a convention for readers, not a theorem."""
    if math.isnan(alpha):
        return "partition without alpha (natural or IID)"
    names = ((0.1, "pathological extreme skew"), (0.5, "moderate consortium skew"), (1.0, "mild statistical skew"))
    return next((name for bound, name in names if alpha <= bound * (1 + 1e-6)), "close to IID")


def setting_names(frame: pd.DataFrame, among: pd.DataFrame | None = None) -> list[str]:
    """A name for each row: the algorithm, and those hyperparameters that vary (mu always).

    Args:
      frame: has ``algorithm`` and the hyperparameters.
      among: the table that says which hyperparameters vary; ``frame`` itself by default.

    Example:
      >>> setting_names(pd.DataFrame({"algorithm": ["fedprox"], "mu": [0.01], "client_lr": [0.1], "num_epochs": [1]}))
      ['FedProx (mu 0.01)']
    """
    frame = complete(frame)
    whole = frame if among is None else among
    shown = [name for name in HYPERPARAMETERS if name == "mu" or whole[name].dropna().nunique() > 1]
    return [_setting_name(row, shown) for row in frame.to_dict("records")]


def _setting_name(row: dict, shown: Sequence[str]) -> str:
    """One name, ``FedProx (mu 0.01, lr 0.1)``."""
    values = [f"{_SYMBOLS[name]} {row[name]:g}" for name in shown if not math.isnan(row[name])]
    name = algorithm_name(row["algorithm"])
    return f"{name} ({', '.join(values)})" if values else name


def number(value: float | int | np.number, digits: int = 4, sign: bool = False) -> str:
    """A number with fixed decimals, a dash if it is undefined; with its first digit where these would show a 0.

    Example:
      >>> number(0.12345), number(-0.00002, sign=True), number(3e-7), number(0.0)
      ('0.1235', '-0.00002', '3e-7', '0.0000')
    """
    if not math.isfinite(value):
        return DASH
    plus = "+" if sign else ""
    texts = [f"{value:{plus}.{more}f}" for more in (digits, digits + 1)]
    small = re.sub("e-0?", "e-", f"{value:{plus}.0e}")
    return next((text for text in texts if float(text)), small if value else texts[0])


def quantity(value: float | int | np.number) -> str:
    """A number with four significant digits, for values that may be very small or large; a dash if undefined."""
    if not math.isfinite(value):
        return DASH
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def interval(row: dict | pd.Series, name: str, digits: int = 4, sign: bool = False) -> str:
    """A mean with its interval, ``0.2776 [0.2512, 0.3040]``; without bounds the mean alone."""
    mean, low, high = (number(row[f"{name}{end}"], digits, sign) for end in ("", "_low", "_high"))
    return mean if DASH in (low, high) else f"{mean} [{low}, {high}]"


def plural(count: int | np.integer, noun: str, many: str = "") -> str:
    """A count with its noun, ``1 bank``, ``3 banks``, ``1,200 rows``."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others stand at the right."""
    rule = [":---", *["---:"] * (len(headers) - 1)]
    lines = [headers, rule, *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    """Text that cannot break out of its cell."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def distinct(column: pd.Series) -> str:
    """The distinct values of a column, without NaN."""
    values = sorted(column.dropna().unique())
    shown = [f"{value:g}" for value in values]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:5], "...", shown[-1]]) if values else "not applicable"


def count_text(value: float) -> str:
    """A whole number, or a dash if it is not known."""
    return f"{value:,.0f}" if math.isfinite(value) else DASH


def listed(items: list[str]) -> str:
    """Items as in a sentence."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def readable(key: str) -> str:
    """A key of the manifest for readers."""
    return key.replace(".", ", ").replace("_", " ")


def shown(value: Any) -> str:
    """A value of the manifest for readers."""
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return ", ".join(shown(item) for item in value)
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else quantity(value) if isinstance(value, float) else str(value)
