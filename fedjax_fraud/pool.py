"""One compiled program: the settings that share an algorithm's structure, dealt to the devices, compiled and run."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_fraud import dealing, packing
from fedjax_fraud.checkpoint import Checkpoint, Progress
from fedjax_fraud.devices import AXIS, shard, taking_host_arrays, to_host
from fedjax_fraud.local import Objective, TrainingData
from fedjax_fraud.program import History, Program, RoundPlan, Settings
from fedjax_fraud.score import TestSet
from fedjax_fraud.simulate import init_settings, run_rounds
from fedjax_fraud.types import FedState

PROGRESS_UPDATES = 25


class Pool(NamedTuple):
    """The settings of one program, ready to compile.

    Attributes:
      program: what is static.
      settings: host arrays in the order in which they are dealt to the devices, empty settings at the ends; or all
        settings, with their clients in that order (``Program.clients_axis``).
      params: the first global model of each setting, leaves ``[settings, ...]``, in the same order.
      slot: ``[federations]``, where each federation stands in that order.
      score_every_round: ``[settings]``, whether each is scored after every round, or only after the last.
      available: None, or ``[rounds, identities]``, who can be reached in each round; see ``RoundPlan``.
    """

    program: Program
    settings: Settings
    params: Any
    slot: np.ndarray
    score_every_round: np.ndarray
    available: np.ndarray | None = None


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
      personal: every client's own final model, leaves ``[federations, clients, ...]``; None if they have none.
    """

    history: History
    params: Any
    run_seconds: float
    personal: Any = None


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
    diagnostics: bool = False,
    available: np.ndarray | None = None,
) -> Pool:
    """Deals the work to the devices (see ``dealing``) and chooses the packing."""
    num_devices, batch_size = mesh.devices.size, objective.batch_size
    dealt = dealing.deal(settings, batch_size, num_devices)
    params, score_every_round = dealing.place_settings((params, score_every_round), dealt.slot, dealt.num_slots)
    per_device = dealing.steps_of_devices(dealt.settings, batch_size, num_devices, dealt.by_clients)
    lanes, chunk = packing.choose_packing(
        per_device, **packing.packing_limits(mesh.devices.flat[0].platform, batch_size)
    )
    packed = num_lanes or lanes, chunk_length or chunk
    axis = AXIS if dealt.by_clients else None
    program = Program(
        build,
        objective,
        *packed,
        test_set.num_samples,
        test_set.num_positives,
        diagnostics=diagnostics,
        clients_axis=axis,
    )
    return Pool(program, dealt.settings, params, dealt.slot, score_every_round, available)


def pool_work(pool: Pool, num_rounds: int, num_devices: int) -> Work:
    """Steps of the whole run if everybody takes part, over all devices."""
    batch_size = pool.program.objective.batch_size
    by_clients = pool.program.clients_axis is not None
    packed = dict(num_lanes=pool.program.num_lanes, chunk_length=pool.program.chunk_length)
    per_device = dealing.steps_of_devices(pool.settings, batch_size, num_devices, by_clients)
    counts = [packing.count_work(part, **packed) for part in per_device]
    return Work(
        *(num_rounds * sum(getattr(count, field) for count in counts) for field in ("useful", "executed")),
        padded=num_rounds
        * packing.count_work(dealing.full_steps(pool.settings, batch_size)[pool.slot], **packed).padded,
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
        rounds = taking_host_arrays(self.rounds.compile())
        return Compiled(self.start.compile(), rounds, self.settings, self.params, self.segment)


def segment_plan(pool: Pool, num_rounds: int, first: int, segment: int) -> RoundPlan:
    """Rounds ``first .. first + segment - 1``; round 0 and rounds past the end train nobody."""
    index = np.arange(first, first + segment, dtype=np.int32)
    active = (index >= 1) & (index <= num_rounds)
    ends = (index == 0) | (index == num_rounds)
    scored = ends[:, None] | ((index <= num_rounds)[:, None] & pool.score_every_round)
    available = None
    if pool.available is not None:
        available = pool.available[np.clip(index, 1, num_rounds) - 1]
    return RoundPlan(index, active, scored, available=available)


def lower_pool(pool: Pool, data: TrainingData, test_features, num_rounds: int, mesh: Mesh) -> Lowered:
    """Traces a pool's programs."""
    segment = -(-(num_rounds + 1) // PROGRESS_UPDATES)
    same, split, by_setting = P(), P(AXIS), P(None, AXIS)
    of_state = split
    if pool.program.clients_axis is not None:
        split, by_setting = same, same
        of_state = FedState(same, P(None, AXIS))

    def over_devices(fn, in_specs, out_specs):
        fn = functools.partial(fn, pool.program)
        return jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    settings, params = shard((pool.settings, pool.params), mesh, split)
    lowered_start = jax.jit(over_devices(init_settings, (split, split), of_state)).lower(settings, params)
    state = _with_sharding(lowered_start.out_info, of_state, mesh)
    of_plan = RoundPlan(same, same, by_setting, available=None if pool.available is None else same)
    in_specs = (split, same, same, of_state, of_plan)
    rounds = jax.jit(over_devices(run_rounds, in_specs, (of_state, by_setting)), donate_argnums=3)
    plan = segment_plan(pool, num_rounds, 0, segment)
    lowered_rounds = rounds.lower(settings, data, test_features, state, plan)
    return Lowered(lowered_start, lowered_rounds, settings, params, segment)


def _with_sharding(shapes, spec, mesh: Mesh):
    """Shapes with the sharding that ``spec``, a prefix tree, gives them."""

    def of_part(part_spec, part):
        sharding = NamedSharding(mesh, part_spec)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), part)

    return jax.tree.map(of_part, spec, shapes, is_leaf=lambda leaf: isinstance(leaf, P))


def run_pool(
    pool: Pool,
    compiled: Compiled,
    data: TrainingData,
    test_features,
    num_rounds: int,
    on_rounds: Callable[[int, int, float], None] | None = None,
    checkpoint: Checkpoint | None = None,
    name: str = "pool",
) -> Outcome:
    """Runs all rounds.

    Args:
      on_rounds: called about 25 times in all with the number of rounds just finished, the rows visited in them, and
        the seconds of all rounds so far. What a checkpoint holds comes first, in one call.
      checkpoint: where the run is kept under ``name`` between these calls, and taken up from.
    """
    began = time.perf_counter()
    state = compiled.start(compiled.settings, compiled.params)
    parts, next_round, earlier = [], 0, 0.0
    kept = None
    if checkpoint is not None:
        kept = checkpoint.load(name, Progress(0, state, History(*History._fields[:-1]), 0.0))
    if kept is not None:
        state, parts, next_round, earlier = kept.state, [kept.history], kept.next_round, kept.run_seconds
        if on_rounds is not None:
            on_rounds(min(next_round, num_rounds + 1) - 1, _rows_of(kept.history), earlier)
    for first in range(next_round, num_rounds + 1, compiled.segment):
        plan = segment_plan(pool, num_rounds, first, compiled.segment)
        state, history = compiled.rounds(compiled.settings, data, test_features, state, plan)
        parts.append(to_host(history))
        seconds = earlier + time.perf_counter() - began
        if on_rounds is not None:
            num_finished = min(first + compiled.segment, num_rounds + 1) - max(first, 1)
            on_rounds(num_finished, _rows_of(parts[-1]), seconds)
        if checkpoint is not None:
            after, last = first + compiled.segment, first + compiled.segment > num_rounds
            if last or checkpoint.is_due():
                checkpoint.save(name, Progress(after, to_host(state), _joined(parts), seconds))
    state = to_host(state)
    history = jax.tree.map(lambda leaf: leaf[: num_rounds + 1, pool.slot], _joined(parts))
    params = jax.tree.map(lambda leaf: leaf[pool.slot], state.server.params)
    seconds = earlier + time.perf_counter() - began
    return Outcome(history, params, seconds, _personal_models(pool, state.clients))


def _rows_of(history: History) -> int:
    """The rows visited in these rounds by all settings."""
    return int(np.sum(history.num_rows, dtype=np.int64))


def _joined(parts: list[History]) -> History:
    """The histories of consecutive segments as one."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _personal_models(pool: Pool, clients):
    """Every client's own model, in the order of identities; None if the algorithm has none."""
    if not hasattr(clients, "personal"):
        return None
    # Clients that were dealt to the devices stand in another order, with empty ones (identity -1) among them.
    column = np.argsort(pool.settings.client_id, axis=1, kind="stable")
    empty = (pool.settings.client_id < 0).sum(axis=1, keepdims=True)
    num_clients = pool.settings.client_id.shape[1] - int(empty.max())

    def in_order(leaf):
        place = np.minimum(empty + np.arange(num_clients), leaf.shape[1] - 1)
        return leaf[np.arange(len(leaf))[:, None], np.take_along_axis(column, place, axis=1)][pool.slot]

    return jax.tree.map(in_order, clients.personal)


def take_federations(outcome: Outcome, which: slice) -> Outcome:
    """The outcome of some of a pool's federations."""
    history = jax.tree.map(lambda leaf: leaf[:, which], outcome.history)
    params, personal = (jax.tree.map(lambda leaf: leaf[which], tree) for tree in (outcome.params, outcome.personal))
    return Outcome(history, params, outcome.run_seconds, personal)
