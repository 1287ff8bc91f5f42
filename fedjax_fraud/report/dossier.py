"""The dossier: everything that an auditor needs, in Markdown.

``dossier`` joins sections; a section is a function from a ``Case`` to Markdown, empty if it has nothing to say. The
page (``page.py``) shows the same sections between its charts.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from fedjax_fraud.files import strict_json

from . import decisions, facts, tables, wording
from .wording import DASH, algorithm_name, alpha_name, interval, markdown_table, number, plural, quantity, setting_names

MOST_BANKS = 10
_MOST_CLAUSES = 4
TARGET_SHARE = 0.95
_SCORE_HEADERS = (
    *("Algorithm", "PR-AUC", "ROC-AUC", "Validation loss", "MB down", "MB up", "MB vs FedAvg", "Drift"),
    *("Largest client step", "Seeds", "Diverged", "Idle"),
)
_BASELINE_WORDS = {"centralised": "one model on all rows", "local_only": "each bank's own model"}


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
    by_rank: pd.DataFrame  # ``tables.bank_table`` of each algorithm's best hyperparameters
    decided: decisions.Decided | None


def dossier(result: Any) -> str:
    """A sweep's result as a Markdown document for an auditor.

    Args:
      result: has ``rounds``, ``banks``, ``partitions`` and ``manifest``, as a sweep returns it or ``store.load`` reads
        it; both give the same text.

    Returns: Markdown, ending in a newline.
    """
    return joined(sections(case_of(result)))


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
        tables.bank_table(result.banks[result.banks["setting"].isin(best["setting"])], diverged),
        None if decided is None else decisions.decide(decided, summary, diverged),
    )


def sections(case: Case) -> dict[str, str]:
    """The sections that have something to say, by name and in order, each in Markdown."""
    found = dict(
        title=_title(case),
        warning=_leak_warning(case),
        answer=_answer(case),
        question=_question(case),
        scores=_scores(case),
        differences=_differences(case),
        against_local=_against_local(case),
        cost=_cost(case),
        banks=_banks(case),
        joining=_joining(case),
        budgets=_budgets(case),
        calibration=_calibration(case),
        partitions=_partitions(case),
        incidents=_incidents(case),
        data=_data(case),
        meaning=_meaning(case),
        record=_record(case),
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
        return ""
    return (
        "> **WARNING: THESE SCORES ARE NOT A DETECTION RESULT.** The features include account balances "
        '(`features = "all"`). In PaySim a fraud empties the account, so the balances give the label away, and the '
        "balances after the transaction are not even known when a bank must decide. Use them only to compare with "
        "work that does the same."
    )


# ---- the answer -------------------------------------------------------------------------------------------------


def _answer(case: Case) -> str:
    """Two sentences: who is ahead at which alpha, and whether federating beats staying alone."""
    parts = ["## The answer", f"{_who_is_ahead(case)} {_does_it_pay(case)}", _basis(case)]
    several = [algorithm_name(name) for name, count in tables.num_choices(case.rounds).items() if count > 1]
    if several:
        parts.append(
            f"For {_listed(several)} several hyperparameters were run, and this answer takes the best of each, chosen "
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
    cases = list(_by_case(differences))
    if len(cases) > _MOST_CLAUSES:
        return _counted(differences, "FedAvg")
    clauses = [f"at {_case_phrase(case, row)} {_verdict(group)}" for row, group in cases]
    return f"On pooled PR-AUC, in pairs on the same data and seed, {'; '.join(clauses)}."


def _counted(differences: pd.DataFrame, reference: str) -> str:
    """Too many cases for a sentence each: in how many of them an algorithm is ahead, behind, or neither."""
    num_cases = len(list(_by_case(differences)))
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
    clauses = [f"{_listed(_with_difference(rows))} {_is(rows)} {words} FedAvg" for rows, words in parts if len(rows)]
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
    clauses = [f"{_signed_verdict(row)} at {_case_phrase(case, row)}" for row in rows]
    return f"Against a bank's own model on the same pooled rows, {algorithm_name(name)} is {', '.join(clauses)}."


def _signed_verdict(row: Mapping) -> str:
    """Better, worse or open, with the interval."""
    if row["num_pairs"] < 2:
        return (
            f"without an interval ({number(row['difference'], sign=True)}, {plural(row['num_pairs'], 'usable pair')})"
        )
    text = interval(row, "difference", sign=True)
    if row["difference_low"] > 0:
        return f"better by {text}"
    return f"worse by {text}" if row["difference_high"] < 0 else f"not distinguishable ({text})"


# ---- what was asked ---------------------------------------------------------------------------------------------


def asked(case: Case) -> str:
    """The configuration in a sentence."""
    rounds, config = case.rounds, case.manifest.get("config") or {}
    federated = rounds[~rounds["algorithm"].isin(tables.BASELINES)]
    compared = _listed([algorithm_name(name) for name in _order(case.summary, federated["algorithm"])])
    baselines = _order(case.summary, set(tables.BASELINES))
    beside = f", beside {_listed([_BASELINE_WORDS[name] for name in baselines])}" if baselines else ""
    alphas = rounds["alpha"].dropna().unique()
    skew = f" at alpha {_listed([alpha_name(alpha) for alpha in sorted(alphas)])}" if 0 < len(alphas) <= 12 else ""
    return (
        f"How do {compared} compare on {plural(case.partitions['client'].nunique(), 'bank')}{beside}? "
        f"Partition: {_partition_words(config)}{skew}; {plural(int(rounds['round'].max()), 'round')} of "
        f"{_values(rounds['num_epochs'])} local epoch(s), {plural(rounds['seed'].nunique(), 'seed')}; "
        f"{_condition_words(rounds, config)}."
    )


def _order(summary: pd.DataFrame, names: Collection[str]) -> list[str]:
    """Those of some algorithms that were run, in the order of every table."""
    return [name for name in dict.fromkeys(summary["algorithm"]) if name in set(names)]


def _question(case: Case) -> str:
    """The configuration in words."""
    rounds, config = case.rounds, case.manifest.get("config") or {}
    federated = rounds[~rounds["algorithm"].isin(tables.BASELINES)]
    names = [algorithm_name(name) for name in dict.fromkeys(case.summary["algorithm"])]
    lines = [
        f"Compared: {_listed(names)}.",
        f"Skew: {_partition_words(config)}; alpha {_values(rounds['alpha'])}.",
        f"Banks: {case.partitions['client'].nunique()}. Communication rounds: {rounds['round'].max()}. "
        f"Seeds: {rounds['seed'].nunique()} ({_values(rounds['seed'])}).",
        f"Local work: {_values(rounds['num_epochs'])} epoch(s) a round; client learning rate "
        f"{_values(rounds['client_lr'])}; mu {_values(rounds['mu'])}; "
        f"{_from_config(config, 'batch_size')}.",
        f"Conditions: {_condition_words(rounds, config)}.",
        f"Model: {_model_words(case.manifest)}.",
        f"Federated settings run: {federated['setting'].nunique():,}, each {rounds['round'].max()} rounds.",
    ]
    return f"## What was asked\n\n{asked(case)}\n\n" + "\n".join(f"- {line}" for line in lines)


def _condition_words(rounds: pd.DataFrame, config: Mapping) -> str:
    """What could go wrong: every condition that is not the ideal one in some setting, with its values."""
    known = tables.complete(rounds[~rounds["algorithm"].isin(tables.BASELINES)])
    words = []
    for name, ideal in tables.CONDITIONS.items():
        values = list(dict.fromkeys(known[name]))
        if values != [ideal]:
            words.append(f"{_readable(name)} {', '.join(_shown(value) for value in values)}")
    if config.get("available"):
        words.append("banks that can be reached: by a table of rounds and banks")
    return "; ".join(words) or "all banks take part in every round, in time and without faults"


def _partition_words(config: Mapping) -> str:
    """The kind of partition in words."""
    kinds = {
        "labels": "Dirichlet over the labels (each class is dealt to the banks apart)",
        "feature": f"Dirichlet over the bins of a feature ({config.get('partition_feature')})",
        "quantity": "Dirichlet over the number of rows",
        "iid": "rows dealt at random (IID)",
        "natural": "the banks that the data name",
        "controlled": "banks of given sizes and fraud rates",
    }
    kind = str(config.get("partition_kind", config.get("partition", "as recorded below")))
    return kinds.get(kind, kind)


def _from_config(config: Mapping, name: str) -> str:
    """An entry of the configuration in words."""
    return f"{_readable(name)} {config.get(name, 'not recorded')}"


def _model_words(manifest: Mapping) -> str:
    """The model and its size."""
    model = manifest.get("model") or {}
    size = facts.number_fact(manifest, "model", "num_params")
    words = [str(model["description"])] if model.get("description") else []
    words += [f"{size:,.0f} parameters"] if math.isfinite(size) else []
    return ", ".join(words) or "not recorded"


# ---- scores -----------------------------------------------------------------------------------------------------


def _scores(case: Case) -> str:
    """One table per alpha, in the form of the specifications."""
    parts = [
        "## Scores after the last round\n\n"
        "Mean over seeds [95 % interval], of the global model on the pooled test rows. The row *Prevalence* is what a "
        "random ranking scores. *Local only* is the mean over banks of each bank's own model on the same pooled rows. "
        "Communication is the total of all banks and rounds."
    ]
    for row, group in _by_case(case.summary):
        parts.append(f"### {_case_heading(case, row)}\n\n{_score_table(case, group)}")
    return "\n\n".join(parts)


def _score_table(case: Case, group: pd.DataFrame) -> str:
    """The scores at one alpha, baselines and prevalence among them."""
    rows = [_score_row(name, row) for name, row in zip(_names(case, group), group.to_dict("records"), strict=True)]
    rows.append(["Prevalence", number(case.prevalence), number(0.5), *[DASH] * 9])
    return markdown_table(_SCORE_HEADERS, rows)


def all_scores(case: Case) -> str:
    """The scores of every case in one Markdown table, the prevalence beside each average precision."""
    rows = [
        [_case_name(case, row), name, score, number(case.prevalence), *others]
        for name, row in zip(_names(case, case.summary), case.summary.to_dict("records"), strict=True)
        for _, score, *others in [_score_row(name, row)]
    ]
    return markdown_table(("alpha", *_SCORE_HEADERS[:2], "Prevalence", *_SCORE_HEADERS[2:]), rows)


def glance(case: Case) -> str:
    """Average precision of every algorithm at its best hyperparameters, a line for each case, as a Markdown table."""
    best = case.best_summary
    order = decisions.joining_order(best)
    names = dict(zip(best["algorithm"], setting_names(best), strict=True))
    rows = []
    for row, group in _by_case(best):
        cells = {line["algorithm"]: interval(line, "average_precision", 3) for line in group.to_dict("records")}
        rows.append([_case_name(case, row), number(case.prevalence), *(cells.get(name, DASH) for name in order)])
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
            *(_case_name(case, row), name, interval(row, "difference", sign=True), _distinguishable(row)),
            f"{row['wins']} of {row['num_pairs']}",
            *(interval(others[metric].iloc[place], "difference", sign=True) for metric in others),
            str(row["num_excluded"]),
            str(row["num_unpaired"]),
        ]
        for place, (name, row) in enumerate(zip(_names(case, table), table.to_dict("records"), strict=True))
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
            *(_case_name(case, row), name, interval(row, "difference", sign=True), _distinguishable(row)),
            *(f"{row['wins']} of {row['num_pairs']}", str(row["num_excluded"]), str(row["num_unpaired"])),
        ]
        for name, row in zip(_names(case, table), table.to_dict("records"), strict=True)
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
            *(_case_name(case, row), name, number(row["target"]), f"{row['num_reached']} of {row['num_seeds']}"),
            _target_text(row["rounds_to_target"], 0),
            _target_text(row["mb_to_target"], 3),
            _seconds_text(row["seconds_to_target"]),
        ]
        for name, row in zip(_names(case, table), table.to_dict("records"), strict=True)
    ]
    headers = ("alpha", "Algorithm", "Target PR-AUC", "Seeds that reached it", "Rounds", "MB up and down", "Seconds")
    return (
        "## Cost to reach a target\n\n"
        f"The target is {TARGET_SHARE:.0%} of FedAvg's final mean PR-AUC in the same case, reached when the pooled "
        "PR-AUC is first at or above it. Rounds, MB and simulated seconds are those by which half of all seeds had "
        "reached it; a seed that diverged or never got there counts as never.\n\n" + markdown_table(headers, rows)
    )


def _seconds_text(value: float) -> str:
    """Simulated seconds; a dash without a clock."""
    return DASH if math.isnan(value) else quantity(value) if math.isfinite(value) else "not reached by half"


def _target_text(value: float, digits: int) -> str:
    """A cost, or that fewer than half of the seeds ever paid it."""
    return number(value, digits) if math.isfinite(value) else "not reached by half"


# ---- banks and partitions ---------------------------------------------------------------------------------------


def _banks(case: Case) -> str:
    """What the banks get: all of them in a line, then by rank of size."""
    if case.banks.empty:
        return ""
    summary = tables.bank_summary(case.banks, case.diverged)
    rows = [
        _bank_summary_row(case, name, row)
        for name, row in zip(_names(case, summary), summary.to_dict("records"), strict=True)
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
    return [_case_name(case, row), name, interval(row, "average_precision"), defined, better]


def _banks_by_rank(case: Case, table: pd.DataFrame) -> str:
    """Banks from the largest on, each algorithm at its best hyperparameters."""
    shown = table[table["bank_rank"] <= MOST_BANKS].sort_values([*tables.CASE, "bank_rank"], kind="stable")
    banks = bank_names(case)
    rows = [
        _bank_row(case, name, banks.get(row["bank_rank"], str(row["bank_rank"])), row)
        for name, row in zip(_names(case, shown), shown.to_dict("records"), strict=True)
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


def bank_names(case: Case) -> dict[int, str]:
    """Rank by size -> name, where the banks have names: those of a natural partition, the same in every seed."""
    if "bank" not in case.partitions:
        return {}
    one_seed = case.partitions[case.partitions["seed"] == case.partitions["seed"].min()]
    by_size = one_seed.sort_values("num_examples", ascending=False, kind="stable")
    return {rank: f"{rank} ({name})" for rank, name in enumerate(by_size["bank"], start=1)}


def _bank_row(case: Case, name: str, bank: str, row: Mapping) -> list[str]:
    """One line of the table of banks by size."""
    alone = row["algorithm"] == "local_only" or row["num_pairs"] == 0
    return [
        *(_case_name(case, row), bank, name),
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
        for row in tables.partition_table(case.partitions).to_dict("records")
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
    total = len(case.rounds[["setting", "alpha"]].drop_duplicates())
    if diverged.empty:
        return f"Settings that diverged: 0 of {total:,}."
    names = [
        f"{name} at {_case_phrase(case, row)}, seed {row['seed']} (setting {row['setting']})"
        for name, row in zip(_names(case, diverged), diverged.to_dict("records"), strict=True)
    ]
    listed = "\n".join(f"  - {name}" for name in names)
    return f"Settings that diverged, left out of every mean: {len(diverged):,} of {total:,}.\n{listed}"


# ---- data and meaning -------------------------------------------------------------------------------------------


def _data(case: Case) -> str:
    """Where the rows come from, the rule to beat, the accounts on both sides, the features."""
    manifest, features = case.manifest, facts.feature_names(case.manifest)
    named = ", ".join(f"`{name}`" for name in features) or "not recorded"
    lines = [
        f"Source: {facts.fact(manifest, 'data', 'source') or 'not recorded'}.",
        *(_side_words(manifest, side) for side in ("train", "test")),
        _rule_words(manifest),
        *_overlap_words(manifest),
        *_crossing_words(manifest),
        *_leak_words(manifest),
        *_filled_words(manifest),
        f"Features ({len(features)}): {named}.",
    ]
    return "## Data\n\n" + "\n".join(f"- {line}" for line in lines)


def _side_words(manifest: Mapping, side: str) -> str:
    """One side of the split."""
    rows, positives, share = (
        facts.number_fact(manifest, "data", side, name) for name in ("num_rows", "num_positives", "prevalence")
    )
    time = facts.fact(manifest, "data", side, "time_range")
    period = f"; time {_shown(time[0])} to {_shown(time[1])}" if time else ""
    counts = f"{_count(rows)} rows, {_count(positives)} frauds, prevalence {quantity(share)}"
    return f"{side.capitalize()}ing rows: {counts}{period}." if side == "train" else f"Test rows: {counts}{period}."


def _rule_words(manifest: Mapping) -> str:
    """The hand-written rule beside the model."""
    if not facts.fact(manifest, "data", "one_rule"):
        return "One-rule baseline: not available for these data (the columns that the rule needs are not there)."
    recall, precision = (facts.number_fact(manifest, "data", "one_rule", name) for name in ("recall", "precision"))
    return (
        "One-rule baseline on the test rows (a transfer or cash-out that empties the account): recall "
        f"{number(recall)}, precision {number(precision)}. One line of code finds this, because generated frauds take "
        "all that there is; read the score of any model that sees balances beside it."
    )


def _overlap_words(manifest: Mapping) -> list[str]:
    """Accounts that stand on both sides of the split."""
    overlap = facts.fact(manifest, "data", "account_overlap")
    if not overlap:
        return ["Account overlap between training and test rows: not known (no account columns)."]
    words = [
        f"{role}: {_count(facts.number_fact(overlap, role, 'num_accounts_on_both_sides'))} accounts, in "
        f"{100 * facts.number_fact(overlap, role, 'share_of_test_rows'):.2f} % of the test rows"
        for role in overlap
    ]
    return [f"Account overlap between training and test rows, by role: {'; '.join(words)}."]


def _crossing_words(manifest: Mapping) -> list[str]:
    """Accounts of two banks."""
    crossings = facts.fact(manifest, "data", "silo_crossings")
    if not crossings:
        return []
    words = [
        f"{role}: {_count(facts.number_fact(crossings, role, 'num_accounts_in_two_silos'))} accounts, in "
        f"{100 * facts.number_fact(crossings, role, 'share_of_rows'):.2f} % of the rows"
        for role in crossings
    ]
    return [f"Accounts that two banks or more have rows of, by role: {'; '.join(words)}."]


def _leak_words(manifest: Mapping) -> list[str]:
    """Columns that may give the label away."""
    leaks = facts.fact(manifest, "data", "suspected_leaks") or ()
    return [
        f"**Suspected leak**: `{leak['rule']}` finds {100 * leak['recall']:.1f} % of the training frauds, and "
        f"{100 * leak['precision']:.1f} % of what it finds is fraud."
        + ("" if leak["is_feature"] else " The column is no feature.")
        for leak in leaks
    ]


def _filled_words(manifest: Mapping) -> list[str]:
    """Gaps that were filled, and categories that training did not hold."""
    filled = facts.fact(manifest, "data", "filled") or {}
    words = [
        f"`{column}` {one['train']:,} and {one['test']:,}, "
        + ("a category of their own" if one["fill"] is None else f"by {quantity(one['fill'])}")
        for column, one in filled.items()
    ]
    lines = [f"Gaps filled in training and test rows: {'; '.join(words)}."] if words else []
    unseen = facts.fact(manifest, "data", "unseen_categories") or {}
    if unseen:
        words = [f"`{column}` in {rows:,} rows" for column, rows in unseen.items()]
        lines.append(f"Test rows with a category that no training row has: {', '.join(words)}.")
    return lines


def _meaning(case: Case) -> str:
    """What each number is, and what an interval covers."""
    ratio = facts.number_fact(case.manifest, "diverged_loss_ratio")
    far = f"over {ratio:g} times the untrained model's" if math.isfinite(ratio) else "far above the untrained model's"
    lines = (
        "**PR-AUC** is the average precision: the step sum over thresholds of precision times gained recall, as in "
        "scikit-learn, with ties in one step; not a trapezoid area. Read it beside the prevalence.",
        "**Pooled** scores rank the test rows of all banks together; **per-bank** scores rank each bank's own rows.",
        "**Validation loss** is the mean log loss on the test rows.",
        "**MB** is 1,000,000 bytes, counted from the model's size, the vectors that an algorithm sends and the banks "
        "that took part; no protocol overhead, no compression. *MB vs FedAvg* is the ratio of whole bytes.",
        "**Drift** is the norm of a client's update minus the aggregated update, a mean over the cohort, the rounds "
        "and the seeds. *Largest client step* is the largest norm of any client's update in any round and seed.",
        "**Intervals** are 95 % Student t intervals of the mean over seeds. A seed sets the partition, the start of "
        "the model, the cohorts and the batches; the intervals cover these. They do **not** cover the choice of the "
        "test rows, which are the same for every seed, nor another period, bank or country. With few seeds they are "
        "wide, and may reach beyond what the score can be; that is a sign of too few seeds.",
        "Intervals are not corrected for the number of comparisons: where there is no difference at all, about one "
        "paired interval in twenty still excludes 0.",
        f"**Diverged** settings (loss not finite at the end, or {far}, or beyond return on the way) are left out of "
        "means and counted beside them: an algorithm with many has a mean over the seeds that were kind to it.",
        "**Idle** settings, in which every round was skipped because no update came back in time or none was accepted, "
        "are left out too: their scores would be the untrained model's.",
    )
    return "## What the numbers mean\n\n" + "\n".join(f"- {line}" for line in lines)


def _record(case: Case) -> str:
    """Versions, timings, devices and the whole configuration."""
    parts = ["## Record"]
    for section in ("versions", "timings", "work", "devices"):
        value = case.manifest.get(section)
        if value:
            flat = dict(facts.flatten(value)) if isinstance(value, dict) else {section: value}
            words = "; ".join(f"{_readable(key)} {_shown(item)}" for key, item in flat.items())
            parts.append(f"**{section.capitalize()}.** {words}.")
    parts.append(f"**Data SHA-256.** `{facts.fact(case.manifest, 'data', 'sha256') or 'not recorded'}`")
    config = strict_json(case.manifest.get("config") or {}).rstrip()
    parts.append(f"**Configuration.**\n\n```json\n{config}\n```")
    return "\n\n".join(parts)


# ---- words ------------------------------------------------------------------------------------------------------


def _names(case: Case, table: pd.DataFrame) -> list[str]:
    """Names of a table's rows, with the hyperparameters that the whole result varies."""
    return setting_names(table, among=case.summary)


def _by_case(frame: pd.DataFrame) -> Iterator[tuple[dict, pd.DataFrame]]:
    """The rows of each case, and one of them as a mapping."""
    for _, group in frame.groupby(list(tables.CASE), dropna=False):
        yield group.iloc[0].to_dict(), group


def _case_name(case: Case, row: Mapping) -> str:
    """A case in the first column of a table."""
    return wording.case_name(row, case.summary)


def _case_phrase(case: Case, row: Mapping) -> str:
    """A case within a sentence."""
    alpha = "the given partition" if math.isnan(row["alpha"]) else f"alpha {alpha_name(row['alpha'])}"
    return ", ".join(filter(None, (alpha, wording.conditions_name(row, case.summary))))


def _case_heading(case: Case, row: Mapping) -> str:
    """A case as a heading."""
    alpha = row["alpha"]
    regime = wording.skew_regime(alpha).capitalize()
    heading = regime if math.isnan(alpha) else f"{regime}, alpha = {alpha_name(alpha)}"
    return ", ".join(filter(None, (heading, wording.conditions_name(row, case.summary))))


def _values(column: pd.Series) -> str:
    """The distinct values of a column, without NaN."""
    values = sorted(column.dropna().unique())
    shown = [f"{value:g}" for value in values]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:5], "...", shown[-1]]) if values else "not applicable"


def _count(value: float) -> str:
    """A whole number, or a dash if it is not known."""
    return f"{value:,.0f}" if math.isfinite(value) else DASH


def _listed(items: list[str]) -> str:
    """Items as in a sentence."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _readable(key: str) -> str:
    """A key of the manifest for readers."""
    return key.replace(".", ", ").replace("_", " ")


def _shown(value: Any) -> str:
    """A value of the manifest for readers."""
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else quantity(value) if isinstance(value, float) else str(value)
