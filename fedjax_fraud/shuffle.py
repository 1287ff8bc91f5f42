"""A keyed bijection on [0, n): the i-th row of a client's epoch order, without sorting and without memory.

A generalised Feistel network on the grid a x b >= n with a = ceil(sqrt n), b = ceil(n / a) permutes [0, a b);
*cycle-walking* (apply it again until the value is below n) turns that into a permutation of [0, n). Since
a b - n < a, a value walks on with a probability below 1 / sqrt(n).

Reference: Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002, sections 3 and 4. Differs in: the
round function is an integer hash, which is fair enough for mini-batches and no cipher.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

NUM_ROUNDS = 3
ROUND_KEY_STEP = 0x9E3779B9  # 2**32 / golden ratio: the keys of the rounds lie far apart.


def mix(value: UInt32[Array, "*shape"], key: UInt32[Array, "*#shape"]) -> UInt32[Array, "*shape"]:
    """A 32-bit integer hash of ``value`` under ``key``: xor-shift and multiply, a bijection of ``value``."""
    value = value ^ key
    value = (value ^ (value >> 16)) * jnp.uint32(0x7FEB352D)
    value = (value ^ (value >> 15)) * jnp.uint32(0x846CA68B)
    return value ^ (value >> 16)


def shuffle_index(
    position: Int[Array, "*shape"], num_examples: Int[Array, ""], key: UInt32[Array, "*#shape"]
) -> Int[Array, "*shape"]:
    """Where the keyed permutation of ``[0, num_examples)`` sends ``position``.

    Args:
      position: int32 in ``[0, num_examples)``; other values are not permuted.
      num_examples: int32 in ``[1, 2**31)``. 0 gives 0.
      key: uint32, one per permutation: the same key gives the same permutation.

    Returns: int32 in ``[0, num_examples)``; different positions get different values.
    """
    n = jnp.maximum(num_examples, 1).astype(jnp.uint32)
    rows = jnp.ceil(jnp.sqrt(n.astype(jnp.float32))).astype(jnp.uint32)
    columns = (n + rows - 1) // rows
    # The hash starts with value ^ key. Keys that differ by 1 would feed it the same few inputs in every round.
    keys = [key + jnp.uint32((i + 1) * ROUND_KEY_STEP % 2**32) for i in range(2 * NUM_ROUNDS)]

    def permute(cell):
        row, column = cell
        for row_key, column_key in zip(keys[::2], keys[1::2], strict=True):
            row = _add(row, _below(mix(column, row_key), rows), rows)
            column = _add(column, _below(mix(row, column_key), columns), columns)
        return row, column

    def walk(carry):
        (row, column), walking = carry
        moved_row, moved_column = permute((row, column))
        cell = jnp.where(walking, moved_row, row), jnp.where(walking, moved_column, column)
        return cell, walking & (moved_row * columns + moved_column >= n)

    # Everybody makes a first step; who lands below n stays.
    start = position.astype(jnp.uint32)
    start = jnp.where(start < n, start, 0)
    everybody = jnp.ones_like(start, bool)
    (row, column), _ = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]), walk, ((start // columns, start % columns), everybody)
    )
    return (row * columns + column).astype(jnp.int32)


def _below(hashed: UInt32[Array, "*shape"], size: UInt32[Array, ""]) -> UInt32[Array, "*shape"]:
    """A hash as a number in ``[0, size)``, size < 2**16, by a product: a remainder would cost a division a row."""
    return ((hashed >> 16) * size) >> 16


def _add(a: UInt32[Array, "*shape"], b: UInt32[Array, "*shape"], size: UInt32[Array, ""]) -> UInt32[Array, "*shape"]:
    """``(a + b) % size`` for a and b below ``size``."""
    return jnp.where(a + b >= size, a + b - size, a + b)
