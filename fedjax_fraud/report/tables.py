"""Tidy tables from the rounds, banks and partitions of a sweep. Pure pandas: no files, no clocks, no plots.

The rules, the same in every table:

* A setting that diverged is left out of means, intervals and pairs, and counted in a column beside them. So is an
  *idle* one, all of whose rounds were skipped: its scores are the untrained model's.
* A score that is not finite (a one-class test set has no average precision) is left out and counted, never 0 or 0.5.
* Intervals are 95 % Student t intervals of the mean over seeds; one seed has a mean and no interval (NaN bounds). The
  interval of a score ends where scores end.
* NaN is a value of a key: a natural partition has no ``alpha`` and FedAvg no ``mu``, and neither row is dropped.
* A baseline knows no conditions (nobody waits for anybody) and stands beside the algorithms under each of them.
"""

from collections.abc import Collection, Iterator

import numpy as np
import pandas as pd

from fedjax_fraud.conditions import IDEAL
from fedjax_fraud.grid import CONDITION_KEYS

from .intervals import NOT_NEGATIVE, SHARE, mean_interval, mean_intervals, with_bounds

SCORES = {"average_precision": 1, "roc_auc": 1, "log_loss": -1}
"""The scores, and whether more (1) or less (-1) is better."""

RANGES = {"average_precision": SHARE, "roc_auc": SHARE, "log_loss": NOT_NEGATIVE, "drift": NOT_NEGATIVE}
"""What can be: intervals are cut there."""

BASELINES = ("centralised", "local_only")
HYPERPARAMETERS = ("client_lr", "mu", "server_lr", "num_epochs")
CONDITIONS = {name: getattr(IDEAL, name) for name in CONDITION_KEYS}
"""What went wrong, and its value where nothing did."""

CASE = ("alpha", *CONDITIONS)
"""Under the same case algorithms compare."""

SETTING_KEYS = ("algorithm", *CASE, *HYPERPARAMETERS)

_LISTED_FIRST = ("fedavg", "fedprox", "scaffold")
UNIT = ["setting", "alpha"]
_BYTES_PER_MB = 1e6


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """A table with every column of ``SETTING_KEYS``: results stored before one was known had its ideal value."""
    values = CONDITIONS | dict(server_lr=np.nan, seconds=np.nan, num_faulty=0, num_silent=0)
    return table.assign(**{name: value for name, value in values.items() if name not in table.columns})


def final_rounds(rounds: pd.DataFrame) -> pd.DataFrame:
    """One row per setting: its last round, with what its rounds add up to.

    Args:
      rounds: one row per setting and round.

    Returns: the last round's columns, where ``bytes_down`` and ``bytes_up`` are now totals over the rounds, ``drift``
      the mean over the rounds that were not skipped, ``delta_norm_max`` the largest client step of any round,
      ``num_rejected``, ``num_faulty``, ``num_silent`` and ``seconds`` the sums, and ``num_skipped`` the number of
      skipped rounds. A centralised setting without alpha stands for every partition of its seed, so it appears once
      for each alpha of the federated settings; every baseline appears once for each of their conditions.

    Raises: ValueError if two settings are the same up to their number: they would count as two seeds.
    """
    ordered = in_order(rounds)
    moved = ordered.assign(drift=ordered["drift"].where(~ordered["skipped"].astype(bool)))
    totals = moved.groupby(UNIT, dropna=False, as_index=False).agg(
        bytes_down=("bytes_down", "sum"),
        bytes_up=("bytes_up", "sum"),
        drift=("drift", "mean"),
        delta_norm_max=("delta_norm_max", "max"),
        num_rejected=("num_rejected", "sum"),
        num_faulty=("num_faulty", "sum"),
        num_silent=("num_silent", "sum"),
        seconds=("seconds", lambda seconds: seconds.sum(min_count=1)),
        num_skipped=("skipped", "sum"),
    )
    totals["idle"] = totals["num_skipped"] == ordered.groupby(UNIT, dropna=False, as_index=False).size()["size"]
    last = ordered.drop_duplicates(UNIT, keep="last")
    kept = [name for name in last.columns if name in UNIT or name not in totals.columns]
    final = spread_conditions(_spread_centralised(last[kept].merge(totals, on=UNIT)))
    _require_unique(final, [*SETTING_KEYS, "seed"])
    return final


def in_order(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds of each setting one after the other, with ``mb``, megabytes up and down so far, and ``time``, seconds.

    A centralised setting may stand in the table once for each alpha, so a setting is told by its number and alpha.
    """
    ordered = complete(rounds).sort_values([*UNIT, "round"], kind="stable").reset_index(drop=True)
    total = ordered.assign(sent=ordered["bytes_down"] + ordered["bytes_up"])
    so_far = total.groupby(UNIT, dropna=False)[["sent", "seconds"]].cumsum()
    return ordered.assign(mb=so_far["sent"] / _BYTES_PER_MB, time=so_far["seconds"])


def summarise(rounds: pd.DataFrame) -> pd.DataFrame:
    """One row per algorithm, alpha and hyperparameters: the final round, over seeds.

    Args:
      rounds: one row per setting and round.

    Returns: the keys; ``num_rounds``; ``num_seeds``, ``num_diverged``, ``num_idle`` and ``num_used`` (seeds in the
      mean of the average precision); each score with ``_low`` and ``_high``; ``mb_down``, ``mb_up``, ``mb_total`` (1e6
      bytes, all clients and rounds, mean over all seeds: a diverged run was paid for too); ``relative_mb`` (bytes over
      those of FedAvg at the same case, seed, rate and epochs; NaN without such a partner); ``drift`` (mean over rounds
      and seeds) and ``delta_norm_max`` (largest client step of any round and seed that did not diverge); ``seconds``,
      the simulated time of all rounds, mean over seeds.
    """
    final = final_rounds(rounds).rename(columns={"round": "num_rounds"})
    final["reference_bytes"] = _reference_bytes(final, "fedavg")
    return frame_of([_summary_row(key, group) for key, group in groups_of(final, SETTING_KEYS)])


def curves(rounds: pd.DataFrame) -> pd.DataFrame:
    """One row per federated algorithm, case and round: what a curve shows, over seeds.

    Args:
      rounds: one row per setting and round, of one choice of hyperparameters per algorithm (see ``best_settings``).

    Returns: ``algorithm``, the columns of ``CASE``, ``round``; each score and ``drift`` with ``_low`` and ``_high``,
      over the seeds that neither diverged nor stayed idle (drift: not of skipped rounds); ``mb`` and ``time``,
      megabytes and simulated seconds so far, means over all seeds.
    """
    kept = in_order(rounds[~rounds["algorithm"].isin(BASELINES)])
    skipped = kept["skipped"].astype(bool)
    usable = ~kept["diverged"].astype(bool) & ~skipped.groupby(kept["setting"]).transform("all")
    kept[list(SCORES)] = kept[list(SCORES)].where(usable)
    kept["drift"] = kept["drift"].where(usable & ~skipped)
    keys = ["algorithm", *CASE, "round"]
    costs = kept.groupby(keys, dropna=False, sort=True)[["mb", "time"]].mean()
    return pd.concat([mean_intervals(kept, keys, RANGES), costs.reset_index(drop=True)], axis=1)


def paired_differences(
    rounds: pd.DataFrame,
    reference: str = "fedavg",
    metric: str = "average_precision",
    match: tuple[str, ...] = ("client_lr", "num_epochs"),
) -> pd.DataFrame:
    """How far each algorithm is from a reference on the same partition, start, cohorts and batches.

    A pair shares the case, the seed and the columns in ``match``. A pair in which either side diverged or
    has no score is excluded and counted.

    Args:
      rounds: one row per setting and round.
      reference: the algorithm to compare with; a baseline may be one.
      metric: one of ``SCORES``.
      match: the hyperparameters that both sides must share. An empty tuple compares each algorithm's own choice, which
        needs ``rounds`` to hold one choice per algorithm (see ``best_settings``).

    Returns: one row per algorithm other than the reference, alpha and hyperparameters: ``difference`` (this minus
      reference) with ``_low`` and ``_high``, ``num_pairs``, ``wins`` (pairs in which this one is strictly better),
      ``num_excluded``, ``num_unpaired`` (settings without a partner). Empty if the reference is not there.

    Raises: ValueError for an unknown metric, or if the reference has several settings to pair with.
    """
    if metric not in SCORES:
        raise ValueError(f"`metric` must be one of {', '.join(SCORES)}, got {metric!r}.")
    final = final_rounds(rounds)
    pairs = _with_partner(final, reference, match, [metric, "diverged", "idle", "setting"])
    pairs = pairs[pairs["algorithm"] != reference]
    pairs = pairs.assign(difference=pairs[metric] - pairs[f"{metric}_partner"])
    if (final["algorithm"] == reference).sum() == 0:
        pairs = pairs.iloc[:0]
    rows = [_pair_row(key, group, SCORES[metric]) for key, group in groups_of(pairs, SETTING_KEYS)]
    return frame_of(rows, _PAIR_COLUMNS)


def best_settings(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds of each algorithm's best hyperparameters: one choice per algorithm, for all its alphas.

    Best is the highest final average precision, averaged over seeds and alphas; for this choice alone a setting that
    diverged or has no score counts as 0, so that a choice that survives one seed in ten does not win. The choice looks
    at the same test rows that the scores come from, so the score of the best of many is optimistic.

    Args:
      rounds: one row per setting and round.

    Returns: the chosen rows of ``rounds``, in their order.
    """
    final = final_rounds(rounds)
    usable = ~final["diverged"].astype(bool) & ~final["idle"] & np.isfinite(final["average_precision"])
    final["worth"] = final["average_precision"].where(usable, 0.0)
    chosen = []
    for _, group in groups_of(final, ("algorithm",)):
        candidates = list(groups_of(group, HYPERPARAMETERS))
        worths = [candidate["worth"].mean() for _, candidate in candidates]
        chosen.extend(candidates[int(np.argmax(worths))][1]["setting"])
    return rounds[rounds["setting"].isin(chosen)]


def no_better_than(summary: pd.DataFrame, prevalence: float) -> pd.Series:
    """Which rows of ``summarise`` have an average precision that cannot be told from a random ranking's.

    Args:
      summary: as ``summarise`` returns it.
      prevalence: of the test rows; NaN = unknown, and then no row has.

    Returns: bool, by row: the lower bound (the mean, where a single seed has no bounds) is at most the prevalence.
    """
    bound = summary["average_precision_low"].fillna(summary["average_precision"])
    return bound <= prevalence


def num_choices(rounds: pd.DataFrame) -> dict[str, int]:
    """How many combinations of hyperparameters each algorithm was run with."""
    combinations = complete(rounds)[["algorithm", *HYPERPARAMETERS]].drop_duplicates()
    return {name: int(count) for name, count in combinations["algorithm"].value_counts().items()}


def score_targets(rounds: pd.DataFrame, share: float = 0.95, reference: str = "fedavg") -> pd.DataFrame:
    """The score that ``cost_to_target`` waits for: a share of the reference's final mean average precision.

    Args:
      rounds: one row per setting and round.
      share: the fraction of the reference's score, in (0, 1].
      reference: the algorithm that sets the target; of several hyperparameters the one with the highest mean counts.

    Returns: the columns of ``CASE`` and ``target``, a row for each case in which the reference has a score.
    """
    if not 0 < share <= 1:
        raise ValueError(f"`share` must be in (0, 1], got {share}.")
    table = summarise(rounds)
    table = table[(table["algorithm"] == reference) & table["average_precision"].notna()]
    best = table.groupby(list(CASE), dropna=False, as_index=False)["average_precision"].max()
    best["target"] = share * best["average_precision"]
    return best[[*CASE, "target"]]


def cost_to_target(rounds: pd.DataFrame, share: float = 0.95, reference: str = "fedavg") -> pd.DataFrame:
    """Rounds, megabytes and simulated seconds until the pooled average precision first reaches a target.

    The target of a case is ``share`` times the reference's final mean average precision there; baselines are left
    out. ``rounds_to_target``, ``mb_to_target`` and ``seconds_to_target`` are medians over **all** seeds, where a seed
    that never reached the target (or diverged) counts as infinite: the number by which half of the seeds had reached
    it, infinite if fewer did. A mean over the seeds that got there would favour an algorithm that rarely does.

    Returns: the keys, ``target``, ``num_seeds``, ``num_reached``, ``rounds_to_target``, ``mb_to_target``,
      ``seconds_to_target`` (NaN without a clock).
    """
    federated = rounds[~rounds["algorithm"].isin(BASELINES)]
    targets = score_targets(rounds, share, reference)
    merged = in_order(federated).merge(targets, on=list(CASE), how="inner")
    rows = [_target_row(key, group) for key, group in groups_of(merged, SETTING_KEYS)]
    return frame_of(rows, [*SETTING_KEYS, *_TARGET_COLUMNS])


def diverged_settings(rounds: pd.DataFrame) -> pd.DataFrame:
    """The settings that diverged, by name: one row each, with their keys and seed."""
    last = complete(rounds).drop_duplicates("setting", keep="last").sort_values("setting", kind="stable")
    return last[last["diverged"].astype(bool)][["setting", *SETTING_KEYS, "seed"]].reset_index(drop=True)


_PAIR_COLUMNS = [
    *SETTING_KEYS,
    *("difference", "difference_low", "difference_high", "num_pairs", "wins", "num_excluded", "num_unpaired"),
]
_TARGET_COLUMNS = ("target", "num_seeds", "num_reached", "rounds_to_target", "mb_to_target", "seconds_to_target")


def groups_of(frame: pd.DataFrame, keys: tuple[str, ...]) -> Iterator[tuple[tuple, pd.DataFrame]]:
    """Groups in sorted order of their keys; NaN is a key like any other, and comes last."""
    yield from frame.groupby(list(keys), dropna=False, sort=True)


def _require_unique(final: pd.DataFrame, keys: list[str]) -> None:
    """Refuse two settings that nothing but their number tells apart."""
    twins = final["setting"][final.duplicated(keys, keep=False)]
    if len(twins):
        raise ValueError(
            f"{len(twins)} settings (such as {', '.join(map(str, twins.iloc[:4]))}) share all of {', '.join(keys)} "
            "with another and would count as further seeds. Drop the copies, or give each its own seed."
        )


def _spread_centralised(final: pd.DataFrame) -> pd.DataFrame:
    """Centralised rows once for each alpha: one bank that holds every row does not depend on the partition."""
    spread = (final["algorithm"] == "centralised") & final["alpha"].isna()
    alphas = final[final["algorithm"] != "centralised"][["alpha"]].drop_duplicates()
    if not spread.any() or alphas.empty or alphas["alpha"].isna().any():
        return final.reset_index(drop=True)
    copies = final[spread].drop(columns="alpha").merge(alphas, how="cross")
    return pd.concat([final[~spread], copies[final.columns]], ignore_index=True)


def spread_conditions(final: pd.DataFrame) -> pd.DataFrame:
    """Baseline rows once for each combination of conditions that the federated settings have."""
    baseline = final["algorithm"].isin(BASELINES)
    combinations = final[~baseline][list(CONDITIONS)].drop_duplicates()
    if not baseline.any() or combinations.empty:
        return final
    copies = final[baseline].drop(columns=list(CONDITIONS)).merge(combinations, how="cross")
    return pd.concat([final[~baseline], copies[final.columns]], ignore_index=True)


def frame_of(rows: list[dict], columns: Collection[str] = ()) -> pd.DataFrame:
    """A frame of rows in the order of ``in_listed_order``, then by hyperparameters and rank."""
    if not rows:
        return pd.DataFrame(columns=list(columns))
    frame = pd.DataFrame(rows)
    return in_listed_order(frame, [name for name in (*HYPERPARAMETERS, "bank_rank") if name in frame.columns])


def in_listed_order(frame: pd.DataFrame, last: Collection[str] = ()) -> pd.DataFrame:
    """Rows by case, then FedAvg, FedProx, SCAFFOLD, other algorithms, baselines; then by the columns ``last``."""
    keys = [*CASE, "_place", "algorithm", *last]
    ordered = frame.assign(_place=frame["algorithm"].map(_place)).sort_values(keys, kind="stable")
    return ordered.drop(columns="_place").reset_index(drop=True)


def _place(algorithm: str) -> int:
    """Where an algorithm stands in every table."""
    if algorithm in _LISTED_FIRST:
        return _LISTED_FIRST.index(algorithm)
    return len(_LISTED_FIRST) + (1 + BASELINES.index(algorithm) if algorithm in BASELINES else 0)


def _with_partner(final: pd.DataFrame, reference: str, match: tuple[str, ...], values: list[str]) -> pd.DataFrame:
    """Each setting beside the reference's setting of the same data: ``values`` again, with suffix ``_partner``."""
    shared = [*CASE, "seed", *match]
    partner = final[final["algorithm"] == reference][[*shared, *values]]
    if partner.duplicated(shared).any():
        raise ValueError(
            f"`reference` {reference!r} has several settings with the same {', '.join(shared)}, so pairs are "
            "ambiguous. Keep one (`best_settings`), or match on more columns."
        )
    return final.merge(partner, on=shared, how="left", suffixes=("", "_partner"))


def _reference_bytes(final: pd.DataFrame, reference: str) -> pd.Series:
    """Total bytes of the reference's partner of each setting; NaN without one, or where a pair is ambiguous."""
    shared = [*CASE, "seed", "client_lr", "num_epochs"]
    partner = final[final["algorithm"] == reference]
    partner = partner[~partner.duplicated(shared, keep=False)]
    total = partner.assign(total=partner["bytes_down"] + partner["bytes_up"])[[*shared, "total"]]
    return final[shared].merge(total, on=shared, how="left")["total"]


def _summary_row(key: tuple, group: pd.DataFrame) -> dict:
    """One line of ``summarise``."""
    diverged = group["diverged"].astype(bool)
    used = group[~diverged & ~group["idle"]]
    row = dict(zip(SETTING_KEYS, key, strict=True))
    row["num_rounds"] = int(group["num_rounds"].max())
    row["num_seeds"] = len(group)
    row["num_diverged"] = int(diverged.sum())
    row["num_idle"] = int((group["idle"] & ~diverged).sum())
    row["num_used"] = mean_interval(used["average_precision"]).n
    for score in SCORES:
        row |= with_bounds(score, mean_interval(used[score], RANGES[score]))
    row |= _cost_columns(group)
    row["drift"] = mean_interval(used["drift"]).mean
    row["delta_norm_max"] = float(used["delta_norm_max"].max())
    row["seconds"] = float(group["seconds"].mean())
    return row


def _cost_columns(group: pd.DataFrame) -> dict[str, float]:
    """Megabytes per setting, and the ratio of whole bytes to the reference's."""
    total = group["bytes_down"] + group["bytes_up"]
    paired = group["reference_bytes"].notna()
    reference = group["reference_bytes"][paired].sum()
    return {
        "mb_down": float(group["bytes_down"].mean() / _BYTES_PER_MB),
        "mb_up": float(group["bytes_up"].mean() / _BYTES_PER_MB),
        "mb_total": float(total.mean() / _BYTES_PER_MB),
        "relative_mb": float(total[paired].sum() / reference) if reference > 0 else np.nan,
    }


def _pair_row(key: tuple, group: pd.DataFrame, sign: int) -> dict:
    """One line of ``paired_differences``."""
    paired = group["setting_partner"].notna()
    lost = group["diverged"].astype(bool) | group["diverged_partner"].eq(True)
    lost |= group["idle"].astype(bool) | group["idle_partner"].eq(True)
    used = group["difference"][paired & ~lost & np.isfinite(group["difference"])]
    row = dict(zip(SETTING_KEYS, key, strict=True)) | with_bounds("difference", mean_interval(used))
    row["num_pairs"] = len(used)
    row["wins"] = int((sign * used > 0).sum())
    row["num_excluded"] = int(paired.sum()) - len(used)
    row["num_unpaired"] = int((~paired).sum())
    return row


def _target_row(key: tuple, group: pd.DataFrame) -> dict:
    """One line of ``cost_to_target``."""
    trained = ~group["skipped"].astype(bool)
    trained = trained.groupby(group["setting"]).cumsum() > 0  # before that it is the untrained model
    reached = group[(group["average_precision"] >= group["target"]) & trained & ~group["diverged"].astype(bool)]
    first = reached.drop_duplicates("setting")
    num_seeds = group["setting"].nunique()
    row = dict(zip(SETTING_KEYS, key, strict=True))
    row["target"] = float(group["target"].iloc[0])
    row["num_seeds"] = num_seeds
    row["num_reached"] = len(first)
    row["rounds_to_target"] = _reached_by_half(first["round"], num_seeds)
    row["mb_to_target"] = _reached_by_half(first["mb"], num_seeds)
    known = group["time"].notna().all()
    row["seconds_to_target"] = _reached_by_half(first["time"], num_seeds) if known else np.nan
    return row


def _reached_by_half(values: pd.Series, num_seeds: int) -> float:
    """The smallest value by which at least half of all seeds are there; infinite if fewer ever are."""
    half = (num_seeds + 1) // 2
    return float(np.sort(values.to_numpy())[half - 1]) if len(values) >= half else np.inf
