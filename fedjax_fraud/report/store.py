"""The folder of results: atomic files, strict JSON, Parquet, and reading them back.

A file appears under its name whole or not at all. The manifest is written last and holds the SHA-256 of every other
file, so a folder with a manifest is complete.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import io
import json
import math
import os
import pathlib
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

MANIFEST = "manifest.json"
TABLES = {"rounds": "results.parquet", "banks": "banks.parquet", "partitions": "partitions.parquet"}
OPTIONAL_TABLES = {"decisions": "decisions.parquet"}


class StoredResult(NamedTuple):
    """What a folder of results holds: the parts of a sweep's result that a report needs.

    Attributes:
      rounds: one row per setting and round.
      banks: one row per setting and client after the final round.
      partitions: one row per alpha, seed and client.
      manifest: configuration, data, versions, timings and work, as read from JSON.
      decisions: one row per setting and client, and one for all clients; None if the folder has none.
    """

    rounds: pd.DataFrame
    banks: pd.DataFrame
    partitions: pd.DataFrame
    manifest: dict
    decisions: pd.DataFrame | None = None


def check_output_folder(folder: str | os.PathLike) -> pathlib.Path:
    """Makes sure that results can be written to a folder, before any long work.

    Args:
      folder: a path that does not exist yet (it is created, with its parents) or an empty folder.

    Returns: the path.

    Raises: ValueError if it is a file, holds files already, or cannot be created or written to.
    """
    path = pathlib.Path(folder)
    remedy = "Name another folder, or remove this one."
    if path.exists() and not path.is_dir():
        raise ValueError(f"The output folder {str(path)!r} is a file. {remedy}")
    try:
        path.mkdir(parents=True, exist_ok=True)
        occupied = sorted(entry.name for entry in path.iterdir())
        if not occupied:
            probe = path / f".probe-{secrets.token_hex(4)}"
            probe.write_bytes(b"")
            probe.unlink()
    except OSError as error:
        raise ValueError(
            f"The output folder {str(path)!r} cannot be written: {error.strerror}. Name a folder that you may write to."
        ) from error
    if occupied:
        raise ValueError(f"The output folder {str(path)!r} is not empty (it holds {occupied[0]!r}). {remedy}")
    return path


def write_bytes_atomically(path: str | os.PathLike, content: bytes) -> pathlib.Path:
    """Writes a file whole or not at all: a temporary name beside it, flush, fsync, rename.

    Whatever stood under the name stays there, untouched, until the new content is on the disk.

    Returns: the path.
    """
    target = pathlib.Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return target


def strict_json(obj: Any) -> str:
    """JSON that every reader accepts: NaN and infinities become null, keys are sorted, arrays become lists.

    Takes dicts, sequences, named tuples, dataclasses, paths, dates, NumPy and JAX scalars and arrays.

    Raises: TypeError for anything else, ValueError for keys that become the same text.
    """
    return json.dumps(_plain(obj), sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """A table as Parquet. The same values give the same bytes, whether just computed or read back."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    fields = [
        pa.field(field.name, pa.string()) if pa.types.is_large_string(field.type) else field for field in table.schema
    ]
    sink = io.BytesIO()
    pq.write_table(table.cast(pa.schema(fields)), sink)
    return sink.getvalue()


def sha256(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def load(folder: str | os.PathLike) -> StoredResult:
    """Reads back what ``write`` wrote, checked against the manifest.

    Raises: ValueError that names the folder and the file that is missing or damaged.
    """
    path = pathlib.Path(folder)
    if not path.is_dir():
        raise ValueError(f"{str(path)!r} is not a folder of results: there is no such folder.")
    manifest = _read_manifest(path)
    expected = manifest.pop("files", {})
    tables = {name: _read_table(path / file, expected.get(file)) for name, file in TABLES.items()}
    there = {name: file for name, file in OPTIONAL_TABLES.items() if file in expected or (path / file).is_file()}
    tables |= {name: _read_table(path / file, expected.get(file)) for name, file in there.items()}
    return StoredResult(**tables, manifest=manifest)


def _read_manifest(path: pathlib.Path) -> dict:
    """The manifest of a folder, which is only there when the run finished."""
    file = path / MANIFEST
    if not file.is_file():
        raise ValueError(
            f"{str(path)!r} holds no complete results: {MANIFEST} is missing. It is written last, so the run stopped "
            "early, or this is another folder."
        )
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{MANIFEST} in {str(path)!r} is damaged: {error}.") from error
    if not isinstance(manifest, dict):
        raise ValueError(f"{MANIFEST} in {str(path)!r} is damaged: it is not a JSON object.")
    return manifest


def _read_table(file: pathlib.Path, expected: str | None) -> pd.DataFrame:
    """One Parquet file, if it is the one that the manifest names."""
    place = f"{file.name} in {str(file.parent)!r}"
    if not file.is_file():
        raise ValueError(f"{place} is missing. Run the sweep again, or copy the whole folder.")
    content = file.read_bytes()
    if expected is not None and sha256(content) != expected:
        raise ValueError(f"{place} is damaged or was changed: its SHA-256 is not the one in {MANIFEST}.")
    try:
        return pq.read_table(io.BytesIO(content)).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{place} is damaged: {error}") from error


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
