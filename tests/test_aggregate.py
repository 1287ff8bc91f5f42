"""The weighted mean over the clients that count."""

import chex
import hypothesis
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fraud import aggregate

VALUES, ROWS = jnp.array([1.0, 3.0, 11.0]), jnp.array([10.0, 30.0, 60.0])
ALL = jnp.ones(3, bool)


def test_the_mean_weighs_by_rows_once():
    mean = aggregate.weighted_mean({"w": VALUES}, ROWS, ALL)
    chex.assert_trees_all_close(mean, {"w": jnp.float32(7.6)}, rtol=1e-6, strict=True)


def test_equal_weights_give_the_plain_mean():
    chex.assert_trees_all_close(aggregate.weighted_mean(VALUES, jnp.ones(3), ALL), jnp.float32(5), strict=True)


def test_the_weights_of_those_that_count_are_renormalised():
    counts = jnp.array([True, True, False])
    assert aggregate.weighted_mean(VALUES, ROWS, counts) == 2.5
    # The same in delta form, from a model at 2.0.
    assert 2.0 + aggregate.weighted_mean(VALUES - 2.0, ROWS, counts) == 2.5


@pytest.mark.parametrize("weights, counts", [(ROWS, ~ALL), (jnp.zeros(3), ALL)])
def test_a_total_weight_of_zero_gives_zeros(weights, counts):
    chex.assert_trees_all_equal(aggregate.weighted_mean(VALUES, weights, counts), jnp.float32(0), strict=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_client_that_does_not_count_is_left_out_by_selection(bad):
    values, rows = VALUES.at[2].set(bad), ROWS.at[2].set(bad)
    assert aggregate.weighted_mean(values, rows, jnp.array([True, True, False])) == 2.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_client_of_weight_zero_is_left_out_by_selection(bad):
    """Zero times NaN is NaN."""
    assert aggregate.weighted_mean(VALUES.at[2].set(bad), ROWS.at[2].set(0), ALL) == 2.5


def test_a_prefix_of_weights_weighs_each_part_on_its_own():
    messages = {"model": {"w": VALUES, "b": 2 * VALUES}, "control": VALUES}
    mean = aggregate.weighted_mean(messages, {"model": ROWS, "control": jnp.ones(3)}, ALL)
    wanted = {"model": {"w": jnp.float32(7.6), "b": jnp.float32(15.2)}, "control": jnp.float32(5)}
    chex.assert_trees_all_close(mean, wanted, rtol=1e-6, strict=True)


def test_leaves_of_any_rank_keep_their_shape_and_dtype():
    messages = {"a": jnp.ones((3, 2, 4)), "b": jnp.ones((3, 5), jnp.float16), "c": jnp.ones(3)}
    mean = aggregate.weighted_mean(messages, ROWS, ALL)
    chex.assert_shape([mean["a"], mean["b"], mean["c"]], [(2, 4), (5,), ()])
    np.testing.assert_allclose(mean["a"], 1, rtol=1e-6)


@hypothesis.given(
    st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.integers(0, 1000), st.booleans()), min_size=4, max_size=4),
    st.permutations(range(4)),
)
def test_the_mean_is_numpy_s_whatever_the_order(clients, order):
    value, weight, counts = (np.array(column) for column in zip(*clients, strict=True))
    kept = weight * counts
    wanted = (kept * value).sum() / max(kept.sum(), 1)
    for i in (np.arange(4), np.array(order)):
        args = jnp.float32(value[i]), jnp.float32(weight[i]), jnp.asarray(counts[i])
        np.testing.assert_allclose(aggregate.weighted_mean(*args), wanted, rtol=2e-6, atol=1e-3)


def test_one_bad_number_anywhere_marks_its_client_only():
    tree = {"a": jnp.zeros((3, 2, 2)).at[1, 0, 1].set(jnp.nan), "b": jnp.zeros(3).at[2].set(jnp.inf)}
    np.testing.assert_array_equal(aggregate.all_finite(tree), [True, False, False])


def test_where_clients_chooses_whole_clients():
    mask = jnp.array([True, False, True])
    chosen, other = ({"a": jnp.full((3, 2), v), "b": jnp.full(3, v)} for v in (1.0, 2.0))
    wanted = {"a": jnp.array([[1.0, 1], [2, 2], [1, 1]]), "b": jnp.array([1.0, 2, 1])}
    chex.assert_trees_all_equal(aggregate.where_clients(mask, chosen, other), wanted, strict=True)
    assert aggregate.where_clients(mask, (), ()) == ()
