"""The parsed columns of a file, kept as Parquet in a cache folder, so that its text is read only once.

Each source file has one file in the folder, which the next version of the source replaces. What is kept are columns
that have passed every check, not features: those are made anew from them, by the code of the day.
"""

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedjax_fraud.files import replacing

MIN_BYTES = 1 << 20  # smaller files are read in milliseconds
EDGE_BYTES = 1 << 16

Block = Mapping[str, np.ndarray]
Result = TypeVar("Result")


def load(
    source: Path,
    folder: str | Path,
    schema: pa.Schema,
    read: Callable[[], Iterable[Block]],
    collect: Callable[[Iterable[Block]], Result],
) -> Result:
    """``collect(read())``, with the blocks of ``read`` kept for the next time, or taken from the time before.

    Kept blocks count only while the source has the same size, time of change, and first and last 64 KiB. A damaged
    file is replaced; a folder that cannot be written to costs the time that it would have saved. Several processes
    may load the same source: each writes a file of its own, and the last one stays.

    Args:
      source: the file that ``read`` reads. Below 1 MiB nothing is kept.
      folder: where to keep; created, for this user alone, if it does not exist.
      schema: the columns of each block, without gaps. Its metadata say what they mean: change them when that changes.
      read: gives the blocks, column name -> ``[rows]``.
      collect: makes the result of the blocks; called again if a kept file turns out to be damaged.
    Returns: what ``collect`` returns.
    Raises: whatever ``read`` and ``collect`` raise; nothing is kept then.
    Warns: UserWarning if a kept file is damaged, or nothing can be kept.
    """
    if source.stat().st_size < MIN_BYTES:
        return collect(read())
    path = Path(folder) / f"parsed-{hashlib.sha256(bytes(source.resolve())).hexdigest()[:32]}.parquet"
    stamped = schema.with_metadata((schema.metadata or {}) | {b"source": _fingerprint(source)})
    result = _collect_kept(path, stamped, collect)
    if result is not None:
        return result
    try:
        with _keeping(path, stamped) as keep:
            result = collect(map(keep, read()))
            if _fingerprint(source) != stamped.metadata[b"source"]:
                raise OSError("the source changed while it was read")
    except OSError as error:
        message = f"`cache` could not keep {source.name}: {_reason(error)}. The next load will read it again."
        warnings.warn(message, UserWarning, stacklevel=3)
    return collect(read()) if result is None else result


def _fingerprint(source: Path) -> bytes:
    """A digest of the file's size, time of change, beginning and end: fast for any size."""
    with open(source, "rb") as file:
        state = os.stat(file.fileno())
        head = file.read(EDGE_BYTES)
        file.seek(max(state.st_size - EDGE_BYTES, 0))
        edges = head + file.read(EDGE_BYTES)
    return hashlib.sha256(f"{state.st_size} {state.st_mtime_ns} ".encode() + edges).hexdigest().encode()


def _collect_kept(path: Path, schema: pa.Schema, collect: Callable[[Iterable[Block]], Result]) -> Result | None:
    """What ``collect`` makes of the kept blocks; None if there are none, they are out of date, or damaged."""
    try:
        if not path.is_file():
            return None
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(schema, check_metadata=True):
                return None
            return collect(_columns(batch) for batch in file.iter_batches())
    except (pa.ArrowException, ValueError, OSError) as error:  # these blocks were collected without one before
        message = f"`cache` holds a damaged {path.name}: {_reason(error)}. It will be written again."
        warnings.warn(message, UserWarning, stacklevel=4)
        return None


def _columns(batch: pa.RecordBatch) -> Block:
    return {name: batch.column(name).to_numpy() for name in batch.schema.names}


@contextlib.contextmanager
def _keeping(path: Path, schema: pa.Schema) -> Iterator[Callable[[Block], Block]]:
    """A function that writes a block and hands it on; the file appears under ``path`` when the ``with`` ends well.

    Raises: OSError if it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = dict(compression="lz4", use_dictionary=False, write_statistics=False, write_page_checksum=True)
    with replacing(path, mode=0o600) as file, pq.ParquetWriter(file, schema, **options) as writer:

        def keep(block: Block) -> Block:
            writer.write_batch(pa.RecordBatch.from_pydict(block, schema))
            return block

        yield keep


def _reason(error: BaseException) -> str:
    """The first line of an error, without its full stop; the system's words alone, without paths, if it has any."""
    return getattr(error, "strerror", None) or str(error).split("\n")[0].strip(". ")
