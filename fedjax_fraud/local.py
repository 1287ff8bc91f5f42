"""One client's local steps: which rows a step reads, and what it does with them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, UInt32

from fedjax_fraud import losses, shuffle
from fedjax_fraud.types import FedAlgorithm


class TrainingData(NamedTuple):
    """The training rows, on the device once, and how each partition orders them.

    Attributes:
      features: ``[samples, features]``.
      labels: ``[samples]``.
      orders: ``[partitions, samples]`` int32, one ``Partition.order`` each.
    """

    features: Float[Array, "samples features"]
    labels: Float[Array, " samples"]
    orders: Int[Array, "partitions samples"]


class ClientTask(NamedTuple):
    """One client's work in one round: where its rows are and how many steps it makes. Scalars.

    Attributes:
      partition_id: which row of ``TrainingData.orders``.
      start, num_examples: the client's slice of that order.
      num_steps: local steps of this round; 0 = sits out.
      client_id, round_index: who and when, for a ``batch_fn`` that replays given batches.
      key: the key of this client's shuffles in this round.
    """

    partition_id: Int[Array, ""]
    start: Int[Array, ""]
    num_examples: Int[Array, ""]
    num_steps: Int[Array, ""]
    client_id: Int[Array, ""]
    round_index: Int[Array, ""]
    key: UInt32[Array, ""]


class LocalState(NamedTuple):
    """A client's training in progress.

    Attributes:
      params, opt_state: the local model and its optimizer's state.
      num_done: steps made so far.
      gradient_sum: running sum over rows of the gradient at the global model, and ``num_rows`` its rows; ``()`` and
        ``()`` unless the algorithm needs them.
    """

    params: Any
    opt_state: Any
    num_done: Int[Array, ""]
    gradient_sum: Any = ()
    num_rows: Any = ()


def steps_per_epoch(num_examples: Int[Array, "*shape"], batch_size: int) -> Int[Array, "*shape"]:
    """Batches that cover ``num_examples`` rows once; the last one may be partial."""
    return -(-num_examples // batch_size)


def shuffled_epochs(
    task: ClientTask, step: Int[Array, ""], batch_size: int
) -> tuple[Int[Array, " batch"], Bool[Array, " batch"]]:
    """The batch of a step when every epoch visits the client's rows once, in a fresh keyed order.

    Returns: positions within the client's slice, in ``[0, num_examples)``, and which of them are real. The padding
    of a partial last batch repeats a row of the *same* client and is masked.
    """
    in_epoch = jnp.maximum(steps_per_epoch(task.num_examples, batch_size), 1)
    epoch, step = step // in_epoch, step % in_epoch
    position = step * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
    valid = position < task.num_examples
    key = shuffle.mix(epoch.astype(jnp.uint32), task.key)
    return shuffle.shuffle_index(jnp.where(valid, position, 0), task.num_examples, key), valid


class Objective(NamedTuple):
    """What local training minimises, and on which batches.

    Attributes:
      apply: the model's ``(params, x) -> logits``.
      loss_fn: ``(logits [batch], labels [batch]) -> losses [batch]``.
      batch_size: rows of a batch; the loss is the mean over its real rows.
      batch_fn: ``(task, step, batch_size) -> (positions, valid)``; replace it to replay given batches.
    """

    apply: Callable
    loss_fn: Callable = losses.binary_cross_entropy
    batch_size: int = 64
    batch_fn: Callable = shuffled_epochs

    def batch_loss(self, params, x, y, valid):
        """Mean loss over the real rows of a batch."""
        return losses.masked_mean(self.loss_fn(self.apply(params, x), y), valid)


def start_local(algorithm: FedAlgorithm, params) -> LocalState:
    """The state before the first step: the global model and a fresh optimizer."""
    state = LocalState(params, algorithm.client_opt.init(params), jnp.zeros((), jnp.int32))
    if algorithm.needs_server_gradient:
        state = state._replace(gradient_sum=optax.tree.zeros_like(params), num_rows=jnp.zeros(()))
    return state


def local_step(
    algorithm: FedAlgorithm, objective: Objective, data: TrainingData, task: ClientTask, server, client, state
) -> LocalState:
    """One optimizer step of one client; past its last step the state is carried on unchanged."""
    position, valid = objective.batch_fn(task, state.num_done, objective.batch_size)
    rows = data.orders[task.partition_id, task.start + position]
    batch = data.features[rows], data.labels[rows], valid

    grads = jax.grad(objective.batch_loss)(state.params, *batch)
    grads = algorithm.correct(grads, state.params, server, client)
    updates, opt_state = algorithm.client_opt.update(grads, state.opt_state, state.params)
    after = state._replace(params=optax.apply_updates(state.params, updates), opt_state=opt_state)
    if algorithm.needs_server_gradient:
        num_rows = jnp.sum(valid)
        at_server = jax.grad(objective.batch_loss)(server.params, *batch)
        after = after._replace(
            gradient_sum=optax.tree.add_scale(state.gradient_sum, num_rows, at_server),
            num_rows=state.num_rows + num_rows,
        )
    after = optax.tree.where(state.num_done < task.num_steps, after, state)
    return after._replace(num_done=state.num_done + 1)


def local_chunk(
    algorithm: FedAlgorithm,
    objective: Objective,
    data: TrainingData,
    task: ClientTask,
    server,
    client,
    state: LocalState,
    *,
    chunk_length: int,
) -> LocalState:
    """``chunk_length`` local steps of one client, the unit that the engine packs into lanes."""
    return jax.lax.fori_loop(
        0, chunk_length, lambda _, s: local_step(algorithm, objective, data, task, server, client, s), state
    )
