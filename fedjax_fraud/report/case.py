"""A result with what its sections and charts need of it, and how they name its parts."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from fedjax_fraud.files import strict_json

from . import bank_tables, decisions, facts, tables, wording
from .wording import alpha_name, setting_names


class Case(NamedTuple):
    """A result with what several sections need of it."""

    rounds: pd.DataFrame
    banks: pd.DataFrame
    partitions: pd.DataFrame
    manifest: dict
    best: pd.DataFrame  # the rounds of each algorithm's best hyperparameters
    summary: pd.DataFrame
    best_summary: pd.DataFrame  # ``tables.summarise`` of ``best``
    differences: dict[str, pd.DataFrame]  # ``tables.paired_differences`` to FedAvg, by score
    prevalence: float
    diverged: set[int]  # numbers of settings
    by_rank: pd.DataFrame  # ``bank_tables.bank_table`` of each algorithm's best hyperparameters
    decided: decisions.Decided | None


def case_of(result: Any) -> Case:
    """A result with what its sections and charts need of it; ``result`` as in ``dossier``."""
    manifest = json.loads(strict_json(result.manifest))
    summary = tables.summarise(result.rounds)
    diverged = set(result.rounds["setting"][result.rounds["diverged"].astype(bool)])
    best = tables.best_settings(result.rounds)
    decided = getattr(result, "decisions", None)
    return Case(
        result.rounds,
        result.banks,
        result.partitions,
        manifest,
        best,
        summary,
        tables.summarise(best),
        {score: tables.paired_differences(result.rounds, metric=score) for score in tables.SCORES},
        facts.prevalence(manifest),
        diverged,
        bank_tables.bank_table(result.banks[result.banks["setting"].isin(best["setting"])], diverged),
        None if decided is None else decisions.decide(decided, summary, diverged),
    )


def names_of(case: Case, table: pd.DataFrame) -> list[str]:
    """Names of a table's rows, with the hyperparameters that the whole result varies."""
    return setting_names(table, among=case.summary)


def by_case(frame: pd.DataFrame) -> Iterator[tuple[dict, pd.DataFrame]]:
    """The rows of each case, and one of them as a mapping."""
    for _, group in frame.groupby(list(tables.CASE), dropna=False):
        yield group.iloc[0].to_dict(), group


def case_name(case: Case, row: Mapping) -> str:
    """A case in the first column of a table."""
    return wording.case_name(row, case.summary)


def case_phrase(case: Case, row: Mapping) -> str:
    """A case within a sentence."""
    alpha = "the given partition" if math.isnan(row["alpha"]) else f"alpha {alpha_name(row['alpha'])}"
    return ", ".join(filter(None, (alpha, wording.conditions_name(row, case.summary))))


def case_heading(case: Case, row: Mapping) -> str:
    """A case as a heading."""
    alpha = row["alpha"]
    regime = wording.skew_regime(alpha).capitalize()
    heading = regime if math.isnan(alpha) else f"{regime}, alpha = {alpha_name(alpha)}"
    return ", ".join(filter(None, (heading, wording.conditions_name(row, case.summary))))


def bank_names(case: Case) -> dict[int, str]:
    """Rank by size -> name, where the banks have names: those of a natural partition, the same in every seed."""
    if "bank" not in case.partitions:
        return {}
    one_seed = case.partitions[case.partitions["seed"] == case.partitions["seed"].min()]
    by_size = one_seed.sort_values("num_examples", ascending=False, kind="stable")
    return {rank: f"{rank} ({name})" for rank, name in enumerate(by_size["bank"], start=1)}
