"""Many federations at once: the grid, the programs it needs, their run, and the tables that come out."""

import concurrent.futures
import functools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from fedjax_fraud import accountant, banks, cache, checks, evaluate, frames, models, plan, pool, record, score
from fedjax_fraud import devices as hardware
from fedjax_fraud import grid as grids
from fedjax_fraud.algorithms import ALGORITHMS, build_with
from fedjax_fraud.checkpoint import Checkpoint
from fedjax_fraud.conditions import CLIP_NORM, FAULTS
from fedjax_fraud.data import describe_split
from fedjax_fraud.files import strict_json
from fedjax_fraud.local import Objective
from fedjax_fraud.logits import lower_logits
from fedjax_fraud.parts import Part, Speeds, make_parts, start_params, training_data
from fedjax_fraud.program import History
from fedjax_fraud.progress import Counter
from fedjax_fraud.types import Model, Transactions

MAX_STATE_ERROR = 1e-3  # rounding leaves 1e-6


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

    def __repr__(self) -> str:
        config = self.manifest.get("config", {})
        parts = [
            f"{', '.join(self.rounds['algorithm'].unique())}",
            f"{self.rounds['setting'].nunique():,} settings of {config.get('num_clients', '?')} banks",
            f"{config.get('num_rounds', '?')} rounds",
        ]
        return f"SweepResult({'; '.join(parts)}; source={self.manifest.get('data', {}).get('source')!r})"

    def frame(self) -> pd.DataFrame:
        """The tidy table: one row per setting and round, baselines included."""
        return self.rounds.copy()

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "SweepResult":
        """The result that ``report.write`` put into a folder, every file checked against its SHA-256.

        Tables and models come back to the bit. Models come back in dicts, lists and tuples (see ``report.params``).

        Raises: ValueError that names the folder and the file that is missing, damaged, or of another schema.
        """
        from fedjax_fraud.report import store  # as in ``ff.report``: only who reads waits for it

        return cls(**store.load(folder)._asdict())


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
    server_lr: float | Sequence[float] | None = None,
    client_optimizer: str = "sgd",
    participation: float | Sequence[float] = 1.0,
    cohort: str | Sequence[str] = "uniform",
    stragglers: float | Sequence[float] = 0.0,
    straggler_work: tuple[float, float] = (0.05, 0.95),
    policy: str | Sequence[str] = "wait",
    deadline: float | Sequence[float] = math.inf,
    drop_before: float | Sequence[float] = 0.0,
    drop_after: float | Sequence[float] = 0.0,
    fault: str | Sequence[str] = "none",
    fault_rate: float | Sequence[float] = 0.0,
    max_update_norm: float | None = None,
    noise_multiplier: float | Sequence[float] = 0.0,
    clip_norm: float | Sequence[float] = CLIP_NORM,
    delta: float = 1e-6,
    available: np.ndarray | None = None,
    step_seconds: float | Sequence[float] = 0.001,
    bytes_per_second: float | Sequence[float] = 12.5e6,
    latency_seconds: float | Sequence[float] = 0.05,
    diagnostics: bool = False,
    model: Model | None = None,
    partition_kind: str = "labels",
    partition_feature: str = "amount",
    baselines: bool = True,
    min_positives: int = 0,
    bank_sizes: Sequence[float] | None = None,
    bank_prevalences: Sequence[float] | None = None,
    alerts: evaluate.Policy = evaluate.STANDARD,
    devices: Sequence | None = None,
    num_lanes: int | None = None,
    chunk_length: int | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    dry_run: bool = False,
) -> SweepResult | plan.Plan:
    """Runs algorithms x alphas x hyperparameters x seeds; federations of one structure share one compiled program.

    The same seed gives every algorithm the same partition, start, cohorts and batches, so that they can be compared
    in pairs.

    Args:
      train, test: as ``data.split`` returns them; both need frauds and genuine rows.
      algorithms: names from ``algorithms.ALGORITHMS``.
      alphas: Dirichlet concentrations, above 0; smaller = more skew. Unused by 'iid' and 'natural' partitions.
      seeds: how many (0, 1, ...), or which. A sweep holds at most a million clients in all settings together.
      num_clients: banks of a federation; a natural partition has as many as the silo column names, a controlled one
        as many as ``bank_sizes``.
      num_rounds, batch_size: communication rounds; rows of a local batch.
      num_epochs, client_lr: a value, or several that are crossed.
      mu: strength of the pull of FedProx, and of FedDyn and Ditto (their alpha and lambda); a value or several.
      server_lr: rate of the server optimizers (FedAvgM, FedAdagrad, FedAdam, FedYogi); default each method's own.
      client_optimizer: 'sgd', 'momentum' or 'adam'; methods that need plain SGD refuse the others.
      participation, cohort, stragglers, policy, deadline, drop_before, drop_after, fault, fault_rate: what goes wrong,
        see ``conditions.Conditions``: a value, or several that are crossed.
      straggler_work, max_update_norm: see there; one value.
      noise_multiplier, clip_norm: noise of private local gradients over the largest norm of a row's gradient, and that
        norm (see ``privacy``); a value, or several that are crossed. Without noise nothing is clipped.
      delta: probability with which the table of banks' ``epsilon`` may fail (see ``accountant``).
      available: ``[rounds, banks]`` bool, which bank can be reached in which round.
      step_seconds, bytes_per_second, latency_seconds: the simulated clock: a local step, a bank's line each way, and
        what a round costs beside them; a value, or one for each bank.
      diagnostics: also measure gradient dissimilarity and inexactness (see ``diagnostics``).
      model: default ``models.mlp`` for the table's width.
      partition_kind: 'labels', 'feature', 'quantity', 'iid', 'natural' or 'controlled'.
      partition_feature: for 'feature': 'amount', 'hour', a feature's name or the prefix of one-hot columns.
      baselines: also run every bank alone, and one model on all rows.
      min_positives: for 'labels': training frauds that every bank must hold (see ``partition.dirichlet_labels``); of
        the test frauds each then holds as many in proportion, at least one if they are enough.
      bank_sizes, bank_prevalences: for 'controlled', one number for each bank: shares of the rows, and fraud rates of
        which the ratios count (see ``partition.controlled``); for training and test rows alike.
      alerts: alert budgets and costs for the table ``decisions``.
      devices: default all devices of the process; settings are dealt to them.
      num_lanes, chunk_length: the packing (see ``packing``); chosen from the clients' sizes by default.
      checkpoint: a folder in which the run is kept, at most every two seconds; None = nowhere. It stays there when the
        run is finished: remove it once the result is stored.
      resume: go on from that folder, to the same bits; refused if anything was asked for differently.
      progress: called with (what, done, total) as the work goes on. If it has a method ``pace``, that is told before
        each call about rounds how fast they are (see ``progress.Pace``; ``progress.Display`` shows it).
      dry_run: check everything, lay the work out and return a ``plan.Plan`` of it: nothing is trained or written. Of
        very many seeds it lays out some, and its counts are estimates.

    Returns: a ``SweepResult``, or with ``dry_run`` a ``plan.Plan``.

    Raises: ValueError for any argument out of range, before any work.

    Example: two seeds of two alphas, FedAvg against FedProx.
      >>> from fedjax_fraud import data, models
      >>> train, test = data.split(data.paysim_like(500, seed=0, fraud_rate=0.1))
      >>> model = models.logistic_regression(train.features.shape[1])
      >>> small = dict(alphas=(0.1, 1.0), seeds=2, num_rounds=2, baselines=False, model=model)
      >>> result = sweep(train, test, algorithms=("fedavg", "fedprox"), **small)
      >>> len(result.rounds)  # 2 algorithms x 2 alphas x 2 seeds x 2 rounds
      16
    """
    began = time.perf_counter()
    progress = progress or (lambda what, done, total: None)
    if isinstance(seeds, int | np.integer):
        checks.check_count("seeds", seeds, most=checks.NUM_SEEDS)
        seeds = range(seeds)
    seeds = seeds if isinstance(seeds, range) else list(seeds)  # a list only once it is known to be short
    client_lr, mu, num_epochs = grids.as_list(client_lr), grids.as_list(mu), grids.as_list(num_epochs)
    algorithms, alphas = grids.as_list(algorithms), grids.as_list(alphas)
    server_lr = None if server_lr is None else grids.as_list(server_lr)
    crossed = dict(
        participation=grids.as_list(participation),
        cohort=grids.as_list(cohort),
        stragglers=grids.as_list(stragglers),
        policy=grids.as_list(policy),
        deadline=grids.as_list(deadline),
        drop_before=grids.as_list(drop_before),
        drop_after=grids.as_list(drop_after),
        fault=grids.as_list(fault),
        fault_rate=grids.as_list(fault_rate),
        noise_multiplier=grids.as_list(noise_multiplier),
        clip_norm=grids.as_list(clip_norm),
    )
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
        server_lr=server_lr,
        client_optimizer=client_optimizer,
        **crossed,
        straggler_work=straggler_work,
        max_update_norm=max_update_norm,
        partition_kind=partition_kind,
        min_positives=min_positives,
        bank_sizes=bank_sizes,
        bank_prevalences=bank_prevalences,
        delta=delta,
    )
    check_options(**options)
    options["seeds"] = seeds = list(seeds)
    speeds = Speeds(step_seconds, bytes_per_second, latency_seconds)
    evaluate.check_policy(alerts)
    for name, value in (("num_lanes", num_lanes), ("chunk_length", chunk_length)):
        if value is not None:
            checks.check_count(name, value)
    _check_rows(train, test)

    if checkpoint is not None and jax.process_count() > 1:
        raise ValueError("`checkpoint` needs a single process, got several. Leave it out (--no-checkpoint).")
    if not dry_run:
        cache.use_compilation_cache()
    mesh = hardware.settings_mesh(devices)
    progress("partitions", 0, 1)
    make_grid = functools.partial(
        grids.make_grid,
        train,
        test,
        algorithms=algorithms,
        alphas=alphas,
        num_clients=num_clients,
        client_lrs=client_lr,
        mus=mu,
        num_epochs=num_epochs,
        partition_kind=partition_kind,
        partition_feature=partition_feature,
        baselines=baselines,
        server_lrs=server_lr,
        conditions=grids.cross_conditions(straggler_work, max_update_norm, **crossed),
        banks=grids.Banks(min_positives, bank_sizes, bank_prevalences),
    )
    if dry_run:
        grid, sample = plan.sample_grid(make_grid, seeds, len(train.labels) + len(test.labels))
    else:
        grid = make_grid(seeds=seeds)
    num_clients = grid.num_clients
    _check_banks(num_clients, num_rounds, speeds, available)
    model = models.mlp(train.features.shape[1]) if model is None else model
    models.check_fits(model, None, train.features.shape[1])
    vector_model, unravel = models.as_vector(model)
    objective = Objective(vector_model.apply, batch_size=batch_size, tapped=vector_model.tapped)
    test_set = score.make_test_set(test.features, test.labels)
    config = options | dict(
        alphas=alphas if partition_kind in grids.SKEWED else [],
        num_clients=num_clients,
        partition_feature=partition_feature if partition_kind == "feature" else None,
        baselines=baselines,
        available=None if available is None else "a table of rounds and banks",
        diagnostics=diagnostics,
        **{name: np.asarray(value).tolist() for name, value in speeds._asdict().items()},
    )
    digest = record.rows_digest(train, test)
    progress("compile", 0, 1)
    compile_began = time.perf_counter()
    parts = make_parts(
        grid,
        objective,
        start_params(vector_model, list(dict.fromkeys(seed for _, seed in grid.owners))),
        test_set,
        mesh,
        client_optimizer=client_optimizer,
        speeds=speeds,
        available=None if available is None else np.asarray(available, bool),
        diagnostics=diagnostics,
        num_lanes=num_lanes,
        chunk_length=chunk_length,
    )
    if dry_run:
        progress("probe", 0, 1)
        rows, model_bytes = training_data(train, grid), frames.model_size(model)[1]
        return plan.make_plan(grid, parts, train, test_set, rows, num_rounds, model_bytes, mesh, sample)
    kept = None
    if checkpoint is not None:
        identity = record.identity(config, digest, model, available, parts, mesh)
        kept = Checkpoint(checkpoint, identity, resume=resume)
    data = hardware.replicate(training_data(train, grid), mesh)
    test_features = hardware.replicate(test_set.features, mesh)
    bank_jobs = _bank_jobs(parts, grid, test_set)
    compiled, logits = _compile(parts, grid, vector_model, data, test_set, test_features, num_rounds, mesh)
    timings = dict(compile_seconds=time.perf_counter() - compile_began)

    outcomes = _run(parts, compiled, data, test_features, num_rounds, progress, kept, mesh)
    timings["run_seconds"] = sum(outcome.run_seconds for outcome in outcomes)
    outcomes, alone = _part_outcomes(parts, outcomes)
    for part, outcome in zip((part for part in parts if part.federations), outcomes, strict=True):
        check_states(part.federations, outcome.history)
    params = np.concatenate([outcome.params for outcome in outcomes])
    progress("banks", 0, 1)
    score_began = time.perf_counter()
    found = (parts, outcomes, alone, bank_jobs, logits, params)
    rounds, bank_scores = _tables(*found, grid, model, num_rounds, train, test)
    bank_scores = grids.with_bank_names(bank_scores, grid.names)
    bank_scores = accountant.with_epsilon(bank_scores, num_rounds, batch_size, delta)
    timings["table_seconds"] = time.perf_counter() - score_began
    progress("decisions", 0, 1)
    score_began, rules = time.perf_counter(), evaluate.make_rules(alerts, test, test_set)
    jobs = bank_jobs[0].jobs
    decisions = evaluate.decision_table(jobs, logits(params), test_set, rules)
    decisions.insert(4, "num_clients", jobs.num_banks)
    timings["decision_seconds"] = time.perf_counter() - score_began
    params = jax.tree.map(np.asarray, jax.vmap(unravel)(params))
    timings["total_seconds"] = time.perf_counter() - began

    manifest = dict(
        config=config,
        data=describe_split(train, test) | dict(source=train.source, sha256=digest),
        model=dict(description=model.description, num_params=frames.model_size(model)[0]),
        versions=record.versions(),
        devices=[str(device) for device in mesh.devices.flat],
        timings=timings,
        work=record.work_done(parts, [*outcomes, *alone], timings["run_seconds"], num_rounds, mesh)
        | dict(num_federations=len(grid.federations)),
        diverged_loss_ratio=frames.DIVERGED_LOSS_RATIO,
        decisions=rules.record(),
        privacy=accountant.record(delta) if "epsilon" in bank_scores else None,
    )
    partitions = frames.partition_table(grid, train)
    manifest = json.loads(strict_json(manifest))  # as it will be read back
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
    server_lr: Sequence[float] | None,
    client_optimizer: str,
    straggler_work: tuple[float, float],
    max_update_norm: float | None,
    partition_kind: str,
    min_positives: int = 0,
    bank_sizes: Sequence[float] | None = None,
    bank_prevalences: Sequence[float] | None = None,
    delta: float = 1e-6,
    **crossed: Sequence,
) -> None:
    """Raises ValueError for an option of ``sweep`` that no table could make right; needs no data."""
    checks.check_choice("algorithms", algorithms, list(ALGORITHMS))
    private = any(noise != 0 for noise in crossed["noise_multiplier"])
    for name in algorithms:
        build_with(name, client_optimizer, private)
    checks.check_numbers("alphas", alphas)
    checks.check_numbers("client_lr", client_lr)
    checks.check_numbers("mu", mu, positive=False)
    if server_lr is not None:
        checks.check_numbers("server_lr", server_lr)
    checks.check_distinct("num_epochs", num_epochs)
    for epochs in num_epochs:
        checks.check_count("num_epochs", epochs)
    for name, value in (("num_clients", num_clients), ("num_rounds", num_rounds), ("batch_size", batch_size)):
        checks.check_count(name, value)
    if not 0 < delta < 1:
        raise ValueError(f"`delta` must be in (0, 1), got {delta!r}. Less than one over the number of rows is usual.")
    if private:
        accountant.check_installed()
    for name, values in crossed.items():
        checks.check_distinct(name, values)
    numbers = {name: len(values) for name, values in crossed.items()}
    grids.check_size(math.prod(numbers.values()), 1, numbers)  # before they are crossed
    conditions = grids.cross_conditions(straggler_work, max_update_norm, **crossed)  # also for what it refuses
    _check_used(algorithms, server_lr, crossed)
    checks.check_choice("partition_kind", [partition_kind], grids.PARTITIONS)
    grids.check_banks(partition_kind, grids.Banks(min_positives, bank_sizes, bank_prevalences))
    lists = dict(algorithms=algorithms, alphas=alphas if partition_kind in grids.SKEWED else [math.nan])
    lists |= dict(client_lr=client_lr, mu=mu, num_epochs=num_epochs, server_lr=server_lr)
    num_settings = grids.settings_per_seed(**lists, num_conditions=len(conditions)) * len(seeds)
    numbers |= {name: len(values) for name, values in (lists | dict(seeds=seeds)).items() if values is not None}
    num_clients = {"natural": 1, "controlled": len(bank_sizes or ())}.get(partition_kind, num_clients)
    grids.check_size(num_settings, num_clients, numbers)
    checks.check_distinct("seeds", seeds)
    for seed in seeds:
        checks.check_seed(seed)


def _check_used(algorithms: Sequence[str], server_lr: Sequence[float] | None, crossed: Mapping[str, Sequence]) -> None:
    """Raises ValueError for an option that no setting would use."""
    if server_lr is not None and not any("server_lr" in ALGORITHMS[name].tuned for name in algorithms):
        known = ", ".join(name for name, entry in ALGORITHMS.items() if "server_lr" in entry.tuned)
        raise ValueError(f"`server_lr` {list(server_lr)} is used by {known} only, none of which is asked for. Add one.")
    clips = list(crossed["clip_norm"])
    if clips != [CLIP_NORM] and all(noise == 0 for noise in crossed["noise_multiplier"]):
        raise ValueError(f"`clip_norm` {clips} has no use without noise. Add a `noise_multiplier`, or leave it out.")
    rates, faults = crossed["fault_rate"], crossed["fault"]
    if any(rate != 0 for rate in rates) and list(faults) == ["none"]:
        kinds = ", ".join(FAULTS[1:])
        raise ValueError(f"`fault_rate` {list(rates)} needs a `fault`, got none. Choose {kinds}.")
    if any(fault != "none" for fault in faults) and all(rate == 0 for rate in rates):
        raise ValueError(
            f"`fault` {list(faults)} needs a `fault_rate` above 0, got {list(rates)}. Pass for example 0.1."
        )


def _check_banks(num_clients: int, num_rounds: int, speeds: Speeds, available: np.ndarray | None) -> None:
    """Raises ValueError for a clock or a trace that does not fit the banks."""
    for name, value in speeds._asdict().items():
        checks.check_clock(name, value, num_clients)
    if not np.all(np.asarray(speeds.bytes_per_second) > 0):
        raise ValueError(
            f"`bytes_per_second` must be above 0, got {speeds.bytes_per_second!r}. A bank without a line sends nothing."
        )
    if available is not None:
        checks.check_available(np.asarray(available), (num_rounds, num_clients))


def check_states(federations: Sequence[grids.Federation], history: History) -> None:
    """Raises RuntimeError if an algorithm's invariant broke in a setting that did not diverge.

    Rounding is relative to the largest state so far: controls that were huge for a round leave an error behind that is
    large beside them later, and means nothing. Nor does the state say anything after a divergence.
    """
    with np.errstate(invalid="ignore"):
        error = np.asarray(history.state_error, np.float64) * history.state_size
        error /= np.maximum(np.maximum.accumulate(history.state_size, axis=0), np.finfo(np.float32).tiny)
    error = np.where(np.isfinite(error), error, 0).max(axis=0)
    broken = np.flatnonzero((error > MAX_STATE_ERROR) & ~frames.has_diverged(history.log_loss))
    if broken.size:
        which = federations[broken[0]]
        raise RuntimeError(
            f"The state of {which.algorithm} at alpha {which.alpha:g}, seed {which.seed} broke its invariant by "
            f"{error[broken[0]]:.2g} of its size (in {broken.size} settings). The result cannot be trusted: please "
            "report it."
        )


def _check_rows(train: Transactions, test: Transactions) -> None:
    """Raises ValueError for tables that nothing can be learned from, or nothing measured on."""
    for name, table in (("train", train), ("test", test)):
        if not isinstance(table, Transactions):
            raise ValueError(
                f"`{name}` must be Transactions, as `data.split` returns them, got {type(table).__name__}. Load the "
                "rows with `data.load_table` and split them."
            )
    checks.check_rows("train", train.features, train.labels)
    checks.check_rows("test", test.features, test.labels)
    checks.check_width(train.features.shape[1], test.features.shape[1])
    checks.check_classes("train", train.labels)
    checks.check_classes("test", test.labels)


class BankJobs(NamedTuple):
    """Models to be scored by bank.

    Attributes:
      jobs: see ``banks``.
      part: the part whose personal models they are; None for the models of all federations, or of the banks alone.
    """

    jobs: banks.Jobs
    part: Part | None = None


def _bank_jobs(parts: Sequence[Part], grid: grids.Grid, test_set: score.TestSet) -> list[BankJobs]:
    """The shared models of all federations, the personal ones, those of banks alone."""
    jobs = [BankJobs(banks.make_jobs(grid, [one for part in parts for one in part.federations], test_set))]
    for part in parts:
        if part.has_personal:
            jobs.append(BankJobs(banks.make_jobs(grid, part.federations, test_set, personal=True), part))
    if grid.local_only:
        jobs.append(BankJobs(banks.make_jobs(grid, grid.local_only, test_set, alone=True)))
    return jobs


def _compile(parts, grid, model, data, test_set, test_features, num_rounds, mesh):
    """All programs: one for each part, and the logits of finished models.

    They are traced here, one after the other, because tracing needs the interpreter's lock and the caller's JAX
    configuration; XLA compiles each in a thread of its own meanwhile.
    """
    num_clients = grid.num_clients
    num_models = [sum(len(part.federations) for part in parts)]
    num_models += [len(part.federations) * num_clients for part in parts if part.has_personal]
    num_models += [len(grid.local_only)] if grid.local_only else []
    with concurrent.futures.ThreadPoolExecutor() as executor:
        pools = [
            executor.submit(pool.lower_pool(part.pool, data, test_features, num_rounds, mesh).compile) for part in parts
        ]
        logits = executor.submit(lower_logits(model, num_models, test_set, test_features, mesh).compile)
        return [future.result() for future in pools], logits.result()


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


def _run(parts, compiled, data, test_features, num_rounds, progress, kept, mesh) -> list[pool.Outcome]:
    """Runs the programs one after the other; progress counts settings x rounds."""
    counter = Counter(
        progress,
        [len(part.federations + part.alone) for part in parts],
        [pool.pool_work(part.pool, num_rounds, mesh.devices.size).executed for part in parts],
        num_rounds,
    )
    return [
        pool.run_pool(
            part.pool,
            program,
            data,
            test_features,
            num_rounds,
            functools.partial(counter.on_rounds, place),
            kept,
            name=f"program-{place}",
        )
        for place, (part, program) in enumerate(zip(parts, compiled, strict=True))
    ]


def _tables(parts, outcomes, alone, bank_jobs, logits, params, grid, model, num_rounds, train, test):
    """The tidy tables of rounds and of banks.

    Banks that have models of their own (Ditto) are scored by these; the pooled scores are the global model's.
    """
    _, model_bytes = frames.model_size(model)
    rounds, first_of, first = [], {}, 0
    shared = [part for part in parts if part.federations]
    for part, outcome in zip(shared, outcomes, strict=True):
        rounds.append(frames.round_table(grid, part.federations, outcome.history, num_rounds, model_bytes, first))
        first_of[id(part)] = first, outcome
        first += len(part.federations)

    def scored(jobs, params, first_setting):
        scores = banks.score_jobs(jobs, logits(params), int(test.labels.sum()))
        return banks.bank_table(grid, jobs, scores, train, test, first_setting)

    everybody, *others = bank_jobs
    tables = [scored(everybody.jobs, params, 0)]
    for jobs, part in others:
        if part is None:
            (outcome,) = alone
            rounds.append(frames.local_table(grid.local_only, outcome.history, num_rounds, first))
            tables.append(scored(jobs, outcome.params, first))
            continue
        number, outcome = first_of[id(part)]
        own = scored(jobs, outcome.personal.reshape(-1, *outcome.personal.shape[2:]), number)
        tables[0] = pd.concat([tables[0][~tables[0].setting.isin(own.setting)], own], ignore_index=True)
    num_clients = grid.num_clients
    tables = [pd.concat(parts, ignore_index=True) for parts in (rounds, tables)]
    for table in tables:
        table.insert(4, "num_clients", num_clients)
    return tables
