"""What a result rests on: the digest of the rows, versions, and how much was trained."""

import hashlib
import platform
from collections.abc import Sequence
from importlib import metadata

import jax
import numpy as np
from jax.sharding import Mesh

from fedjax_fraud import pool
from fedjax_fraud.parts import Part
from fedjax_fraud.types import Model, Transactions


def rows_digest(train: Transactions, test: Transactions) -> str:
    """A digest of all features and labels, as trained and scored on."""
    digest = hashlib.sha256()
    for rows in (train, test):
        digest.update(np.ascontiguousarray(rows.features).data.cast("B"))
        digest.update(np.ascontiguousarray(rows.labels).data.cast("B"))
    return digest.hexdigest()


def versions() -> dict:
    """What the numbers depend on."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy", "pandas")}
    return packages | dict(
        python=platform.python_version(),
        fedjax_fraud=metadata.version("fedjax-fraud"),
        random_generator=f"jax {jax.config.jax_default_prng_impl}, numpy PCG64",
        matmul_precision=str(jax.config.jax_default_matmul_precision or "default"),
    )


def work_done(
    parts: Sequence[Part], outcomes: Sequence[pool.Outcome], run_seconds: float, num_rounds: int, mesh: Mesh
) -> dict:
    """What was trained, and how well it was packed (steps: as if everybody took part)."""
    rows_trained = int(sum(np.sum(outcome.history.num_rows, dtype=np.int64) for outcome in outcomes))
    works = [pool.pool_work(part.pool, num_rounds, mesh.devices.size) for part in parts]
    return dict(
        num_programs=len(parts),
        rows_trained=rows_trained,
        rows_per_second=rows_trained / max(run_seconds, 1e-9),
        useful_steps=sum(work.useful for work in works),
        executed_steps=sum(work.executed for work in works),
        padded_steps=sum(work.padded for work in works),
    )


def start_digest(parts: Sequence[Part]) -> str:
    """A digest of the first global models of all settings: two models may have one description."""
    digest = hashlib.sha256()
    for part in parts:
        for leaf in jax.tree.leaves(part.pool.params):
            digest.update(np.ascontiguousarray(leaf).data.cast("B"))
    return digest.hexdigest()


def identity(
    config: dict, rows_sha256: str, model: Model, available: np.ndarray | None, parts: Sequence[Part], mesh: Mesh
) -> dict:
    """What must be equal for an unfinished run to go on to the same bits."""
    known = versions()
    trace = None if available is None else np.packbits(np.asarray(available, bool)).tobytes()
    return config | dict(
        rows_sha256=rows_sha256,
        model=model.description,
        start_sha256=start_digest(parts),
        available=None if trace is None else hashlib.sha256(trace).hexdigest(),
        versions={name: known[name] for name in ("fedjax_fraud", "jax", "jaxlib", "optax", "matmul_precision")},
        devices=[str(device) for device in mesh.devices.flat],
        packing=[[part.pool.program.num_lanes, part.pool.program.chunk_length] for part in parts],
    )
