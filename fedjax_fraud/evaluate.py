"""What a bank would decide with each final model: alerts within a budget, money, calibration, one bank's threshold.

After training, on the test rows. One compiled program scores the settings one after the other, so memory does not grow
with their number; only a few numbers for each setting and bank come back.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

from fedjax_fraud import calibration, checks, decisions, score
from fedjax_fraud.banks import Jobs
from fedjax_fraud.calibration import ReliabilityCurve
from fedjax_fraud.devices import AXIS, replicate, taking_host_arrays, to_host
from fedjax_fraud.grid import federation_keys
from fedjax_fraud.metrics import order_key, rank_positives
from fedjax_fraud.types import Model, Transactions
from fedjax_fraud.vectors import tree_sum

NUM_BINS = 10
POOLED = -1
"""The value of the column ``client`` in rows about all banks together."""

MOST_HOURS = 50_000
"""A time column that spans more is not taken to be in hours (it would be over five years)."""

MISSED_PER_FALSE_ALARM = 100.0


class Policy(NamedTuple):
    """How alerts are limited and what mistakes cost.

    Attributes:
      budgets: shares of the transactions that may be flagged, each in (0, 1].
      alerts_per_day: another budget, over all banks; None for none. It needs a time column.
      hours_per_unit: what one unit of the time column is. None: an hour, unless the column spans more than
        ``MOST_HOURS`` of them; then it is in some other unit, and there is no daily budget.
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


class Rules(NamedTuple):
    """A policy for given test rows.

    Attributes:
      names: ``[budgets]``, of columns: "at_0.001", ..., "per_day".
      budgets: ``[budgets]`` shares of the rows.
      transfer_budget: a share of the rows of the bank that chooses.
      missed_fraud: ``[samples]`` float32, positives first.
      false_alarm: a number.
      amount: ``[samples]`` float32, positives first, or None.
      alerts_per_day: of the budget "per_day", where there is one.
    """

    names: tuple[str, ...]
    budgets: np.ndarray
    transfer_budget: float
    missed_fraud: np.ndarray
    false_alarm: float
    amount: np.ndarray | None
    alerts_per_day: float | None = None

    def record(self) -> dict:
        """What a reader of the table needs to know, ready for JSON."""
        return dict(
            budgets=dict(zip(self.names, self.budgets.tolist(), strict=True)),
            alerts_per_day=self.alerts_per_day,
            transfer_budget=self.transfer_budget,
            false_alarm=self.false_alarm,
            mean_missed_fraud=float(self.missed_fraud.mean(dtype=np.float64)) if self.missed_fraud.size else math.nan,
            missed_fraud="amount" if self.amount is not None and self.missed_fraud is self.amount else "a number",
        )


class Measures(NamedTuple):
    """Of one setting, or stacked over jobs. ``groups``: all rows, then each bank's.

    Attributes:
      brier, cost, cost_without_alerts: ``[groups]``.
      recall, precision, value_recall: ``[budgets, groups]``.
      transfer_share, transfer_recall: ``[groups]``, at the threshold of the largest bank.
      ece, ece_equal_mass: scalars, over all rows.
      curve: of all rows, bins of equal mass.
    """

    brier: Array
    cost: Array
    cost_without_alerts: Array
    recall: Array
    precision: Array
    value_recall: Array
    transfer_share: Array
    transfer_recall: Array
    ece: Array
    ece_equal_mass: Array
    curve: ReliabilityCurve


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
    hours = _hours(test.time, policy.hours_per_unit)
    if policy.alerts_per_day is not None and hours is not None:
        names.append("per_day")
        budgets.append(decisions.daily_budget(hours, alerts_per_day=policy.alerts_per_day))
    amount = None if test.amount is None else np.asarray(test.amount)[test_set.index].astype(np.float32)
    false_alarm, missed_fraud = policy.false_alarm, amount
    if false_alarm is None:
        mean = 0.0 if amount is None else float(amount.mean(dtype=np.float64))
        false_alarm = mean / MISSED_PER_FALSE_ALARM if mean > 0 else 1.0
    if amount is None or policy.missed_fraud is not None:
        each = MISSED_PER_FALSE_ALARM * false_alarm if policy.missed_fraud is None else policy.missed_fraud
        missed_fraud = np.full(test_set.num_samples, each, np.float32)
    budgets = np.array(budgets, np.float32)
    per_day = policy.alerts_per_day if "per_day" in names else None
    return Rules(tuple(names), budgets, policy.transfer_budget, missed_fraud, float(false_alarm), amount, per_day)


def _hours(time: np.ndarray | None, hours_per_unit: float | None) -> np.ndarray | None:
    """The time column in hours; None where there is none, or its unit is not known."""
    if time is None:
        return None
    hours = np.asarray(time, np.float64) * (1.0 if hours_per_unit is None else hours_per_unit)
    if not np.isfinite(hours).all() or (hours_per_unit is None and np.ptp(hours) > MOST_HOURS):
        return None
    return hours


# ---- one model, on the device -----------------------------------------------------------------------------------


class Alerts(NamedTuple):
    """The frauds, twice, in an order of their own, and the rows around each: among all rows, and among its bank's.

    Attributes:
      group: ``[2 x positives]``, 0 among all rows, 1 + bank within a bank.
      above, tied: ``[2 x positives]``, rows of the group with a higher score, and with the same (itself among them).
      amount: ``[2 x positives]``.
      num_rows, num_positives: ``[groups]``.
    """

    group: Int[Array, " positives"]
    above: Float[Array, " positives"]
    tied: Float[Array, " positives"]
    amount: Float[Array, " positives"]
    num_rows: Int[Array, " groups"]
    num_positives: Int[Array, " groups"]


def count_above(
    scores: Float[Array, " samples"],
    owner: Int[Array, " samples"],
    amount: Float[Array, " samples"],
    num_positives: int,
    num_banks: int,
) -> Alerts:
    """Counts the rows around each fraud; positives stand first. No sort of the many negatives."""

    def twice(values, in_bank=None):
        return jnp.concatenate([values, values if in_bank is None else in_bank])

    fraud, genuine = slice(None, num_positives), slice(num_positives, None)
    group = [twice(jnp.zeros_like(owner[part]), 1 + owner[part]) for part in (fraud, genuine)]
    positive, negative = twice(scores[fraud]), twice(scores[genuine])
    # One call for both groupings, because it is the larger part of what there is to compile.
    ranks = rank_positives(positive, group[0], negative, group[1], 1 + num_banks)
    # Ties may come in another order here than there, but have the same counts.
    amount = jax.lax.sort((group[0], order_key(positive), twice(amount[fraud])), num_keys=2)[2]
    upper = jnp.cumsum(ranks.num_positives)[ranks.group]
    first = upper - ranks.positives_from
    end = jnp.searchsorted(first, first, side="right").astype(jnp.int32)
    above = upper - end + ranks.num_negatives[ranks.group] - ranks.below - ranks.tied
    return Alerts(
        group=ranks.group,
        above=above.astype(float),
        tied=(end - first + ranks.tied).astype(float),
        amount=amount,
        num_rows=ranks.num_positives + ranks.num_negatives,
        num_positives=ranks.num_positives,
    )


def at_budget(alerts: Alerts, budget: Float[Array, ""]) -> tuple[Array, Array, Array]:
    """Recall, precision and recall of money of each group, flagging its highest scores; ties count in part."""
    num_groups = alerts.num_rows.shape[0]
    allowed = budget * alerts.num_rows.astype(float)
    flagged = jnp.clip((allowed[alerts.group] - alerts.above) / alerts.tied, 0, 1)
    values = jnp.stack([flagged, flagged * alerts.amount, alerts.amount], axis=1)
    caught, value, all_value = jax.ops.segment_sum(values, alerts.group, num_groups).T
    return caught / alerts.num_positives.astype(float), caught / allowed, value / all_value


def transferred(
    scores: Float[Array, " samples"], owner: Int[Array, " samples"], source: Int[Array, ""], budget: float
) -> Bool[Array, " samples"]:
    """The rows that are flagged with the threshold that keeps one bank's own rows within a budget."""
    key = order_key(scores)
    mine = owner == source
    num_alerts = decisions.whole_alerts(budget * jnp.sum(mine, dtype=jnp.int32).astype(float))
    return key >= decisions.threshold_key(jnp.where(mine, key, jnp.zeros_like(key)), num_alerts)


def sums_of_groups(
    values: Float[Array, "samples columns"], owner: Int[Array, " samples"], num_banks: int
) -> Float[Array, "groups columns"]:
    """Sums over all rows, then over each bank's."""
    return jnp.concatenate([tree_sum(values)[None], jax.ops.segment_sum(values, owner, num_banks)])


def measure(
    logits: Float[Array, " samples"],
    owner: Int[Array, " samples"],
    source: Int[Array, ""],
    rules: Rules,
    *,
    num_positives: int,
    num_banks: int,
) -> Measures:
    """Everything about one model; positives stand first. ``rules`` holds arrays on the device."""
    positive = jnp.arange(logits.shape[0]) < num_positives
    prob = jax.nn.sigmoid(logits)
    amount = jnp.full(logits.shape, jnp.nan) if rules.amount is None else rules.amount
    if num_positives:
        alerts = count_above(logits, owner, amount, num_positives, num_banks)
        recall, precision, value_recall = jax.vmap(lambda budget: at_budget(alerts, budget))(rules.budgets)
    else:
        shape = (len(rules.budgets), 1 + num_banks)
        recall, precision, value_recall = jnp.full(shape, jnp.nan), jnp.zeros(shape), jnp.full(shape, jnp.nan)
    cheaper = prob >= decisions.cost_threshold(rules.missed_fraud, rules.false_alarm)
    flagged = transferred(logits, owner, source, rules.transfer_budget)
    columns = (
        jnp.square(prob - positive.astype(prob.dtype)),
        decisions.row_costs(positive, cheaper, rules.missed_fraud, rules.false_alarm),
        jnp.where(positive, rules.missed_fraud, 0.0),
        flagged.astype(float),
        (flagged & positive).astype(float),
        positive.astype(float),
        jnp.ones_like(prob),
    )
    *sums, num_frauds, num_rows = sums_of_groups(jnp.stack(columns, axis=1), owner, num_banks).T
    bins = (calibration.equal_width_bins(prob, NUM_BINS), calibration.equal_mass_bins(prob, NUM_BINS))
    curves = jax.lax.map(lambda of: calibration.curve_of_bins(positive, prob, of, NUM_BINS), jnp.stack(bins))
    errors = jax.vmap(calibration.error_of_curve)(curves)
    measures = Measures(
        brier=sums[0] / num_rows,
        cost=sums[1] / num_rows,
        cost_without_alerts=sums[2] / num_rows,
        recall=recall,
        precision=precision,
        value_recall=value_recall,
        transfer_share=sums[3] / num_rows,
        transfer_recall=sums[4] / num_frauds,
        ece=errors[0],
        ece_equal_mass=errors[1],
        curve=jax.tree.map(lambda leaf: leaf[1], curves),
    )
    lost = jnp.any(jnp.isnan(logits))
    blank = jax.tree.map(
        lambda x: jnp.where(lost, jnp.nan, x) if jnp.issubdtype(x.dtype, jnp.floating) else x, measures
    )
    return blank._replace(cost_without_alerts=measures.cost_without_alerts)


# ---- all models -------------------------------------------------------------------------------------------------


def decision_table(
    jobs: Jobs,
    model: Model,
    params: Any,
    test_set: score.TestSet,
    test_features,
    mesh: Mesh,
    rules: Rules,
) -> pd.DataFrame:
    """Decisions of every setting, over all test rows and within each bank's.

    Args:
      jobs: ``banks.make_jobs`` of the settings, in the order of ``params``.
      model, params: leaves ``[settings, ...]``.
      test_set, test_features: the test rows; the features on every device of the mesh.
      mesh: devices, to which the settings are dealt.
      rules: see ``make_rules``.

    Returns: for each setting (each alpha, for the centralised ones) a row with ``client`` -1 for all rows together, and
      one for each bank. Keys; ``num_test``, ``num_test_positives``; ``brier``, ``cost``, ``cost_without_alerts``;
      ``recall_*``, ``precision_*`` and (with amounts) ``value_recall_*`` for each budget; ``transfer_share``,
      ``transfer_recall`` and ``transfer_from``, the bank that chose. All rows together only: ``ece``,
      ``ece_equal_mass``, and ``bin_count_b``, ``bin_probability_b``, ``bin_rate_b`` of bins of equal mass.
      NaN where undefined, and in all but the counts of a model whose logits are NaN.
    """
    sizes = np.stack([np.bincount(owner, minlength=jobs.num_banks) for owner in jobs.owners])
    sources = sizes.argmax(axis=1).astype(np.int32)
    measures = _run(jobs, model, params, test_set, test_features, mesh, rules, sources)
    positives = np.stack(
        [np.bincount(owner[: test_set.num_positives], minlength=jobs.num_banks) for owner in jobs.owners]
    )
    num_groups = 1 + jobs.num_banks
    keys = federation_keys(jobs.federations).drop(columns="bank")
    keys.insert(0, "setting", jobs.model_index)
    table = keys.loc[keys.index.repeat(num_groups)].reset_index(drop=True)
    columns = dict(client=np.tile(np.arange(POOLED, jobs.num_banks), len(keys)))
    for name, counts in (("num_test", sizes), ("num_test_positives", positives)):
        columns[name] = np.concatenate([counts.sum(axis=1, keepdims=True), counts], axis=1)[jobs.owner_index].ravel()
    for name in ("brier", "cost", "cost_without_alerts"):
        columns[name] = getattr(measures, name).ravel()
    kinds = ("recall", "precision") if rules.amount is None else ("recall", "precision", "value_recall")
    for kind in kinds:
        for place, budget in enumerate(rules.names):
            columns[f"{kind}_{budget}"] = getattr(measures, kind)[:, place].ravel()
    for name in ("transfer_share", "transfer_recall"):
        columns[name] = getattr(measures, name).ravel()
    columns["transfer_from"] = np.repeat(sources[jobs.owner_index], num_groups)
    pooled = dict(ece=measures.ece, ece_equal_mass=measures.ece_equal_mass)
    for name, values in zip(("count", "probability", "rate"), measures.curve, strict=True):
        pooled |= {f"bin_{name}_{b}": values[:, b] for b in range(NUM_BINS)}
    for name, values in pooled.items():
        columns[name] = np.full(len(table), np.nan)
        columns[name][::num_groups] = values
    return pd.concat([table, pd.DataFrame(columns)], axis=1)


def _run(jobs: Jobs, model: Model, params, test_set, test_features, mesh: Mesh, rules: Rules, sources) -> Measures:
    """Measures ``[jobs, ...]``: the jobs are dealt to the devices, one after the other on each."""
    padding = -len(jobs.model_index) % mesh.devices.size
    model_index, owner_index = (np.pad(index, (0, padding)) for index in (jobs.model_index, jobs.owner_index))
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[model_index], params)
    arrays = dict(owners=jobs.owners, sources=sources, budgets=rules.budgets, missed_fraud=rules.missed_fraud)
    if rules.amount is not None:
        arrays["amount"] = rules.amount
    arrays = replicate(arrays, mesh)
    static = dict(num_positives=test_set.num_positives, num_banks=jobs.num_banks)

    def of_device(params, owner_index, arrays, features):
        amount = arrays.get("amount")
        device_rules = rules._replace(budgets=arrays["budgets"], missed_fraud=arrays["missed_fraud"], amount=amount)

        def of_job(job):
            logits = score.test_logits(model.apply, job[0], features)[: test_set.num_samples]
            return measure(logits, arrays["owners"][job[1]], arrays["sources"][job[1]], device_rules, **static)

        return jax.lax.map(of_job, (params, owner_index))

    specs = dict(in_specs=(P(AXIS), P(AXIS), P(), P()), out_specs=P(AXIS))
    run = jax.jit(jax.shard_map(of_device, mesh=mesh, **specs, check_vma=False))
    compiled = taking_host_arrays(run.lower(params, owner_index, arrays, test_features).compile())
    result = to_host(compiled(params, owner_index, arrays, test_features))
    return jax.tree.map(lambda leaf: leaf[: len(jobs.model_index)], result)
