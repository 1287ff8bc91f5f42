"""One client's local steps: its batches, its padding, its last step."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, local
from fedjax_fraud.simulate import count_rows
from fedjax_fraud.testing.federations import LOGISTIC, federations, logistic_params, table
from tests import reference
from tests.test_reference import QUICK, to_list

BATCH = 4


def client(num_examples, *, start=0, num_steps=0, key=3):
    """A task with the given slice."""
    zero = jnp.int32(0)
    return local.ClientTask(
        zero, jnp.int32(start), jnp.int32(num_examples), jnp.int32(num_steps), zero, zero, jnp.uint32(key)
    )


@functools.partial(jax.jit, static_argnames="num_steps")
def batches(task, num_steps):
    """The positions of the first steps and whether they count: ``[num_steps, BATCH]``."""
    return jax.vmap(lambda s: local.shuffled_epochs(task, s, BATCH))(jnp.arange(num_steps, dtype=jnp.int32))


def epochs_of(num_examples, key=3):
    """The order of rows in each of the first epochs, by following the steps."""
    per_epoch = -(-num_examples // BATCH)
    position, valid = map(np.asarray, batches(client(num_examples, key=key), 24))
    return [
        position[e * per_epoch : (e + 1) * per_epoch][valid[e * per_epoch : (e + 1) * per_epoch]]
        for e in range(24 // per_epoch)
    ]


@pytest.mark.parametrize("num_examples", range(1, 18))
def test_every_epoch_visits_every_row_once(num_examples):
    for order in epochs_of(num_examples):
        np.testing.assert_array_equal(np.sort(order), np.arange(num_examples))


def test_epochs_and_keys_have_orders_of_their_own():
    """For keys as the engine makes them, spread over 32 bits."""
    keys = np.random.default_rng(0).integers(0, 2**32, 4, dtype=np.uint32)
    orders = [tuple(order) for key in keys for order in epochs_of(17, key)]
    assert len(set(orders)) == len(orders)
    assert [tuple(order) for order in epochs_of(17, keys[0])] == orders[: len(orders) // 4]


@pytest.mark.parametrize("num_examples", [0, 1, 3, 4, 5, 11])
def test_padding_repeats_rows_of_the_same_client_and_fills_only_last_batches(num_examples):
    position, valid = map(np.asarray, batches(client(num_examples), 24))
    assert ((position >= 0) & (position < max(num_examples, 1))).all()
    per_epoch = max(-(-num_examples // BATCH), 1)
    rest = num_examples - BATCH * (per_epoch - 1)
    wanted = [rest if s % per_epoch == per_epoch - 1 else BATCH for s in range(24)]
    np.testing.assert_array_equal(valid.sum(axis=1), wanted)


@pytest.mark.parametrize("num_examples, wanted", [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_steps_per_epoch_count_the_partial_batch(num_examples, wanted):
    assert local.steps_per_epoch(jnp.int32(num_examples), BATCH) == wanted


def test_counted_rows_are_those_that_the_steps_visit():
    """Also for a straggler that stops within an epoch."""
    settings = federations(counts=(11, 1, 5, 7, 0)).settings()
    for made in range(8):
        steps = jnp.where(settings.count > 0, made, 0).astype(jnp.int32)
        visited = sum(
            int(np.asarray(batches(client(n), 24)[1])[:made].sum()) for n in np.asarray(settings.count[0]) if n > 0
        )
        np.testing.assert_array_equal(count_rows(settings, steps, BATCH), visited)


OBJECTIVE = local.Objective(LOGISTIC.apply, batch_size=BATCH)
value_and_grad = jax.jit(jax.value_and_grad(OBJECTIVE.batch_loss))


def test_a_batch_of_padding_has_no_loss_and_no_gradient():
    x, y = table()
    args = jnp.asarray(x[:BATCH]), jnp.asarray(y[:BATCH]), jnp.zeros(BATCH, bool)
    value, grads = value_and_grad(logistic_params(), *args)
    assert value == 0
    chex.assert_trees_all_equal(grads, logistic_params(), strict=True)


def test_the_batch_loss_is_the_mean_over_real_rows():
    x, y = table()
    valid = jnp.array([True, True, False, False])
    _, grads = value_and_grad(logistic_params(), jnp.asarray(x[:BATCH]), jnp.asarray(y[:BATCH]), valid)
    wanted = reference.gradient(to_list(logistic_params()), x[:2].astype(float), y[:2])
    for got, want in zip(to_list(grads), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_saturated_logits_have_exact_gradients():
    """Logits of 40 and -120 on the wrong side: slopes 1 and -1."""
    x = jnp.array([[40.0], [-120.0]])
    params = {"kernel": jnp.ones((1, 1)), "bias": jnp.zeros(1)}
    objective = OBJECTIVE._replace(apply=lambda p, x: (x @ p["kernel"])[:, 0] + p["bias"][0])
    slope = jax.jit(jax.value_and_grad(objective.batch_loss))
    value, grads = slope(params, x, jnp.array([0.0, 1.0]), jnp.ones(2, bool))
    assert value == 80.0
    np.testing.assert_allclose(grads["kernel"][0, 0], (40.0 + 120.0) / 2)
    np.testing.assert_allclose(grads["bias"][0], 0.0)


@pytest.mark.parametrize(
    "algorithm",
    [
        algorithms.fedavg(optax.sgd(0.1, momentum=0.9)),
        algorithms.fedavg(optax.adam(0.1)),
        algorithms.ditto(optax.adam(0.1), mu=0.5),
        algorithms.adaptive_fedprox(optax.adam(0.1), mu=0.5),
    ],
    ids=["momentum", "adam", "personal model", "loss at the server"],
)
def test_past_its_last_step_a_client_stands_still(algorithm):
    """A chunk is longer than the work that is left; momentum, or Adam's count, would show a step too many."""
    x, y = table()
    data = jax.tree.map(jnp.asarray, local.make_training_data(x, y, np.arange(24)[None]))
    server, clients = algorithm.init(logistic_params(), 1)
    mine = jax.tree.map(lambda leaf: leaf[0], clients)

    @functools.partial(jax.jit, static_argnames="chunk_length", compiler_options=QUICK)
    def chunk(task, state, chunk_length):
        return local.local_chunk(algorithm, OBJECTIVE, data, task, server, mine, state, chunk_length=chunk_length)

    start = local.start_local(algorithm, server.params, mine)
    task = client(9, num_steps=3)
    three, ten = chunk(task, start, 3), chunk(task, start, 10)
    chex.assert_trees_all_close(three._replace(num_done=0), ten._replace(num_done=0), rtol=1e-6, strict=True)
    assert (int(three.num_done), int(ten.num_done)) == (3, 10)
    halves = chunk(task, chunk(task, start, 2), 2)
    chex.assert_trees_all_close(halves.params, ten.params, rtol=1e-6, strict=True)
    chex.assert_trees_all_equal(chunk(client(9, num_steps=0), start, 3).params, start.params, strict=True)
    assert float(optax.tree.norm(optax.tree.sub(three.params, start.params))) > 0.01


def test_a_slice_reads_only_its_own_rows():
    """Rows outside the slice are NaN, and the order is not the identity."""
    x, y = table()
    order = np.random.default_rng(0).permutation(24).astype(np.int32)
    x[np.setdiff1d(np.arange(24), order[5:11])] = np.nan
    data = jax.tree.map(jnp.asarray, local.make_training_data(x, y, order[None]))
    algorithm = algorithms.scaffold(0.1, option=1)
    server, clients = algorithm.init(logistic_params(), 1)
    mine = jax.tree.map(lambda leaf: leaf[0], clients)
    start = local.start_local(algorithm, server.params)
    chunk = functools.partial(local.local_chunk, algorithm, OBJECTIVE, data, chunk_length=6)
    after = jax.jit(chunk, compiler_options=QUICK)(client(6, start=5, num_steps=6), server, mine, start)
    chex.assert_tree_all_finite(after)
    assert after.num_rows == 3 * 6
    np.testing.assert_allclose(after.loss_sum / after.num_rows, np.log(2), rtol=1e-6)  # of the model of zeros
    mean = jax.tree.map(lambda total: total / after.num_rows, after.gradient_sum)
    rows = order[5:11]
    for got, want in zip(to_list(mean), reference.gradient(to_list(logistic_params()), x[rows], y[rows]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
