"""DP-SGD: clipping row by row as a plain loop does it, noise of the stated size, batches as coins would draw them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from fedjax_fraud import algorithms, local, models, partition, privacy, simulate
from fedjax_fraud.types import Privacy, Transactions

NUM_FEATURES = 3
FULL = Privacy(1e9, 0.0)


def rows_of(num_rows: int, seed: int = 0) -> Transactions:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_rows, NUM_FEATURES)).astype(np.float32)
    labels = (features[:, 0] + rng.normal(size=num_rows) > 0.5).astype(np.int32)
    return Transactions(features, labels, tuple("abc"))


def logits(params, x):
    return x @ params["w"] + params["b"]


@jax.jit
def private(params, features, labels, valid, privacy_, expected, key):
    return privacy.private_gradient(local.Objective(logits), params, features, labels, valid, privacy_, expected, key)


def gradient(rows, privacy_, *, valid=None, expected=10, key=1, w=(0.5, -1.0, 2.0)):
    params = {"w": jnp.array(w), "b": jnp.array(0.3)}
    valid = jnp.ones(len(rows.labels), bool) if valid is None else valid
    arrays = jnp.asarray(rows.features), jnp.asarray(rows.labels, jnp.float32), valid
    return private(params, *arrays, privacy_, jnp.asarray(expected), jnp.asarray(key, jnp.uint32))


def clipped_sum(rows, clip_norm, w=(0.5, -1.0, 2.0), b=0.3):
    """A plain loop: the gradient of a row is (p - y) (x, 1)."""
    total = np.zeros(NUM_FEATURES + 1)
    for x, y in zip(rows.features.astype(float), rows.labels, strict=True):
        g = (1 / (1 + np.exp(-(x @ np.array(w) + b))) - y) * np.append(x, 1.0)
        total += g * min(1.0, clip_norm / np.linalg.norm(g))
    return total


def as_vector(tree):
    return np.append(np.asarray(tree["w"], float), float(tree["b"]))


# ---- gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [0.05, 0.5, 100.0])
def test_every_row_is_clipped_by_itself(clip_norm):
    rows = rows_of(40)
    found = as_vector(gradient(rows, Privacy(clip_norm, 0.0), expected=16))
    np.testing.assert_allclose(found, clipped_sum(rows, clip_norm) / 16, rtol=2e-5, atol=1e-7)


def test_rows_outside_the_batch_count_for_nothing():
    rows, valid = rows_of(30), np.arange(30) % 3 == 0
    few = Transactions(rows.features[valid], rows.labels[valid], rows.names)
    np.testing.assert_allclose(
        as_vector(gradient(rows, Privacy(0.7, 0.0), valid=jnp.asarray(valid))),
        clipped_sum(few, 0.7) / 10,
        rtol=2e-5,
        atol=1e-7,
    )


@given(
    row=st.lists(st.floats(-1e3, 1e3, width=32), min_size=NUM_FEATURES, max_size=NUM_FEATURES),
    label=st.integers(0, 1),
    clip_norm=st.sampled_from([0.01, 1.0, 30.0]),
)
def test_one_row_more_moves_the_sum_by_at_most_the_clipping_norm(row, label, clip_norm):
    rows = rows_of(5)
    more = Transactions(
        np.vstack([rows.features, np.array([row], np.float32)]), np.append(rows.labels, label).astype(np.int32), ()
    )
    without, with_row = (as_vector(gradient(r, Privacy(clip_norm, 0.0), expected=1)) for r in (rows, more))
    assert np.linalg.norm(with_row - without) <= clip_norm * (1 + 1e-4) + 1e-5


@pytest.mark.parametrize("hidden", [(), (8,), (16, 4)])
def test_norms_by_one_backward_pass_are_those_of_each_row_s_gradient(hidden):
    rows, model = rows_of(50), models.perceptron(NUM_FEATURES, hidden)
    params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(jax.random.key(3)))
    arrays = jnp.asarray(rows.features), jnp.asarray(rows.labels, jnp.float32)
    objective = local.Objective(model.apply, tapped=model.tapped)
    np.testing.assert_array_equal(model.tapped(params, arrays[0], jnp.ones(50)), model.apply(params, arrays[0]))
    slow = jax.jit(partial(privacy.row_norms, objective))(params, *arrays)
    quick = jax.jit(partial(privacy.tapped_norms, objective))(params, *arrays)
    assert np.ptp(slow) > 0.1
    np.testing.assert_allclose(quick, slow, rtol=1e-5)
    vector, _ = models.as_vector(model)
    flat = objective._replace(apply=vector.apply, tapped=vector.tapped)
    of_vector = jax.jit(partial(privacy.tapped_norms, flat))(ravel_pytree(params)[0], *arrays)
    np.testing.assert_allclose(of_vector, slow, rtol=1e-5)


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_a_model_without_a_tap_gives_the_same_private_gradient(hidden):
    rows, model = rows_of(50), models.perceptron(NUM_FEATURES, hidden)
    params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(jax.random.key(3)))
    arrays = jnp.asarray(rows.features), jnp.asarray(rows.labels, jnp.float32), jnp.arange(50) < 40
    drawn = *arrays, Privacy(0.5, 1.0), jnp.asarray(32), jnp.uint32(4)
    quick, slow = (
        jax.jit(partial(privacy.private_gradient, local.Objective(model.apply, tapped=tapped)))(params, *drawn)
        for tapped in (model.tapped, None)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), quick, slow)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
def test_a_row_whose_gradient_is_not_finite_counts_as_zero(bad):
    rows = rows_of(8)
    spoiled = np.vstack([rows.features, np.full((1, NUM_FEATURES), bad, np.float32)])
    more = Transactions(spoiled, np.append(rows.labels, 1).astype(np.int32), ())
    found = as_vector(gradient(more, Privacy(1.0, 0.0), w=(1e3, 1.0, 1.0)))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, as_vector(gradient(rows, Privacy(1.0, 0.0), w=(1e3, 1.0, 1.0))), atol=0.1001)


@jax.jit
def flat(params, features, labels, valid, privacy_, expected, key):
    """The gradient of a loss that is zero, with noise."""
    objective = local.Objective(lambda params, x: 0.0 * (jnp.sum(params["w"]) + params["b"] + x[:, 0]))
    return privacy.private_gradient(objective, params, features, labels, valid, privacy_, expected, key)


def noise_of(key, clip_norm=2.0, noise=3.0, expected=5, size=20_000):
    rows = rows_of(4)
    params = {"w": jnp.zeros(size), "b": jnp.zeros(())}
    arrays = jnp.asarray(rows.features), jnp.asarray(rows.labels, jnp.float32), jnp.ones(4, bool)
    drawn = Privacy(clip_norm, noise), jnp.asarray(expected), jnp.asarray(key, jnp.uint32)
    return as_vector(flat(params, *arrays, *drawn))


def test_the_noise_has_the_stated_size_and_no_key_s_is_another_s():
    one, other = noise_of(7), noise_of(8)
    np.testing.assert_array_equal(one, noise_of(7))
    assert one.std() == pytest.approx(2.0 * 3.0 / 5, rel=0.02) and abs(one.mean()) < 0.04
    assert scipy.stats.kstest(one / one.std(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


# ---- batches ----------------------------------------------------------------------------------------------------


def draws(num_examples, batch_size, num_steps, key=3):
    zero = jnp.zeros((), jnp.int32)
    task = local.ClientTask(
        zero, zero, jnp.asarray(num_examples, jnp.int32), zero, zero, zero, jnp.asarray(key, jnp.uint32)
    )
    steps = jnp.arange(num_steps, dtype=jnp.int32)
    rows, valid = jax.jit(jax.vmap(lambda s: privacy.poisson_batches(task, s, batch_size)))(steps)
    return np.asarray(rows), np.asarray(valid)


def test_the_size_of_a_batch_is_binomial():
    size = draws(500, 16, 20_000)[1].sum(axis=1)
    law = scipy.stats.binom(500, 16 / 500)
    assert size.mean() == pytest.approx(law.mean(), abs=5 * law.std() / 141)
    edges = np.arange(6, 28)
    observed = np.bincount(np.clip(size, 6, 27) - 6, minlength=22)
    expected = 20_000 * np.diff(np.concatenate([[0.0], law.cdf(edges[:-1]), [1.0]]))
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-3


def test_every_row_and_every_pair_of_rows_is_as_likely_as_another_and_none_comes_twice():
    rows, valid = draws(24, 6, 20_000)
    member = np.zeros((20_000, 24))
    for step in range(20_000):
        chosen = rows[step][valid[step]]
        assert len(set(chosen)) == len(chosen)
        member[step, chosen] = 1
    share = member.mean(axis=0)
    np.testing.assert_allclose(share, 0.25, atol=5 * np.sqrt(0.25 * 0.75 / 20_000))
    pairs = (member.T @ member / 20_000)[np.triu_indices(24, 1)]
    np.testing.assert_allclose(pairs, 1 / 16, atol=6 * np.sqrt(1 / 16 * 15 / 16 / 20_000))
    later = np.corrcoef(member[:-1, 0], member[1:, 0])[0, 1]
    assert abs(later) < 0.03


@pytest.mark.parametrize("num_examples", [1, 5, 16])
def test_a_client_with_few_rows_takes_them_all(num_examples):
    rows, valid = draws(num_examples, 16, 20)
    assert all(sorted(one[keep]) == list(range(num_examples)) for one, keep in zip(rows, valid, strict=True))


@pytest.mark.parametrize(("num", "mean"), [(100, 16), (27_000, 64), (6_400_000, 64), (70, 64), (3000, 512)])
def test_sizes_are_right_far_out_in_the_tail(num, mean):
    most, law = privacy.num_slots(mean), scipy.stats.binom(num, mean / num)
    tails = [0.999, 0.9, 0.5, 0.1, 1e-3, 1e-6, 1e-9, 1e-11]
    found = [int(privacy.binomial(jnp.float32(tail), jnp.asarray(num), mean, most)) for tail in tails]
    assert law.sf(most) < 1e-11  # what is cut
    for tail, size in zip(tails, found, strict=True):
        # the largest m that is reached with at least that probability
        at_least, more = law.sf([size - 1, size]) - law.sf(most)
        assert at_least >= tail * (1 - 1e-3) and more < tail * (1 + 1e-3)


def test_uniform_numbers_reach_down_to_where_tails_are():
    highest = privacy.fine_uniform(jnp.uint32(2**32 - 1), jnp.uint32(2**32 - 1))
    lowest = privacy.fine_uniform(jnp.uint32(0), jnp.uint32(0))
    assert 0 < float(lowest) < 1e-18 and 0.999 < float(highest) <= 1


# ---- in a federation --------------------------------------------------------------------------------------------


def run(algorithm, rows, banks, **options):
    model = models.logistic_regression(NUM_FEATURES)
    return simulate(algorithm, model, rows, banks, num_rounds=3, batch_size=32, **options)


@pytest.mark.parametrize("build", [algorithms.scaffold, lambda lr: algorithms.fedprox(optax.sgd(lr), mu=0.1)])
def test_without_noise_and_limit_banks_of_one_batch_train_as_ever(build):
    rows = rows_of(60)
    banks = partition.iid(60, 3, seed=0)  # 20 rows each: every batch is all of them
    plain, _ = run(build(0.3), rows, banks, num_epochs=4)
    private, _ = run(privacy.make_private(build(0.3), *FULL), rows, banks, num_epochs=4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), plain, private)


def test_the_packing_does_not_matter_and_scaffold_s_controls_stay_their_mean():
    rows, banks = rows_of(300), partition.dirichlet_quantity(300, 4, 0.5, seed=1)
    algorithm = privacy.make_private(algorithms.scaffold(0.3), 0.5, 1.0)
    one, history = run(algorithm, rows, banks, num_lanes=1, chunk_length=3)
    other, _ = run(algorithm, rows, banks, num_lanes=3, chunk_length=8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), one, other)
    assert np.all(np.asarray(history.state_error) < 1e-5)


def test_noise_is_drawn_anew_for_every_client_round_and_seed():
    """Without a slope (every row clipped to nearly nothing) what is left is noise."""
    rows, banks = rows_of(60), partition.iid(60, 3, seed=0)
    algorithm = privacy.make_private(algorithms.scaffold(1.0), 1e-6, 1e6)
    state, _ = run(algorithm, rows, banks, num_epochs=1)
    again, _ = run(algorithm, rows, banks, num_epochs=1)
    other, _ = run(algorithm, rows, banks, num_epochs=1, seed=1)
    jax.tree.map(np.testing.assert_array_equal, state, again)
    controls = np.asarray(state.clients.control["kernel"])[..., 0]
    assert np.abs(np.corrcoef(controls)[np.triu_indices(3, 1)]).max() < 0.999
    assert not np.allclose(state.server.params["kernel"], other.server.params["kernel"])


@pytest.mark.parametrize("name", [name for name, entry in algorithms.ALGORITHMS.items() if not entry.can_be_private])
def test_methods_that_take_other_gradients_are_refused(name):
    hyper = dict(client_lr=0.1, mu=0.1, server_lr=0.1, clip_norm=1.0, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="noise_multiplier"):
        algorithms.build_with(name, private=True)
    with pytest.raises(ValueError, match="local steps alone"):
        privacy.make_private(algorithms.build_with(name)(hyper), 1.0, 1.0)


@pytest.mark.parametrize("name", ["scaffold_weighted", "fedadam", "fednova", "feddyn"])
def test_other_methods_train_with_noise_too(name):
    assert algorithms.ALGORITHMS[name].can_be_private
    hyper = dict(client_lr=0.1, mu=0.1, server_lr=0.1, clip_norm=1.0, noise_multiplier=0.5, server_rule=0.0, beta1=0.9)
    algorithm = algorithms.build_with(name, private=True)(hyper)
    state, _ = run(algorithm, rows_of(60), partition.iid(60, 3, seed=0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.server.params))


def test_a_given_order_of_batches_and_noise_exclude_each_other():
    algorithm = privacy.make_private(algorithms.scaffold(0.1), 1.0, 1.0)
    with pytest.raises(ValueError, match="batch_fn"):
        run(algorithm, rows_of(30), partition.iid(30, 2, seed=0), batch_fn=lambda task, step, size: None)
