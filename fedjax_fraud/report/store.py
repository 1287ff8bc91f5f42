"""The folder of results: Parquet, models, the check before long work, and reading it back.

The manifest is written last and holds the SHA-256 of every other file, so a folder with a manifest is complete.
"""

import errno
import hashlib
import io
import json
import os
import pathlib
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedjax_fraud.files import remove_temporaries, try_to_write

from .params import params_from_bytes

MANIFEST = "manifest.json"
SCHEMA = 1
"""Of the folder: raised when a reader of the old one would misread the new one. A manifest without one is of 1."""

MODELS = "models.safetensors"
TABLES = {"rounds": "results.parquet", "banks": "banks.parquet", "partitions": "partitions.parquet"}
_RESTORE = f"Restore it from a copy, or run the sweep again as `config` in {MANIFEST} says."
_RESTORE_MANIFEST = "Restore it from a copy, or run the sweep again."
OPTIONAL_TABLES = {"decisions": "decisions.parquet"}


class StoredResult(NamedTuple):
    """What a folder of results holds: the parts of a sweep's result that a report needs.

    Attributes:
      rounds: one row per setting and round.
      banks: one row per setting and client after the final round.
      partitions: one row per alpha, seed and client.
      manifest: configuration, data, versions, timings and work, as read from JSON.
      params: final global models, leaves ``[settings, ...]``; None if the folder has none.
      decisions: one row per setting and client, and one for all clients; None if the folder has none.
    """

    rounds: pd.DataFrame
    banks: pd.DataFrame
    partitions: pd.DataFrame
    manifest: dict
    params: Any = None
    decisions: pd.DataFrame | None = None

    def __repr__(self) -> str:
        source = self.manifest.get("data", {}).get("source")
        return f"StoredResult({self.rounds['setting'].nunique():,} settings; source={source!r})"


def check_output_folder(folder: str | os.PathLike, *, create: bool = True) -> pathlib.Path:
    """Makes sure that results can be written to a folder, before any long work.

    Args:
      folder: a path that does not exist yet (it is created, with its parents) or an empty folder.
      create: whether it may be created and written to; without, it is only looked at.

    Returns: the path.

    Raises: ValueError if it is a file, holds files already, or cannot be created or written to.
    """
    path = pathlib.Path(folder)
    remedy = "Name another folder."
    try:
        if path.exists() and not path.is_dir():
            raise ValueError(f"The output folder {str(path)!r} is a file. {remedy}")
        if create:
            path.mkdir(parents=True, exist_ok=True)
            remove_temporaries(path)
        occupied = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
        if not occupied:
            _try_to_write(path, create)
    except OSError as error:
        raise ValueError(
            f"The output folder {str(path)!r} cannot be written: {error.strerror}. Name a folder that you may write to."
        ) from error
    if occupied:
        raise ValueError(f"The output folder {str(path)!r} is not empty (it holds {occupied[0]!r}). {remedy}")
    return path


def _try_to_write(path: pathlib.Path, create: bool) -> None:
    """Raises OSError if a file could not be made there; without ``create`` the system is asked, not the disk."""
    if create:
        try_to_write(path)
        return
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


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
        found = "it is a file. Name its folder." if path.is_file() else "there is no such folder. Check the name."
        raise ValueError(f"{str(path)!r} is not a folder of results: {found}")
    manifest = _read_manifest(path)
    _check_schema(path, manifest.pop("schema", SCHEMA))
    expected = manifest.pop("files", {})
    tables = {name: _read_table(path / file, expected.get(file)) for name, file in TABLES.items()}
    there = {name: file for name, file in OPTIONAL_TABLES.items() if file in expected or (path / file).is_file()}
    tables |= {name: _read_table(path / file, expected.get(file)) for name, file in there.items()}
    params = _read_params(path / MODELS, expected[MODELS]) if MODELS in expected else None
    return StoredResult(**tables, manifest=manifest, params=params)


def _check_schema(path: pathlib.Path, schema: Any) -> None:
    """Raises ValueError for a folder that this version would misread."""
    if schema != SCHEMA:
        raise ValueError(
            f"{str(path)!r} has results of schema {schema!r}, and this version of fedjax_fraud reads schema {SCHEMA}. "
            "Read them with the version that `versions` in their manifest names, or run the sweep again."
        )


def _read_manifest(path: pathlib.Path) -> dict:
    """The manifest of a folder, which is only there when the run finished."""
    file = path / MANIFEST
    if not file.is_file():
        raise ValueError(
            f"{str(path)!r} holds no complete results: {MANIFEST} is missing. It is written last, so the run stopped "
            "early, or this is another folder. Name one that holds it, or run the sweep to its end."
        )
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{_place(file)} is damaged: {error}. {_RESTORE_MANIFEST}") from error
    if not isinstance(manifest, dict):
        raise ValueError(f"{_place(file)} is damaged: it is not a JSON object. {_RESTORE_MANIFEST}")
    return manifest


def _read_file(file: pathlib.Path, expected: str | None) -> bytes:
    """The content of a file, if it is the one that the manifest names."""
    if not file.is_file():
        raise ValueError(f"{_place(file)} is missing. {_RESTORE}")
    content = file.read_bytes()
    if expected is not None and sha256(content) != expected:
        raise ValueError(
            f"{_place(file)} is damaged or was changed: its SHA-256 is not the one in {MANIFEST}. {_RESTORE}"
        )
    return content


def _read_table(file: pathlib.Path, expected: str | None) -> pd.DataFrame:
    """One Parquet file."""
    try:
        return pq.read_table(io.BytesIO(_read_file(file, expected))).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{_place(file)} is damaged: {str(error).strip('. ')}. {_RESTORE}") from error


def _read_params(file: pathlib.Path, expected: str) -> Any:
    """The final models."""
    content = _read_file(file, expected)
    try:
        return params_from_bytes(content)
    except ValueError as error:
        raise ValueError(f"{_place(file)} is damaged: {error}. {_RESTORE}") from None


def _place(file: pathlib.Path) -> str:
    """A file in a message."""
    return f"{file.name} in {str(file.parent)!r}"
