"""The keyed bijection: a permutation for every size and key, and fair enough for mini-batches."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fraud import shuffle

KEYS = np.array([0, 1, 12345, 2**31, 2**32 - 1], np.uint32)


@functools.partial(jax.jit, static_argnames="size")
def permutations(num_examples, keys, size):
    """``[keys, size]``: the first ``num_examples`` columns are the permutations."""
    position = jnp.minimum(jnp.arange(size), num_examples - 1)

    def of_key(key):
        return jax.vmap(lambda p: shuffle.shuffle_index(p, num_examples, key))(position)

    return jax.vmap(of_key)(keys)


def permutation(num_examples, key, size):
    return np.asarray(permutations(jnp.int32(num_examples), jnp.array([key], jnp.uint32), size))[0, :num_examples]


def test_every_size_up_to_300_gives_permutations():
    for n in range(1, 301):
        rows = np.asarray(permutations(jnp.int32(n), jnp.asarray(KEYS), 300))[:, :n]
        np.testing.assert_array_equal(np.sort(rows, axis=1), np.tile(np.arange(n), (len(KEYS), 1)), err_msg=f"{n=}")


@hypothesis.given(num_examples=st.integers(1, 100_000), key=st.integers(0, 2**32 - 1))
@hypothesis.example(num_examples=65_536, key=0)
@hypothesis.example(num_examples=65_537, key=2**32 - 1)
def test_a_random_size_and_key_give_a_permutation(num_examples, key):
    rows = permutation(num_examples, key, 100_000)
    assert np.bincount(rows, minlength=num_examples).tolist() == [1] * num_examples


@pytest.mark.parametrize("num_examples", [2**24 + 1, 2**30 - 1, 2**31 - 1])
def test_huge_sizes_stay_in_range_without_collisions(num_examples):
    """Sizes at which float32 no longer holds the number of rows: a sample of positions at both ends."""
    ends = np.concatenate([np.arange(500), num_examples - 1 - np.arange(500)]).astype(np.int32)
    rows = np.asarray(
        jax.jit(jax.vmap(lambda p: shuffle.shuffle_index(p, jnp.int32(num_examples), jnp.uint32(99))))(ends)
    )
    assert rows.min() >= 0 and rows.max() < num_examples
    assert len(np.unique(rows)) == len(rows)


def test_no_rows_give_position_zero():
    assert shuffle.shuffle_index(jnp.int32(0), jnp.int32(0), jnp.uint32(5)) == 0


@hypothesis.given(num_examples=st.integers(20, 2000), key=st.integers(0, 2**32 - 2), step=st.integers(1, 2**31))
def test_different_keys_give_different_orders(num_examples, key, step):
    other = (key + step) % 2**32
    rows = np.asarray(permutations(jnp.int32(num_examples), jnp.array([key, other], jnp.uint32), 2000))
    assert (rows[0, :num_examples] != rows[1, :num_examples]).any()


def chi_square(observed, expected):
    return ((observed - expected) ** 2 / expected).sum()


NUM_ORDERS = 20_000


@pytest.fixture(scope="module", params=["counting keys", "random keys"])
def keys(request):
    """Consecutive keys, or random ones."""
    if request.param == "counting keys":
        return jnp.arange(NUM_ORDERS, dtype=jnp.uint32)
    return jnp.asarray(np.random.default_rng(0).integers(0, 2**32, NUM_ORDERS, dtype=np.uint32))


@pytest.mark.parametrize("n", [4, 10, 16])
def test_every_row_is_equally_likely_at_every_position(keys, n):
    """Chi-square of an n x n table in which rows and columns have fixed sums: mean n (n - 1), deviation n sqrt(2).

    Five deviations are passed less than once in 1e5.
    """
    orders = np.asarray(permutations(jnp.int32(n), keys, 16))[:, :n]
    counts = np.array([np.bincount(orders[:, p], minlength=n) for p in range(n)])
    assert chi_square(counts, NUM_ORDERS / n) < n * (n - 1) + 5 * n * np.sqrt(2)


@pytest.mark.parametrize("n, batch", [(4, 2), (10, 4), (16, 4)])
def test_every_pair_of_rows_is_equally_likely_to_share_the_first_batch(keys, n, batch):
    """Within five binomial deviations of batch (batch - 1) / (n (n - 1))."""
    orders = np.asarray(permutations(jnp.int32(n), keys, 16))[:, :n]
    inside = np.zeros((NUM_ORDERS, n))
    np.put_along_axis(inside, orders[:, :batch], 1, axis=1)
    together = inside.T @ inside / NUM_ORDERS
    share = batch * (batch - 1) / (n * (n - 1))
    deviation = np.sqrt(share * (1 - share) / NUM_ORDERS)
    assert np.abs(together[np.triu_indices(n, 1)] - share).max() < 5 * deviation


def test_mapped_positions_equal_single_ones():
    """The walk of one position must not move another one."""
    positions, n, key = jnp.arange(37), jnp.int32(37), jnp.uint32(8)
    single = jax.jit(lambda p: shuffle.shuffle_index(p, n, key))
    one_by_one = [int(single(p)) for p in positions]
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda p: shuffle.shuffle_index(p, n, key)))(positions), one_by_one)
    np.testing.assert_array_equal(single(positions), one_by_one)


@hypothesis.given(key=st.integers(0, 2**32 - 1))
def test_the_hash_is_a_bijection_under_every_key(key):
    values = np.concatenate([np.arange(1000), 2**32 - 1 - np.arange(1000)]).astype(np.uint32)
    hashed = np.asarray(shuffle.mix(jnp.asarray(values), jnp.uint32(key)))
    assert len(np.unique(hashed)) == len(values)
