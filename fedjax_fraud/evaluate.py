"""What a bank would decide with each final model: alerts within a budget, money, calibration, one bank's threshold.

After training, on the test rows. A small compiled program gives the logits of some models at a time, so memory does not
grow with their number; the host does the rest (see `measures`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedjax_fraud import checks, decisions, measures, score
from fedjax_fraud.banks import Jobs
from fedjax_fraud.grid import federation_keys
from fedjax_fraud.measures import NUM_BINS, Measures, Rules
from fedjax_fraud.types import Transactions

POOLED = -1
"""The value of the column ``client`` in rows about all banks together."""

MISSED_PER_FALSE_ALARM = 100.0


class Policy(NamedTuple):
    """How alerts are limited and what mistakes cost.

    Attributes:
      budgets: shares of the transactions that may be flagged, each in (0, 1].
      alerts_per_day: another budget, over all banks; None for none. It needs a time column.
      hours_per_unit: what one unit of the time column is. None: what the table says (``Transactions``); if it does
        not, there is no daily budget.
      transfer_budget: the budget at which the largest bank chooses the threshold that all banks then use.
      missed_fraud: cost of a fraud that passes. None: its amount; without amounts 100 false alarms.
      false_alarm: cost of flagging a genuine transaction. None: a hundredth of the mean amount; without amounts 1.
    """

    budgets: tuple[float, ...] = (0.001, 0.005, 0.01)
    alerts_per_day: float | None = 10.0
    hours_per_unit: float | None = None
    transfer_budget: float = 0.005
    missed_fraud: float | None = None
    false_alarm: float | None = None


STANDARD = Policy()


def check_policy(policy: Policy) -> None:
    """Raises ValueError for a policy that no table could make right; needs no data."""
    checks.check_numbers("budgets", policy.budgets)
    for name, budgets in (("budgets", policy.budgets), ("transfer_budget", (policy.transfer_budget,))):
        checks.check_numbers(name, budgets)
        if max(budgets) > 1:
            raise ValueError(f"`{name}` must be in (0, 1], got {max(budgets)}. It is a share of the transactions.")
    for name in ("alerts_per_day", "hours_per_unit", "false_alarm"):
        value = getattr(policy, name)
        if value is not None:
            checks.check_numbers(name, [value])
    if policy.missed_fraud is not None:
        checks.check_numbers("missed_fraud", [policy.missed_fraud], positive=False)


def make_rules(policy: Policy, test: Transactions, test_set: score.TestSet) -> Rules:
    """What a policy means for these test rows.

    Raises: ValueError for a value out of range.
    """
    check_policy(policy)
    names = [f"at_{budget:g}" for budget in policy.budgets]
    budgets = list(policy.budgets)
    unit = test.hours_per_unit if policy.hours_per_unit is None else policy.hours_per_unit
    if policy.alerts_per_day is not None and test.time is not None and unit is not None:
        names.append("per_day")
        hours = np.asarray(test.time, np.float64) * unit
        budgets.append(decisions.daily_budget(hours, alerts_per_day=policy.alerts_per_day, resolution=unit))
    amount = None if test.amount is None else np.asarray(test.amount)[test_set.index].astype(np.float32)
    false_alarm, missed_fraud = policy.false_alarm, amount
    if false_alarm is None:
        mean = 0.0 if amount is None else float(amount.mean(dtype=np.float64))
        false_alarm = mean / MISSED_PER_FALSE_ALARM if mean > 0 else 1.0
    if amount is None or policy.missed_fraud is not None:
        each = MISSED_PER_FALSE_ALARM * false_alarm if policy.missed_fraud is None else policy.missed_fraud
        missed_fraud = np.full(test_set.num_samples, each, np.float32)
    budgets = np.array(budgets, np.float64)
    per_day = policy.alerts_per_day if "per_day" in names else None
    defaults = tuple(name for name in ("false_alarm", "missed_fraud") if getattr(policy, name) is None)
    costs = (missed_fraud, float(false_alarm), amount)
    return Rules(tuple(names), budgets, policy.transfer_budget, *costs, per_day, defaults)


def decision_table(
    jobs: Jobs, model_logits: Iterator[np.ndarray], test_set: score.TestSet, rules: Rules
) -> pd.DataFrame:
    """Decisions of every setting, over all test rows and within each bank's.

    Args:
      jobs: ``banks.make_jobs`` of the settings.
      model_logits: of their models in turn, see ``logits``.
      test_set: the test rows.
      rules: see ``make_rules``.

    Returns: for each setting (each alpha, for the centralised ones) a row with ``client`` -1 for all rows together, and
      one for each bank. Keys; ``num_test``, ``num_test_positives``; ``brier``, ``cost``, ``cost_without_alerts``;
      ``recall_*``, ``precision_*`` and (with amounts) ``value_recall_*`` for each budget; ``transfer_share``,
      ``transfer_recall`` and ``transfer_from``, the bank that chose. All rows together only: ``ece``,
      ``ece_equal_mass``, and ``bin_count_b``, ``bin_probability_b``, ``bin_rate_b`` of bins of equal mass.
      NaN where undefined, and in all but the counts of a model whose logits are NaN.
    """
    rows = [measures.divide(owner, test_set.num_positives, jobs.num_banks) for owner in jobs.owners]
    measured = _measure_all(jobs, model_logits, rows, rules)
    rows = [rows[which] for which in jobs.owner_index]
    num_groups = 1 + jobs.num_banks
    keys = federation_keys(jobs.federations).drop(columns="bank")
    keys.insert(0, "setting", jobs.model_index)
    table = keys.loc[keys.index.repeat(num_groups)].reset_index(drop=True)
    columns = dict(
        client=np.tile(np.arange(POOLED, jobs.num_banks), len(keys)),
        num_test=np.concatenate([own.num_rows for own in rows]),
        num_test_positives=np.concatenate([own.num_positives for own in rows]),
    )
    for name in ("brier", "cost", "cost_without_alerts"):
        columns[name] = getattr(measured, name).astype(np.float32).ravel()
    kinds = ("recall", "precision") if rules.amount is None else ("recall", "precision", "value_recall")
    for kind in kinds:
        for place, budget in enumerate(rules.names):
            columns[f"{kind}_{budget}"] = getattr(measured, kind)[:, place].astype(np.float32).ravel()
    for name in ("transfer_share", "transfer_recall"):
        columns[name] = getattr(measured, name).astype(np.float32).ravel()
    columns["transfer_from"] = np.repeat(np.array([own.largest for own in rows], np.int32), num_groups)
    pooled = dict(ece=measured.ece, ece_equal_mass=measured.ece_equal_mass)
    for name in ("bin_count", "bin_probability", "bin_rate"):
        pooled |= {f"{name}_{b}": getattr(measured, name)[:, b] for b in range(NUM_BINS)}
    for name, values in pooled.items():
        columns[name] = np.full(len(table), np.nan)
        columns[name][::num_groups] = values
    return pd.concat([table, pd.DataFrame(columns)], axis=1)


def _measure_all(jobs: Jobs, model_logits: Iterator[np.ndarray], rows: list[measures.Rows], rules: Rules) -> Measures:
    """Measures ``[jobs, ...]``; the models in turn, as their logits come."""
    measured = [None] * len(jobs.model_index)
    for number, logits in enumerate(model_logits):
        for job in np.flatnonzero(jobs.model_index == number):
            measured[job] = measures.measure(logits, rows[jobs.owner_index[job]], rules)
    return Measures(*(np.stack(values) for values in zip(*measured, strict=True)))
