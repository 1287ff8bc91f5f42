"""From the clients' messages of one setting to one mean message."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree


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


def weighted_mean(messages: PyTree, weights: PyTree, counts: Bool[Array, " clients"]) -> PyTree:
    """Weighted mean of the messages that count: sum_k w_k m_k / sum_k w_k over the clients with ``counts``.

    Clients that do not count, or have no weight, are left out by selection, not by a zero factor (0 x NaN = NaN), and
    the weights of those that do are renormalised, so a client that drops out does not pull the mean towards zero.

    Args:
      messages: pytree, leaves ``[clients, ...]``.
      weights: ``[clients]``, or a prefix tree of ``messages`` with ``[clients]`` leaves, non-negative.
      counts: which clients enter the mean.

    Returns: pytree without the clients axis; zeros where the total weight is zero.
    """

    def mean_of_part(weight, part):
        chosen = counts & (weight > 0)
        weight = jnp.where(chosen, weight, 0)
        total = jnp.sum(weight)
        share = weight / jnp.where(total > 0, total, 1)
        # A product and a sum, not a matrix product: accelerators may round the operands of the latter.
        return jax.tree.map(
            lambda leaf: jnp.sum(spread(share, leaf) * jnp.where(spread(chosen, leaf), leaf, 0), axis=0), part
        )

    return jax.tree.map(mean_of_part, weights, messages)
