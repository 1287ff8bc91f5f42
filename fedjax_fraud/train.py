"""All local steps of all clients of all settings, packed into lanes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from fedjax_fraud import packing
from fedjax_fraud.local import ClientTask, LocalState, TrainingData, local_chunk, start_local
from fedjax_fraud.program import Program, Settings
from fedjax_fraud.types import FedState


def flatten_clients(tree):
    """Leaves ``[settings, clients, ...]`` as ``[pool, ...]``."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def take(tree, index):
    """Rows ``index`` of every leaf."""
    return jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), tree)


def pool_tasks(
    settings: Settings,
    num_steps: Int[Array, "settings clients"],
    keys: UInt32[Array, "settings clients"],
    round_index: Array,
) -> tuple[ClientTask, Int[Array, " pool"]]:
    """What every client of the pool has to do, and the setting that it belongs to."""
    num_settings, num_clients = num_steps.shape
    setting_of = jnp.repeat(jnp.arange(num_settings, dtype=jnp.int32), num_clients)
    tasks = ClientTask(
        settings.partition_id[setting_of],
        settings.start.reshape(-1),
        settings.count.reshape(-1),
        num_steps.reshape(-1),
        settings.client_id.reshape(-1),
        jnp.broadcast_to(round_index, setting_of.shape),
        keys.reshape(-1),
    )
    return tasks, setting_of


def run_packed(program: Program, tasks: ClientTask, store, run_lanes: Callable):
    """Runs every client's steps, wave after wave, a chunk of one client in each lane.

    Args:
      tasks: leaves ``[pool]``.
      store: the state of every client's work, leaves ``[pool, ...]``.
      run_lanes: ``(clients [lanes], tasks, states) -> states``: one chunk in each lane; leaves ``[lanes, ...]``.

    Returns: ``store`` after all steps.
    """
    pool = tasks.num_steps.size
    plan = packing.plan_lanes(tasks.num_steps, num_lanes=program.num_lanes, chunk_length=program.chunk_length)

    def wave(index, store):
        ids = packing.lane_clients(plan, index, num_lanes=program.num_lanes)
        # An idle lane reads some client, makes no step that counts, and its write falls outside the pool.
        read = jnp.minimum(ids, pool - 1)
        task = take(tasks, read)
        task = task._replace(num_steps=jnp.where(ids < pool, task.num_steps, 0))
        after = run_lanes(read, task, take(store, read))
        return jax.tree.map(lambda a, b: a.at[ids].set(b, mode="drop"), store, after)

    return jax.lax.fori_loop(0, plan.num_waves, wave, store)


def train_pool(
    program: Program,
    settings: Settings,
    data: TrainingData,
    state: FedState,
    num_steps: Int[Array, "settings clients"],
    keys: UInt32[Array, "settings clients"],
    round_index: Array,
) -> LocalState:
    """Every client's local training in one round. Leaves ``[settings, clients, ...]``."""
    tasks, setting_of = pool_tasks(settings, num_steps, keys, round_index)
    clients = flatten_clients(state.clients)

    def start(hyper, params, client):
        return start_local(program.build(hyper), params, client)

    def run_lane(hyper, task, server, client, local):
        algorithm = program.build(hyper)
        return local_chunk(
            algorithm, program.objective, data, task, server, client, local, chunk_length=program.chunk_length
        )

    def run_lanes(read, task, local):
        of = setting_of[read]
        return jax.vmap(run_lane)(take(settings.hyper, of), task, take(state.server, of), take(clients, read), local)

    store = jax.vmap(start)(take(settings.hyper, setting_of), take(state.server.params, setting_of), clients)
    store = run_packed(program, tasks, store, run_lanes)
    return jax.tree.map(lambda leaf: leaf.reshape(*num_steps.shape, *leaf.shape[1:]), store)
