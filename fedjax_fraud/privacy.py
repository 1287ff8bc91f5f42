r"""Record-level differential privacy: the gradients of DP-SGD, on batches drawn by a coin for every row.

In each local step a client takes every one of its rows with probability q = B / n_k (Poisson sampling), clips the
gradient of each row to norm C, and adds noise to their sum:

.. math:: g = \frac{1}{B} \Big( \sum_{i \in batch} g_i \min(1, C / \lVert g_i \rVert) + \mathcal{N}(0, z^2 C^2 I) \Big)

All that a client sends (models, control variates) and all that is made of it later follows from such gradients, so
FedAvg, FedProx, SCAFFOLD and their relatives keep the guarantee that ``accountant`` computes. What is protected is one
row of one bank, from whoever sees all messages and the final model; a bank's number of rows, and the scaling of the
features, count as public. The noise comes from a generator that is good for simulation, not from a secure one.

Reference: Abadi et al., Deep Learning with Differential Privacy, CCS 2016, algorithm 1; in a federation with control
variates: Noble et al., Differentially Private Federated Learning on Heterogeneous Data, AISTATS 2022. Differs in: a
batch never holds more rows than ``num_slots``; about one draw in 10^12 would, and leaves the last of them out.
"""

import math

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, UInt32

from fedjax_fraud import shuffle
from fedjax_fraud.types import FedAlgorithm, Privacy

# What keys are for: any constants.
_SIZE, _ROWS, _NOISE, _MORE = 0x6B43A9B5, 0x1F123BB5, 0x7A3D5C91, 0x2C9277B5
TINY = float(jnp.finfo(jnp.float32).tiny)


def make_private(algorithm: FedAlgorithm, clip_norm, noise_multiplier) -> FedAlgorithm:
    """The algorithm with private gradients in its local steps.

    Args:
      algorithm: one whose clients send only what follows from their local steps.
      clip_norm: C, the largest norm of a row's gradient, above 0; may be traced.
      noise_multiplier: z, the noise's standard deviation over C, at least 0; may be traced.

    Raises: ValueError for an algorithm that also sends, or trains on, gradients that are not private.

    Example:
      >>> from fedjax_fraud.algorithms import scaffold
      >>> make_private(scaffold(0.1), clip_norm=1.0, noise_multiplier=0.8).privacy
      Privacy(clip_norm=1.0, noise_multiplier=0.8)
    """
    if algorithm.needs_server_gradient or algorithm.correct_personal is not None:
        raise ValueError(
            "`algorithm` must look at the rows in its local steps alone, and this one takes further gradients, as do "
            "SCAFFOLD's option I, MimeLite, adaptive FedProx and Ditto. Use fedavg, fedprox, scaffold or another."
        )
    return algorithm._replace(privacy=Privacy(clip_norm, noise_multiplier))


def private_gradient(
    objective,
    params,
    features: Float[Array, "batch features"],
    labels: Float[Array, " batch"],
    valid: Bool[Array, " batch"],
    privacy: Privacy,
    expected: Int[Array, ""],
    key: UInt32[Array, ""],
):
    """The clipped and noised mean gradient of a batch.

    Args:
      objective: a ``local.Objective``.
      valid: which rows are in the batch.
      expected: the batch's expected size, which the sum is divided by: its real size would give rows away.
      key: of this client's step.

    Returns: a pytree like ``params``. A row whose gradient is not finite counts as zero.
    """
    find = row_norms if objective.tapped is None else tapped_norms
    norm = find(objective, params, features, labels)
    used = valid & jnp.isfinite(norm)
    factor = jnp.where(used, jnp.minimum(1.0, privacy.clip_norm / jnp.maximum(norm, TINY)), 0.0)
    features = jnp.where(used[:, None], features, 0.0)  # 0 x NaN is NaN

    def clipped_loss(params):
        """Its gradient is the sum of the clipped gradients, as the factors are constants."""
        losses = objective.loss_fn(objective.apply(params, features), labels)
        return jnp.sum(jnp.where(used, factor * losses, 0.0))

    # As one vector: the noise is then the same for a model's tree and for its parameters in a row.
    total, unravel = ravel_pytree(jax.grad(clipped_loss)(params))
    noise = jax.random.normal(random_key(key, _NOISE), total.shape)
    return unravel((total + privacy.clip_norm * privacy.noise_multiplier * noise) / expected)


def row_norms(objective, params, features, labels) -> Float[Array, " batch"]:
    """The norm of each row's gradient, for any model: a gradient for each row."""

    def row_loss(params, x, y):
        return objective.loss_fn(objective.apply(params, x[None]), y[None])[0]

    return jax.vmap(optax.tree.norm)(jax.vmap(jax.grad(row_loss), in_axes=(None, 0, 0))(params, features, labels))


def tapped_norms(objective, params, features, labels) -> Float[Array, " batch"]:
    """The same for a model that has ``tapped``: one backward pass for all rows."""

    def loss(tap):
        return jnp.sum(objective.loss_fn(objective.tapped(params, features, tap), labels))

    return jnp.sqrt(jax.grad(loss)(jnp.zeros(labels.shape)))


def random_key(key: UInt32[Array, ""], purpose: int) -> Array:
    """One of JAX's keys from one of ours."""
    return jax.random.wrap_key_data(jnp.stack([key, shuffle.mix(key, jnp.uint32(purpose))]), impl="threefry2x32")


# ---- which rows -------------------------------------------------------------------------------------------------


def num_slots(batch_size: int) -> int:
    """The most rows of a drawn batch: eight standard deviations above the expected number."""
    return batch_size + 8 * math.isqrt(batch_size)


def poisson_batches(task, step: Int[Array, ""], batch_size: int) -> tuple[Int[Array, " slots"], Bool[Array, " slots"]]:
    """The batch of a step when every row of the client is in it with probability batch_size / num_examples.

    The number of rows is drawn first, from its binomial distribution, then that many rows, all sets of them alike: the
    same as a coin for each row, without a look at every row. A client with at most ``batch_size`` rows takes them all.

    Returns: as ``local.shuffled_epochs``, with ``num_slots`` places.
    """
    slots = num_slots(batch_size)
    key = shuffle.mix(jnp.asarray(step, jnp.uint32), task.key)
    uniform = fine_uniform(shuffle.mix(key, jnp.uint32(_SIZE)), shuffle.mix(key, jnp.uint32(_MORE)))
    size = binomial(uniform, task.num_examples, batch_size, slots)
    place = jnp.arange(slots, dtype=jnp.int32)
    valid = place < jnp.minimum(size, task.num_examples)
    rows = shuffle.shuffle_index(jnp.where(valid, place, 0), task.num_examples, shuffle.mix(key, jnp.uint32(_ROWS)))
    return rows, valid


def fine_uniform(high: UInt32[Array, ""], low: UInt32[Array, ""]) -> Float[Array, ""]:
    """A number in (0, 1] that is as fine near 0 as float32 can be: the tail of a distribution needs that."""
    coarse, fine = high.astype(jnp.float32), low.astype(jnp.float32)
    return (coarse + (fine + 1) * jnp.float32(2.0**-32)) * jnp.float32(2.0**-32)


def binomial(uniform: Float[Array, ""], num: Int[Array, ""], mean: int, most: int) -> Int[Array, ""]:
    """A draw of Binomial(num, mean / num), cut at ``most``, by inverting its survival function; ``num`` if num <= mean.

    Probabilities are right to about 1e-5 of themselves, far out in the tail too.
    """
    m = jnp.arange(most, dtype=jnp.float32)
    n = jnp.maximum(num, mean + 1).astype(jnp.float32)
    chance = mean / n
    ratio = jnp.log(jnp.maximum(n - m, 0.5) / (m + 1)) + jnp.log(chance) - jnp.log1p(-chance)
    start = n * jnp.log1p(-chance)
    logs = start + jnp.concatenate([jnp.zeros(1), jnp.cumsum(ratio)])
    known = jnp.arange(most + 1) <= n
    mass = jnp.where(known, jnp.exp(logs), 0.0)
    at_least = jnp.cumsum(mass[::-1])[::-1]  # P(M >= m), summed from the small end
    drawn = jnp.sum(at_least[1:] >= uniform)
    return jnp.where(num <= mean, num, drawn).astype(jnp.int32)
