"""Labels, scores and amounts as arguments: checked on the host if they are concrete, taken as they are if traced."""

from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Shaped

Values = ArrayLike | Collection


def is_traced(values) -> bool:
    """Whether compiled code will hold the values, which cannot be looked at yet."""
    return isinstance(values, jax.core.Tracer)


def as_vector(name: str, values: Values) -> np.ndarray:
    """A concrete argument on the host: one-dimensional numbers, not empty, no NaN."""
    vector = np.asarray(values)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(
            f"`{name}` must be [samples] with at least one row, got shape {vector.shape}. Use jax.vmap for more axes."
        )
    if not (vector.dtype.kind in "biuf" or jnp.issubdtype(vector.dtype, jnp.floating)):
        raise ValueError(f"`{name}` must be numbers, got type {vector.dtype}. Convert it first.")
    if np.isnan(vector).any():
        row = int(np.flatnonzero(np.isnan(vector))[0])
        raise ValueError(f"`{name}` is NaN in row {row}. Drop such rows, or look for a diverged model.")
    return vector


def as_labels(y_true: Values) -> Bool[Array, " samples"]:
    """True for fraud; concrete labels must be 0 or 1."""
    if is_traced(y_true):
        return y_true == 1
    labels = as_vector("y_true", y_true)
    wrong = labels[(labels != 0) & (labels != 1)]
    if wrong.size:
        raise ValueError(f"`y_true` must be 0 (genuine) or 1 (fraud), got {wrong[0].item()!r}. Recode it first.")
    return jnp.asarray(labels == 1)


def as_scores(y_score: Values) -> Shaped[Array, " samples"]:
    """Scores whose order on the device is their order here: 64-bit values are replaced by their dense ranks."""
    if is_traced(y_score):
        return y_score
    scores = as_vector("y_score", y_score)
    if scores.dtype.itemsize > 4:
        scores = np.unique(scores, return_inverse=True)[1].astype(np.int32)
    return jnp.asarray(scores)


def check_lengths(**vectors: Shaped[Array, "..."]) -> None:
    """Every argument one-dimensional, not empty, and as long as the first."""
    shapes = {name: vector.shape for name, vector in vectors.items()}
    first = next(iter(shapes.values()))
    if len(first) != 1 or first == (0,) or any(shape != first for shape in shapes.values()):
        listed = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"The arguments must be [samples] of one length >= 1, got {listed}. Use jax.vmap for more axes."
        )


def as_floats(name: str, values: Values) -> Float[Array, " samples"]:
    """Floating point on the device."""
    values = values if is_traced(values) else as_vector(name, values)
    return jnp.asarray(values).astype(float)


def as_probabilities(y_prob: Values) -> Float[Array, " samples"]:
    """Floating point on the device; concrete probabilities must be in [0, 1]."""
    if not is_traced(y_prob):
        wrong = as_vector("y_prob", y_prob)
        wrong = wrong[(wrong < 0) | (wrong > 1)]
        if wrong.size:
            raise ValueError(f"`y_prob` must be in [0, 1], got {wrong[0].item()!r}. Apply the sigmoid to logits first.")
    return as_floats("y_prob", y_prob)


def as_amounts(name: str, values: Values) -> Float[Array, " samples"]:
    """Floating point on the device; concrete sums of money must be finite and at least 0."""
    if not is_traced(values):
        wrong = as_vector(name, values)
        wrong = wrong[(wrong < 0) | np.isinf(wrong)]
        if wrong.size:
            raise ValueError(f"`{name}` must be finite and >= 0, got {wrong[0].item()!r}. Give the sums of money paid.")
    return as_floats(name, values)


def tree_sum(values: Float[Array, "samples ..."]) -> Float[Array, "..."]:
    """Sum over the leading axis by eights, so that rounding errors do not grow with the number of rows."""
    if values.shape[0] == 0:
        return jnp.zeros(values.shape[1:], values.dtype)
    while values.shape[0] > 1:
        padding = [(0, -values.shape[0] % 8)] + [(0, 0)] * (values.ndim - 1)
        values = jnp.sum(jnp.pad(values, padding).reshape(8, -1, *values.shape[1:]), axis=0)
    return values[0]


def unless_nan(value: Float[Array, ""], scores: Shaped[Array, " samples"]) -> Float[Array, ""]:
    """NaN if any score is NaN."""
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        return value
    return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, value)
