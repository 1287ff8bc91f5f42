"""Every final model on each bank's own test rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedjax_fraud import partition, score
from fedjax_fraud.devices import AXIS, replicate, taking_host_arrays, to_host
from fedjax_fraud.grid import CENTRALISED, Federation, Grid, federation_keys
from fedjax_fraud.types import Model, Transactions


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
    num_banks = len(next(iter(grid.owners.values())).train.count)
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


class LoweredScores(NamedTuple):
    """The traced program that scores jobs, and what it gets beside the models.

    Attributes:
      lowered: of ``(params, owner_index, owners, test_features)``.
      jobs: what is scored.
      model_index, owner_index: those of the jobs, padded to a multiple of the devices.
      owners, test_features: on every device.
    """

    lowered: Any
    jobs: Jobs
    model_index: np.ndarray
    owner_index: np.ndarray
    owners: Array
    test_features: Array

    def compile(self) -> Callable:
        """XLA's part: ``params -> Scores [jobs, banks]``; params ``[models, ...]`` or ``[models x banks, ...]``."""
        compiled = taking_host_arrays(self.lowered.compile())

        def scores(params) -> score.Scores:
            num_models, num_jobs = self.jobs.num_models, len(self.jobs.model_index)
            grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, num_models, *leaf.shape[1:])[self.model_index], params)
            result = compiled(grouped, self.owner_index, self.owners, self.test_features)
            return jax.tree.map(lambda leaf: leaf[:num_jobs], to_host(result))

        return scores


def lower_scores(jobs: Jobs, model: Model, test_set: score.TestSet, test_features, mesh: Mesh) -> LoweredScores:
    """Traces the scores of the jobs, which are dealt to the devices, one after the other on each."""
    padding = -len(jobs.model_index) % mesh.devices.size
    model_index = np.pad(jobs.model_index, (0, padding))
    owner_index = np.pad(jobs.owner_index, (0, padding))
    owners = replicate(jobs.owners, mesh)

    def of_job(params, owner, features):
        logits = jax.lax.map(lambda one: score.test_logits(model.apply, one, features), params)
        if jobs.num_models > 1:
            # Each row by the model of the bank that owns it; the padding after the last row is never read.
            padded_owner = jnp.pad(owner, (0, logits.shape[1] - owner.shape[0]))
            logits = jnp.take_along_axis(logits, padded_owner[None], axis=0)
        return score.bank_scores(logits[0], owner, num_positives=test_set.num_positives, num_banks=jobs.num_banks)

    def of_device(params, owner_index, owners, features):
        return jax.lax.map(lambda job: of_job(job[0], owners[job[1]], features), (params, owner_index))

    specs = dict(in_specs=(P(AXIS), P(AXIS), P(), P()), out_specs=P(AXIS))
    run = jax.shard_map(of_device, mesh=mesh, **specs, check_vma=False)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((len(model_index), jobs.num_models, *leaf.shape), leaf.dtype), shapes
    )
    lowered = jax.jit(run).lower(params, owner_index, owners, test_features)
    return LoweredScores(lowered, jobs, model_index, owner_index, owners, test_features)


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
