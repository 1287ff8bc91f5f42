"""The server's end of a round: which updates it accepts, their mean, its own step, and what is said of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int

from fedjax_fraud import aggregate
from fedjax_fraud.conditions import COHORTS, FAULTS, HUGE, ConditionArrays
from fedjax_fraud.local import LocalState
from fedjax_fraud.program import Program
from fedjax_fraud.types import ClientResult, FedAlgorithm, FedState, LocalWork


class Outcome(NamedTuple):
    """How a setting's round went: scalars, see ``History``."""

    num_participants: Array
    num_rejected: Array
    num_faulty: Array
    num_silent: Array
    skipped: Array
    delta_norm_mean: Array
    delta_norm_max: Array
    drift: Array
    state_error: Array
    state_size: Array


def finish_setting(
    program: Program,
    hyper,
    state: FedState,
    local: LocalState,
    num_steps: Int[Array, " clients"],
    count: Int[Array, " clients"],
    conditions: ConditionArrays | None = None,
    faulty: Bool[Array, " clients"] | None = None,
) -> tuple[FedState, Outcome]:
    """One setting's end of round: messages, their mean, the server's step, the clients' new state.

    Args:
      state: the setting's state; client leaves ``[clients, ...]``.
      local: the trained clients, leaves ``[clients, ...]``.
      num_steps, count: ``[clients]`` steps really made, and rows held.
      conditions, faulty: what goes wrong with the updates; None = nothing does.

    Returns: ``(FedState, Outcome)``. A client whose update is not accepted counts for nothing and keeps its state;
    with no client left the whole state stays as it was.
    """
    algorithm, axis = program.build(hyper), program.clients_axis
    result = client_results(algorithm, state, local, num_steps, count)
    screened = screen(result, num_steps > 0, conditions, faulty)
    counts = screened.counts

    mean = aggregate.weighted_mean(screened.message, screened.weight, counts, axis)
    num_counted, num_with_rows = aggregate.total(counts, axis), aggregate.total(count > 0, axis)
    participation = num_counted / jnp.maximum(num_with_rows, 1)
    anybody = num_counted > 0
    server = optax.tree.where(anybody, algorithm.server_update(state.server, mean, participation), state.server)
    clients = aggregate.where_clients(counts, result.client, state.clients)
    outcome = Outcome(
        aggregate.total(num_steps > 0, axis),
        aggregate.total(screened.num_rejected, axis),
        aggregate.total(screened.faulty, axis),
        aggregate.total(screened.silent, axis),
        ~anybody,
        *client_drift(state.server.params, local.params, counts, axis),
        *state_error(algorithm, server, clients, count > 0, axis),
    )
    return FedState(server, clients), outcome


def client_results(algorithm: FedAlgorithm, state: FedState, local: LocalState, num_steps, count) -> ClientResult:
    """What every client sends and keeps. Leaves ``[clients, ...]``."""
    gradient = loss = personal = None
    if algorithm.needs_server_gradient:
        num_rows = jnp.maximum(local.num_rows, 1)
        gradient = jax.tree.map(lambda total: total / aggregate.spread(num_rows, total), local.gradient_sum)
        loss = local.loss_sum / num_rows
    if algorithm.correct_personal is not None:
        personal = local.personal
    work = LocalWork(local.params, num_steps, count, gradient, loss, personal)
    return jax.vmap(algorithm.client_update, in_axes=(None, 0, 0))(state.server, state.clients, work)


# ---- what is accepted -------------------------------------------------------------------------------------------


class Screened(NamedTuple):
    """Messages as they arrived, and which of them count. Leaves ``[clients, ...]``."""

    message: object
    weight: object
    counts: Bool[Array, " clients"]
    num_rejected: Int[Array, " clients"]
    faulty: Bool[Array, " clients"]
    silent: Bool[Array, " clients"]


def screen(
    result: ClientResult,
    trained: Bool[Array, " clients"],
    conditions: ConditionArrays | None,
    faulty: Bool[Array, " clients"] | None,
) -> Screened:
    """Accepts the updates that are finite, not too large, of this round, and the first of their client.

    A client's update says which round it was computed for and who sent it, so an old one and a second copy are told by
    that, not by what they hold.
    """
    if conditions is None:
        counts = trained & aggregate.all_finite(result.message)
        nobody = jnp.zeros(trained.shape, bool)
        return Screened(result.message, result.weight, counts, trained & ~counts, nobody, nobody)
    faulty = faulty & trained
    message = corrupt(result.message, faulty, conditions.fault)
    small = aggregate.norms(message) <= conditions.max_update_norm
    current = ~(faulty & (conditions.fault == FAULTS.index("stale")))
    counts = trained & aggregate.all_finite(message) & small & current
    copied = faulty & (conditions.fault == FAULTS.index("duplicate"))
    # Where clients are drawn by size, equal weights make the mean unbiased (Li et al. 2020, Convergence of FedAvg).
    by_size = conditions.cohort == COHORTS.index("by_size")
    weight = jax.tree.map(lambda w: jnp.where(by_size, jnp.ones_like(w), w), result.weight)
    rejected = (trained & ~counts).astype(jnp.int32) + (counts & copied)
    return Screened(message, weight, counts, rejected, faulty, faulty & counts & ~copied)


def corrupt(message, faulty: Bool[Array, " clients"], fault: Int[Array, ""]):
    """Puts NaN, infinity or a huge number into every place of the faulty messages."""
    kinds = [FAULTS.index(name) for name in ("nan", "inf", "huge")]
    value = jnp.select([fault == kind for kind in kinds], [jnp.nan, jnp.inf, HUGE], 0.0)
    replaced = faulty & (fault >= kinds[0]) & (fault <= kinds[-1])
    return aggregate.where_clients(replaced, jax.tree.map(lambda leaf: jnp.full_like(leaf, value), message), message)


# ---- what is said of it -----------------------------------------------------------------------------------------


def client_drift(params, local_params, counts: Bool[Array, " clients"], axis: str | None) -> tuple[Array, Array, Array]:
    """Mean and largest norm of the client changes, and the mean norm of their deviation from their mean."""
    delta = jax.tree.map(lambda w_k, w_t: w_k - w_t[None], local_params, params)
    delta = aggregate.where_clients(counts, delta, jax.tree.map(jnp.zeros_like, delta))
    num_counted = aggregate.total(counts, axis)
    mean = jax.tree.map(lambda d: aggregate.total(d, axis) / jnp.maximum(num_counted, 1), delta)
    deviation = jax.tree.map(lambda d, m: d - m[None], delta, mean)

    def norms(tree):
        return jnp.where(counts, aggregate.norms(tree), 0.0)

    def mean_or_nan(values):
        return jnp.where(num_counted > 0, aggregate.total(values, axis) / jnp.maximum(num_counted, 1), jnp.nan)

    largest = jnp.where(num_counted > 0, aggregate.largest(norms(delta), axis), jnp.nan)
    return mean_or_nan(norms(delta)), largest, mean_or_nan(norms(deviation))


def state_error(
    algorithm: FedAlgorithm, server, clients, has_rows: Bool[Array, " clients"], axis: str | None
) -> tuple[Array, Array]:
    """How far the algorithm's invariant is from holding, relative to the largest client state, and the norm of that.

    Both NaN if the algorithm has none.
    """
    if algorithm.invariant is None:
        return jnp.asarray(jnp.nan), jnp.asarray(jnp.nan)
    client_mean = aggregate.weighted_mean(clients, jnp.ones(has_rows.shape), has_rows, axis)
    largest = aggregate.largest(jnp.where(has_rows, aggregate.norms(clients), 0.0), axis)
    difference = optax.tree.norm(algorithm.invariant(server, client_mean))
    return difference / jnp.maximum(largest, jnp.finfo(jnp.float32).tiny), largest
