r"""How different the clients' problems are, and how well each solved its own: full gradients, on request.

.. math::
   \text{dissimilarity} \quad & \sum_k p_k \lVert \nabla F_k(w_t) - \nabla f(w_t) \rVert^2, \qquad
       f = \sum_k p_k F_k, \; p_k = n_k / n \\
   \text{inexactness} \quad & \gamma_k = \lVert \nabla h_k(w_k) \rVert / \lVert \nabla h_k(w_t) \rVert

h_k is the client's local objective in the round: its loss, corrected as the algorithm corrects a local step (FedProx:
F_k + mu/2 ||w - w_t||^2). A client that solved its problem exactly has inexactness 0, one that did nothing 1.

Reference: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, definition 2 (inexactness) and
section 5.3.3 (the variance of the local gradients as a measure of dissimilarity).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, UInt32

from fedjax_fraud import aggregate
from fedjax_fraud.local import ClientTask, LocalState, Objective, TrainingData, plan_batches, steps_per_epoch
from fedjax_fraud.program import Program, Settings
from fedjax_fraud.train import flatten_clients, pool_tasks, run_packed, take
from fedjax_fraud.types import FedState


class Diagnosis(NamedTuple):
    """See the module: scalars, or ``[settings]``."""

    dissimilarity: Array
    inexactness_mean: Array
    inexactness_max: Array


class GradientSum(NamedTuple):
    """A full gradient in progress: the sum over the rows so far, their number, and the batches that are done."""

    total: Any
    num_rows: Array
    num_done: Int[Array, ""]


def gradient_chunk(
    objective: Objective, data: TrainingData, task: ClientTask, params, carried: GradientSum, *, chunk_length: int
) -> GradientSum:
    """Adds ``chunk_length`` batches of one client to the sum of its gradients at ``params``."""
    batches = plan_batches(objective, data, task, carried.num_done, chunk_length)

    def step(i, carried):
        batch = jax.tree.map(lambda leaf: leaf[i], batches)
        features = data.table.at[batch.rows, 1:].get(mode="promise_in_bounds")
        grads = jax.grad(objective.batch_loss)(params, features, batch.labels, batch.valid)
        num_rows = jnp.where(batch.live, jnp.sum(batch.valid), 0)
        total = optax.tree.add_scale(carried.total, num_rows, grads)
        return carried._replace(total=total, num_rows=carried.num_rows + num_rows)

    carried = jax.lax.fori_loop(0, chunk_length, step, carried)
    return carried._replace(num_done=carried.num_done + chunk_length)


def full_gradients(
    program: Program,
    settings: Settings,
    data: TrainingData,
    params,
    which: Bool[Array, "settings clients"],
    keys: UInt32[Array, "settings clients"],
    round_index: Array,
):
    """The gradient of every client's mean loss over all its rows at its ``params``; zeros where not ``which``.

    Leaves of ``params`` and of the result: ``[settings, clients, ...]``.
    """
    num_steps = jnp.where(which, steps_per_epoch(settings.count, program.objective.batch_size), 0)
    tasks, _ = pool_tasks(settings, num_steps, keys, round_index)
    flat = flatten_clients(params)

    def run_lane(task, params, carried):
        return gradient_chunk(program.objective, data, task, params, carried, chunk_length=program.chunk_length)

    nothing = jnp.zeros(tasks.num_steps.shape)
    store = GradientSum(jax.tree.map(jnp.zeros_like, flat), nothing, nothing.astype(jnp.int32))
    store = run_packed(
        program, tasks, store, lambda read, task, carried: jax.vmap(run_lane)(task, take(flat, read), carried)
    )
    mean = jax.tree.map(lambda leaf: leaf / aggregate.spread(jnp.maximum(store.num_rows, 1), leaf), store.total)
    return jax.tree.map(lambda leaf: leaf.reshape(*which.shape, *leaf.shape[1:]), mean)


def diagnose(
    program: Program,
    settings: Settings,
    data: TrainingData,
    state: FedState,
    local: LocalState,
    num_steps: Int[Array, "settings clients"],
    keys: UInt32[Array, "settings clients"],
    round_index: Array,
) -> Diagnosis:
    """Dissimilarity and inexactness of one round of all settings; ``state`` is the one before the round."""
    has_rows, trained = settings.count > 0, num_steps > 0
    shape = num_steps.shape
    at_start = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf[:, None], (*shape, *leaf.shape[1:])), state.server.params
    )
    measure = (program, settings, data)
    start_gradient = full_gradients(*measure, at_start, has_rows, keys, round_index)
    end_gradient = full_gradients(*measure, local.params, trained, keys, round_index)

    def of_setting(hyper, server, clients, count, trained, start_gradient, end_gradient, end_params):
        return _diagnose_setting(
            program, hyper, server, clients, count, trained, start_gradient, end_gradient, end_params
        )

    return jax.vmap(of_setting)(
        settings.hyper, state.server, state.clients, settings.count, trained, start_gradient, end_gradient, local.params
    )


def _diagnose_setting(program, hyper, server, clients, count, trained, start_gradient, end_gradient, end_params):
    """One setting; leaves ``[clients, ...]``."""
    axis = program.clients_axis
    size = count.astype(jnp.float32)
    mean = aggregate.weighted_mean(start_gradient, size, count > 0, axis)
    deviation = aggregate.norms(jax.tree.map(lambda g, m: g - m[None], start_gradient, mean)) ** 2
    dissimilarity = aggregate.weighted_mean(deviation, size, count > 0, axis)

    correct = jax.vmap(program.build(hyper).correct, in_axes=(0, 0, None, 0))
    at_start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(count), *leaf.shape)), server.params)
    before = aggregate.norms(correct(start_gradient, at_start, server, clients))
    after = aggregate.norms(correct(end_gradient, end_params, server, clients))
    known = trained & (before > 0) & jnp.isfinite(after)
    ratio = jnp.where(known, after / jnp.where(before > 0, before, 1), 0)
    num_known = aggregate.total(known, axis)
    mean_ratio = aggregate.total(ratio, axis) / jnp.maximum(num_known, 1)
    nan = jnp.asarray(jnp.nan)
    return Diagnosis(
        dissimilarity,
        jnp.where(num_known > 0, mean_ratio, nan),
        jnp.where(num_known > 0, aggregate.largest(ratio, axis), nan),
    )
