"""Files that appear whole or not at all, and JSON that every reader accepts."""

import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
"""Names that ``replacing`` gives to files that are not finished."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to, which takes the name ``path`` when the ``with`` ends well: flush, fsync, rename.

    Whatever stood under the name stays there, untouched, until the new content is on the disk; nothing half-written is
    left if anything fails. ``mode``: permissions, less the user's mask.
    """
    target = pathlib.Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def try_to_write(folder: str | os.PathLike) -> None:
    """Raises OSError if no file can be made in a folder: asked of the disk, which knows more than permissions."""
    probe = pathlib.Path(folder) / f".probe.{secrets.token_hex(4)}.tmp"
    probe.write_bytes(b"")
    probe.unlink()


def write_bytes_atomically(path: str | os.PathLike, content: bytes) -> pathlib.Path:
    """Writes a file whole or not at all, see ``replacing``. Returns: the path."""
    with replacing(path) as file:
        file.write(content)
    return pathlib.Path(path)


def remove_temporaries(folder: str | os.PathLike) -> list[pathlib.Path]:
    """Removes what writers that were killed have left in a folder (not below it); call it when nobody writes there.

    Returns: the paths removed, sorted.
    """
    found = sorted(path for path in pathlib.Path(folder).iterdir() if TEMPORARY.fullmatch(path.name))
    for path in found:
        path.unlink(missing_ok=True)
    return found


def strict_json(obj: Any) -> str:
    """JSON that every reader accepts: NaN and infinities become null, keys are sorted, arrays become lists.

    Takes dicts, sequences, named tuples, dataclasses, paths, dates, NumPy and JAX scalars and arrays.

    Raises: TypeError for anything else, ValueError for keys that become the same text.
    """
    return json.dumps(_plain(obj), sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _sync_folder(folder: pathlib.Path) -> None:
    """Asks the disk to keep the new name too, on systems that can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _plain(obj: Any) -> Any:
    """An object made of nothing but what JSON knows."""
    if obj is None or isinstance(obj, str | bool | int):
        return obj
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, Mapping):
        return _plain_mapping(obj)
    if hasattr(obj, "_asdict"):
        return _plain_mapping(obj._asdict())
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return _plain_mapping({field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)})
    if isinstance(obj, list | tuple):
        return [_plain(item) for item in obj]
    if isinstance(obj, set | frozenset):
        return [_plain(item) for item in sorted(obj)]
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    if isinstance(obj, datetime.date):
        return obj.isoformat()
    return _plain_array(obj)


def _plain_mapping(mapping: Mapping) -> dict:
    """A mapping with text for keys."""
    plain = {_key(key): _plain(value) for key, value in mapping.items()}
    if len(plain) != len(mapping):
        raise ValueError(f"Two keys become the same text in JSON: {list(mapping)}.")
    return plain


def _key(key: Any) -> str:
    """A key as text, NumPy scalars like Python's own."""
    return str(key.item() if isinstance(key, np.generic) else key)


def _plain_array(obj: Any) -> Any:
    """A NumPy or JAX scalar or array as numbers and lists."""
    if not hasattr(obj, "__array__"):
        raise TypeError(f"{type(obj).__name__} has no form in JSON: convert it first.")
    array = np.asarray(obj)
    if array.dtype.kind == "V":  # JAX's own small floats, such as bfloat16
        array = array.astype(np.float64)
    if array.dtype.kind not in "biufU":
        raise TypeError(f"An array of {array.dtype} has no form in JSON: convert it first.")
    return _plain(array.tolist())
