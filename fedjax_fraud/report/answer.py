"""The answer: who is ahead at which skew, and whether federating beats staying alone."""

import math
from collections.abc import Mapping

import pandas as pd

from . import facts, tables
from .case import Case, by_case, case_phrase
from .wording import algorithm_name, interval, listed, number, plural

_MOST_CLAUSES = 4


def answer(case: Case) -> str:
    """Two sentences: who is ahead at which alpha, and whether federating beats staying alone."""
    parts = ["## The answer", f"{_who_is_ahead(case)} {_does_it_pay(case)}", _basis(case)]
    several = [algorithm_name(name) for name, count in tables.num_choices(case.rounds).items() if count > 1]
    if several:
        parts.append(
            f"For {listed(several)} several hyperparameters were run, and this answer takes the best of each, chosen "
            "on the same test rows: the more were tried, the more optimistic it is."
        )
    return "\n\n".join(parts)


def _basis(case: Case) -> str:
    """On how much the answer rests."""
    num_seeds = case.rounds["seed"].nunique()
    num_frauds = facts.number_fact(case.manifest, "data", "test", "num_positives")
    frauds = "an unknown number of test frauds" if math.isnan(num_frauds) else plural(int(num_frauds), "test fraud")
    return (
        f"This rests on {plural(num_seeds, 'seed')} and {frauds}; the intervals are over seeds alone, and ROC-AUC and "
        "loss, in the tables below, may order the algorithms differently."
    )


def _who_is_ahead(case: Case) -> str:
    """The first sentence."""
    differences = tables.paired_differences(case.best, match=())
    differences = differences[~differences["algorithm"].isin(tables.BASELINES)]
    if differences.empty:
        return "There is no FedAvg with another federated algorithm to compare it with, so no algorithm is ahead."
    cases = list(by_case(differences))
    if len(cases) > _MOST_CLAUSES:
        return _counted(differences, "FedAvg")
    clauses = [f"at {case_phrase(case, row)} {_verdict(group)}" for row, group in cases]
    return f"On pooled PR-AUC, in pairs on the same data and seed, {'; '.join(clauses)}."


def _counted(differences: pd.DataFrame, reference: str) -> str:
    """Too many cases for a sentence each: in how many of them an algorithm is ahead, behind, or neither."""
    num_cases = len(list(by_case(differences)))
    clauses = []
    for name, rows in differences.groupby("algorithm", sort=False):
        ahead, behind = int((rows["difference_low"] > 0).sum()), int((rows["difference_high"] < 0).sum())
        counts = f"ahead in {ahead}, behind in {behind} and not distinguishable in {len(rows) - ahead - behind}"
        clauses.append(f"{algorithm_name(name)} is {counts}")
    said = (
        f"Over {num_cases} cases of skew and conditions, on pooled PR-AUC, in pairs on the same data and seed against"
    )
    return f"{said} {reference}: {'; '.join(clauses)} (each interval is in the tables of paired differences)."


def _verdict(group: pd.DataFrame) -> str:
    """What the paired intervals at one alpha say, the best first."""
    ordered = group.sort_values("difference", ascending=False, kind="stable")
    ahead = ordered[ordered["difference_low"] > 0]
    behind = ordered[ordered["difference_high"] < 0]
    undecided = ordered[~ordered.index.isin([*ahead.index, *behind.index])]
    parts = ((ahead, "ahead of"), (undecided, "not distinguishable from"), (behind, "behind"))
    clauses = [f"{listed(_with_difference(rows))} {_is(rows)} {words} FedAvg" for rows, words in parts if len(rows)]
    return ", ".join(clauses)


def _is(rows: pd.DataFrame) -> str:
    """The verb for so many."""
    return "is" if len(rows) == 1 else "are"


def _with_difference(rows: pd.DataFrame) -> list[str]:
    """Each algorithm with its difference, as the sentence needs it."""
    return [_one_difference(row) for row in rows.to_dict("records")]


def _one_difference(row: Mapping) -> str:
    """One algorithm and its difference to FedAvg; says why there is no interval."""
    name = algorithm_name(row["algorithm"])
    if row["num_pairs"] == 0:
        return f"{name} (no usable pair)"
    if row["num_pairs"] == 1:
        return f"{name} ({number(row['difference'], sign=True)}, one seed, no interval)"
    return f"{name} ({interval(row, 'difference', sign=True)})"


def _does_it_pay(case: Case) -> str:
    """The second sentence: FedAvg, or the first algorithm there is, against each bank alone."""
    federated = [name for name in case.summary["algorithm"] if name not in tables.BASELINES]
    differences = tables.paired_differences(case.best, reference="local_only", match=())
    if differences.empty or not federated:
        return "Banks alone were not run, so whether federating pays is not answered."
    name = federated[0]
    rows = differences[differences["algorithm"] == name].to_dict("records")
    if len(rows) > _MOST_CLAUSES:
        return _counted(differences[differences["algorithm"] == name], "a bank's own model")
    clauses = [f"{_signed_verdict(row)} at {case_phrase(case, row)}" for row in rows]
    return f"Against a bank's own model on the same pooled rows, {algorithm_name(name)} is {', '.join(clauses)}."


def _signed_verdict(row: Mapping) -> str:
    """Better, worse or open, with the interval."""
    if row["num_pairs"] < 2:
        return (
            f"without an interval ({number(row['difference'], sign=True)}, {plural(row['num_pairs'], 'usable pair')})"
        )
    text = interval(row, "difference", sign=True)
    if row["difference_low"] > 0:
        return f"better ({text})"
    return f"worse ({text})" if row["difference_high"] < 0 else f"not distinguishable ({text})"
