"""Tables of banks: what each gets, what all get together, and how uneven the partition made them.

The rules are those of ``tables``.
"""

from collections.abc import Collection

import numpy as np
import pandas as pd

from .intervals import SHARE, mean_interval, with_bounds
from .tables import SETTING_KEYS, UNIT, complete, frame_of, groups_of, spread_conditions

_BANK_COLUMNS = (
    *("bank_rank", "num_seeds", "num_defined", "num_train", "num_train_positives", "prevalence"),
    *(
        "average_precision",
        "average_precision_low",
        "average_precision_high",
        "difference",
        "difference_low",
        "difference_high",
        "num_pairs",
        "wins",
    ),
)


def bank_table(banks: pd.DataFrame, diverged: Collection[int] = ()) -> pd.DataFrame:
    """What each bank gets, by rank of size: bank 1 is the largest of its federation.

    Under a Dirichlet partition client 0 of one seed has nothing to do with client 0 of the next; the largest bank of
    each seed does compare. A bank whose test rows have one class has no score, whatever the table says (all frauds
    would be a perfect 1): it is left out and counted.

    Args:
      banks: one row per setting and client after the final round.
      diverged: numbers of the settings to leave out.

    Returns: one row per algorithm, alpha, hyperparameters and ``bank_rank``: ``num_seeds``, ``num_defined`` (seeds in
      which this bank's score is defined), means of ``num_train`` and ``num_train_positives``, ``prevalence`` (of the
      bank's test rows, mean over the seeds with a score: what a random ranking scores), ``average_precision`` with
      ``_low`` and ``_high`` (over those defined), and against the bank's own model alone (``local_only``):
      ``difference`` with ``_low`` and ``_high``, ``num_pairs``, ``wins``.
    """
    kept = _banks_beside_local(banks, diverged)
    rows = [_bank_row(key, group) for key, group in groups_of(kept, (*SETTING_KEYS, "bank_rank"))]
    return frame_of(rows, [*SETTING_KEYS, *_BANK_COLUMNS])


def bank_summary(banks: pd.DataFrame, diverged: Collection[int] = ()) -> pd.DataFrame:
    """All banks of an algorithm in one row: the mean of per-bank scores, and how many banks gain.

    The mean of per-bank average precisions is another number than the pooled average precision: never compare the two.

    Args:
      banks: one row per setting and client after the final round.
      diverged: numbers of the settings to leave out.

    Returns: one row per algorithm, alpha and hyperparameters: ``average_precision`` with ``_low`` and ``_high`` (per
      seed the mean over the banks with a score, then over seeds), ``num_defined`` of ``num_banks`` (banks x seeds), and
      ``num_better`` of ``num_compared`` (banks whose score is above that of their own model).
    """
    kept = _banks_beside_local(banks, diverged)
    return frame_of([_bank_summary_row(key, group) for key, group in groups_of(kept, SETTING_KEYS)])


def partition_table(partitions: pd.DataFrame) -> pd.DataFrame:
    """One row per alpha: how uneven the banks are, over banks and seeds.

    Args:
      partitions: one row per alpha, seed and client.

    Returns: ``alpha, num_seeds, num_banks`` (banks x seeds), mean, ``_min`` and ``_max`` of ``num_examples``,
      ``num_positives``, ``kl`` and ``tvd``, ``num_without_fraud`` (banks with rows and no fraud) and ``num_empty``.
    """
    return pd.DataFrame([_partition_row(key[0], group) for key, group in groups_of(partitions, ("alpha",))])


def _banks_beside_local(banks: pd.DataFrame, diverged: Collection[int]) -> pd.DataFrame:
    """The banks of settings that did not diverge, ranked by size, each beside its own model's score."""
    kept = complete(banks[~banks["setting"].isin(list(diverged))])
    two_classes = (kept["num_test_positives"] > 0) & (kept["num_test_positives"] < kept["num_test"])
    kept = kept.assign(average_precision=kept["average_precision"].where(two_classes))
    kept = kept.sort_values([*UNIT, "num_train", "client"], ascending=[True, True, False, True], kind="stable")
    kept = kept.assign(bank_rank=kept.groupby(UNIT, dropna=False).cumcount() + 1)
    shared = ["alpha", "seed", "client_lr", "num_epochs", "client"]
    local = kept[kept["algorithm"] == "local_only"].drop_duplicates(shared)
    local = local[[*shared, "average_precision"]].rename(columns={"average_precision": "local"})
    return spread_conditions(kept.merge(local, on=shared, how="left"))


def _compared(group: pd.DataFrame) -> pd.Series:
    """Score minus own model's score, for the banks in which both are defined."""
    difference = group["average_precision"] - group["local"]
    return difference[np.isfinite(difference)]


def _bank_row(key: tuple, group: pd.DataFrame) -> dict:
    """One line of ``bank_table``."""
    score, difference = mean_interval(group["average_precision"], SHARE), _compared(group)
    row = dict(zip((*SETTING_KEYS, "bank_rank"), key, strict=True))
    row["num_seeds"] = len(group)
    row["num_defined"] = score.n
    row["num_train"] = float(group["num_train"].mean())
    row["num_train_positives"] = float(group["num_train_positives"].mean())
    scored = group[np.isfinite(group["average_precision"])]
    row["prevalence"] = float((scored["num_test_positives"] / scored["num_test"]).mean())
    row |= with_bounds("average_precision", score)
    row |= with_bounds("difference", mean_interval(difference))
    row["num_pairs"] = len(difference)
    row["wins"] = int((difference > 0).sum())
    return row


def _bank_summary_row(key: tuple, group: pd.DataFrame) -> dict:
    """One line of ``bank_summary``."""
    score = group["average_precision"]
    per_seed = score.where(np.isfinite(score)).groupby(group["setting"]).mean()
    difference = _compared(group)
    row = dict(zip(SETTING_KEYS, key, strict=True)) | with_bounds("average_precision", mean_interval(per_seed, SHARE))
    row["num_banks"] = len(group)
    row["num_defined"] = int(np.isfinite(score).sum())
    row["num_compared"] = len(difference)
    row["num_better"] = int((difference > 0).sum())
    return row


def _partition_row(alpha: float, group: pd.DataFrame) -> dict:
    """One line of ``partition_table``."""
    row = {"alpha": alpha, "num_seeds": group["seed"].nunique(), "num_banks": len(group)}
    for name in ("num_examples", "num_positives", "kl", "tvd"):
        values = group[name]
        row |= {name: float(values.mean()), f"{name}_min": values.min(), f"{name}_max": values.max()}
    row["num_without_fraud"] = int(((group["num_positives"] == 0) & (group["num_examples"] > 0)).sum())
    row["num_empty"] = int((group["num_examples"] == 0).sum())
    return row
