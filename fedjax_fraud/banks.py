"""Every final model on each bank's own test rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedjax_fraud import partition, score
from fedjax_fraud.grid import CENTRALISED, Federation, Grid
from fedjax_fraud.pool import AXIS
from fedjax_fraud.types import Model, Transactions


class Jobs(NamedTuple):
    """Models to score by bank, and what to score them on.

    Attributes:
      model_index: ``[jobs]``, which of the models.
      owner: ``[jobs, samples]`` int32, the bank of each test row (positives first).
      federations: the federation of each job; the centralised model, which knows no alpha, has a job for each.
      num_banks: banks of a federation.
      num_models: 1, or ``num_banks`` where every bank has its own model.
    """

    model_index: np.ndarray
    owner: np.ndarray
    federations: list[Federation]
    num_banks: int
    num_models: int


def make_jobs(grid: Grid, federations: list[Federation], test_set: score.TestSet, *, alone: bool = False) -> Jobs:
    """Jobs for models of these federations; ``alone``: runs of consecutive federations are the banks of one."""
    num_banks = len(next(iter(grid.owners.values())).train.count)
    owner_of = {key: partition.client_of(owners.test)[test_set.index] for key, owners in grid.owners.items()}
    index, owner, expanded = [], [], []
    for i, federation in enumerate(federations[:: num_banks if alone else 1]):
        for alpha, seed in grid.owners:
            own = federation.algorithm == CENTRALISED or _same(alpha, federation.alpha)
            if seed == federation.seed and own:
                index.append(i)
                owner.append(owner_of[alpha, seed])
                expanded.append(federation._replace(alpha=alpha))
    return Jobs(np.array(index), np.stack(owner), expanded, num_banks, num_banks if alone else 1)


def _same(a: float, b: float) -> bool:
    """Equal, NaN included."""
    return a == b or (a != a and b != b)


def compile_scores(jobs: Jobs, model: Model, test_set: score.TestSet, test_features, mesh: Mesh) -> Callable:
    """Compiles ``params -> Scores [jobs, banks]``; ``params`` leaves ``[models, ...]`` or ``[models x banks, ...]``."""
    num_jobs = len(jobs.model_index)
    padding = -num_jobs % mesh.devices.size
    model_index = np.pad(jobs.model_index, (0, padding))
    owner = np.pad(jobs.owner, ((0, padding), (0, 0)))

    def of_job(params, owner, features):
        logits = jax.lax.map(lambda one: score.test_logits(model.apply, one, features), params)
        if jobs.num_models > 1:
            # Each row by the model of the bank that owns it; the padding after the last row is never read.
            padded_owner = jnp.pad(owner, (0, logits.shape[1] - owner.shape[0]))
            logits = jnp.take_along_axis(logits, padded_owner[None], axis=0)
        return score.bank_scores(logits[0], owner, num_positives=test_set.num_positives, num_banks=jobs.num_banks)

    def of_device(params, owner, features):
        return jax.lax.map(lambda job: of_job(*job, features), (params, owner))

    run = jax.shard_map(of_device, mesh=mesh, in_specs=(P(AXIS), P(AXIS), P()), out_specs=P(AXIS), check_vma=False)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((len(model_index), jobs.num_models, *leaf.shape), leaf.dtype), shapes
    )
    compiled = jax.jit(run).lower(params, owner, test_features).compile()

    def scores(params) -> score.Scores:
        grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, jobs.num_models, *leaf.shape[1:])[model_index], params)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[:num_jobs], compiled(grouped, owner, test_features))

    return scores


def bank_table(
    grid: Grid, jobs: Jobs, scores: score.Scores, train: Transactions, test: Transactions, first_setting: int
) -> pd.DataFrame:
    """One row per job and bank: sizes, and scores (NaN where the bank's test rows have one class)."""
    sizes = {key: _sizes(owners, train, test) for key, owners in grid.owners.items()}
    keys = pd.DataFrame(jobs.federations).drop(columns="bank")
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
