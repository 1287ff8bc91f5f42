"""What a sweep would do, without doing it: settings, work and traffic to the number; time and memory estimated.

Who takes part, who is late and who is gone is drawn from seeds alone, so the draws of all rounds are made without any
training: steps, rows and bytes are exactly those of the run (a method that diverges still does its steps). Where that
would take more than seconds, the first seeds are dealt and drawn, and the others taken for like them; the plan says so.

Time is estimated from a probe: the engine's own packed training on a few of the sweep's settings, and the scoring of
one model, each for half a second on all devices at once, then scaled to the steps and models of the whole sweep.

How good that is (``python -m benchmarks.plan_error``, two cores, JAX 0.10.2): the rounds of five sweeps were estimated
+20 % (the default sweep), +6 % (one federation), -2 % (logistic, 20 banks), -19 % (a wide perceptron) and +19 % (five
methods) off, the first in wall time and the others in processor time, on a machine that was busy with other work; peak
memory within 15 %. Seconds before the rounds are rates of one machine, and may be off by half. No error was measured on
accelerators.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedjax_fraud import conditions, dealing, frames, packing, pool, score
from fedjax_fraud import devices as hardware
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.grid import CONDITION_KEYS, Federation, Grid, check_size, federation_keys
from fedjax_fraud.local import TrainingData
from fedjax_fraud.parts import Part
from fedjax_fraud.program import RoundPlan, Settings
from fedjax_fraud.simulate import count_rows, init_settings, score_settings
from fedjax_fraud.train import train_pool
from fedjax_fraud.types import Transactions

PROBE_SECONDS, PROBE_WAVES = 0.5, 32
DEALT_ROWS, DEALT_CLIENTS = 50_000_000, 20_000  # of all seeds that a plan deals: some seconds
CASE = ("algorithm", "alpha", *CONDITION_KEYS)

# Rates that no probe measures; from sweeps on two cores of an AMD EPYC (Zen 3).
START_SECONDS = 1.0  # partitions, and the programs that are always there
TRACE_SECONDS, COMPILE_SECONDS, KEPT_SECONDS = 1.5, 5.5, 0.5  # of a program: in turn; one on each core; read again
ROUND_SECONDS = 0.02  # of a round of a program, beside its steps
ROUND_PASSES, BYTES_PER_SECOND = 12, 4e9  # how often a round reads or writes every client's model, and how fast
TABLE_SECONDS = 1.5e-7  # for each model and test row: scores of banks, and decisions
BASE_BYTES, PROGRAM_BYTES = 750 * 2**20, 110 * 2**20  # Python, JAX, the report; a program while it is compiled
MODEL_COPIES = 4  # of every client's model in a round: trained, changed, masked, and what is sent


class Estimate(NamedTuple):
    """Seconds and bytes, estimated.

    Attributes:
      compile_seconds, kept_seconds: until the rounds begin: with everything to compile, or kept from an earlier start.
      run_seconds: the rounds.
      table_seconds: scores of banks and decisions, after the rounds.
      peak_bytes: the most memory that the process will have had.
    """

    compile_seconds: float
    kept_seconds: float
    run_seconds: float
    table_seconds: float
    peak_bytes: int


class Plan(NamedTuple):
    """What a sweep would do.

    Attributes:
      settings: one row per algorithm and case (alpha and conditions), baselines included: ``num_settings``,
        ``num_seeds``, ``steps`` (local steps), ``rows`` (rows visited) and ``bytes`` (both ways) of all rounds.
      partitions: one row per alpha and bank of the first seed: rows, frauds, skew.
      num_federations: settings that are compared; baselines come on top.
      num_clients: banks of a federation.
      num_programs: programs to compile, beside the small one that gives logits.
      num_rounds: communication rounds.
      estimate: time and memory.
      num_seeds, num_dealt: seeds, and how many of them were dealt and drawn. If these are fewer, ``steps``, ``rows``
        and ``bytes`` are estimates: as if the other seeds were like them.
    """

    settings: pd.DataFrame
    partitions: pd.DataFrame
    num_federations: int
    num_clients: int
    num_programs: int
    num_rounds: int
    estimate: Estimate
    num_seeds: int
    num_dealt: int


class Sample(NamedTuple):
    """The seeds that stand for all seeds.

    Attributes:
      num_dealt, num_seeds: how many, of how many; all of them unless these are too many.
      seconds: to deal them.
    """

    num_dealt: int
    num_seeds: int
    seconds: float

    @property
    def times(self) -> float:
        """For how many seeds each of the sample stands."""
        return self.num_seeds / self.num_dealt


class Rounds(NamedTuple):
    """What the rounds of a program come to: ``[federations]`` int64, in the order of its federations.

    Attributes:
      steps, rows: local steps, and rows visited.
      started, participants: models received, and updates sent.
    """

    steps: np.ndarray
    rows: np.ndarray
    started: np.ndarray
    participants: np.ndarray


def sample_grid(make_grid: Callable[..., Grid], seeds: Sequence[int], num_rows: int) -> tuple[Grid, Sample]:
    """The federations of as many seeds as can be dealt in some seconds.

    Args:
      make_grid: ``grid.make_grid`` of everything but the seeds.
      seeds: of the sweep.
      num_rows: of training and test.
    Returns: the grid of the first seeds, and how many these are.
    Raises: ValueError for more than a sweep may hold.
    """
    one = make_grid(seeds=seeds[:1])
    num_settings = len(one.federations) * len(seeds)
    check_size(num_settings, one.num_clients, dict(seeds=len(seeds)))
    num_clients = (len(one.federations) + len(one.centralised)) * one.num_clients + len(one.local_only)
    most = max(1, min(DEALT_ROWS // (len(one.owners) * num_rows), DEALT_CLIENTS // num_clients))
    began = time.perf_counter()
    num_dealt = min(most, len(seeds))
    grid = make_grid(seeds=seeds[:num_dealt])
    return grid, Sample(num_dealt, len(seeds), time.perf_counter() - began)


def make_plan(
    grid: Grid,
    parts: Sequence[Part],
    train: Transactions,
    test_set: score.TestSet,
    data: TrainingData,
    num_rounds: int,
    model_bytes: int,
    mesh: Mesh,
    sample: Sample,
) -> Plan:
    """The plan of a sweep whose parts are laid out; compiles and runs a probe, for some seconds.

    Args:
      grid, parts: the federations, and the pools that they are in.
      train, test_set, data: the rows; ``data`` on the host.
      num_rounds, model_bytes: of every federation.
      mesh: the devices.
      sample: which seeds ``grid`` has, of all.
    """
    drawn = [draw_rounds(part.pool, num_rounds) for part in parts]
    tables = [
        settings_table(part.federations + part.alone, rounds, model_bytes)
        for part, rounds in zip(parts, drawn, strict=True)
    ]
    return Plan(
        settings=_by_case(pd.concat(tables, ignore_index=True), sample),
        partitions=partition_of_first_seed(grid, train),
        num_federations=len(grid.federations) // sample.num_dealt * sample.num_seeds,
        num_clients=grid.num_clients,
        num_programs=len(parts),
        num_rounds=num_rounds,
        estimate=estimate(grid, parts, drawn, test_set, data, num_rounds, mesh, sample),
        num_seeds=sample.num_seeds,
        num_dealt=sample.num_dealt,
    )


def partition_of_first_seed(grid: Grid, train: Transactions) -> pd.DataFrame:
    """The banks of the first seed, at each alpha."""
    seed = next(iter(grid.owners))[1]
    owners = {key: owned for key, owned in grid.owners.items() if key[1] == seed}
    return frames.partition_table(grid._replace(owners=owners), train)


# ---- work to the number -----------------------------------------------------------------------------------------


def draw_rounds(made: pool.Pool, num_rounds: int) -> Rounds:
    """Makes the draws of all rounds of a program, and nothing else of them."""
    batch_size = made.program.objective.batch_size

    def of_round(settings: Settings, plan: RoundPlan):
        chosen = conditions.select(settings, plan, batch_size)
        per_setting = (
            chosen.num_steps.sum(axis=1),
            count_rows(settings, chosen.num_steps, batch_size),
            chosen.started.sum(axis=1),
            (chosen.num_steps > 0).sum(axis=1),
        )
        return settings, per_setting

    draw = jax.jit(lambda settings, plan: jax.lax.scan(of_round, settings, plan)[1])
    found = draw(jax.tree.map(jnp.asarray, made.settings), pool.segment_plan(made, num_rounds, 0, num_rounds + 1))
    return Rounds(*(np.asarray(values, np.int64).sum(axis=0)[made.slot] for values in found))


def settings_table(federations: Sequence[Federation], rounds: Rounds, model_bytes: int) -> pd.DataFrame:
    """One row per federation: its keys, ``steps``, ``rows`` and ``bytes``."""
    costs = [ALGORITHMS[one.algorithm].cost if one.algorithm in ALGORITHMS else frames.NO_COST for one in federations]
    down, up = (np.array([getattr(cost, side) for cost in costs], np.int64) for side in ("down", "up"))
    num_bytes = (down * rounds.started + up * rounds.participants) * model_bytes
    return federation_keys(federations).assign(steps=rounds.steps, rows=rounds.rows, bytes=num_bytes)


def _by_case(table: pd.DataFrame, sample: Sample) -> pd.DataFrame:
    """One row per algorithm and case, in the order in which they first appear, for all seeds."""
    groups = table.groupby(list(CASE), dropna=False, sort=False)
    found = groups.agg(
        num_settings=("seed", "size"),
        num_seeds=("seed", "nunique"),
        steps=("steps", "sum"),
        rows=("rows", "sum"),
        bytes=("bytes", "sum"),
    ).reset_index()
    if sample.num_dealt < sample.num_seeds:
        for name in ("num_settings", "num_seeds", "steps", "rows", "bytes"):
            found[name] = np.rint(found[name] * sample.times).astype(np.int64)
    return found


# ---- time and memory, estimated ---------------------------------------------------------------------------------


def estimate(
    grid: Grid,
    parts: Sequence[Part],
    drawn: Sequence[Rounds],
    test_set: score.TestSet,
    data: TrainingData,
    num_rounds: int,
    mesh: Mesh,
    sample: Sample,
) -> Estimate:
    """Time by a probe of the largest program, memory by counting arrays; for all seeds."""
    times = sample.times
    test_features = hardware.replicate(test_set.features, mesh)
    on_devices = hardware.replicate(data, mesh)
    largest = max(range(len(parts)), key=lambda place: int(drawn[place].steps.sum()))
    step_seconds = probe_steps(parts[largest].pool, on_devices, mesh) / _gradients(parts[largest].pool)
    model_seconds = probe_scores(parts[largest].pool, test_features, mesh)
    run_seconds = sum(
        times * _device_steps(part.pool, rounds, num_rounds, mesh) * _gradients(part.pool) * step_seconds
        + times * _device_models(part.pool, num_rounds, mesh) * model_seconds
        + (num_rounds + 1) * ROUND_SECONDS
        + times * num_rounds * ROUND_PASSES * _pool_bytes(part.pool) / BYTES_PER_SECOND / mesh.devices.size
        for part, rounds in zip(parts, drawn, strict=True)
    )
    num_models = sum(len(part.federations) * (1 + part.has_personal * grid.num_clients) for part in parts)
    num_models += len(grid.local_only)
    traced_seconds = START_SECONDS + TRACE_SECONDS * len(parts) + (times - 1) * sample.seconds
    return Estimate(
        compile_seconds=traced_seconds + COMPILE_SECONDS * max(1.0, len(parts) / hardware.num_cores()),
        kept_seconds=traced_seconds + KEPT_SECONDS * len(parts),
        run_seconds=run_seconds,
        table_seconds=times * TABLE_SECONDS * num_models * test_set.num_samples,
        peak_bytes=_peak_bytes(parts, test_set, data, num_rounds, mesh, times),
    )


def probe_steps(made: pool.Pool, data: TrainingData, mesh: Mesh) -> float:
    """Seconds of one executed lane-step of a program, with every device at work.

    Trains some settings of the pool, the same on each device, for about ``PROBE_SECONDS``.

    Args:
      made: whose settings and packing.
      data: the training rows, on the devices.
      mesh: the devices.
    """
    program = made.program._replace(clients_axis=None)
    num_clients = made.settings.count.shape[1]
    num_settings = min(max(1, -(-2 * program.num_lanes // num_clients)), len(made.slot))
    busiest = np.argsort(-dealing.full_steps(made.settings, program.objective.batch_size).sum(axis=1), kind="stable")
    some = busiest[:num_settings]
    settings, params = jax.tree.map(lambda leaf: leaf[some], (made.settings, made.params))
    keys = np.arange(settings.count.size, dtype=np.uint32).reshape(settings.count.shape)

    def train(settings, params, data, num_steps, keys):
        state = init_settings(program, settings, params)
        local = train_pool(program, settings, data, state, num_steps, keys, jnp.int32(1))
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(local.params))[None]

    run = _on_all_devices(train, mesh, 5)
    full = dealing.full_steps(settings, program.objective.batch_size)
    packed = dict(num_lanes=program.num_lanes, chunk_length=program.chunk_length)
    share = PROBE_WAVES * program.num_lanes * program.chunk_length / max(full.sum(), 1)

    def timed(repeat: int) -> tuple[float, int]:
        num_steps = np.ceil(full * share * repeat).astype(np.int32)
        return _seconds(run, settings, params, data, num_steps, keys), packing.count_work(num_steps, **packed).executed

    return _rate(timed)


def probe_scores(made: pool.Pool, test_features, mesh: Mesh) -> float:
    """Seconds to score one model, with every device at work."""
    params = jax.tree.map(lambda leaf: leaf[:1], made.params)

    def scores(params, test_features, scored):
        found, _ = score_settings(made.program, jax.tree.map(lambda leaf: jnp.repeat(leaf, scored.size, 0), params),
                                  test_features, scored)  # fmt: skip
        return jnp.sum(jnp.nan_to_num(found.log_loss))[None]

    run = _on_all_devices(scores, mesh, 3)

    def timed(repeat: int) -> tuple[float, int]:
        scored = np.arange(64) < min(repeat, 64)
        return _seconds(run, params, test_features, scored), int(scored.sum())

    return _rate(timed, most=64)


def _on_all_devices(fn: Callable, mesh: Mesh, num_arguments: int) -> Callable:
    """The function jitted so that every device does all of it, at the same time."""
    specs = (P(),) * num_arguments
    return jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=P(hardware.AXIS), check_vma=False))


def _seconds(run: Callable, *arguments) -> float:
    began = time.perf_counter()
    jax.block_until_ready(run(*arguments))
    return time.perf_counter() - began


def _rate(timed: Callable[[int], tuple[float, int]], most: int = 10_000) -> float:
    """Seconds for each unit of work: compiles, tries once, then with as many repeats as fill the time.

    Two sizes are timed and subtracted, so that what a call costs beside its work does not count, if they differ enough.
    """
    timed(1)
    small_seconds, small_work = timed(1)
    repeat = int(np.clip(PROBE_SECONDS / max(small_seconds, 1e-6), 1, most))
    if repeat == 1:
        return small_seconds / max(small_work, 1)
    seconds, work = timed(repeat)
    if seconds > small_seconds and work > small_work:
        return (seconds - small_seconds) / (work - small_work)
    return seconds / max(work, 1)


def _gradients(made: pool.Pool) -> int:
    """Gradients that a local step takes."""
    algorithm = made.program.build({name: values[0] for name, values in made.settings.hyper.items()})
    num = 1 + bool(algorithm.needs_server_gradient) + (algorithm.correct_personal is not None)
    return num + 2 * made.program.diagnostics


def _device_steps(made: pool.Pool, rounds: Rounds, num_rounds: int, mesh: Mesh) -> float:
    """Executed lane-steps of the busiest device, in all rounds, by the share of the full work that is done."""
    program = made.program
    by_clients = program.clients_axis is not None
    per_device = dealing.steps_of_devices(made.settings, program.objective.batch_size, mesh.devices.size, by_clients)
    packed = dict(num_lanes=program.num_lanes, chunk_length=program.chunk_length)
    executed = max(packing.count_work(steps, **packed).executed for steps in per_device)
    share = rounds.steps.sum() / max(per_device.sum() * num_rounds, 1)
    return executed * num_rounds * float(share)


def _device_models(made: pool.Pool, num_rounds: int, mesh: Mesh) -> float:
    """Models that a device scores in all rounds."""
    every = int(np.sum(made.score_every_round[made.slot]))
    num = every * (num_rounds + 1) + 2 * (len(made.slot) - every)
    return num / (1 if made.program.clients_axis is not None else mesh.devices.size)


def _pool_bytes(made: pool.Pool) -> int:
    """Bytes of one model for every client of the pool."""
    num_params = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(made.params))
    return made.settings.count.size * num_params * 4


def _state_bytes(made: pool.Pool) -> int:
    """Bytes of what a pool keeps between rounds: global models, server optimizers, controls, personal models."""
    program = made.program._replace(clients_axis=None)
    state = jax.eval_shape(
        lambda settings, params: init_settings(program, settings, params), made.settings, made.params
    )
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _peak_bytes(
    parts: Sequence[Part], test_set: score.TestSet, data: TrainingData, num_rounds: int, mesh: Mesh, times: float
) -> int:
    """What the arrays of a sweep need, beside what any JAX program does; ``times``: those of the pools."""
    rows = data.table.nbytes + times * data.orders.nbytes
    held = 2 * rows + 2 * test_set.features.nbytes  # as tables and partitions, and as the devices read them
    if mesh.devices.flat[0].platform != "cpu":
        held = rows + test_set.features.nbytes
    pools = [
        MODEL_COPIES * _gradients(part.pool) * _pool_bytes(part.pool) + 2 * _state_bytes(part.pool) for part in parts
    ]
    history = 2 * 25 * 4 * (num_rounds + 1) * sum(len(part.pool.slot) for part in parts)
    return int(BASE_BYTES + len(parts) * PROGRAM_BYTES + held + times * (max(pools) + history))
