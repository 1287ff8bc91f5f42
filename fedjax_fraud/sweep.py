"""Many federations at once: the grid, the programs it needs, their run, and the tables that come out."""

import concurrent.futures
import hashlib
import platform
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jax.sharding import Mesh

from fedjax_fraud import banks, cache, checks, evaluate, frames, models, pool, score
from fedjax_fraud import devices as hardware
from fedjax_fraud import grid as grids
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.data import describe_split
from fedjax_fraud.grid import CENTRALISED, LOCAL_ONLY, Federation, Grid
from fedjax_fraud.local import Objective, TrainingData, make_training_data
from fedjax_fraud.simulate import Settings
from fedjax_fraud.types import Model, Transactions

BASELINE = "fedavg"
MAX_CLIENTS_TOGETHER = 8


class SweepResult(NamedTuple):
    """Everything a report needs.

    Attributes:
      rounds: one row per setting and round (see ``frame``).
      banks: one row per setting and bank after the last round: scores on the bank's own test rows.
      partitions: one row per alpha, seed and bank: rows, positives, prevalence, KL, TVD.
      manifest: configuration, data, versions, timings and work, ready for JSON.
      params: final global models of the compared federations and the centralised ones, leaves ``[settings, ...]``,
        in the order of the column ``setting``.
      decisions: one row per setting and bank, and one for all banks together: alerts within a budget, cost,
        calibration, the largest bank's threshold (see ``evaluate.decision_table``).
    """

    rounds: pd.DataFrame
    banks: pd.DataFrame
    partitions: pd.DataFrame
    manifest: dict
    params: Any = None
    decisions: pd.DataFrame | None = None

    def frame(self) -> pd.DataFrame:
        """The tidy table: one row per setting and round, baselines included."""
        return self.rounds.copy()


class Part(NamedTuple):
    """A pool and the federations in it: those that are compared and the centralised ones, then banks alone."""

    pool: pool.Pool
    federations: list[Federation]
    alone: list[Federation]


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
    client_lr: float | Sequence[float] = 0.1,
    mu: float | Sequence[float] = 0.01,
    participation: float = 1.0,
    model: Model | None = None,
    partition_kind: str = "labels",
    partition_feature: str = "amount",
    baselines: bool = True,
    min_positives: int = 0,
    bank_sizes: Sequence[float] | None = None,
    bank_prevalences: Sequence[float] | None = None,
    policy: evaluate.Policy = evaluate.Policy(),  # noqa: B008 (it is immutable)
    devices: Sequence | None = None,
    num_lanes: int | None = None,
    chunk_length: int | None = None,
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
      num_clients: banks of a federation; a natural partition has as many as the silo column names, a controlled one
        as many as ``bank_sizes``.
      num_rounds, batch_size: communication rounds; rows of a local batch.
      num_epochs, client_lr, mu: a value, or several that are crossed. ``mu`` is FedProx's alone.
      participation: share of the banks with rows that take part in a round, in (0, 1].
      model: default ``models.mlp`` for the table's width.
      partition_kind: 'labels', 'feature', 'quantity', 'iid', 'natural' or 'controlled'.
      partition_feature: for 'feature': 'amount', 'hour', a feature's name or the prefix of one-hot columns.
      baselines: also run every bank alone, and one model on all rows.
      min_positives: for 'labels': training frauds that every bank must hold (see ``partition.dirichlet_labels``); of
        the test frauds each then holds as many in proportion, at least one if they are enough.
      bank_sizes, bank_prevalences: for 'controlled', one number for each bank: shares of the rows, and fraud rates of
        which the ratios count (see ``partition.controlled``); for training and test rows alike.
      policy: alert budgets and costs for the table ``decisions``.
      devices: default all devices of the process; settings are dealt to them.
      num_lanes, chunk_length: the packing (see ``packing``); chosen from the clients' sizes by default.
      progress: called with (what, done, total) as the work goes on.

    Returns: a ``SweepResult``.

    Raises: ValueError for any argument out of range, before any work.
    """
    began = time.perf_counter()
    progress = progress or (lambda what, done, total: None)
    if isinstance(seeds, int | np.integer):
        checks.check_count("seeds", seeds)
        seeds = range(seeds)
    seeds = list(seeds)
    client_lr, mu, num_epochs = grids.as_list(client_lr), grids.as_list(mu), grids.as_list(num_epochs)
    algorithms, alphas = grids.as_list(algorithms), grids.as_list(alphas)
    options = dict(
        algorithms=algorithms,
        alphas=alphas,
        seeds=seeds,
        num_clients=num_clients,
        num_rounds=num_rounds,
        num_epochs=num_epochs,
        batch_size=batch_size,
        client_lr=client_lr,
        mu=mu,
        participation=participation,
        partition_kind=partition_kind,
        min_positives=min_positives,
        bank_sizes=bank_sizes,
        bank_prevalences=bank_prevalences,
    )
    check_options(**options)
    evaluate.check_policy(policy)
    for name, value in (("num_lanes", num_lanes), ("chunk_length", chunk_length)):
        if value is not None:
            checks.check_count(name, value)
    _check_rows(train, test)

    cache.use_compilation_cache()
    mesh = hardware.settings_mesh(devices)
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
        banks=grids.Banks(min_positives, bank_sizes, bank_prevalences),
    )
    model = models.mlp(train.features.shape[1]) if model is None else model
    vector_model, unravel = models.as_vector(model)
    objective = Objective(vector_model.apply, batch_size=batch_size)
    test_set = score.make_test_set(test.features, test.labels)
    progress("compile", 0, 1)
    compile_began = time.perf_counter()
    start = _start_params(vector_model, seeds)
    packed = dict(num_lanes=num_lanes, chunk_length=chunk_length)
    parts = _make_parts(grid, objective, start, test_set, mesh, len(train.labels), participation, packed)
    data = hardware.replicate(_training_data(train, grid), mesh)
    test_features = hardware.replicate(test_set.features, mesh)
    compiled, score_banks = _compile(parts, grid, vector_model, data, test_set, test_features, num_rounds, mesh)
    timings = dict(compile_seconds=time.perf_counter() - compile_began)

    outcomes = _run(parts, compiled, data, test_features, num_rounds, progress)
    timings["run_seconds"] = sum(outcome.run_seconds for outcome in outcomes)
    outcomes, alone = _part_outcomes(parts, outcomes)
    params = np.concatenate([outcome.params for outcome in outcomes])
    progress("banks", 0, 1)
    score_began = time.perf_counter()
    rounds, bank_scores = _tables(parts, outcomes, alone, score_banks, params, grid, model, num_rounds, train, test)
    timings["table_seconds"] = time.perf_counter() - score_began
    progress("decisions", 0, 1)
    score_began, rules = time.perf_counter(), evaluate.make_rules(policy, test, test_set)
    jobs = score_banks[0][0]
    decisions = evaluate.decision_table(jobs, vector_model, params, test_set, test_features, mesh, rules)
    decisions.insert(4, "num_clients", jobs.num_banks)
    timings["decision_seconds"] = time.perf_counter() - score_began
    params = jax.tree.map(np.asarray, jax.vmap(unravel)(params))
    timings["total_seconds"] = time.perf_counter() - began

    config = options | dict(
        alphas=alphas if partition_kind in grids.SKEWED else [],
        num_clients=len(next(iter(grid.owners.values())).train.count),
        partition_feature=partition_feature if partition_kind == "feature" else None,
        baselines=baselines,
    )
    manifest = dict(
        config=config,
        data=describe_split(train, test) | dict(source=train.source, sha256=rows_digest(train, test)),
        model=dict(description=model.description, num_params=frames.model_size(model)[0]),
        versions=_versions(),
        devices=[str(device) for device in mesh.devices.flat],
        timings=timings,
        work=_work(parts, [*outcomes, *alone], timings["run_seconds"], num_rounds, mesh)
        | dict(num_federations=len(grid.federations)),
        diverged_loss_ratio=frames.DIVERGED_LOSS_RATIO,
        decisions=rules.record(),
    )
    partitions = frames.partition_table(grid, train)
    if partition_kind == "natural":
        names = dict(enumerate(grids.bank_names(train)))
        bank_scores["bank"], partitions["bank"] = bank_scores.client.map(names), partitions.client.map(names)
    return SweepResult(rounds, bank_scores, partitions, manifest, params, decisions)


def check_options(
    *,
    algorithms: Sequence[str],
    alphas: Sequence[float],
    seeds: Sequence[int],
    num_clients: int,
    num_rounds: int,
    num_epochs: Sequence[int],
    batch_size: int,
    client_lr: Sequence[float],
    mu: Sequence[float],
    participation: float,
    partition_kind: str,
    min_positives: int = 0,
    bank_sizes: Sequence[float] | None = None,
    bank_prevalences: Sequence[float] | None = None,
) -> None:
    """Raises ValueError for an option of ``sweep`` that no table could make right; needs no data."""
    checks.check_choice("algorithms", algorithms, list(ALGORITHMS))
    checks.check_numbers("alphas", alphas)
    checks.check_numbers("client_lr", client_lr)
    checks.check_numbers("mu", mu, positive=False)
    checks.check_distinct("seeds", seeds)
    for seed in seeds:
        checks.check_seed(seed)
    checks.check_distinct("num_epochs", num_epochs)
    for epochs in num_epochs:
        checks.check_count("num_epochs", epochs)
    for name, value in (("num_clients", num_clients), ("num_rounds", num_rounds), ("batch_size", batch_size)):
        checks.check_count(name, value)
    checks.check_participation(participation)
    checks.check_choice("partition_kind", [partition_kind], grids.PARTITIONS)
    grids.check_banks(partition_kind, grids.Banks(min_positives, bank_sizes, bank_prevalences))


def _check_rows(train: Transactions, test: Transactions) -> None:
    """Raises ValueError for tables that nothing can be learned from."""
    checks.check_rows("train", train.features, train.labels)
    checks.check_rows("test", test.features, test.labels)
    checks.check_width(train.features.shape[1], test.features.shape[1])
    if not train.labels.any():
        raise ValueError("`train` has no positive labels, got 0 frauds. Use more rows, or split at an earlier time.")


# ---- programs ---------------------------------------------------------------------------------------------------


def _start_params(model: Model, seeds: Sequence[int]) -> dict:
    """seed -> the first global model ``[parameters]``, the same for every algorithm."""
    # It runs once: optimising it would take longer than running it.
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    start = jax.jit(jax.vmap(lambda seed: model.init(jax.random.key(seed))), compiler_options=options)
    return dict(zip(seeds, np.asarray(start(np.array(seeds, np.uint32))), strict=True))


def _make_parts(
    grid: Grid,
    objective: Objective,
    start: dict,
    test_set: score.TestSet,
    mesh: Mesh,
    num_train: int,
    participation: float,
    packed: dict,
) -> list[Part]:
    """One pool for each ``build``; the centralised runs ride along with FedAvg, banks alone are K = 1."""
    averaging = ALGORITHMS[BASELINE].build
    groups: dict[Callable, list[Federation]] = {}
    for federation in grid.federations:
        groups.setdefault(ALGORITHMS[federation.algorithm].build, []).append(federation)
    if grid.centralised:
        groups.setdefault(averaging, []).extend(grid.centralised)

    def make(build, group, alone, num_clients):
        settings = _settings(grid, group + alone, num_clients, num_train=num_train, participation=participation)
        first = [start[federation.seed] for federation in group + alone]
        params = np.stack(first)
        every_round = np.arange(len(group + alone)) < len(group)
        made = pool.make_pool(build, objective, settings, params, test_set, mesh, every_round, **packed)
        return Part(made, group, alone)

    num_clients = len(next(iter(grid.owners.values())).train.count)
    # Banks alone need one client each; in a pool of wider settings the others stand empty, which costs memory but
    # saves a compilation.
    together = averaging in groups and num_clients <= MAX_CLIENTS_TOGETHER
    parts = [
        make(build, group, grid.local_only if together and build is averaging else [], num_clients)
        for build, group in groups.items()
    ]
    if grid.local_only and not together:
        parts.append(make(averaging, [], grid.local_only, 1))
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
    return make_training_data(train.features, train.labels, orders)


def _compile(parts, grid, model, data, test_set, test_features, num_rounds, mesh):
    """All programs: one for each part, and the bank scores of the shared and of the local models.

    They are traced here, one after the other, because tracing needs the interpreter's lock and the caller's JAX
    configuration; XLA compiles each in a thread of its own meanwhile.
    """
    with concurrent.futures.ThreadPoolExecutor() as executor:
        pools = [
            executor.submit(pool.lower_pool(part.pool, data, test_features, num_rounds, mesh).compile) for part in parts
        ]
        jobs = [banks.make_jobs(grid, [federation for part in parts for federation in part.federations], test_set)]
        if grid.local_only:
            jobs.append(banks.make_jobs(grid, grid.local_only, test_set, alone=True))
        scores = [
            executor.submit(banks.lower_scores(job, model, test_set, test_features, mesh).compile) for job in jobs
        ]
        compiled = [future.result() for future in pools]
        return compiled, [(job, future.result()) for job, future in zip(jobs, scores, strict=True)]


def _part_outcomes(parts, outcomes) -> tuple[list[pool.Outcome], list[pool.Outcome]]:
    """Outcomes of the shared federations, one for each part that has any, and that of the banks alone, if they ran."""
    shared, alone = [], []
    for part, outcome in zip(parts, outcomes, strict=True):
        num = len(part.federations)
        if num:
            shared.append(pool.take_federations(outcome, slice(None, num)))
        if part.alone:
            alone.append(pool.take_federations(outcome, slice(num, None)))
    return shared, alone


def _run(parts, compiled, data, test_features, num_rounds, progress) -> list[pool.Outcome]:
    """Runs the programs one after the other; progress counts settings x rounds."""
    total = sum(len(part.federations + part.alone) for part in parts) * num_rounds
    done, outcomes = 0, []
    for part, program in zip(parts, compiled, strict=True):
        num_settings, finished = len(part.federations + part.alone), done

        def on_rounds(num, num_settings=num_settings):
            nonlocal finished
            finished += num * num_settings
            progress("rounds", finished, total)

        outcomes.append(pool.run_pool(part.pool, program, data, test_features, num_rounds, on_rounds))
        done += num_rounds * num_settings
    return outcomes


def _tables(parts, outcomes, alone, score_banks, params, grid, model, num_rounds, train, test):
    """The tidy tables of rounds and of banks."""
    _, model_bytes = frames.model_size(model)
    rounds, first = [], 0
    for part, outcome in zip((part for part in parts if part.federations), outcomes, strict=True):
        rounds.append(frames.round_table(grid, part.federations, outcome.history, num_rounds, model_bytes, first))
        first += len(part.federations)
    (jobs, scores), *local_scores = score_banks
    tables = [banks.bank_table(grid, jobs, scores(params), train, test, 0)]
    for (jobs, scores), outcome in zip(local_scores, alone, strict=True):
        rounds.append(frames.local_table(grid.local_only, outcome.history, num_rounds, first))
        tables.append(banks.bank_table(grid, jobs, scores(outcome.params), train, test, first))
    num_clients = len(next(iter(grid.owners.values())).train.count)
    tables = [pd.concat(parts, ignore_index=True) for parts in (rounds, tables)]
    for table in tables:
        table.insert(4, "num_clients", num_clients)
    return tables


# ---- record -----------------------------------------------------------------------------------------------------


def rows_digest(train: Transactions, test: Transactions) -> str:
    """A digest of all features and labels, as trained and scored on."""
    digest = hashlib.sha256()
    for rows in (train, test):
        digest.update(np.ascontiguousarray(rows.features).data.cast("B"))
        digest.update(np.ascontiguousarray(rows.labels).data.cast("B"))
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


def _work(parts, outcomes, run_seconds: float, num_rounds: int, mesh: Mesh) -> dict:
    """What was trained, and how well it was packed (steps: as if everybody took part)."""
    rows_trained = int(sum(np.sum(outcome.history.num_rows, dtype=np.int64) for outcome in outcomes))
    works = [pool.pool_work(part.pool, num_rounds, mesh.devices.size) for part in parts]
    return dict(
        num_programs=len(parts),
        rows_trained=rows_trained,
        rows_per_second=rows_trained / max(run_seconds, 1e-9),
        useful_steps=sum(work.useful for work in works),
        executed_steps=sum(work.executed for work in works),
        padded_steps=sum(work.padded for work in works),
    )
