"""What the models decide: words and tables on alert budgets, money, thresholds, calibration, and what joining buys."""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from . import facts
from .intervals import NOT_NEGATIVE, SHARE, mean_interval, with_bounds
from .tables import BASELINES, CASE, CONDITIONS, SETTING_KEYS, complete, spread_conditions
from .wording import DASH, case_name, interval, markdown_table, number, quantity, setting_names

POOLED = -1
_PER_DAY = "per_day"
_RANGES = {"cost": NOT_NEGATIVE, "saved": (-math.inf, 1.0)}  # all other measures are shares


def decision_summary(decisions: pd.DataFrame, diverged: Collection[int] = ()) -> pd.DataFrame:
    """One row per algorithm, alpha and hyperparameters: decisions on all test rows, over seeds.

    Args:
      decisions: one row per setting and client, and one with ``client`` -1 for all clients together.
      diverged: numbers of the settings to leave out.

    Returns: the keys, ``num_seeds``, and each measure of the table's rows with ``client`` -1, with ``_low`` and
      ``_high``; ``saved``, the share of ``cost_without_alerts`` that the decisions save (negative: they cost more).
    """
    decisions = _prepared(decisions, diverged)
    pooled = decisions[decisions["client"] == POOLED]
    pooled = pooled.assign(saved=1 - pooled["cost"] / pooled["cost_without_alerts"].where(lambda cost: cost > 0))
    kinds = ("brier", "ece", "cost", "saved", "recall_", "precision_", "value_recall_")
    names = [name for name in pooled if name.startswith(kinds)]
    return _over_seeds(pooled, names)


def transfer_summary(decisions: pd.DataFrame, diverged: Collection[int] = ()) -> pd.DataFrame:
    """One row per algorithm, alpha and hyperparameters: the largest bank's threshold at the other banks.

    Args:
      decisions, diverged: as in ``decision_summary``.

    Returns: the keys and, of per-seed means over the other banks with test rows, means over seeds with ``_low`` and
      ``_high``: ``transfer_share`` (of rows flagged) and ``transfer_recall`` (banks with fraud); ``least`` and
      ``most``, the smallest and the largest share of any such bank and seed.
    """
    decisions = _prepared(decisions, diverged)
    others = decisions[decisions["client"].ne(POOLED) & decisions["client"].ne(decisions["transfer_from"])]
    others = others[others["num_test"] > 0]
    keys = ["setting", *SETTING_KEYS, "seed"]
    names = ["transfer_share", "transfer_recall"]
    per_seed = others.groupby(keys, dropna=False, as_index=False)[names].mean()
    extremes = others.groupby(list(SETTING_KEYS), dropna=False, as_index=False)["transfer_share"].agg(["min", "max"])
    table = _over_seeds(per_seed, names)
    if table.empty:
        return table.assign(least=[], most=[])
    return table.merge(extremes.rename(columns={"min": "least", "max": "most"}), on=list(SETTING_KEYS), how="left")


def _prepared(decisions: pd.DataFrame, diverged: Collection[int]) -> pd.DataFrame:
    """The settings that did not diverge, baselines under every condition of the federated ones."""
    return spread_conditions(complete(decisions[~decisions["setting"].isin(list(diverged))]))


def _over_seeds(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Means with intervals of some columns; NaN is a key like any other."""
    rows = []
    for key, group in frame.groupby(list(SETTING_KEYS), dropna=False, sort=True):
        row = dict(zip(SETTING_KEYS, key, strict=True)) | {"num_seeds": len(group)}
        for name in names:
            row |= with_bounds(name, mean_interval(group[name], _RANGES.get(name, SHARE)))
        rows.append(row)
    columns = [*SETTING_KEYS, "num_seeds", *(f"{name}{end}" for name in names for end in ("", "_low", "_high"))]
    return pd.DataFrame(rows, columns=columns)


# ---- sections ---------------------------------------------------------------------------------------------------


class Decided(NamedTuple):
    """What the models decide, summed up for the sections and charts of a report.

    Attributes:
      table: ``decision_summary`` in the order of every table, with ``name``.
      transfer: ``transfer_summary``, the same.
      reliability: ``reliability`` of all settings.
    """

    table: pd.DataFrame
    transfer: pd.DataFrame
    reliability: pd.DataFrame


def decide(decisions: pd.DataFrame, summary: pd.DataFrame, diverged: Collection[int]) -> Decided:
    """Sums up decisions over seeds.

    Args:
      decisions, diverged: as in ``decision_summary``.
      summary: ``tables.summarise``: the order of the rows, and which hyperparameters vary.
    """
    keys = list(SETTING_KEYS)
    by_alpha = summary[keys].sort_values(list(CASE), kind="stable")
    table, transfer = (
        frame
        if frame.empty
        else by_alpha.merge(frame, on=keys).assign(name=lambda it: setting_names(it, among=summary))
        for frame in (decision_summary(decisions, diverged), transfer_summary(decisions, diverged))
    )
    return Decided(table, transfer, reliability(decisions, diverged))


def budgets_of(table: pd.DataFrame) -> list[str]:
    """The budgets of a table of decisions, ``at_0.001``, ..., ``per_day``."""
    names = [name.removeprefix("recall_") for name in table if name.startswith("recall_")]
    return [name for name in names if not name.endswith(("_low", "_high"))]


def budget_section(decided: Decided, manifest: Mapping) -> str:
    """The dossier's section on alert budgets: recall, precision, money, and the largest bank's threshold elsewhere.

    Args:
      decided: see ``decide``.
      manifest: the record; its entry ``decisions`` says what the budgets and costs are.
    """
    table, transfer = decided.table, decided.transfer
    if table.empty:
        return "## At an alert budget\n\nEvery setting diverged: there are no decisions to show."
    budgets = budgets_of(table)
    words = [budget_words(name, manifest) for name in budgets]
    false_alarm, missed = (
        facts.number_fact(manifest, "decisions", name) for name in ("false_alarm", "mean_missed_fraud")
    )
    parts = [
        "## At an alert budget\n\n"
        "All test rows, the highest scores flagged until the budget is used up; ties at the cut count in part. Mean "
        "over seeds [95 % interval], diverged settings left out.",
        _grid("Recall", "recall", table, budgets, words),
        _grid("Precision", "precision", table, budgets, words),
    ]
    if f"value_recall_{budgets[0]}" in table:
        parts.append(_grid("Share of the defrauded money", "value_recall", table, budgets, words))
    parts += [
        "**Cost.** A transaction is flagged where that is the cheaper decision if its predicted probability is right: "
        f"a false alarm costs {_false_alarm_words(manifest, false_alarm, missed)}, a missed fraud "
        f"{_missed_words(manifest, missed)}.{_own_costs(manifest)} *Saved* is the share of what doing nothing costs; "
        "it is negative where alerts cost more than they save.",
        markdown_table(
            ("alpha", "Algorithm", "Mean cost per transaction", "Without any alert", "Saved"),
            [
                [
                    *(case_name(row, table), row["name"], quantity(row["cost"])),
                    *(quantity(row["cost_without_alerts"]), interval(row, "saved")),
                ]
                for row in table.to_dict("records")
            ],
        ),
    ]
    if not transfer.empty:
        parts += [_transfer_words(manifest), _transfer_table(transfer)]
    return "\n\n".join(parts)


def _grid(title: str, kind: str, table: pd.DataFrame, budgets: list[str], words: list[str]) -> str:
    """One measure at every budget."""
    rows = [
        [case_name(row, table), row["name"], *(interval(row, f"{kind}_{budget}") for budget in budgets)]
        for row in table.to_dict("records")
    ]
    return f"**{title}.**\n\n{markdown_table(('alpha', 'Algorithm', *words), rows)}"


def budget_words(name: str, manifest: Mapping) -> str:
    """A budget as a heading, ``at_0.005`` -> 0.5 % of rows."""
    share = facts.number_fact(manifest, "decisions", "budgets", name)
    if name == _PER_DAY:
        per_day = facts.number_fact(manifest, "decisions", "alerts_per_day")
        return f"{quantity(per_day)} alerts a day ({100 * share:.2g} %)"
    return f"{100 * float(name.removeprefix('at_')):g} % of rows"


def _false_alarm_words(manifest: Mapping, cost: float, mean_missed: float) -> str:
    """What a false alarm costs, and whether anybody said so."""
    if not _is_default(manifest, "false_alarm"):
        return quantity(cost)
    is_share = _is_amount(manifest) and math.isclose(100 * cost, mean_missed, rel_tol=1e-6)
    return f"{quantity(cost)} (the default{', a hundredth of the mean amount' if is_share else ''})"


def _missed_words(manifest: Mapping, mean: float) -> str:
    """What a missed fraud costs, and whether anybody said so."""
    default = "the default" if _is_default(manifest, "missed_fraud") else ""
    if _is_amount(manifest):
        return f"its amount ({default + '; ' if default else ''}mean over all test rows: {quantity(mean)})"
    return f"{quantity(mean)} ({default}, a hundred false alarms)" if default else quantity(mean)


def _own_costs(manifest: Mapping) -> str:
    """What to make of costs that are conventions."""
    if not _is_default(manifest, "false_alarm"):
        return ""
    return " Defaults are conventions, not your costs: give your own (`--false-alarm-cost`, `evaluate.Policy`)."


def _is_default(manifest: Mapping, cost: str) -> bool:
    """Whether a cost is a convention; of results from before that was recorded nobody knows."""
    return cost in (facts.fact(manifest, "decisions", "defaults") or ())


def _is_amount(manifest: Mapping) -> bool:
    return facts.fact(manifest, "decisions", "missed_fraud") == "amount"


def _transfer_words(manifest: Mapping) -> str:
    """What the next table is."""
    budget = facts.number_fact(manifest, "decisions", "transfer_budget")
    return (
        "**One bank's threshold at the others.** The bank with most test rows chooses the lowest threshold that flags "
        f"at most {100 * budget:g} % of its own test rows; all banks then flag what scores at least that. Means over "
        "the other banks, then over seeds; *Least* and *Most* are those of any other bank and seed. Far from the "
        "budget, a threshold must be chosen at each bank."
    )


def _transfer_table(transfer: pd.DataFrame) -> str:
    """What the largest bank's threshold does elsewhere."""
    rows = [
        [
            *(case_name(row, transfer), row["name"], _percent(row, "transfer_share")),
            *(_one_percent(row["least"]), _one_percent(row["most"]), interval(row, "transfer_recall")),
        ]
        for row in transfer.to_dict("records")
    ]
    headers = ("alpha", "Algorithm", "Share flagged elsewhere", "Least", "Most", "Recall elsewhere")
    return markdown_table(headers, rows)


def _percent(row: Mapping, name: str) -> str:
    """A share with its interval, in percent."""
    ends = {f"share{end}": 100 * row[f"{name}{end}"] for end in ("", "_low", "_high")}
    text = interval(ends, "share", 3)
    return text if text == DASH else f"{text} %"


def _one_percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.3g} %" if math.isfinite(share) else DASH


def calibration_section(decided: Decided) -> str:
    """The dossier's section on calibration; empty if every setting diverged."""
    table = decided.table
    if table.empty:
        return ""
    names = ("brier", "ece", "ece_equal_mass")
    rows = [
        [case_name(row, table), row["name"], *(interval(row, name, 5) for name in names)]
        for row in table.to_dict("records")
    ]
    headers = ("alpha", "Algorithm", "Brier", "ECE, equal width", "ECE, equal mass")
    picture = picture_name("calibration", table)
    return (
        "## Calibration\n\n"
        "Brier is the mean squared error of the predicted probability. ECE is the gap between mean probability and "
        "observed fraud rate, averaged over 10 bins by their share of the rows; with rare fraud nearly all rows share "
        "one bin of equal width. A constant equal to the prevalence is perfectly calibrated and useless: read these "
        f"beside PR-AUC.\n\n![Predicted and observed fraud rates]({picture})\n\n" + markdown_table(headers, rows)
    )


def picture_name(name: str, table: pd.DataFrame) -> str:
    """The file of a picture: under the first of several combinations of conditions, they are numbered."""
    several = len(table[list(CONDITIONS)].drop_duplicates()) > 1
    return f"{name}-1.png" if several else f"{name}.png"


# ---- what joining buys --------------------------------------------------------------------------------------------


def joining_section(by_rank: pd.DataFrame, bank_names: Mapping[int, str], most_banks: int) -> str:
    """Each bank's average precision by its own model, the federated ones and the centralised one, side by side.

    Args:
      by_rank: ``bank_tables.bank_table`` of each algorithm's best hyperparameters.
      bank_names: rank -> name, where banks have names.
      most_banks: how many of the largest are shown.
    """
    order = joining_order(by_rank)
    if len(order) < 2:
        return ""
    shown = by_rank[by_rank["bank_rank"] <= most_banks]
    rows = []
    for _, group in shown.groupby([*CASE, "bank_rank"], dropna=False, sort=True):
        first = group.iloc[0].to_dict()
        rank = first["bank_rank"]
        cells = {row["algorithm"]: interval(row, "average_precision", 3) for row in group.to_dict("records")}
        about = (number(first["num_train_positives"], 1), number(first["prevalence"]))
        rows.append(
            [
                *(case_name(first, by_rank), bank_names.get(rank, str(rank)), *about),
                *(cells.get(name, DASH) for name in order),
            ]
        )
    names = dict(zip(by_rank["algorithm"], setting_names(by_rank), strict=True))
    headers = ("alpha", "Bank, by size", "Training frauds", "Prevalence", *(names[name] for name in order))
    picture = picture_name("banks", by_rank)
    return (
        "### What joining buys each bank\n\n"
        "PR-AUC on the bank's own test rows: of its own model, of each federated model, and of one model trained on "
        "all rows; mean over seeds [95 % interval]. *Prevalence* is that of its test rows.\n\n"
        f"![Average precision of each bank]({picture})\n\n" + markdown_table(headers, rows)
    )


def joining_order(by_rank: pd.DataFrame) -> list[str]:
    """Algorithms from a bank alone to all rows in one place."""
    names = list(dict.fromkeys(by_rank["algorithm"]))
    federated = [name for name in names if name not in BASELINES]
    return [
        *(name for name in ("local_only",) if name in names),
        *federated,
        *(name for name in ("centralised",) if name in names),
    ]


def reliability(decisions: pd.DataFrame, diverged: Collection[int] = ()) -> pd.DataFrame:
    """One row per algorithm, alpha, hyperparameters and bin of equal mass: predicted and observed rate, over seeds.

    Args:
      decisions, diverged: as in ``decision_summary``.

    Returns: the keys, ``bin``, ``probability`` (mean), ``rate`` with ``_low`` and ``_high``; bins that are empty in
      every seed are left out.
    """
    decisions = _prepared(decisions, diverged)
    pooled = decisions[decisions["client"] == POOLED]
    bins = sorted(int(name.removeprefix("bin_count_")) for name in pooled if name.startswith("bin_count_"))
    parts = []
    for b in bins:
        columns = {f"bin_probability_{b}": "probability", f"bin_rate_{b}": "rate"}
        part = _over_seeds(pooled.rename(columns=columns), list(columns.values()))
        parts.append(part.assign(bin=b))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["probability", "rate"])
    return table[np.isfinite(table["probability"].astype(float))].reset_index(drop=True)


def reliability_span(curves: pd.DataFrame) -> tuple[float, float, float]:
    """Of ``reliability``: the smallest and the largest value to show, and the smallest rate above 0."""
    values = curves[["probability", "rate"]].to_numpy(float) if len(curves) else np.zeros((0, 2))
    probability, rate = values[:, 0], values[:, 1]
    probability, rate = probability[probability > 0], rate[rate > 0]
    low = max(probability.min(), 1e-6) if probability.size else 1e-3
    high = min(1.0, max([*probability, *rate, 10 * low]))
    return low, high, rate.min() if rate.size else low
