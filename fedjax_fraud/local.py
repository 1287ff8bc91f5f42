"""One client's local steps: which rows a step reads, and what it does with them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from fedjax_fraud import losses, privacy, shuffle
from fedjax_fraud.types import FedAlgorithm


class TrainingData(NamedTuple):
    """The training rows, on the device once, and how each partition orders them.

    Attributes:
      table: ``[samples, 1 + features]``, the label in front of its features: a random row is one trip to memory.
      orders: ``[partitions, samples]`` int32, one ``Partition.order`` each.
    """

    table: Float[Array, "samples columns"]
    orders: Int[Array, "partitions samples"]


def make_training_data(
    features: Float[np.ndarray, "samples features"],
    labels: Shaped[np.ndarray, " samples"],
    orders: Int[np.ndarray, "partitions samples"],
) -> TrainingData:
    """Joins labels and features on the host."""
    table = np.empty((features.shape[0], 1 + features.shape[1]), np.float32)
    table[:, 0], table[:, 1:] = labels, features
    return TrainingData(table, np.asarray(orders, np.int32))


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
      gradient_sum, loss_sum: running sums over rows of the gradient and of the loss at the global model, and
        ``num_rows`` their rows; ``()`` each unless the algorithm needs them.
      personal, personal_opt_state: the client's own model and its optimizer's state; ``()`` unless it has one.
    """

    params: Any
    opt_state: Any
    num_done: Int[Array, ""]
    gradient_sum: Any = ()
    num_rows: Any = ()
    loss_sum: Any = ()
    personal: Any = ()
    personal_opt_state: Any = ()


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
      tapped: the model's, see ``Model``; without it private gradients are taken row by row.
    """

    apply: Callable
    loss_fn: Callable = losses.binary_cross_entropy
    batch_size: int = 64
    batch_fn: Callable = shuffled_epochs
    tapped: Callable | None = None

    def batch_loss(self, params, x, y, valid):
        """Mean loss over the real rows of a batch."""
        return losses.masked_mean(self.loss_fn(self.apply(params, x), y), valid)


class Batch(NamedTuple):
    """What one step trains on. Leaves have a leading steps axis in ``plan_batches``.

    Attributes:
      rows: ``[batch]`` int32, rows of ``TrainingData.table``.
      labels: ``[batch]``, theirs.
      valid: ``[batch]``, which of the rows are real and not padding.
      live: whether the client makes this step at all; False past its last one.
      expected: how many rows a drawn batch holds in the mean.
      key: of what is drawn in the step.
    """

    rows: Int[Array, " batch"]
    labels: Float[Array, " batch"]
    valid: Bool[Array, " batch"]
    live: Bool[Array, ""]
    expected: Int[Array, ""]
    key: UInt32[Array, ""]


def plan_batches(
    objective: Objective, data: TrainingData, task: ClientTask, first_step: Int[Array, ""], num_steps: int
) -> Batch:
    """The batches of ``num_steps`` steps from ``first_step`` on, all at once: much cheaper than one in each step."""
    step = first_step + jnp.arange(num_steps, dtype=jnp.int32)
    position, valid = jax.vmap(lambda s: objective.batch_fn(task, s, objective.batch_size))(step)
    rows = data.orders.at[task.partition_id, task.start + position].get(mode="promise_in_bounds")
    # Reading the labels here also brings the rows close to the processor before the steps read them.
    labels = data.table.at[rows, 0].get(mode="promise_in_bounds")
    expected = jnp.full(step.shape, jnp.clip(task.num_examples, 1, objective.batch_size))
    keys = shuffle.mix(step.astype(jnp.uint32), task.key)
    return Batch(rows, labels, valid, step < task.num_steps, expected, keys)


def start_local(algorithm: FedAlgorithm, params, client=()) -> LocalState:
    """The state before the first step: the global model, the client's own where it has one, and fresh optimizers.

    Args:
      algorithm: says what the state has to hold.
      params: the global model.
      client: the client's state; only read, for its ``personal``, if the algorithm has ``correct_personal``.
    """
    state = LocalState(params, algorithm.client_opt.init(params), jnp.zeros((), jnp.int32))
    if algorithm.needs_server_gradient:
        zero = jnp.zeros(())
        state = state._replace(gradient_sum=optax.tree.zeros_like(params), num_rows=zero, loss_sum=zero)
    if algorithm.correct_personal is not None:
        own = client.personal
        state = state._replace(personal=own, personal_opt_state=algorithm.client_opt.init(own))
    return state


def local_step(
    algorithm: FedAlgorithm, objective: Objective, data: TrainingData, batch: Batch, server, client, state: LocalState
) -> LocalState:
    """One optimizer step of one client; past its last step the state is carried on unchanged."""
    features = data.table.at[batch.rows, 1:].get(mode="promise_in_bounds")
    rows = features, batch.labels, batch.valid

    def gradient(params):
        if algorithm.privacy is None:
            return jax.grad(objective.batch_loss)(params, *rows)
        drawn = *rows, algorithm.privacy, batch.expected, batch.key
        return privacy.private_gradient(objective, params, *drawn)

    def step(correct, params, opt_state):
        grads = correct(gradient(params), params, server, client)
        updates, opt_state = algorithm.client_opt.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params, opt_state = step(algorithm.correct, state.params, state.opt_state)
    after = state._replace(params=params, opt_state=opt_state)
    if algorithm.correct_personal is not None:
        own, own_opt_state = step(algorithm.correct_personal, state.personal, state.personal_opt_state)
        after = after._replace(personal=own, personal_opt_state=own_opt_state)
    if algorithm.needs_server_gradient:
        num_rows = jnp.sum(batch.valid)
        loss, at_server = jax.value_and_grad(objective.batch_loss)(server.params, *rows)
        after = after._replace(
            gradient_sum=optax.tree.add_scale(state.gradient_sum, num_rows, at_server),
            num_rows=state.num_rows + num_rows,
            loss_sum=state.loss_sum + num_rows * loss,
        )
    return optax.tree.where(batch.live, after, state)


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
    if algorithm.privacy is not None:
        objective = objective._replace(batch_fn=privacy.poisson_batches)
    batches = plan_batches(objective, data, task, state.num_done, chunk_length)

    def step(i, state):
        # Not a scan: under vmap it would first move the steps axis of every array in front of the lanes.
        batch = jax.tree.map(lambda leaf: leaf[i], batches)
        return local_step(algorithm, objective, data, batch, server, client, state)

    state = jax.lax.fori_loop(0, chunk_length, step, state)
    return state._replace(num_done=state.num_done + chunk_length)
