"""From the grid to pools: the federations that share a program, as arrays, with their first models."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from fedjax_fraud import algorithms, conditions, pool, score
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.conditions import Clock
from fedjax_fraud.grid import CENTRALISED, Federation, Grid
from fedjax_fraud.local import Objective, TrainingData, make_training_data
from fedjax_fraud.program import Settings
from fedjax_fraud.types import Model, Transactions

BASELINE = "fedavg"
MAX_CLIENTS_TOGETHER = 8
HYPER = ("client_lr", "mu", "server_lr")
PRIVACY = ("clip_norm", "noise_multiplier")


class Part(NamedTuple):
    """A pool and the federations in it: those that are compared and the centralised ones, then banks alone."""

    pool: pool.Pool
    federations: list[Federation]
    alone: list[Federation]

    @property
    def has_personal(self) -> bool:
        """Whether every client also has a model of its own."""
        hyper = {name: values[0] for name, values in self.pool.settings.hyper.items()}
        return self.pool.program.build(hyper).correct_personal is not None


class Speeds(NamedTuple):
    """The simulated clock of the banks; each a number, or ``[clients]``.

    Attributes:
      step_seconds: of a local step.
      bytes_per_second: of a bank's line, each way.
      latency_seconds: what a round costs beside steps and bytes.
    """

    step_seconds: float | Sequence[float] = 0.001
    bytes_per_second: float | Sequence[float] = 12.5e6
    latency_seconds: float | Sequence[float] = 0.05


NOMINAL = Speeds()


def start_params(model: Model, seeds: Sequence[int]) -> dict[int, np.ndarray]:
    """seed -> the first global model ``[parameters]``, the same for every algorithm."""
    # It runs once: optimising it would take longer than running it.
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    start = jax.jit(jax.vmap(lambda seed: model.init(jax.random.key(seed))), compiler_options=options)
    return dict(zip(seeds, np.asarray(start(np.array(seeds, np.uint32))), strict=True))


def training_data(train: Transactions, grid: Grid) -> TrainingData:
    """The rows, and one order of them for each (alpha, seed)."""
    orders = np.stack([owners.train.order for owners in grid.owners.values()]).astype(np.int32)
    return make_training_data(train.features, train.labels, orders)


def make_parts(
    grid: Grid,
    objective: Objective,
    start: dict[int, np.ndarray],
    test_set: score.TestSet,
    mesh: Mesh,
    *,
    client_optimizer: str,
    speeds: Speeds,
    available: np.ndarray | None,
    **pool_options: Any,
) -> list[Part]:
    """One pool for each ``build``; the centralised runs ride along with FedAvg, banks alone are K = 1."""

    def build_of(federation: Federation) -> Callable:
        name = federation.algorithm if federation.algorithm in ALGORITHMS else BASELINE
        return algorithms.build_with(name, client_optimizer, conditions.is_private(federation.conditions))

    groups: dict[Callable, list[Federation]] = {}
    for federation in [*grid.federations, *grid.centralised]:
        groups.setdefault(build_of(federation), []).append(federation)
    averaging = algorithms.build_with(BASELINE, client_optimizer)
    model_bytes = next(iter(start.values())).nbytes
    has_trace = available is not None

    def make(build: Callable, group: list[Federation], alone: list[Federation], num_clients: int) -> Part:
        every = group + alone
        settings = make_settings(grid, every, num_clients, speeds=speeds, model_bytes=model_bytes, has_trace=has_trace)
        params = np.stack([start[federation.seed] for federation in every])
        every_round = np.arange(len(every)) < len(group)
        made = pool.make_pool(
            build, objective, settings, params, test_set, mesh, every_round, available=available, **pool_options
        )
        return Part(made, group, alone)

    num_clients = grid.num_clients
    # Banks alone need one client each; in a pool of wider settings the others stand empty, which costs memory but
    # saves a compilation.
    together = averaging in groups and num_clients <= MAX_CLIENTS_TOGETHER
    parts = [
        make(build, group, grid.local_only if together and build == averaging else [], num_clients)
        for build, group in groups.items()
    ]
    if grid.local_only and not together:
        parts.append(make(averaging, [], grid.local_only, 1))
    return parts


def make_settings(
    grid: Grid,
    federations: Sequence[Federation],
    num_clients: int,
    *,
    speeds: Speeds = NOMINAL,
    model_bytes: int = 0,
    has_trace: bool = False,
) -> Settings:
    """The federations as host arrays. ``orders`` row i belongs to the i-th (alpha, seed) of the grid."""
    partition_id, start, count, client_id = _who_owns_what(grid, federations, num_clients)
    traced = [has_trace and federation.algorithm in ALGORITHMS for federation in federations]
    return Settings(
        hyper=_hyperparameters(federations),
        seed=np.array([federation.seed for federation in federations], np.uint32),
        num_epochs=np.array([federation.num_epochs for federation in federations], np.int32),
        participation=np.array([one.conditions.participation for one in federations], np.float32),
        partition_id=partition_id,
        start=start,
        count=count,
        client_id=client_id,
        clock=_clock(federations, num_clients, speeds, model_bytes),
        conditions=conditions.as_arrays([federation.conditions for federation in federations], traced),
    )


def _who_owns_what(grid: Grid, federations: Sequence[Federation], num_clients: int) -> tuple[np.ndarray, ...]:
    """``partition_id``, ``start``, ``count`` and ``client_id`` of ``Settings``."""
    partition_ids = {key: i for i, key in enumerate(grid.owners)}
    first_of_seed = {seed: i for (_, seed), i in reversed(partition_ids.items())}
    num = len(federations)
    start, count, client_id = (np.zeros((num, num_clients), np.int32) for _ in range(3))
    client_id[:] = np.arange(num_clients)
    partition_id = np.zeros(num, np.int32)
    for i, federation in enumerate(federations):
        if federation.algorithm == CENTRALISED:
            # All rows in one bank: any order of them will do, since batches are shuffled.
            partition_id[i] = first_of_seed[federation.seed]
            count[i, 0] = len(next(iter(grid.owners.values())).train.order)
            continue
        owned = grid.owners[federation.alpha, federation.seed].train
        partition_id[i] = partition_ids[federation.alpha, federation.seed]
        if federation.bank >= 0:
            start[i, 0], count[i, 0] = owned.start[federation.bank], owned.count[federation.bank]
            client_id[i, 0] = federation.bank
        else:
            start[i], count[i] = owned.start, owned.count
    return partition_id, start, count, client_id


def _hyperparameters(federations: Sequence[Federation]) -> dict[str, np.ndarray]:
    """name -> ``[settings]``: what the grid varies, and what an entry of the list of algorithms fixes; 0 elsewhere."""
    fixed = {name for entry in ALGORITHMS.values() for name in entry.fixed}

    def value(federation: Federation, name: str) -> float:
        entry = ALGORITHMS.get(federation.algorithm, ALGORITHMS[BASELINE])
        holder = federation.conditions if name in PRIVACY else federation
        return entry.fixed.get(name, getattr(holder, name, 0.0))

    return {
        name: np.nan_to_num(np.array([value(federation, name) for federation in federations], np.float32))
        for name in sorted({*HYPER, *PRIVACY, *fixed})
    }


def _clock(federations: Sequence[Federation], num_clients: int, speeds: Speeds, model_bytes: int) -> Clock:
    """Seconds of steps and links; baselines send nothing, and nobody counts their time."""
    step, rate, latency = (np.broadcast_to(np.asarray(value, np.float64), num_clients) for value in speeds)
    step_seconds, link_seconds = (np.zeros((len(federations), num_clients), np.float32) for _ in range(2))
    for i, federation in enumerate(federations):
        if federation.algorithm in ALGORITHMS:
            cost = ALGORITHMS[federation.algorithm].cost
            step_seconds[i] = step
            link_seconds[i] = latency + (cost.down + cost.up) * model_bytes / rate
    return Clock(step_seconds, link_seconds)
