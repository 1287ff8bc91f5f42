"""The files of a report, written in one go."""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fedjax_fraud.files import strict_json, write_bytes_atomically

from .case import case_of
from .dossier import joined, sections
from .params import params_bytes
from .store import MANIFEST, MODELS, OPTIONAL_TABLES, SCHEMA, TABLES, parquet_bytes, sha256
from .tables import summarise


def write(result: Any, folder: str | os.PathLike) -> list[pathlib.Path]:
    """Writes tables, models, dossier, page, pictures and manifest to a folder, replacing files of the same names.

    The tables come first, so that a failure further on loses no result; ``manifest.json`` comes last and holds the
    SHA-256 of the others, so a folder that has one is complete.

    Args:
      result: has ``rounds``, ``banks``, ``partitions`` and ``manifest``, and may have ``decisions`` and ``params``.
      folder: where to; created if it is not there. See ``store.check_output_folder`` for a check before long work.

    Returns: the paths written, in order.

    Example:
      >>> import tempfile
      >>> from fedjax_fraud import data, models, report, sweep
      >>> train, test = data.split(data.paysim_like(500, seed=0, fraud_rate=0.1))
      >>> model = models.logistic_regression(train.features.shape[1])
      >>> result = sweep(train, test, algorithms=("fedavg",), alphas=(1.0,), seeds=2, num_rounds=2, model=model)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     names = [path.name for path in write(result, folder)]
      >>> "dossier.md" in names, names[-1]
      (True, 'manifest.json')
    """
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths, digests = [], {}
    for name, content in _files(result):
        paths.append(write_bytes_atomically(target / name, content))
        digests[name] = sha256(content)
    manifest = strict_json(result.manifest | {"files": digests, "schema": SCHEMA})
    return [*paths, write_bytes_atomically(target / MANIFEST, manifest.encode())]


def write_partitions(
    partitions: pd.DataFrame | Sequence[pd.DataFrame], folder: str | os.PathLike
) -> list[pathlib.Path]:
    """Writes a picture and a table of partitions alone: ``partition.png`` and ``partitions.csv``.

    Args:
      partitions: one row per alpha, seed and client, in one table or several.
      folder: where to; created if it is not there.

    Returns: the paths written.
    """
    from . import figures  # matplotlib takes a second to import: only who draws waits for it

    table = partitions if isinstance(partitions, pd.DataFrame) else pd.concat(partitions, ignore_index=True)
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = {
        "partitions.csv": _csv_bytes(table),
        "partition.png": figures.png_bytes(figures.partition_heatmap(table)),
    }
    return [write_bytes_atomically(target / name, content) for name, content in files.items()]


def _files(result: Any) -> Iterator[tuple[str, bytes]]:
    """Every file but the manifest, made one after the other."""
    from . import page

    for name, file in (TABLES | OPTIONAL_TABLES).items():
        if name in TABLES or getattr(result, name, None) is not None:
            yield file, parquet_bytes(getattr(result, name))
    if getattr(result, "params", None) is not None:
        yield MODELS, params_bytes(result.params)
    yield "summary.csv", _csv_bytes(summarise(result.rounds))
    case = case_of(result)
    texts = sections(case)
    yield "dossier.md", joined(texts).encode()
    yield "report.html", page.page(case, texts).encode()
    yield from _pictures(result)


def _pictures(result: Any) -> Iterator[tuple[str, bytes]]:
    """The pictures that the dossier names, and the convergence as SVG too."""
    from . import banks, calibration, condition_figure, figures

    parts = figures.by_conditions(result)
    for place, (name, part) in enumerate(parts, start=1):
        number = f"-{place}" if len(parts) > 1 else ""
        convergence = figures.convergence(part, name)
        yield f"convergence{number}.svg", figures.svg_bytes(convergence)
        yield f"convergence{number}.png", figures.png_bytes(convergence)
        yield f"banks{number}.png", figures.png_bytes(banks.banks_figure(part, name))
        if getattr(result, "decisions", None) is not None:
            yield f"calibration{number}.png", figures.png_bytes(calibration.calibration_figure(part, name))
    if len(parts) > 1:
        yield "conditions.png", figures.png_bytes(condition_figure.conditions(result))
    yield "partition.png", figures.png_bytes(figures.partition_heatmap(result.partitions))


def _csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as CSV, the same on every system; NaN is an empty cell."""
    return table.to_csv(index=False, lineterminator="\n").encode()
