"""Many federations at once: the grid, the programs it needs, their run, and the tables that come out."""

import concurrent.futures
import functools
import hashlib
import math
import platform
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedjax_fraud import grid as grids
from fedjax_fraud import models, partition, pool, score
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.data import describe_split
from fedjax_fraud.grid import CENTRALISED, LOCAL_ONLY, Federation, Grid
from fedjax_fraud.local import Objective, TrainingData
from fedjax_fraud.simulate import Settings, check_count, check_participation, check_rows
from fedjax_fraud.types import Model, Transactions

DIVERGED_LOSS_RATIO = 3.0
BASELINE = "fedavg"


class SweepResult(NamedTuple):
    """Everything a report needs.

    Attributes:
      rounds: one row per setting and round (see ``frame``).
      banks: one row per setting and bank after the last round: scores on the bank's own test rows.
      partitions: one row per alpha, seed and bank: rows, positives, prevalence, KL, TVD.
      manifest: configuration, data, versions, timings and work, ready for JSON.
      params: final global models of the compared federations and the centralised ones, leaves ``[settings, ...]``,
        in the order of the column ``setting``.
    """

    rounds: pd.DataFrame
    banks: pd.DataFrame
    partitions: pd.DataFrame
    manifest: dict
    params: Any = None

    def frame(self) -> pd.DataFrame:
        """The tidy table: one row per setting and round, baselines included."""
        return self.rounds.copy()


class Part(NamedTuple):
    """A pool and the federations in it."""

    pool: pool.Pool
    federations: list[Federation]


def sweep(
    train: Transactions,
    test: Transactions,
    *,
    algorithms: Sequence[str] = ("fedavg", "fedprox", "scaffold"),
    alphas: Sequence[float] = (0.1, 0.5, 1.0),
    seeds: int | Sequence[int] = 10,
    num_clients: int = 3,
    num_rounds: int = 10,
    num_epochs: int | Sequence[int] = 1,
    batch_size: int = 64,
    client_lr: float | Sequence[float] = 0.05,
    mu: float | Sequence[float] = 0.01,
    participation: float = 1.0,
    model: Model | None = None,
    partition_kind: str = "labels",
    partition_feature: str = "amount",
    baselines: bool = True,
    devices: Sequence | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> SweepResult:
    """Runs algorithms x alphas x hyperparameters x seeds; federations of one structure share one compiled program.

    The same seed gives every algorithm the same partition, start, cohorts and batches, so that they can be compared
    in pairs.

    Args:
      train, test: as ``data.split`` returns them.
      algorithms: names from ``algorithms.ALGORITHMS``.
      alphas: Dirichlet concentrations, above 0; smaller = more skew. Unused by 'iid' and 'natural' partitions.
      seeds: how many (0, 1, ...), or which.
      num_clients: banks of a federation; a natural partition has as many as the silo column names.
      num_rounds, batch_size: communication rounds; rows of a local batch.
      num_epochs, client_lr, mu: a value, or several that are crossed. ``mu`` is FedProx's alone.
      participation: share of the banks with rows that take part in a round, in (0, 1].
      model: default ``models.mlp`` for the table's width.
      partition_kind: 'labels', 'feature', 'quantity', 'iid' or 'natural'.
      partition_feature: for 'feature': 'amount', 'hour', a feature's name or the prefix of one-hot columns.
      baselines: also run every bank alone, and one model on all rows.
      devices: default all devices of the process; settings are dealt to them.
      progress: called with (what, done, total) as the work goes on.

    Returns: a ``SweepResult``.

    Raises: ValueError for any argument out of range, before any work.
    """
    began = time.perf_counter()
    progress = progress or (lambda what, done, total: None)
    seeds = list(range(seeds)) if isinstance(seeds, int | np.integer) and not isinstance(seeds, bool) else seeds
    client_lr, mu, num_epochs = grids.as_list(client_lr), grids.as_list(mu), grids.as_list(num_epochs)
    algorithms, alphas = grids.as_list(algorithms), grids.as_list(alphas)
    _check(train, test, algorithms, alphas, seeds, num_clients, num_rounds, num_epochs, batch_size, client_lr, mu)
    check_participation(participation)
    grids.check_choice("partition_kind", [partition_kind], grids.PARTITIONS)

    progress("partitions", 0, 1)
    grid = grids.make_grid(
        train,
        test,
        algorithms=algorithms,
        alphas=alphas,
        seeds=seeds,
        num_clients=num_clients,
        client_lrs=client_lr,
        mus=mu,
        num_epochs=num_epochs,
        partition_kind=partition_kind,
        partition_feature=partition_feature,
        baselines=baselines,
    )
    model = models.mlp(train.features.shape[1]) if model is None else model
    objective = Objective(model.apply, batch_size=batch_size)
    mesh = pool.settings_mesh(devices)
    test_set = score.make_test_set(test.features, test.labels)
    parts = _make_parts(grid, objective, test_set, mesh, len(train.labels), participation)
    data = pool.replicate(_training_data(train, grid), mesh)
    test_features = pool.replicate(test_set.features, mesh)

    progress("compile", 0, 1)
    compile_began = time.perf_counter()
    compile_one = functools.partial(
        pool.compile_pool,
        data=data,
        test_features=test_features,
        model_init=model.init,
        num_rounds=num_rounds,
        mesh=mesh,
    )
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as executor:
        compiled = list(executor.map(compile_one, [part.pool for part in parts]))
    compile_seconds = time.perf_counter() - compile_began

    outcomes = _run(parts, compiled, data, test_features, num_rounds, progress)
    progress("banks", 0, 1)
    score_began = time.perf_counter()
    banks = _bank_table(grid, parts, outcomes, model, test_set, mesh, train, test)
    score_seconds = time.perf_counter() - score_began

    rounds = _round_table(grid, parts, outcomes, num_rounds, model)
    partitions = _partition_table(grid, train)
    config = dict(
        algorithms=algorithms,
        alphas=alphas,
        seeds=list(seeds),
        num_clients=len(next(iter(grid.owners.values())).train.count),
        num_rounds=num_rounds,
        num_epochs=num_epochs,
        batch_size=batch_size,
        client_lr=client_lr,
        mu=mu,
        participation=participation,
        partition_kind=partition_kind,
        partition_feature=partition_feature if partition_kind == "feature" else None,
        baselines=baselines,
    )
    run_seconds = sum(outcome.run_seconds for outcome in outcomes)
    rows_trained = int(sum(np.sum(outcome.history.num_rows, dtype=np.int64) for outcome in outcomes))
    works = [pool.pool_work(part.pool, num_rounds, mesh.devices.size) for part in parts]
    manifest = dict(
        config=config,
        data=describe_split(train, test) | dict(source=train.source, sha256=_sha256(train, test)),
        model=dict(num_params=_num_params(model)),
        versions=_versions(),
        devices=[str(device) for device in mesh.devices.flat],
        timings=dict(
            compile_seconds=compile_seconds,
            run_seconds=run_seconds,
            bank_score_seconds=score_seconds,
            total_seconds=time.perf_counter() - began,
        ),
        work=dict(
            num_federations=len(grid.federations),
            num_programs=len(parts),
            rows_trained=rows_trained,
            rows_per_second=rows_trained / max(run_seconds, 1e-9),
            useful_steps=sum(work.useful for work in works),
            executed_steps=sum(work.executed for work in works),
            padded_steps=sum(work.padded for work in works),
        ),
        diverged_loss_ratio=DIVERGED_LOSS_RATIO,
    )
    params = jax.tree.map(
        lambda *leaves: np.concatenate(leaves), *(o.params for p, o in zip(parts, outcomes, strict=True) if not _local(p))
    )
    return SweepResult(rounds, banks, partitions, manifest, params)


def _check(train, test, algorithms, alphas, seeds, num_clients, num_rounds, num_epochs, batch_size, client_lr, mu):
    """Everything that can be wrong with the arguments, found before any work."""
    grids.check_choice("algorithms", algorithms, list(ALGORITHMS))
    grids.check_numbers("alphas", alphas)
    grids.check_numbers("client_lr", client_lr)
    grids.check_numbers("mu", mu, positive=False)
    grids.check_distinct("seeds", list(seeds))
    for seed in seeds:
        check_count("seeds", seed, least=0)
    grids.check_distinct("num_epochs", num_epochs)
    for epochs in num_epochs:
        check_count("num_epochs", epochs)
    for name, value in (("num_clients", num_clients), ("num_rounds", num_rounds), ("batch_size", batch_size)):
        check_count(name, value)
    check_rows("train", train.features, train.labels)
    check_rows("test", test.features, test.labels)
    if not train.labels.any():
        raise ValueError("`train` has no positive labels, got 0 frauds. Use more rows, or split at an earlier time.")


# ---- programs ---------------------------------------------------------------------------------------------------


def _local(part: Part) -> bool:
    return part.federations[0].algorithm == LOCAL_ONLY


def _make_parts(
    grid: Grid, objective: Objective, test_set: score.TestSet, mesh: Mesh, num_train: int, participation: float
) -> list[Part]:
    """One pool for each ``build``; the centralised baseline rides along with FedAvg, banks alone are a pool of K = 1."""
    averaging = ALGORITHMS[BASELINE].build
    groups: dict[Callable, list[Federation]] = {}
    for federation in grid.federations:
        groups.setdefault(ALGORITHMS[federation.algorithm].build, []).append(federation)
    if grid.centralised:
        groups.setdefault(averaging, []).extend(grid.centralised)
    num_clients = len(next(iter(grid.owners.values())).train.count)
    settings = functools.partial(_settings, grid, num_train=num_train, participation=participation)
    parts = [
        Part(pool.make_pool(build, objective, settings(group, num_clients), test_set, mesh), group)
        for build, group in groups.items()
    ]
    if grid.local_only:
        alone = pool.make_pool(
            averaging, objective, settings(grid.local_only, 1), test_set, mesh, score_every_round=False
        )
        parts.append(Part(alone, grid.local_only))
    return parts


def _settings(
    grid: Grid, federations: list[Federation], num_clients: int, *, num_train: int, participation: float
) -> Settings:
    """The federations as arrays. ``orders`` row i belongs to the i-th (alpha, seed) of the grid."""
    partition_ids = {key: i for i, key in enumerate(grid.owners)}
    first_of_seed = {seed: i for (_, seed), i in reversed(partition_ids.items())}
    num = len(federations)
    start, count, client_id = (np.zeros((num, num_clients), np.int32) for _ in range(3))
    client_id[:] = np.arange(num_clients)
    partition_id = np.zeros(num, np.int32)
    for i, federation in enumerate(federations):
        if federation.algorithm == CENTRALISED:
            # All rows in one bank: any order of them will do, since batches are shuffled.
            partition_id[i], count[i, 0] = first_of_seed[federation.seed], num_train
            continue
        owned = grid.owners[federation.alpha, federation.seed].train
        partition_id[i] = partition_ids[federation.alpha, federation.seed]
        if federation.bank >= 0:
            start[i, 0], count[i, 0] = owned.start[federation.bank], owned.count[federation.bank]
            client_id[i, 0] = federation.bank
        else:
            start[i], count[i] = owned.start, owned.count
    full = [federation.algorithm in (CENTRALISED, LOCAL_ONLY) for federation in federations]
    mu = [ALGORITHMS[f.algorithm].fixed.get("mu", f.mu) if f.algorithm in ALGORITHMS else 0.0 for f in federations]
    return Settings(
        hyper=dict(
            client_lr=np.array([federation.client_lr for federation in federations], np.float32),
            mu=np.nan_to_num(np.array(mu, np.float32)),
        ),
        seed=np.array([federation.seed for federation in federations], np.uint32),
        num_epochs=np.array([federation.num_epochs for federation in federations], np.int32),
        participation=np.where(full, 1.0, participation).astype(np.float32),
        partition_id=partition_id,
        start=start,
        count=count,
        client_id=client_id,
    )


def _training_data(train: Transactions, grid: Grid) -> TrainingData:
    orders = np.stack([owners.train.order for owners in grid.owners.values()]).astype(np.int32)
    return TrainingData(train.features.astype(np.float32), train.labels.astype(np.float32), orders)


def _run(parts, compiled, data, test_features, num_rounds, progress) -> list[pool.Outcome]:
    """Runs the programs one after the other; progress counts settings x rounds."""
    total = sum(len(part.federations) for part in parts) * num_rounds
    done, outcomes = 0, []
    for part, program in zip(parts, compiled, strict=True):
        finished = done

        def on_rounds(num, part=part):
            nonlocal finished
            finished += num * len(part.federations)
            progress("rounds", finished, total)

        outcomes.append(pool.run_pool(part.pool, program, data, test_features, num_rounds, on_rounds))
        done += num_rounds * len(part.federations)
    return outcomes


# ---- tables -----------------------------------------------------------------------------------------------------


def _num_params(model: Model) -> int:
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return int(sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)))


def _num_bytes(model: Model) -> int:
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return int(sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)))


def _keys(federation: Federation) -> dict:
    """The columns that identify a federation."""
    return {name: value for name, value in federation._asdict().items() if name != "bank"}


def _round_table(grid: Grid, parts: list[Part], outcomes: list[pool.Outcome], num_rounds: int, model: Model):
    """One row per setting and round. The centralised runs, which know no alpha, are repeated for each alpha."""
    alphas = list(dict.fromkeys(alpha for alpha, _ in grid.owners))
    model_bytes = _num_bytes(model)
    tables, setting = [], 0
    for part, outcome in zip(parts, outcomes, strict=True):
        if _local(part):
            tables.append(_local_rounds(part, outcome, num_rounds, setting))
            continue
        for i, federation in enumerate(part.federations):
            history = {name: values[:, i] for name, values in outcome.history._asdict().items()}
            table = _one_setting(federation, history, num_rounds, model_bytes, setting)
            centralised = federation.algorithm == CENTRALISED
            tables += [table.assign(alpha=alpha) for alpha in alphas] if centralised else [table]
            setting += 1
    return pd.concat(tables, ignore_index=True)


def _one_setting(federation, history: dict, num_rounds: int, model_bytes: int, setting: int) -> pd.DataFrame:
    """The rounds of one federation."""
    after = {name: values[1:] for name, values in history.items()}
    cost = ALGORITHMS[federation.algorithm].cost if federation.algorithm in ALGORITHMS else None
    per_round = np.asarray(after["num_participants"], np.int64) * model_bytes
    table = pd.DataFrame({"setting": setting, **_keys(federation), "round": np.arange(1, num_rounds + 1), **after})
    table["bytes_down"] = per_round * (cost.down if cost else 0)
    table["bytes_up"] = per_round * (cost.up if cost else 0)
    table["diverged"] = _has_diverged(history["log_loss"])
    return table


def _has_diverged(log_loss: np.ndarray) -> bool:
    """Not finite at the end, or far above the loss of the untrained model."""
    return bool(not np.isfinite(log_loss[-1]) or log_loss[-1] > DIVERGED_LOSS_RATIO * log_loss[0])


def _local_rounds(part: Part, outcome: pool.Outcome, num_rounds: int, setting: int) -> pd.DataFrame:
    """Banks alone, last round: the mean over banks with rows of their models' scores on the pooled test rows."""
    table = pd.DataFrame([federation._asdict() for federation in part.federations])
    for name, values in outcome.history._asdict().items():
        table[name] = np.asarray(values[-1], np.float64)
    table["start_loss"] = outcome.history.log_loss[0]
    table["diverged"] = ~(table.log_loss <= DIVERGED_LOSS_RATIO * table.start_loss)
    table = table[table.num_rows > 0]
    groups = table.groupby(["algorithm", "alpha", "seed", "client_lr", "mu", "num_epochs"], dropna=False, sort=False)
    means = groups[["log_loss", "average_precision", "roc_auc"]].mean().reset_index()
    sums = groups[["num_participants", "num_rejected", "num_steps", "num_rows"]].sum().reset_index(drop=True)
    means = means.assign(
        setting=setting + np.arange(len(means)),
        round=num_rounds,
        bytes_down=0,
        bytes_up=0,
        diverged=groups["diverged"].all().to_numpy(),
        skipped=False,
        delta_norm_mean=np.nan,
        delta_norm_max=np.nan,
        drift=np.nan,
    )
    return means.join(sums.astype(np.int64))


def _partition_table(grid: Grid, train: Transactions) -> pd.DataFrame:
    tables = [
        partition.summary(owners.train, train.labels).assign(alpha=alpha, seed=seed)
        for (alpha, seed), owners in grid.owners.items()
    ]
    return pd.concat(tables, ignore_index=True)


def _bank_table(grid, parts, outcomes, model, test_set, mesh, train, test) -> pd.DataFrame:
    """Every setting's final model on each bank's own test rows; for banks alone, each bank's own model."""
    owner_ids = {key: i for i, key in enumerate(grid.owners)}
    owner = np.stack([partition.client_of(owners.test)[test_set.index] for owners in grid.owners.values()])
    num_banks = len(next(iter(grid.owners.values())).train.count)
    sizes = {key: _bank_sizes(owners, train, test) for key, owners in grid.owners.items()}
    tables, setting = [], 0
    for part, outcome in zip(parts, outcomes, strict=True):
        if _local(part):
            federations = part.federations[::num_banks]
            params = jax.tree.map(lambda leaf: leaf.reshape(-1, num_banks, *leaf.shape[1:]), outcome.params)
            jobs = [(setting + i, i, f, (f.alpha, f.seed)) for i, f in enumerate(federations)]
        else:
            params = jax.tree.map(lambda leaf: leaf[:, None], outcome.params)
            jobs = [
                (setting + i, i, federation, key)
                for i, federation in enumerate(part.federations)
                for key in grid.owners
                if key[1] == federation.seed and federation.algorithm == CENTRALISED
                or key == (federation.alpha, federation.seed)
            ]
            setting += len(part.federations)
        model_index = np.array([i for _, i, _, _ in jobs])
        owner_index = np.array([owner_ids[key] for _, _, _, key in jobs])
        scores = _score_banks(model.apply, test_set, mesh, params, model_index, owner[owner_index], num_banks)
        for row, (number, _, federation, key) in enumerate(jobs):
            table = sizes[key].assign(setting=number, **(_keys(federation) | dict(alpha=key[0])))
            tables.append(table.assign(**{name: values[row] for name, values in scores._asdict().items()}))
    return pd.concat(tables, ignore_index=True)


def _bank_sizes(owners: grids.Owners, train: Transactions, test: Transactions) -> pd.DataFrame:
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


def _score_banks(apply, test_set, mesh, params, model_index, owner, num_banks) -> score.Scores:
    """Scores ``[jobs, banks]``. ``params`` leaves ``[models, 1 or banks, ...]``; ``owner [jobs, samples]``."""
    num_jobs, num_devices = len(model_index), mesh.devices.size
    padding = -num_jobs % num_devices
    model_index = np.concatenate([model_index, np.zeros(padding, np.int64)])
    owner = np.concatenate([owner, np.zeros((padding, owner.shape[1]), owner.dtype)])
    params = jax.tree.map(lambda leaf: leaf[model_index], params)

    def of_job(job, features):
        params, owner = job
        logits = jax.lax.map(lambda one: score.test_logits(apply, one, features), params)
        own = jnp.zeros(logits.shape[1], jnp.int32).at[: owner.shape[0]].set(owner) % logits.shape[0]
        logits = jnp.take_along_axis(logits, own[None], axis=0)[0]
        return score.bank_scores(
            logits, owner, num_positives=test_set.num_positives, num_banks=num_banks
        )

    run = jax.shard_map(
        lambda jobs, features: jax.lax.map(lambda job: of_job(job, features), jobs),
        mesh=mesh,
        in_specs=(P(pool.AXIS), P()),
        out_specs=P(pool.AXIS),
        check_vma=False,
    )
    scores = jax.jit(run)((params, owner), test_set.features)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:num_jobs], scores)


# ---- record -----------------------------------------------------------------------------------------------------


def _sha256(train: Transactions, test: Transactions) -> str:
    """A digest of all features and labels, as trained and scored on."""
    digest = hashlib.sha256()
    for rows in (train, test):
        digest.update(np.ascontiguousarray(rows.features).tobytes())
        digest.update(np.ascontiguousarray(rows.labels).tobytes())
    return digest.hexdigest()


def _versions() -> dict:
    """What the numbers depend on."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy", "pandas")}
    return packages | dict(
        python=platform.python_version(),
        fedjax_fraud=metadata.version("fedjax-fraud"),
        random_generator=f"jax {jax.config.jax_default_prng_impl}, numpy PCG64",
        matmul_precision=str(jax.config.jax_default_matmul_precision or "default"),
    )
