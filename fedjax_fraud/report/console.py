"""The terminal's view of a result, a plan or a comparison: tables that fit 100 columns, in ASCII."""

import io
import math
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import facts
from .answer import chance_words
from .bank_tables import partition_table
from .tables import CONDITIONS, paired_differences, summarise
from .wording import alpha_name, case_name, conditions_name, number, setting_names

WIDTH = 100
MAX_BANK_ROWS = 60
_MISSING = "-"


def summary_tables(result: Any) -> list[Table]:
    """One table for each combination of conditions, a row per alpha and algorithm.

    Columns: scores, traffic, paired difference to FedAvg, diverged settings.

    Args:
      result: has ``rounds`` and ``manifest``.

    Returns: tables for ``rich``, at most 100 columns wide; baselines and the prevalence have rows of their own.
    """
    summary = summarise(result.rounds)
    summary = summary.assign(name=setting_names(summary))
    differences = _differences(result.rounds, summary)
    prevalence = facts.prevalence(result.manifest)
    return [
        _summary_table(group, conditions_name(group.iloc[0].to_dict(), summary), summary, differences, prevalence)
        for _, group in summary.groupby(list(CONDITIONS), dropna=False)
    ]


def _summary_table(group: pd.DataFrame, conditions: str, summary: pd.DataFrame, differences: dict, prevalence: float):
    """The table of one combination of conditions."""
    title = "Pooled test rows after the last round: mean over seeds [95 % interval]"
    table = empty_table(
        f"{conditions}\n{title}" if conditions else title,
        ("alpha", "algorithm", "AP (PR-AUC)", "ROC", "loss", "MB", "AP minus FedAvg", "div."),
    )
    for _, rows in group.groupby("alpha", dropna=False):
        for place, row in enumerate(rows.to_dict("records")):
            first = "" if place else alpha_name(row["alpha"])
            difference = differences.get(row["name"], {}).get(case_name(row, summary))
            add_row(table, first, *_summary_cells(row, difference))
        add_row(table, "", "prevalence", _ascii(number(prevalence)), "0.500", *[_MISSING] * 4)
        table.add_section()
    return table


def summary_lines(result: Any) -> list[str]:
    """The lines of ``summary_tables`` without colour, and what to know beside them."""
    return [line for table in summary_tables(result) for line in table_lines(table)] + list(_notes(result))


def print_summary(result: Any) -> None:
    """Prints ``summary_tables`` and what to know beside them; a terminal narrower than 100 columns wraps cells."""
    for table in summary_tables(result):
        print_table(table)
    for note in _notes(result):
        print(note)


def _notes(result: Any) -> Iterator[str]:
    """What a reader of the tables must know, in lines of at most 100 columns."""
    summary = summarise(result.rounds)
    notes = list(chance_words(summary, facts.prevalence(result.manifest)))
    if (summary["num_diverged"] > 0).any():
        notes.append(
            "Means are over the runs that did not diverge; a difference is over the seeds in which neither did, so it "
            "need not be the difference of the means."
        )
    return (line for note in notes for line in textwrap.wrap(note, WIDTH))


def partition_lines(partitions: pd.DataFrame | Sequence[pd.DataFrame]) -> list[str]:
    """The lines of the table of partitions without colour."""
    return table_lines(_partitions_table(partitions))


def print_partitions(partitions: pd.DataFrame | Sequence[pd.DataFrame]) -> None:
    """Prints how uneven the banks are: one row per bank if they are few, and one row per alpha.

    Args:
      partitions: one row per alpha, seed and client, in one table or several.
    """
    frame = partitions if isinstance(partitions, pd.DataFrame) else pd.concat(partitions, ignore_index=True)
    if len(frame) <= MAX_BANK_ROWS:
        print_table(_banks_table(frame))
    print_table(_partitions_table(frame))


def print_table(table: Table) -> None:
    """To a terminal at its own width, to a file or a pipe at 100 columns."""
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def _banks_table(frame: pd.DataFrame) -> Table:
    """Every bank's rows, frauds and distance to the whole."""
    table = empty_table(
        "Training rows of each bank",
        ("alpha", "bank", "rows", "frauds", "prevalence", "KL [nats]", "TVD"),
    )
    for row in frame.to_dict("records"):
        shown = [f"{row[name]:,.0f}" for name in ("num_examples", "num_positives")]
        shown += [f"{row[name]:.3g}" if row[name] == row[name] else _MISSING for name in ("prevalence", "kl", "tvd")]
        add_row(table, alpha_name(row["alpha"]), str(row.get("bank", row["client"])), *shown)
    return table


def _partitions_table(partitions: pd.DataFrame | Sequence[pd.DataFrame]) -> Table:
    """Rows, frauds and skew of the banks at each alpha."""
    frame = partitions if isinstance(partitions, pd.DataFrame) else pd.concat(partitions, ignore_index=True)
    table = empty_table(
        "Training rows of the banks: mean (smallest-largest)",
        ("alpha", "rows", "frauds", "KL [nats]", "TVD", "no fraud", "empty"),
    )
    for row in partition_table(frame).to_dict("records"):
        ranges = [_mean_and_range(row, name, 0) for name in ("num_examples", "num_positives")]
        ranges += [_mean_and_range(row, name, 4) for name in ("kl", "tvd")]
        counts = [f"{row[name]} of {row['num_banks']}" for name in ("num_without_fraud", "num_empty")]
        add_row(table, alpha_name(row["alpha"]), *ranges, *counts)
    return table


def _differences(rounds: pd.DataFrame, summary: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Name of a setting -> case -> its difference to FedAvg as text."""
    table = paired_differences(rounds)
    texts: dict[str, dict[str, str]] = {}
    for name, row in zip(setting_names(table, among=summary), table.to_dict("records"), strict=True):
        texts.setdefault(name, {})[case_name(row, summary)] = interval_cell(row, "difference", sign=True)
    return texts


def _summary_cells(row: Mapping, difference: str | None) -> Iterator[str]:
    """The cells of one row behind its alpha."""
    yield row["name"]
    yield interval_cell(row, "average_precision")
    yield _ascii(number(row["roc_auc"], 3))
    yield _ascii(number(row["log_loss"], 3))
    yield f"{row['mb_total']:.3g}" if row["mb_total"] > 0 else _MISSING
    yield difference or _MISSING
    idle = f", {row['num_idle']} idle" if row["num_idle"] else ""
    yield f"{row['num_diverged']}/{row['num_seeds']}{idle}"


def interval_cell(row: Mapping, name: str, sign: bool = False) -> str:
    """A mean with four decimals and its bounds with three, which is what fits."""
    mean, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return _ascii(number(mean, 4, sign))
    return f"{number(mean, 4, sign)} [{number(low, 3, sign)}, {number(high, 3, sign)}]"


def _mean_and_range(row: Mapping, name: str, digits: int) -> str:
    """A mean with its range."""
    mean, low, high = (f"{row[f'{name}{end}']:,.{digits}f}" for end in ("", "_min", "_max"))
    return f"{mean} ({low}-{high})"


def add_row(table: Table, *cells: str) -> None:
    """A row of plain text: brackets are brackets, not markup."""
    table.add_row(*(Text(cell) for cell in cells))


def _ascii(text: str) -> str:
    """Text that a terminal without Unicode can show."""
    return _MISSING if text == "—" else text


def empty_table(title: str, headers: Sequence[str]) -> Table:
    """A table whose first two columns are text and whose others stand at the right."""
    table = Table(box=box.ASCII2, padding=(0, 0), pad_edge=False, show_edge=False, title_justify="left")
    table.title = Text(title)
    for place, header in enumerate(headers):
        table.add_column(Text(header), justify="left" if place < 2 else "right", overflow="fold")
    return table


def table_lines(table: Table) -> list[str]:
    """What ``rich`` prints for a table at 100 columns."""
    text = io.StringIO()
    # Not forced, a notebook would get the table and the text nothing.
    Console(file=text, width=WIDTH, color_system=None, highlight=False, force_jupyter=False).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]
