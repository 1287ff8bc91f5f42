"""From the clients' messages of one setting to one mean message."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


def spread(values: Array, like: Array) -> Array:
    """``values [clients]`` with trailing axes of size 1, so that it broadcasts against ``like [clients, ...]``."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))


def where_clients(mask: Bool[Array, " clients"], chosen: PyTree, other: PyTree) -> PyTree:
    """Leaf by leaf, client by client: ``chosen`` where ``mask``, else ``other``. Leaves ``[clients, ...]``."""
    return jax.tree.map(lambda a, b: jnp.where(spread(mask, a), a, b), chosen, other)


def all_finite(tree: PyTree) -> Bool[Array, " clients"]:
    """For each client, whether every number of its leaves ``[clients, ...]`` is finite."""
    flags = [jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(flags), axis=0)


def norms(tree: PyTree) -> Float[Array, " clients"]:
    """For each client, the Euclidean norm over its leaves ``[clients, ...]``."""
    squares = [jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares))


def total(values: Array, axis_name: str | None) -> Array:
    """Sum over clients, axis 0; also over the devices if the clients are split over ``axis_name``."""
    mine = jnp.sum(values, axis=0)
    return mine if axis_name is None else jax.lax.psum(mine, axis_name)


def largest(values: Array, axis_name: str | None) -> Array:
    """Maximum over clients, as ``total``."""
    mine = jnp.max(values, axis=0)
    return mine if axis_name is None else jax.lax.pmax(mine, axis_name)


def weighted_mean(
    messages: PyTree, weights: PyTree, counts: Bool[Array, " clients"], axis_name: str | None = None
) -> PyTree:
    """Weighted mean of the messages that count: sum_k w_k m_k / sum_k w_k over the clients with ``counts``.

    Clients that do not count, or have no weight, are left out by selection, not by a zero factor (0 x NaN = NaN), and
    the weights of those that do are renormalised, so a client that drops out does not pull the mean towards zero.

    Args:
      messages: pytree, leaves ``[clients, ...]``.
      weights: ``[clients]``, or a prefix tree of ``messages`` with ``[clients]`` leaves, non-negative.
      counts: which clients enter the mean.
      axis_name: the mesh axis that the clients are split over, if they are.

    Returns: pytree without the clients axis; zeros where the total weight is zero.
    """

    def mean_of_part(weight, part):
        chosen = counts & (weight > 0)
        weight = jnp.where(chosen, weight, 0)
        weight_sum = total(weight, axis_name)
        share = weight / jnp.where(weight_sum > 0, weight_sum, 1)
        # A product and a sum, not a matrix product: accelerators may round the operands of the latter.
        return jax.tree.map(
            lambda leaf: total(spread(share, leaf) * jnp.where(spread(chosen, leaf), leaf, 0), axis_name), part
        )

    return jax.tree.map(mean_of_part, weights, messages)
