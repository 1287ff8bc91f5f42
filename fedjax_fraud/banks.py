"""Every final model on each bank's own test rows."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedjax_fraud import measures, partition, score
from fedjax_fraud.grid import CENTRALISED, Federation, Grid, federation_keys
from fedjax_fraud.types import Transactions


class Jobs(NamedTuple):
    """Models to score by bank, and what to score them on.

    Attributes:
      model_index: ``[jobs]``, which of the models.
      owner_index: ``[jobs]``, which row of ``owners``.
      owners: ``[partitions, samples]`` int32, the bank of each test row (positives first).
      federations: the federation of each job; the centralised model, which knows no alpha, has a job for each.
      num_banks: banks of a federation.
      num_models: 1, or ``num_banks`` where every bank has its own model.
    """

    model_index: np.ndarray
    owner_index: np.ndarray
    owners: np.ndarray
    federations: list[Federation]
    num_banks: int
    num_models: int


def make_jobs(
    grid: Grid,
    federations: list[Federation],
    test_set: score.TestSet,
    *,
    alone: bool = False,
    personal: bool = False,
) -> Jobs:
    """Jobs for models of these federations.

    Args:
      alone: runs of consecutive federations are the banks of one.
      personal: every federation has a model of each bank's own.
    """
    num_banks = grid.num_clients
    owners = np.stack([partition.client_of(owners.test)[test_set.index] for owners in grid.owners.values()])
    model_index, owner_index, expanded = [], [], []
    for i, federation in enumerate(federations[:: num_banks if alone else 1]):
        for which, (alpha, seed) in enumerate(grid.owners):
            own = federation.algorithm == CENTRALISED or _same(alpha, federation.alpha)
            if seed == federation.seed and own:
                model_index.append(i)
                owner_index.append(which)
                expanded.append(federation._replace(alpha=alpha))
    index = np.array(model_index, np.int32), np.array(owner_index, np.int32)
    return Jobs(*index, owners.astype(np.int32), expanded, num_banks, num_banks if alone or personal else 1)


def _same(a: float, b: float) -> bool:
    """Equal, NaN included."""
    return a == b or (a != a and b != b)


def score_jobs(jobs: Jobs, model_logits: Iterator[np.ndarray], num_positives: int) -> score.Scores:
    """Scores ``[jobs, banks]``.

    Args:
      model_logits: ``[samples]`` of each model in turn (positives first); of consecutive ones, if every bank has its
        own, each row then counts with the logit of its bank's model.
      num_positives: of the test rows.
    """
    rows = [measures.divide(owner, num_positives, jobs.num_banks) for owner in jobs.owners]
    found = [None] * len(jobs.model_index)
    for number, logits in enumerate(_grouped(model_logits, jobs.num_models)):
        for job in np.flatnonzero(jobs.model_index == number):
            own = rows[jobs.owner_index[job]]
            of_row = logits[own.owner, np.arange(len(own.owner))] if jobs.num_models > 1 else logits[0]
            found[job] = measures.bank_scores(of_row, own)
    return score.Scores(*(np.stack(values).astype(np.float32) for values in zip(*found, strict=True)))


def _grouped(model_logits: Iterator[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """``[size, samples]`` of consecutive models."""
    model_logits = iter(model_logits)
    while group := list(itertools.islice(model_logits, size)):
        yield np.stack(group)


def bank_table(
    grid: Grid, jobs: Jobs, scores: score.Scores, train: Transactions, test: Transactions, first_setting: int
) -> pd.DataFrame:
    """One row per job and bank: sizes, and scores (NaN where the bank's test rows have one class)."""
    sizes = {key: _sizes(owners, train, test) for key, owners in grid.owners.items()}
    keys = federation_keys(jobs.federations).drop(columns="bank")
    keys.insert(0, "setting", first_setting + jobs.model_index)
    table = keys.loc[keys.index.repeat(jobs.num_banks)].reset_index(drop=True)
    # A NaN alpha is a key only as the very object that the grid holds, so look federations up by their own alpha.
    own = pd.concat([sizes[federation.alpha, federation.seed] for federation in jobs.federations], ignore_index=True)
    columns = {name: np.asarray(values).ravel() for name, values in scores._asdict().items()}
    return pd.concat([table, own, pd.DataFrame(columns)], axis=1)


def _sizes(owners: Any, train: Transactions, test: Transactions) -> pd.DataFrame:
    own = partition.summary(owners.train, train.labels)
    held_out = partition.summary(owners.test, test.labels)
    return pd.DataFrame(
        dict(
            client=own.client,
            num_train=own.num_examples,
            num_train_positives=own.num_positives,
            num_test=held_out.num_examples,
            num_test_positives=held_out.num_positives,
        )
    )
