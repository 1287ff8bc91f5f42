"""One compiled program: the settings that share an algorithm's structure, dealt to the devices, compiled and run."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_fraud import packing
from fedjax_fraud.devices import AXIS, to_host
from fedjax_fraud.local import Objective, TrainingData
from fedjax_fraud.score import TestSet
from fedjax_fraud.simulate import CPU_LANES, History, Program, RoundPlan, Settings, init_settings, run_rounds

PROGRESS_UPDATES = 25
GPU_LANES = 1024


class Pool(NamedTuple):
    """The settings of one program, ready to compile.

    Attributes:
      program: what is static.
      settings: host arrays in the order in which they are dealt to the devices, empty settings at the ends.
      params: the first global model of each setting, leaves ``[settings, ...]``, in the same order.
      slot: ``[federations]``, where each federation stands in that order.
      score_every_round: ``[settings]``, whether each is scored after every round, or only after the last.
    """

    program: Program
    settings: Settings
    params: Any
    slot: np.ndarray
    score_every_round: np.ndarray


class Work(NamedTuple):
    """Lane-steps of a whole run with full participation; see ``packing.Work``."""

    useful: int
    executed: int
    padded: int


class Outcome(NamedTuple):
    """What a pool's run gives, in the order of its federations.

    Attributes:
      history: arrays ``[rounds + 1, federations]``; entry 0 is the start, before any training.
      params: final global models, leaves ``[federations, ...]``.
      run_seconds: wall time of the rounds.
    """

    history: History
    params: Any
    run_seconds: float


def make_pool(
    build: Callable,
    objective: Objective,
    settings: Settings,
    params: Any,
    test_set: TestSet,
    mesh: Mesh,
    score_every_round: np.ndarray,
    num_lanes: int | None = None,
    chunk_length: int | None = None,
) -> Pool:
    """Deals the settings to the devices by work, largest first and back and forth, and chooses the packing."""
    steps = settings.num_epochs[:, None] * -(-settings.count // objective.batch_size)
    num_devices = mesh.devices.size
    slot, num_slots = _deal(steps.sum(axis=1), num_devices)

    def place(values):
        empty = np.zeros((num_slots, *values.shape[1:]), values.dtype)
        empty[slot] = values
        return empty

    dealt, params, score_every_round = jax.tree.map(place, (settings, params, score_every_round))
    per_device = place(steps).reshape(num_devices, -1)
    max_lanes = CPU_LANES if mesh.devices.flat[0].platform == "cpu" else GPU_LANES
    lanes, chunk = packing.choose_packing(per_device, max_lanes=max_lanes)
    packed = num_lanes or lanes, chunk_length or chunk
    program = Program(build, objective, *packed, test_set.num_samples, test_set.num_positives)
    return Pool(program, dealt, params, slot, score_every_round)


def _deal(work: np.ndarray, num_devices: int) -> tuple[np.ndarray, int]:
    """The slot of each setting, and the number of slots: device d owns an equal run of consecutive slots."""
    per_device = -(-len(work) // num_devices)
    slot = np.empty(len(work), np.int64)
    rank = np.arange(len(work))
    forth, back = rank % num_devices, num_devices - 1 - rank % num_devices
    device = np.where(rank // num_devices % 2 == 0, forth, back)
    slot[np.argsort(-work, kind="stable")] = device * per_device + rank // num_devices
    return slot, per_device * num_devices


def pool_work(pool: Pool, num_rounds: int, num_devices: int) -> Work:
    """Steps of the whole run if everybody takes part, over all devices."""
    batch_size = pool.program.objective.batch_size
    steps = pool.settings.num_epochs[:, None] * -(-pool.settings.count // batch_size)
    packed = dict(num_lanes=pool.program.num_lanes, chunk_length=pool.program.chunk_length)
    counts = [packing.count_work(part, **packed) for part in steps.reshape(num_devices, -1)]
    return Work(
        *(num_rounds * sum(getattr(count, field) for count in counts) for field in ("useful", "executed")),
        padded=num_rounds * packing.count_work(steps[pool.slot], **packed).padded,
    )


class Compiled(NamedTuple):
    """A pool's two executables, the start state and a segment of rounds, and their input on the devices."""

    start: Callable
    rounds: Callable
    settings: Settings
    params: Any
    segment: int


class Lowered(NamedTuple):
    """As ``Compiled``, traced but not compiled yet."""

    start: Any
    rounds: Any
    settings: Settings
    params: Any
    segment: int

    def compile(self) -> Compiled:
        """XLA's part, which does not hold the interpreter's lock."""
        return Compiled(self.start.compile(), self.rounds.compile(), self.settings, self.params, self.segment)


def _segment_plan(pool: Pool, num_rounds: int, first: int, segment: int) -> RoundPlan:
    """Rounds ``first .. first + segment - 1``; round 0 and rounds past the end train nobody."""
    index = np.arange(first, first + segment, dtype=np.int32)
    active = (index >= 1) & (index <= num_rounds)
    ends = (index == 0) | (index == num_rounds)
    scored = ends[:, None] | ((index <= num_rounds)[:, None] & pool.score_every_round)
    return RoundPlan(index, active, scored)


def lower_pool(pool: Pool, data: TrainingData, test_features, num_rounds: int, mesh: Mesh) -> Lowered:
    """Traces a pool's programs."""
    segment = -(-(num_rounds + 1) // PROGRESS_UPDATES)
    split, same = P(AXIS), P()

    def over_devices(fn, in_specs, out_specs):
        return jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    settings, params = jax.device_put((pool.settings, pool.params), NamedSharding(mesh, split))
    start = over_devices(functools.partial(init_settings, pool.program.build), (split, split), split)
    lowered_start = jax.jit(start).lower(settings, params)
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, split)),
        lowered_start.out_info,
    )
    rounds = over_devices(
        functools.partial(run_rounds, pool.program),
        (split, same, same, split, RoundPlan(same, same, P(None, AXIS))),
        (split, P(None, AXIS)),
    )
    plan = _segment_plan(pool, num_rounds, 0, segment)
    lowered_rounds = jax.jit(rounds, donate_argnums=3).lower(settings, data, test_features, state, plan)
    return Lowered(lowered_start, lowered_rounds, settings, params, segment)


def run_pool(
    pool: Pool,
    compiled: Compiled,
    data: TrainingData,
    test_features,
    num_rounds: int,
    on_rounds: Callable[[int], None] | None = None,
) -> Outcome:
    """Runs all rounds; ``on_rounds`` is called with the number of rounds just finished, about 25 times in all."""
    began = time.perf_counter()
    state = compiled.start(compiled.settings, compiled.params)
    parts = []
    for first in range(0, num_rounds + 1, compiled.segment):
        plan = _segment_plan(pool, num_rounds, first, compiled.segment)
        state, history = compiled.rounds(compiled.settings, data, test_features, state, plan)
        parts.append(to_host(history))
        if on_rounds is not None:
            on_rounds(min(first + compiled.segment, num_rounds + 1) - max(first, 1))
    history = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: num_rounds + 1, pool.slot], *parts)
    params = jax.tree.map(lambda leaf: leaf[pool.slot], to_host(state.server.params))
    return Outcome(history, params, time.perf_counter() - began)


def take_federations(outcome: Outcome, which: slice) -> Outcome:
    """The outcome of some of a pool's federations."""
    history = jax.tree.map(lambda leaf: leaf[:, which], outcome.history)
    return Outcome(history, jax.tree.map(lambda leaf: leaf[which], outcome.params), outcome.run_seconds)
