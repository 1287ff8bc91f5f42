"""What the engine runs and what it tells: settings, program, plan of the rounds, history.

A *setting* is one federation. The settings stand along a leading axis, each with the same number of clients; client
k of setting f is client ``f * clients + k`` of the pool.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, Int, UInt32

from fedjax_fraud.conditions import Clock, ConditionArrays
from fedjax_fraud.local import Objective


class Settings(NamedTuple):
    """The federations of one program.

    Attributes:
      hyper: name -> ``[settings]``, the traced hyperparameters that ``Program.build`` takes.
      seed: ``[settings]`` uint32; decides cohorts and batches, whatever the algorithm.
      num_epochs: ``[settings]`` int32.
      participation: ``[settings]`` share of the clients with rows that take part in a round, in (0, 1].
      partition_id: ``[settings]`` int32, the row of ``TrainingData.orders``.
      start, count: ``[settings, clients]`` int32, each client's slice of that order.
      client_id: ``[settings, clients]`` int32, the identity that a client's random draws depend on.
      clock: simulated seconds of steps and links, or None: then rounds have no duration.
      conditions: what goes wrong, or None: nothing does, and nothing is compiled for it.
    """

    hyper: Mapping[str, Array]
    seed: UInt32[Array, " settings"]
    num_epochs: Int[Array, " settings"]
    participation: Float[Array, " settings"]
    partition_id: Int[Array, " settings"]
    start: Int[Array, "settings clients"]
    count: Int[Array, "settings clients"]
    client_id: Int[Array, "settings clients"]
    clock: Clock | None = None
    conditions: ConditionArrays | None = None


class Program(NamedTuple):
    """What is static: one compiled program for each value.

    Attributes:
      build: ``hyper -> FedAlgorithm``, called inside the mapped functions: every number in ``hyper`` is a tracer.
      objective: the loss, the model and the batches.
      num_lanes, chunk_length: the packing, see ``packing``.
      num_test, num_test_positives: rows of the test set, positives first; 0 = no scores.
      score_fn: None, or ``(params, test_features) -> pytree`` of scalars of a global model, for ``History.extra``.
      diagnostics: whether the gradients of ``diagnostics`` are measured, at about two more passes over the rows.
      clients_axis: the mesh axis that the clients of every setting are split over; None = every client is here.
    """

    build: Callable
    objective: Objective
    num_lanes: int
    chunk_length: int
    num_test: int = 0
    num_test_positives: int = 0
    score_fn: Callable | None = None
    diagnostics: bool = False
    clients_axis: str | None = None


class RoundPlan(NamedTuple):
    """What happens in each round; leaves have a leading rounds axis.

    Attributes:
      round_index: int32, from 1; decides cohorts and batches.
      active: whether anybody trains. An inactive round only scores.
      scored: ``[rounds, settings]``, whether a setting's global model is scored after the round (NaN if not).
      work: None, then cohorts are drawn; or ``[rounds, settings, clients]``, the share in [0, 1] of its full local
        work that each client does: 0 = absent, 0.5 = a straggler that makes half of its steps, rounded up.
      available: None, or ``[rounds, identities]``, whether the client with an identity can be reached in a round, for
        the settings whose ``ConditionArrays.has_trace`` says so.
    """

    round_index: Array
    active: Array
    scored: Array
    work: Array | None = None
    available: Array | None = None


class History(NamedTuple):
    """What a reader wants to know of each round: ``[rounds]``, or ``[rounds, settings]`` in a sweep.

    Attributes:
      log_loss, average_precision, roc_auc: the global model on the pooled test rows; NaN without a test set.
      num_started: clients that received the model.
      num_participants: those of them whose update came back.
      num_rejected: updates that the server left out: not finite, larger than ``max_update_norm``, of another round, or
        the second copy of one that it has.
      num_faulty: updates that were faulty.
      num_silent: faulty ones that found their way into the mean.
      skipped: nobody was left: model and control variates stayed as they were.
      num_steps, num_rows: local steps made and rows visited, over all clients.
      delta_norm_mean, delta_norm_max: norm of w_k - w_t over the cohort that counted; NaN if none did.
      drift: mean over that cohort of the norm of (w_k - w_t) minus its mean: how much the clients disagree.
      seconds: simulated time of the round; NaN without a clock.
      state_error: how far the algorithm's ``invariant`` is from holding, relative to the largest client state.
      state_size: the norm of that client state; both NaN if the algorithm has no invariant.
      dissimilarity, inexactness_mean, inexactness_max: see ``diagnostics``; NaN unless asked for.
      extra: what ``Program.score_fn`` returned; ``()`` without one.
    """

    log_loss: Array
    average_precision: Array
    roc_auc: Array
    num_started: Array
    num_participants: Array
    num_rejected: Array
    num_faulty: Array
    num_silent: Array
    skipped: Array
    num_steps: Array
    num_rows: Array
    delta_norm_mean: Array
    delta_norm_max: Array
    drift: Array
    seconds: Array
    state_error: Array
    state_size: Array
    dissimilarity: Array
    inexactness_mean: Array
    inexactness_max: Array
    extra: Any = ()


def own_clients(program: Program, tree):
    """This device's share of the clients; leaves ``[settings, clients, ...]``."""
    axis = program.clients_axis
    if axis is None:
        return tree

    def share(leaf):
        size = leaf.shape[1] // jax.lax.psum(1, axis)
        return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(axis) * size, size, axis=1)

    return jax.tree.map(share, tree)
