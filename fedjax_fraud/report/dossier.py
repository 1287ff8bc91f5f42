"""The dossier: everything that an auditor needs, in Markdown.

``dossier`` joins sections; a section is a function from a ``Case`` to Markdown, empty if it has nothing to say. The
page (``page.py``) shows the same sections between its charts.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from . import bank_tables, decisions, facts, tables, wording
from .answer import answer
from .case import Case, bank_names, by_case, case_heading, case_name, case_of, case_phrase, names_of
from .privacy import privacy_section
from .provenance import data_section, meaning_section, record_section
from .question import question
from .wording import DASH, alpha_name, interval, markdown_table, number, quantity, setting_names

MOST_BANKS = 10
TARGET_SHARE = 0.95
_SCORE_HEADERS = (
    *("Algorithm", "PR-AUC", "ROC-AUC", "Validation loss", "MB down", "MB up", "MB vs FedAvg", "Drift"),
    *("Largest client step", "Seeds", "Diverged", "Idle"),
)


def dossier(result: Any) -> str:
    """A sweep's result as a Markdown document for an auditor.

    Args:
      result: has ``rounds``, ``banks``, ``partitions`` and ``manifest``, as a sweep returns it or ``store.load`` reads
        it; both give the same text.

    Returns: Markdown, ending in a newline.
    """
    return joined(sections(case_of(result)))


def sections(case: Case) -> dict[str, str]:
    """The sections that have something to say, by name and in order, each in Markdown."""
    found = dict(
        title=_title(case),
        warning=_leak_warning(case),
        answer=answer(case),
        question=question(case),
        scores=_scores(case),
        differences=_differences(case),
        against_local=_against_local(case),
        cost=_cost(case),
        banks=_banks(case),
        joining=_joining(case),
        budgets=_budgets(case),
        calibration=_calibration(case),
        partitions=_partitions(case),
        privacy=privacy_section(case),
        incidents=_incidents(case),
        data=data_section(case),
        meaning=meaning_section(case),
        record=record_section(case),
    )
    return {name: text for name, text in found.items() if text}


def joined(sections: Mapping[str, str]) -> str:
    """The document that sections make."""
    return "\n\n".join(sections.values()) + "\n"


def _title(case: Case) -> str:
    decided = case.decided is not None
    return (
        "# Federated fraud detection: audit dossier\n\n"
        f"Pictures: {_pictures(case)}, [partitions](partition.png). "
        "Numbers: `summary.csv`, `results.parquet`, `banks.parquet`, `partitions.parquet`"
        f"{', `decisions.parquet`' if decided else ''}; record: `manifest.json`."
    )


def _pictures(case: Case) -> str:
    """Links to the pictures of scores: one of each, or one for each combination of conditions, by name."""
    names = ["convergence", "banks", *(["calibration"] if case.decided is not None else [])]
    conditions = _condition_names(case)
    if len(conditions) == 1:
        return ", ".join(f"[{name}]({name}.{'svg' if name == 'convergence' else 'png'})" for name in names)
    each = (
        f"{words}: " + ", ".join(f"[{name}]({name}-{place}.png)" for name in names)
        for place, words in enumerate(conditions, start=1)
    )
    return f"[final scores under each condition](conditions.png); under {'; under '.join(each)}"


def _condition_names(case: Case) -> list[str]:
    """The combinations of conditions in the order of the pictures."""
    federated = case.summary[~case.summary["algorithm"].isin(tables.BASELINES)]
    groups = federated.groupby(list(tables.CONDITIONS), dropna=False, sort=True)
    return [wording.conditions_name(group.iloc[0].to_dict(), federated) for _, group in groups] or [""]


def _leak_warning(case: Case) -> str:
    """A loud word when the features hold what is only known afterwards."""
    if not facts.leaks_label(case.manifest):
        return _suspicion(case)
    return (
        "> **WARNING: THESE SCORES ARE NOT A DETECTION RESULT.** The features include account balances "
        '(`features = "all"`). In PaySim a fraud empties the account, so the balances give the label away, and the '
        "balances after the transaction are not even known when a bank must decide. Use them only to compare with "
        "work that does the same."
    )


def _suspicion(case: Case) -> str:
    """A loud word when a feature by itself all but gives the label away."""
    leaks = [leak for leak in facts.fact(case.manifest, "data", "suspected_leaks") or () if leak["is_feature"]]
    if not leaks:
        return ""
    rules = ", ".join(f"`{leak['rule']}`" for leak in leaks)
    return (
        "> **WARNING: THESE SCORES MAY NOT BE A DETECTION RESULT.** One rule all but gives the label away: "
        f"{rules}. If that is known only after the fact, leave the column out (`--drop`) and run again."
    )


def _scores(case: Case) -> str:
    """One table per alpha, in the form of the specifications."""
    parts = [
        "## Scores after the last round\n\n"
        "Mean over seeds [95 % interval], of the global model on the pooled test rows. The row *Prevalence* is what a "
        "random ranking scores. *Local only* is the mean over banks of each bank's own model on the same pooled rows. "
        "Communication is the total of all banks and rounds."
    ]
    for row, group in by_case(case.summary):
        parts.append(f"### {case_heading(case, row)}\n\n{_score_table(case, group)}")
    return "\n\n".join(parts)


def _score_table(case: Case, group: pd.DataFrame) -> str:
    """The scores at one alpha, baselines and prevalence among them."""
    rows = [_score_row(name, row) for name, row in zip(names_of(case, group), group.to_dict("records"), strict=True)]
    rows.append(["Prevalence", number(case.prevalence), number(0.5), *[DASH] * 9])
    return markdown_table(_SCORE_HEADERS, rows)


def all_scores(case: Case) -> str:
    """The scores of every case in one Markdown table, the prevalence beside each average precision."""
    rows = [
        [case_name(case, row), name, score, number(case.prevalence), *others]
        for name, row in zip(names_of(case, case.summary), case.summary.to_dict("records"), strict=True)
        for _, score, *others in [_score_row(name, row)]
    ]
    return markdown_table(("alpha", *_SCORE_HEADERS[:2], "Prevalence", *_SCORE_HEADERS[2:]), rows)


def glance(case: Case) -> str:
    """Average precision of every algorithm at its best hyperparameters, a line for each case, as a Markdown table."""
    best = case.best_summary
    order = decisions.joining_order(best)
    names = dict(zip(best["algorithm"], setting_names(best), strict=True))
    rows = []
    for row, group in by_case(best):
        cells = {line["algorithm"]: interval(line, "average_precision", 3) for line in group.to_dict("records")}
        rows.append([case_name(case, row), number(case.prevalence), *(cells.get(name, DASH) for name in order)])
    return markdown_table(("alpha", "Prevalence", *(names[name] for name in order)), rows)


def _score_row(name: str, row: Mapping) -> list[str]:
    """One line of the table of scores; a baseline sends nothing."""
    scores = [interval(row, score) for score in tables.SCORES]
    if row["algorithm"] in tables.BASELINES:
        traffic = [DASH] * 5
    else:
        ratio = f"{row['relative_mb']:.4g}x" if math.isfinite(row["relative_mb"]) else DASH
        traffic = [quantity(row["mb_down"]), quantity(row["mb_up"]), ratio]
        traffic += [quantity(row["drift"]), quantity(row["delta_norm_max"])]
    counts = (str(row[name]) for name in ("num_used", "num_diverged", "num_idle"))
    return [name, *scores, *traffic, *counts]


def _differences(case: Case) -> str:
    """Paired differences to FedAvg, at the same rate and epochs."""
    table = case.differences["average_precision"]
    if table.empty:
        return ""
    others = {metric: other for metric, other in case.differences.items() if metric != "average_precision"}
    rows = [
        [
            *(case_name(case, row), name, interval(row, "difference", sign=True), _distinguishable(row)),
            f"{row['wins']} of {row['num_pairs']}",
            *(interval(others[metric].iloc[place], "difference", sign=True) for metric in others),
            str(row["num_excluded"]),
            str(row["num_unpaired"]),
        ]
        for place, (name, row) in enumerate(zip(names_of(case, table), table.to_dict("records"), strict=True))
    ]
    headers = (
        *("alpha", "Algorithm", "PR-AUC minus FedAvg", "95 % interval", "Wins", "ROC-AUC minus FedAvg"),
        *("Loss minus FedAvg", "Pairs left out", "Without partner"),
    )
    return (
        "## Paired differences to FedAvg\n\n"
        "Same alpha, seed, learning rate and epochs, and so the same partition, start, cohorts and batches. A pair in "
        "which either side diverged or has no score is left out and counted.\n\n" + markdown_table(headers, rows)
    )


def _against_local(case: Case) -> str:
    """Paired differences to the banks' own models."""
    table = tables.paired_differences(case.rounds, reference="local_only")
    if table.empty:
        return ""
    rows = [
        [
            *(case_name(case, row), name, interval(row, "difference", sign=True), _distinguishable(row)),
            *(f"{row['wins']} of {row['num_pairs']}", str(row["num_excluded"]), str(row["num_unpaired"])),
        ]
        for name, row in zip(names_of(case, table), table.to_dict("records"), strict=True)
    ]
    headers = (
        *("alpha", "Algorithm", "PR-AUC minus local only", "95 % interval", "Wins", "Pairs left out"),
        "Without partner",
    )
    return (
        "## Paired differences to banks alone\n\n"
        "The mean over banks of their own models, on the same pooled test rows.\n\n" + markdown_table(headers, rows)
    )


def _distinguishable(row: Mapping) -> str:
    """What the interval says about the sign."""
    if not math.isfinite(row["difference_low"]):
        return "none (fewer than two pairs)"
    if row["difference_low"] > 0:
        return "above 0"
    return "below 0" if row["difference_high"] < 0 else "not distinguishable"


def _cost(case: Case) -> str:
    """Rounds and megabytes to a target."""
    table = tables.cost_to_target(case.rounds, TARGET_SHARE)
    if table.empty:
        return ""
    rows = [
        [
            *(case_name(case, row), name, number(row["target"]), f"{row['num_reached']} of {row['num_seeds']}"),
            *(
                ["no better than chance", DASH, DASH]
                if row["target"] <= case.prevalence
                else [
                    _target_text(row["rounds_to_target"], 0),
                    _target_text(row["mb_to_target"], 3),
                    _seconds_text(row["seconds_to_target"]),
                ]
            ),
        ]
        for name, row in zip(names_of(case, table), table.to_dict("records"), strict=True)
    ]
    headers = ("alpha", "Algorithm", "Target PR-AUC", "Seeds that reached it", "Rounds", "MB up and down", "Seconds")
    return (
        "## Cost to reach a target\n\n"
        f"The target is {TARGET_SHARE:.0%} of FedAvg's final mean PR-AUC in the same case, reached when the pooled "
        "PR-AUC is first at or above it. Rounds, MB and simulated seconds are those by which half of all seeds had "
        "reached it; a seed that diverged or never got there counts as never. A target at or below the prevalence is "
        "what a random ranking reaches, and buys nothing.\n\n" + markdown_table(headers, rows)
    )


def _seconds_text(value: float) -> str:
    """Simulated seconds; a dash without a clock."""
    return DASH if math.isnan(value) else quantity(value) if math.isfinite(value) else "not reached by half"


def _target_text(value: float, digits: int) -> str:
    """A cost, or that fewer than half of the seeds ever paid it."""
    return number(value, digits) if math.isfinite(value) else "not reached by half"


def _banks(case: Case) -> str:
    """What the banks get: all of them in a line, then by rank of size."""
    if case.banks.empty:
        return ""
    summary = bank_tables.bank_summary(case.banks, case.diverged)
    rows = [
        _bank_summary_row(case, name, row)
        for name, row in zip(names_of(case, summary), summary.to_dict("records"), strict=True)
    ]
    headers = ("alpha", "Algorithm", "Mean per-bank PR-AUC", "Banks with a score", "Better than their own model")
    return (
        "## Banks\n\n"
        "Each bank's own test rows, scored by the global model (*Local only*: by the bank's own model). The mean of "
        "per-bank PR-AUC is **not** the pooled PR-AUC above: the two answer different questions and do not compare. A "
        "bank whose test rows have one class has no PR-AUC; it is left out and counted, never 0. Banks x seeds, "
        "diverged settings left out.\n\n"
        f"{markdown_table(headers, rows)}\n\n{_banks_by_rank(case, case.by_rank)}"
    )


def _joining(case: Case) -> str:
    """What joining buys each bank."""
    if case.banks.empty:
        return ""
    return decisions.joining_section(case.by_rank, bank_names(case), MOST_BANKS)


def _budgets(case: Case) -> str:
    """Alert budgets, one bank's threshold, money."""
    return "" if case.decided is None else decisions.budget_section(case.decided, case.manifest)


def _calibration(case: Case) -> str:
    """Whether probabilities mean what they say."""
    return "" if case.decided is None else decisions.calibration_section(case.decided)


def _bank_summary_row(case: Case, name: str, row: Mapping) -> list[str]:
    """One line of the table of banks."""
    alone = row["algorithm"] == "local_only" or row["num_compared"] == 0
    better = DASH if alone else f"{row['num_better']} of {row['num_compared']}"
    defined = f"{row['num_defined']} of {row['num_banks']} defined"
    return [case_name(case, row), name, interval(row, "average_precision"), defined, better]


def _banks_by_rank(case: Case, table: pd.DataFrame) -> str:
    """Banks from the largest on, each algorithm at its best hyperparameters."""
    shown = table[table["bank_rank"] <= MOST_BANKS].sort_values([*tables.CASE, "bank_rank"], kind="stable")
    banks = bank_names(case)
    rows = [
        _bank_row(case, name, banks.get(row["bank_rank"], str(row["bank_rank"])), row)
        for name, row in zip(names_of(case, shown), shown.to_dict("records"), strict=True)
    ]
    headers = (
        *("alpha", "Bank, by size", "Algorithm", "Training rows", "Training frauds", "PR-AUC", "Prevalence", "Defined"),
        *("Minus own model", "Wins"),
    )
    hidden = int(table["bank_rank"].max()) - MOST_BANKS if len(table) else 0
    more = f" The {hidden} smaller ones are in `banks.parquet`." if hidden > 0 else ""
    return (
        "By size: bank 1 is the largest of its federation in each seed; rows and frauds are means over seeds, each "
        "algorithm is at its best hyperparameters. *Prevalence* is that of the bank's test rows: what a random ranking "
        f"scores there.{more}\n\n{markdown_table(headers, rows)}"
    )


def _bank_row(case: Case, name: str, bank: str, row: Mapping) -> list[str]:
    """One line of the table of banks by size."""
    alone = row["algorithm"] == "local_only" or row["num_pairs"] == 0
    return [
        *(case_name(case, row), bank, name),
        *(f"{row['num_train']:,.0f}", quantity(row["num_train_positives"]), number(row["average_precision"])),
        number(row["prevalence"]),
        f"{row['num_defined']} of {row['num_seeds']}",
        DASH if alone else interval(row, "difference", sign=True),
        DASH if alone else f"{row['wins']} of {row['num_pairs']}",
    ]


def _partitions(case: Case) -> str:
    """How uneven the banks were."""
    if case.partitions.empty:
        return ""
    rows = [
        [
            *(alpha_name(row["alpha"]), str(row["num_banks"])),
            *(_mean_and_range(row, name) for name in ("num_examples", "num_positives", "kl", "tvd")),
            *(str(row["num_without_fraud"]), str(row["num_empty"])),
        ]
        for row in bank_tables.partition_table(case.partitions).to_dict("records")
    ]
    headers = (
        *("alpha", "Banks x seeds", "Training rows", "Training frauds", "KL [nats]", "TVD", "Banks without fraud"),
        "Banks without rows",
    )
    return (
        "## Partitions\n\n"
        "Mean (smallest to largest) over banks and seeds. KL and TVD measure how far a bank's share of frauds is from "
        "that of all training rows.\n\n" + markdown_table(headers, rows)
    )


def _mean_and_range(row: Mapping, name: str) -> str:
    """A mean with its range."""
    mean, low, high = (quantity(row[f"{name}{end}"]) for end in ("", "_min", "_max"))
    return f"{mean} ({low} to {high})"


def _incidents(case: Case) -> str:
    """Divergence by name, rejected updates and skipped rounds by number."""
    rounds = tables.complete(case.rounds)
    rejected, skipped = int(rounds["num_rejected"].sum()), int(rounds["skipped"].sum())
    faulty, silent = int(rounds["num_faulty"].sum()), int(rounds["num_silent"].sum())
    lines = [
        "Client updates rejected because they were not finite, too large, of another round or sent twice: "
        f"{rejected:,}.",
        *([f"Faulty updates injected: {faulty:,}; of these in the mean without a word: {silent:,}."] if faulty else []),
        f"Rounds skipped because nobody took part or no update was finite (the model stays as it was): {skipped:,}.",
        _diverged_words(case),
    ]
    return "## Incidents\n\n" + "\n".join(f"- {line}" for line in lines)


def _diverged_words(case: Case) -> str:
    """The settings that diverged, each by name."""
    diverged = tables.diverged_settings(case.rounds)
    total = case.rounds["setting"].nunique()
    if diverged.empty:
        return f"Settings that diverged: 0 of {total:,}."
    names = [
        f"{name} at {case_phrase(case, row)}, seed {row['seed']} (setting {row['setting']})"
        for name, row in zip(names_of(case, diverged), diverged.to_dict("records"), strict=True)
    ]
    listed = "\n".join(f"  - {name}" for name in names)
    return f"Settings that diverged, left out of every mean: {len(diverged):,} of {total:,}.\n{listed}"
