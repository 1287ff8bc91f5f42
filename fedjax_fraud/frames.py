"""From device arrays to tidy tables: a row per setting and round, and a row per partition and bank."""

import math

import jax
import numpy as np
import pandas as pd

from fedjax_fraud import partition
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.grid import CENTRALISED, Federation, Grid, federation_keys, with_bank_names
from fedjax_fraud.program import History
from fedjax_fraud.types import CommunicationCost, Model, Transactions

DIVERGED_LOSS_RATIO = 3.0
LOST_LOSS_RATIO = 1e3  # from there no model comes back, even if its loss does
NO_COST = CommunicationCost(0, 0)
KEYS = [name for name in federation_keys([]).columns if name != "bank"]
SUMMED = ["num_started", "num_participants", "num_rejected", "num_faulty", "num_silent", "num_steps", "num_rows"]


def model_size(model: Model) -> tuple[int, int]:
    """Parameters of the model, and their bytes."""
    leaves = jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0)))
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    return sum(sizes), sum(size * leaf.dtype.itemsize for size, leaf in zip(sizes, leaves, strict=True))


def has_diverged(log_loss: np.ndarray) -> np.ndarray:
    """Whether a run is lost, by its losses ``[rounds + 1, settings]``; NaN where a round was not scored.

    That is if its last loss is not finite, or far above the untrained model's; or if one on the way was beyond return:
    a network whose units have all died on the way predicts a constant, and its last loss looks harmless.
    """
    lost = np.fmax.reduce(log_loss) > LOST_LOSS_RATIO * log_loss[0]
    return lost | ~(np.isfinite(log_loss[-1]) & (log_loss[-1] <= DIVERGED_LOSS_RATIO * log_loss[0]))


def all_rejected(history: History) -> np.ndarray:
    """Whether clients trained in the last round and not one honest update was accepted: the model has stopped moving.

    Injected faults do not count: that they are rejected says nothing about the algorithm.
    """
    last = {
        name: getattr(history, name)[-1] for name in ("num_participants", "num_rejected", "num_faulty", "num_silent")
    }
    honest = last["num_participants"] - last["num_faulty"]
    rejected = last["num_rejected"] - (last["num_faulty"] - last["num_silent"])
    return (honest > 0) & (rejected == honest)


def round_table(
    grid: Grid, federations: list[Federation], history: History, num_rounds: int, model_bytes: int, first_setting: int
) -> pd.DataFrame:
    """One row per setting and round. The centralised runs, which know no alpha, are repeated for each alpha."""
    num = len(federations)
    keys = federation_keys(federations)[KEYS]
    keys.insert(0, "setting", first_setting + np.arange(num))
    keys["diverged"] = has_diverged(history.log_loss) | all_rejected(history)
    costs = [ALGORITHMS[f.algorithm].cost if f.algorithm in ALGORITHMS else NO_COST for f in federations]
    table = keys.loc[keys.index.repeat(num_rounds)].reset_index(drop=True)
    table["round"] = np.tile(np.arange(1, num_rounds + 1), num)
    for name, values in _measured(history).items():
        table[name] = values[1:].T.ravel()
    for side, num in (("down", table.num_started), ("up", table.num_participants)):
        vectors = np.repeat([getattr(cost, side) for cost in costs], num_rounds)
        table[f"bytes_{side}"] = num.to_numpy(np.int64) * model_bytes * vectors
    shared = table.algorithm == CENTRALISED
    alphas = dict.fromkeys(alpha for alpha, _ in grid.owners)
    return pd.concat([table[~shared], *(table[shared].assign(alpha=a) for a in alphas)], ignore_index=True)


def local_table(federations: list[Federation], history: History, num_rounds: int, first_setting: int) -> pd.DataFrame:
    """Banks alone, last round: the mean over banks with rows of their own models' scores on the pooled test rows."""
    table = federation_keys(federations)
    for name, values in _measured(history).items():
        table[name] = values[-1]
    table["diverged"] = has_diverged(history.log_loss) | all_rejected(history)
    groups = table[table.num_rows > 0].groupby(KEYS, dropna=False, sort=False)
    means = groups[["log_loss", "average_precision", "roc_auc"]].mean()
    sums = groups[SUMMED].sum()
    result = means.join(sums).assign(diverged=groups["diverged"].all()).reset_index()
    known = dict(round=num_rounds, skipped=False, bytes_down=0, bytes_up=0)
    unknown = dict.fromkeys(set(_measured(history)) - {*result.columns, *known}, np.nan)
    return result.assign(setting=first_setting + np.arange(len(result)), **known, **unknown)


def _measured(history: History) -> dict[str, np.ndarray]:
    """The columns of a history."""
    return {name: values for name, values in history._asdict().items() if name != "extra"}


def partition_table(grid: Grid, train: Transactions) -> pd.DataFrame:
    """Rows, positives and skew of every bank, for each alpha and seed."""
    tables = [
        partition.summary(owners.train, train.labels).assign(alpha=alpha, seed=seed)
        for (alpha, seed), owners in grid.owners.items()
    ]
    return with_bank_names(pd.concat(tables, ignore_index=True), grid.names)
