"""Trees of arrays in safetensors files: plain arrays under the paths of their leaves, and a digest that guards them."""

import hashlib
import os
from collections.abc import Mapping

import jax
import numpy as np
from safetensors import SafetensorError, safe_open


def named_arrays(tree, part: str) -> dict[str, np.ndarray]:
    """``part/path`` -> leaf."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{part}/{jax.tree_util.keystr(path)}": np.ascontiguousarray(leaf) for path, leaf in leaves}


def filled(like, part: str, arrays: Mapping[str, np.ndarray], what: str, remedy: str):
    """A tree of the structure of ``like`` with the leaves that ``named_arrays`` stored under ``part``.

    Raises: ValueError, with ``what`` and ``remedy``, if the file has other leaves there.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [f"{part}/{jax.tree_util.keystr(where)}" for where, _ in leaves]
    if {name for name in arrays if name.startswith(f"{part}/")} != set(names):
        raise ValueError(f"{what} holds another kind of {part}. {remedy}")
    return structure.unflatten([arrays[name] for name in names])


def read(path: str | os.PathLike, what: str, remedy: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The texts and the arrays of a file.

    Raises: ValueError, with ``what`` and ``remedy``, if it is damaged.
    """
    try:
        with safe_open(path, "numpy") as file:
            return file.metadata() or {}, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no dict)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{what} is damaged: {error}. {remedy}") from None


def check_digest(expected: str | None, arrays: Mapping[str, np.ndarray], what: str, remedy: str) -> None:
    """Raises ValueError, with ``what`` and ``remedy``, unless the arrays have this digest."""
    if expected != digest(arrays):
        raise ValueError(f"{what} is damaged: its digest differs. {remedy}")


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and values."""
    known = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        known.update(f"{name} {array.dtype} {array.shape}".encode())
        known.update(array.data.cast("B") if array.size else b"")
    return known.hexdigest()
