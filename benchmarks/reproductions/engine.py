"""Many federations through the engine's ``run_rounds``, one compiled program, the settings dealt to all devices."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from fedjax_fraud import devices, packing
from fedjax_fraud.conditions import Conditions, as_arrays
from fedjax_fraud.devices import AXIS
from fedjax_fraud.local import Objective, make_training_data
from fedjax_fraud.program import History, Program, RoundPlan, Settings
from fedjax_fraud.simulate import init_settings, run_rounds
from fedjax_fraud.types import FedState


class Federations(NamedTuple):
    """Settings on one table; every field is one value for all settings or holds one for each.

    Attributes:
      features, labels: ``[samples, features]`` and ``[samples]``, the rows.
      count: ``[clients]`` or ``[settings, clients]`` rows of each client.
      hyper: name -> number or ``[settings]``.
      params: the first global model, leaves with a leading settings axis.
      start: like ``count``, where a client's rows begin in its order; None = one after the other.
      orders: ``[partitions, samples]``; None = one, the table's own.
      partition_id, seed, num_epochs, participation: ``[settings]`` or one.
      client_id: like ``count``; None = 0, 1, ...
      conditions: one for each setting, or None.
    """

    features: np.ndarray
    labels: np.ndarray
    count: np.ndarray
    hyper: dict[str, Any]
    params: Any
    start: np.ndarray | None = None
    orders: np.ndarray | None = None
    partition_id: Any = 0
    seed: Any = 0
    num_epochs: Any = 1
    participation: Any = 1.0
    client_id: np.ndarray | None = None
    conditions: Sequence[Conditions] | None = None


def federate(
    build: Callable,
    objective: Objective,
    feds: Federations,
    num_rounds: int,
    *,
    work: np.ndarray | None = None,
    score_fn: Callable | None = None,
    test_features: Any = None,
    score_every: int = 1,
    diagnostics: bool = False,
    num_lanes: int | None = None,
    chunk_length: int | None = None,
) -> tuple[FedState, History]:
    """All rounds of all settings.

    Args:
      build: ``hyper -> FedAlgorithm``.
      objective: model, loss and batches.
      feds: the settings.
      num_rounds: of each.
      work: ``[rounds, settings, clients]``, see ``RoundPlan``; None = cohorts are drawn.
      score_fn, test_features: ``History.extra``, scalars of each global model after each round.
      score_every: score after every so many rounds, and after the last; NaN between.
      diagnostics: see ``Program``.
      num_lanes, chunk_length: the packing, chosen by default.

    Returns: state and history on the host; leaves ``[settings, ...]`` and ``[rounds, settings]``.
    """
    mesh = devices.settings_mesh()
    num_settings, num_devices = len(jax.tree.leaves(feds.params)[0]), mesh.devices.size
    # Neighbours go to different devices; the last settings stand in for the ones that are missing.
    per_device = -(-num_settings // num_devices)
    dealt = np.arange(per_device * num_devices).reshape(per_device, num_devices).T.ravel()
    back = np.argsort(dealt)[:num_settings]
    dealt = np.minimum(dealt, num_settings - 1)

    settings = jax.tree.map(lambda leaf: leaf[dealt], _settings(feds, num_settings))
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[dealt], feds.params)
    steps = settings.num_epochs[:, None] * -(-settings.count // objective.batch_size)
    if work is not None:
        work = np.asarray(work, np.float32)[:, dealt]
        steps = np.ceil(steps * work.max(axis=0)).astype(np.int64)
    lanes, chunk = packing.choose_packing(
        steps.reshape(num_devices, -1), **packing.packing_limits(mesh.devices.flat[0].platform, objective.batch_size)
    )
    program = Program(
        build, objective, num_lanes or lanes, chunk_length or chunk, score_fn=score_fn, diagnostics=diagnostics
    )
    index = np.arange(1, num_rounds + 1, dtype=np.int32)
    scored = (index % score_every == 0) | (index == num_rounds)
    plan = RoundPlan(index, np.ones(num_rounds, bool), np.broadcast_to(scored[:, None], (num_rounds, len(dealt))), work)
    orders = np.arange(len(feds.labels))[None] if feds.orders is None else feds.orders
    data = make_training_data(feds.features, feds.labels, orders)
    start, rounds = _compiled(program, mesh, work is None)
    state, history = rounds(settings, data, test_features, start(settings, params), plan)
    state, history = devices.to_host(state), devices.to_host(history)
    return jax.tree.map(lambda leaf: leaf[back], state), jax.tree.map(lambda leaf: leaf[:, back], history)


def _settings(feds: Federations, num_settings: int) -> Settings:
    """Everything with its settings axis."""

    def each(value, dtype):
        return np.broadcast_to(np.asarray(value, dtype), (num_settings,))

    def table(value):
        return np.broadcast_to(np.asarray(value, np.int32), (num_settings, np.shape(value)[-1]))

    count = table(feds.count)
    return Settings(
        hyper={name: each(value, np.float32) for name, value in feds.hyper.items()},
        seed=each(feds.seed, np.uint32),
        num_epochs=each(feds.num_epochs, np.int32),
        participation=each(feds.participation, np.float32),
        partition_id=each(feds.partition_id, np.int32),
        start=np.cumsum(count, axis=1, dtype=np.int32) - count if feds.start is None else table(feds.start),
        count=count,
        client_id=table(np.arange(count.shape[1]) if feds.client_id is None else feds.client_id),
        conditions=None if feds.conditions is None else as_arrays(feds.conditions, [False] * num_settings),
    )


@functools.cache
def _compiled(program: Program, mesh: jax.sharding.Mesh, draws_cohorts: bool) -> tuple[Callable, Callable]:
    """The start and the rounds of a program, over all devices."""
    same, split, by_setting = P(), P(AXIS), P(None, AXIS)

    def over_devices(fn, in_specs, out_specs):
        fn = functools.partial(fn, program)
        return jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False))

    of_plan = RoundPlan(same, same, by_setting, None if draws_cohorts else by_setting)
    return (
        over_devices(init_settings, (split, split), split),
        over_devices(run_rounds, (split, same, same, split, of_plan), (split, by_setting)),
    )
