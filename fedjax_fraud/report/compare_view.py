"""A comparison of runs as people read it: two tables for a terminal, a Markdown page, a CSV file."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import pandas as pd
from rich.table import Table

from fedjax_fraud.files import strict_json, try_to_write, write_bytes_atomically

from .compare import OTHER_ROWS, OTHER_SEEDS, UNKNOWN_ROWS, compare, differences
from .console import add_row, empty_table, interval_cell, print_table, table_lines
from .tables import HYPERPARAMETERS
from .wording import case_name, markdown_table, setting_names

SUFFIXES = (".md", ".csv")
_HEADERS = ("case", "algorithm", "run", "AP (PR-AUC)", "MB", "sim. s", "difference", "wins", "div.")
_LONGEST_CELL, _LONGEST_ON_PAGE = 24, 200
_REASONS = {
    OTHER_ROWS: "the runs saw other rows or features (data.sha256), so that equal seeds are no pairs",
    UNKNOWN_ROWS: "a run does not say which rows it saw",
    OTHER_SEEDS: "the runs have no seed in common",
}


def check_comparison_file(path: str | os.PathLike) -> pathlib.Path:
    """Makes sure, before any work, that a comparison can be written there.

    Raises: ValueError for a name that ends otherwise than in ``.md`` or ``.csv``, or a folder that is not there or
      cannot be written to.
    """
    file = pathlib.Path(path)
    if file.suffix not in SUFFIXES:
        raise ValueError(f"The comparison {str(file)!r} must end in {' or '.join(SUFFIXES)}. Rename it.")
    if not file.parent.is_dir():
        raise ValueError(f"The comparison {str(file)!r} is to be in a folder that does not exist. Name another place.")
    if file.is_dir():
        raise ValueError(f"The comparison {str(file)!r} is a folder. Name another file.")
    try:
        try_to_write(file.parent)
    except OSError as error:
        raise ValueError(
            f"The comparison {str(file)!r} cannot be written: {error.strerror}. Name a place that you may write to."
        ) from error
    return file


def comparison_lines(results: Mapping[str, Any]) -> list[str]:
    """The lines of what ``print_comparison`` prints, without colour."""
    lines = _legend(results)
    for table in comparison_tables(results):
        lines += ["", *table_lines(table)]
    return [*lines, "", *_notes(compare(results))]


def print_comparison(results: Mapping[str, Any]) -> None:
    """Prints what the runs are called, in what they differ, and their scores."""
    for line in _legend(results):
        print(line)
    for table in comparison_tables(results):
        print()
        print_table(table)
    print()
    for line in _notes(compare(results)):
        print(line)


def comparison_tables(results: Mapping[str, Any]) -> list[Table]:
    """For ``rich``: in what the runs differ, unless they agree; and what each scored."""
    letters = _letters(results)
    facts, scores = differences(results), compare(results)
    tables = []
    if len(facts):
        table = empty_table("What differs", ("fact", *letters.values()))
        for row in _fact_rows(facts, letters, _LONGEST_CELL):
            add_row(table, *row)
        tables.append(table)
    title = "Pooled test rows after the last round: mean over seeds [95 % interval]"
    table = empty_table(title, _HEADERS)
    for place, row in enumerate(_score_rows(scores, letters)):
        if place and row[0]:
            table.add_section()
        add_row(table, *row)
    return [*tables, table]


def write_comparison(results: Mapping[str, Any], path: str | os.PathLike) -> pathlib.Path:
    """Writes a comparison: ``.md`` as a page of two tables, ``.csv`` as the table of ``compare``. Returns: the path.

    Raises: as ``check_comparison_file``.
    """
    file = check_comparison_file(path)
    if file.suffix == ".csv":
        text = compare(results).to_csv(index=False, lineterminator="\n")
    else:
        text = comparison_page(results)
    return write_bytes_atomically(file, text.encode())


def comparison_page(results: Mapping[str, Any]) -> str:
    """A comparison in Markdown."""
    letters = _letters(results)
    facts, scores = differences(results), compare(results)
    lines = ["# Comparison of runs", "", *(f"- {line}" for line in _legend(results)), "", "## What differs", ""]
    if len(facts):
        lines.append(markdown_table(("fact", *letters.values()), _fact_rows(facts, letters, _LONGEST_ON_PAGE)))
    else:
        lines.append("Nothing: configuration, data, model, versions and devices are the same.")
    lines += ["", "## Scores", ""]
    lines += ["Pooled test rows after the last round: mean over seeds [95 % interval].", ""]
    lines.append(markdown_table(_HEADERS, list(_score_rows(scores, letters))))
    return "\n".join([*lines, "", *_notes(scores), ""])


def _letters(results: Mapping[str, Any]) -> dict[str, str]:
    """Run -> a letter, or a number where there are too many."""
    short = ascii_uppercase if len(results) <= len(ascii_uppercase) else range(1, len(results) + 1)
    return {name: str(letter) for name, letter in zip(results, short, strict=False)}


def _legend(results: Mapping[str, Any]) -> list[str]:
    return [f"{letter} = {name}" for name, letter in _letters(results).items()]


def _notes(scores: pd.DataFrame) -> list[str]:
    """What the last columns mean, and why there are no differences where there are none."""
    notes = [
        "difference: average precision minus that of A (or of the run named), over the seeds that both have and in "
        "which neither diverged; wins: of these pairs, how many are higher."
    ]
    found = [reason for reason in dict.fromkeys(scores["not_paired"]) if reason]
    return notes + [f"{reason}: not paired, because {_REASONS[reason]}." for reason in found]


def _fact_rows(facts: pd.DataFrame, letters: Mapping[str, str], longest: int) -> list[list[str]]:
    return [[row["fact"], *(_short(row[name], longest) for name in letters)] for row in facts.to_dict("records")]


def _short(value: Any, longest: int) -> str:
    """A fact in a cell."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else " ".join(strict_json(value).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _score_rows(scores: pd.DataFrame, letters: Mapping[str, str]) -> Sequence[list[str]]:
    """The cells of each row; case and algorithm only where they change."""
    rows, last = [], (None, None)
    names = setting_names(scores, among=_varied_in_a_run(scores))
    for name, row in zip(names, scores.to_dict("records"), strict=True):
        place = case_name(row, scores), name
        shown = [
            text if text != before or place[0] != last[0] else "" for text, before in zip(place, last, strict=True)
        ]
        last = place
        rows.append([*shown, letters[row["run"]], *_score_cells(row, letters)])
    return rows


def _varied_in_a_run(scores: pd.DataFrame) -> pd.DataFrame:
    """The table without hyperparameters of which no run has two values: they stand among the facts that differ."""
    free = [name for name in HYPERPARAMETERS if scores.groupby(["run", "algorithm"])[name].nunique().max() <= 1]
    return scores.assign(**dict.fromkeys(free, float("nan")))


def _score_cells(row: Mapping, letters: Mapping[str, str]) -> list[str]:
    """The cells of one row behind its run."""
    idle = f", {row['num_idle']} idle" if row["num_idle"] else ""
    cells = [
        interval_cell(row, "average_precision"),
        f"{row['mb_total']:.3g}" if row["mb_total"] > 0 else "-",
        f"{row['seconds']:.3g}" if row["seconds"] > 0 else "-",
    ]
    if not row["reference"]:
        pair = ["-", "-"]
    elif row["not_paired"]:
        pair = [row["not_paired"], "-"]
    else:
        first = next(iter(letters))
        to = "" if row["reference"] == first else f" to {letters[row['reference']]}"
        pair = [f"{interval_cell(row, 'difference', sign=True)}{to}", f"{row['wins']}/{row['num_pairs']}"]
    return [*cells, *pair, f"{row['num_diverged']}/{row['num_seeds']}{idle}"]
