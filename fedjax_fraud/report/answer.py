"""The answer: who is ahead at which skew, whether federating beats staying alone, and what to be careful about."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from . import facts, tables
from .case import Case, by_case, case_name, case_phrase
from .wording import (
    DASH,
    algorithm_name,
    alpha_name,
    conditions_name,
    interval,
    listed,
    markdown_table,
    number,
    plural,
    setting_names,
)

_MOST_CASES = 4
_DIGITS = 3


class Verdicts(NamedTuple):
    """How one says that a difference is above 0, below 0, or neither."""

    above: str
    below: str
    neither: str


_TO_FEDAVG = Verdicts("ahead of FedAvg", "behind FedAvg", "not distinguishable from FedAvg")
_TO_ALONE = Verdicts("better", "worse", "not distinguishable")


def answer(case: Case) -> str:
    """Two sentences with intervals, the differences behind them in a table, and what limits them."""
    to_fedavg, to_alone = _differences(case)
    parts = ["## The answer", f"{_who_is_ahead(case, to_fedavg)} {_does_it_pay(case, to_alone)}"]
    parts += [_table(case, to_fedavg, to_alone), "\n".join(f"- {line}" for line in _cautions(case))]
    return "\n\n".join(filter(None, parts))


def _differences(case: Case) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every federated algorithm against FedAvg; FedAvg, or the first algorithm there is, against the banks alone."""
    to_fedavg = tables.paired_differences(case.best, match=())
    to_alone = tables.paired_differences(case.best, reference="local_only", match=())
    federated = [name for name in case.summary["algorithm"] if name not in tables.BASELINES]
    return to_fedavg[~to_fedavg["algorithm"].isin(tables.BASELINES)], to_alone[
        to_alone["algorithm"].isin(federated[:1])
    ]


def _who_is_ahead(case: Case, differences: pd.DataFrame) -> str:
    """The first sentence."""
    if differences.empty:
        return "There is no FedAvg with another federated algorithm to compare it with, so no algorithm is ahead."
    if len(list(by_case(differences))) > _MOST_CASES:
        return _counted(differences, "FedAvg")
    clauses = [
        f"{algorithm_name(name)} is {_verdict(case, rows, _TO_FEDAVG)}"
        for name, rows in differences.groupby("algorithm", sort=False)
    ]
    return f"On pooled PR-AUC, in pairs on the same data and seed, {'; '.join(clauses)}."


def _does_it_pay(case: Case, differences: pd.DataFrame) -> str:
    """The second sentence."""
    if differences.empty:
        return "Banks alone were not run, so whether federating pays is not answered."
    if len(differences) > _MOST_CASES:
        return _counted(differences, "a bank's own model")
    name = algorithm_name(differences["algorithm"].iloc[0])
    return f"Against a bank's own model on the same rows, {name} is {_verdict(case, differences, _TO_ALONE)}."


def _counted(differences: pd.DataFrame, reference: str) -> str:
    """Too many cases for a sentence each: in how many of them an algorithm is ahead, behind, or neither."""
    clauses = []
    for name, rows in differences.groupby("algorithm", sort=False):
        ahead, behind = int((rows["difference_low"] > 0).sum()), int((rows["difference_high"] < 0).sum())
        counts = f"ahead in {ahead}, behind in {behind} and not distinguishable in {len(rows) - ahead - behind}"
        clauses.append(f"{algorithm_name(name)} is {counts}")
    return (
        f"Over {len(list(by_case(differences)))} cases of skew and conditions, on pooled PR-AUC, in pairs on the same "
        f"data and seed against {reference}: {'; '.join(clauses)} (each interval is in the tables of paired "
        "differences)."
    )


def _verdict(case: Case, differences: pd.DataFrame, words: Verdicts) -> str:
    """Where one algorithm is above, below or neither; the intervals of what is decided."""
    above, below = differences["difference_low"] > 0, differences["difference_high"] < 0
    pairs = differences["num_pairs"]
    kinds = (
        (words.above, above, _with_interval),
        (words.below, below, _with_interval),
        (words.neither, ~above & ~below & (pairs > 1), lambda row: ""),
        ("without an interval", pairs == 1, lambda row: f"({_interval(row)}, one seed, no interval)"),
        ("without a usable pair", pairs == 0, lambda row: "(no usable pair)"),
    )
    clauses = [_clause(case, verdict, differences[which], shown) for verdict, which, shown in kinds if which.any()]
    return listed(clauses)


def _clause(case: Case, verdict: str, rows: pd.DataFrame, shown) -> str:
    """A verdict with the cases in which it holds, each with what is shown of it."""
    places = [" ".join(filter(None, (place, shown(row)))) for place, row in _places(case, rows)]
    places = list(filter(None, places))
    return f"{verdict} {listed(places)}" if places else verdict


def _places(case: Case, rows: pd.DataFrame) -> Iterator[tuple[str, dict]]:
    """Where a row holds, ``at alpha 0.1``, then ``0.5``; empty for the only partition that there is."""
    conditions = bool(conditions_name(case.summary.iloc[0].to_dict(), case.summary))
    for number_, row in enumerate(rows.to_dict("records")):
        if conditions:
            yield f"{'' if number_ else 'at '}{case_phrase(case, row)}", row
        elif math.isnan(row["alpha"]):
            yield "", row
        else:
            yield f"{'' if number_ else 'at alpha '}{alpha_name(row['alpha'])}", row


def _interval(row: Mapping) -> str:
    """A difference with its interval, if it has one."""
    return interval(row, "difference", _DIGITS, sign=True)


def _with_interval(row: Mapping) -> str:
    return f"({_interval(row)})"


def _table(case: Case, to_fedavg: pd.DataFrame, to_alone: pd.DataFrame) -> str:
    """The differences of the two sentences: a line for each case, a column for each pair."""
    columns = {}
    for table, reference in ((to_fedavg, "FedAvg"), (to_alone, "a bank's own model")):
        for name, rows in table.groupby("algorithm", sort=False):
            cells = {case_name(case, row): _cell(row) for row in rows.to_dict("records")}
            columns[f"{algorithm_name(name)} minus {reference}"] = cells
    places = list(dict.fromkeys(case_name(case, row) for row, _ in by_case(case.best_summary)))
    if not columns or len(places) > _MOST_CASES:
        return ""
    rows = [[place, *(cells.get(place, DASH) for cells in columns.values())] for place in places]
    return markdown_table(("alpha", *columns), rows)


def _cell(row: Mapping) -> str:
    """A difference; on how many pairs, where some were left out."""
    if row["num_pairs"] == 0:
        return "no usable pair"
    total = row["num_pairs"] + row["num_excluded"]
    return _interval(row) + (f" ({row['num_pairs']} of {total} seeds)" if row["num_excluded"] else "")


# ---- what limits it ---------------------------------------------------------------------------------------------


def _cautions(case: Case) -> Iterator[str]:
    """What a reader must know beside the two sentences, the gravest first."""
    diverged = case.best_summary[case.best_summary["num_diverged"] > 0]
    if len(diverged):
        counts = (
            f"{algorithm_name(row['algorithm'])} in {row['num_diverged']} of {plural(row['num_seeds'], 'run')}"
            f"{_at(case, row)}"
            for row in diverged.to_dict("records")
        )
        yield f"Diverged, and so in no mean and no pair: {_shortened(list(counts))}."
    yield from chance_words(case.best_summary, case.prevalence)
    several = [algorithm_name(name) for name, count in tables.num_choices(case.rounds).items() if count > 1]
    if several:
        yield (
            f"For {listed(several)} several hyperparameters were run, and this answer takes the best of each, chosen "
            "on the same test rows: the more were tried, the more optimistic it is."
        )
    num_frauds = facts.number_fact(case.manifest, "data", "test", "num_positives")
    frauds = "an unknown number of test frauds" if math.isnan(num_frauds) else plural(int(num_frauds), "test fraud")
    yield (
        f"This rests on {plural(case.rounds['seed'].nunique(), 'seed')} and {frauds}; the intervals are over seeds "
        "alone, and ROC-AUC and loss, in the tables below, may order the algorithms differently."
    )


def chance_words(summary: pd.DataFrame, prevalence: float) -> Iterator[str]:
    """Which models cannot be told from a random ranking; nothing if all can.

    Args:
      summary: ``tables.summarise``.
      prevalence: of the test rows: the average precision of a random ranking.
    """
    found = summary[tables.no_better_than(summary, prevalence)]
    if len(found):
        rows = zip(setting_names(found, among=summary), found.to_dict("records"), strict=True)
        names = (f"{name}{_at_case(row, summary)}" for name, row in rows)
        yield (
            f"Cannot be told from a random ranking by these seeds (PR-AUC with its interval not above the prevalence "
            f"{number(prevalence)}): {_shortened(list(dict.fromkeys(names)))}."
        )


def _at(case: Case, row: Mapping) -> str:
    return _at_case(row, case.summary)


def _at_case(row: Mapping, among: pd.DataFrame) -> str:
    """`` at alpha 0.1, 50% stragglers``, as far as there is more than one case."""
    alpha = "" if math.isnan(row["alpha"]) else f"alpha {alpha_name(row['alpha'])}"
    words = ", ".join(filter(None, (alpha, conditions_name(row, among))))
    return f" at {words}" if words else ""


def _shortened(items: list[str]) -> str:
    """At most six items."""
    return listed(items if len(items) <= 6 else [*items[:5], f"{len(items) - 5} more"])
