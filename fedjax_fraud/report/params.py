"""Final models as one safetensors file: plain arrays, no code, and the tree that they came from.

Each tensor has the path of its leaf as its name (``['Dense_0']['kernel']``), so that any reader finds it; the metadata
hold the tree. Dicts, lists and tuples come back as they were, a NamedTuple or any other container as a dict.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

TREE = "tree"
_LEAF, _DICT, _LIST, _TUPLE = "leaf", "dict", "list", "tuple"


def params_bytes(params: Any) -> bytes:
    """A pytree of arrays as safetensors. The same values give the same bytes."""
    arrays: dict[str, np.ndarray] = {}
    tree = _describe(params, "", arrays)
    return save(arrays, {TREE: json.dumps(tree)})


def params_from_bytes(content: bytes) -> Any:
    """The pytree that ``params_bytes`` was given, its leaves as NumPy arrays.

    Raises: ValueError for bytes that are no such file.
    """
    try:
        arrays = load(content)
        return _build(json.loads(_metadata(content)[TREE]), arrays)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no models can be read from it ({type(error).__name__}: {error})") from None


def _metadata(content: bytes) -> dict[str, str]:
    """The texts in a safetensors file's header: eight bytes of length, then JSON."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])["__metadata__"]


def _describe(tree: Any, path: str, arrays: dict[str, np.ndarray]) -> list:
    """The tree as nested lists, its leaves put into ``arrays`` under their paths."""
    if hasattr(tree, "_asdict"):
        tree = tree._asdict()
    if isinstance(tree, Mapping):
        return [_DICT, [[key, _describe(value, f"{path}[{key!r}]", arrays)] for key, value in tree.items()]]
    if isinstance(tree, list | tuple):
        kind = _LIST if isinstance(tree, list) else _TUPLE
        return [kind, [_describe(value, f"{path}[{place}]", arrays) for place, value in enumerate(tree)]]
    if not jax.tree_util.all_leaves([tree]):
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        return _describe({jax.tree_util.keystr(where): leaf for where, leaf in leaves}, path, arrays)
    arrays[path] = np.asarray(tree, order="C")
    return [_LEAF, path]


def _build(tree: list, arrays: Mapping[str, np.ndarray]) -> Any:
    """The reverse of ``_describe``."""
    kind, content = tree
    if kind == _LEAF:
        return arrays[content]
    if kind == _DICT:
        return {key: _build(value, arrays) for key, value in content}
    values = [_build(value, arrays) for value in content]
    return values if kind == _LIST else tuple(values)
