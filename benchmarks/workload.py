"""The work that `scale.py` and `gpu.py` time, what they record of a sweep and of the machine, and how they show it."""

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
NUM_FEATURES = 16
PACKAGES = ("fedjax-fraud", "jax", "jaxlib", "flax", "optax", "numpy", "pandas", "pyarrow")


class Case(NamedTuple):
    """A sweep over rows that are made for it: algorithms x alphas x seeds, without baselines.

    A third as many test rows as training rows come on top; the global models are scored on them after every round.
    """

    num_rows: int = 60_000
    num_clients: int = 10
    algorithms: Sequence[str] = ("fedavg", "fedprox", "scaffold")
    alphas: Sequence[float] = (0.1, 0.5, 1.0)
    num_seeds: int = 1
    hidden: Sequence[int] = (64, 32)
    num_rounds: int = 10
    batch_size: int = 64
    client_lr: float = 0.05

    @property
    def num_settings(self) -> int:
        """Federations of the sweep."""
        return len(self.algorithms) * len(self.alphas) * self.num_seeds


def make_arrays(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a logistic model with N(0, 1) features and about 1 % positives."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=NUM_FEATURES)
    features = rng.normal(size=(num_rows, NUM_FEATURES))
    logits = features @ (1.75 * weights / np.linalg.norm(weights)) - 6
    labels = rng.random(num_rows) < 1 / (1 + np.exp(-logits))
    return features.astype(np.float32), labels.astype(np.int32)


def make_rows(num_rows: int):
    """Training rows of ``make_arrays``, and a third as many test rows."""
    import fedjax_fraud as ff

    features, labels = make_arrays(num_rows + num_rows // 3)
    names = tuple(f"x{i}" for i in range(NUM_FEATURES))
    sides = (slice(None, num_rows), slice(num_rows, None))
    return tuple(ff.Transactions(features[side], labels[side], names, source="benchmark") for side in sides)


def run_sweep(case: Case, train, test, **more):
    """The sweep of a case; ``more`` goes to ``sweep`` as it is."""
    import fedjax_fraud as ff

    return ff.sweep(
        train,
        test,
        algorithms=case.algorithms,
        alphas=case.alphas,
        seeds=case.num_seeds,
        num_clients=case.num_clients,
        num_rounds=case.num_rounds,
        batch_size=case.batch_size,
        client_lr=case.client_lr,
        model=ff.models.mlp(train.features.shape[1], tuple(case.hidden)),
        baselines=False,
        **more,
    )


def sweep_figures(result) -> dict:
    """What a sweep says of itself: seconds by phase, work, devices."""
    timings, work = result.manifest["timings"], result.manifest["work"]
    names = ("num_programs", "rows_trained", "rows_per_second", "useful_steps", "executed_steps")
    figures = {name: timings[name] for name in ("compile_seconds", "run_seconds", "table_seconds", "total_seconds")}
    return figures | {name: work[name] for name in names} | dict(devices=result.manifest["devices"])


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_jax() -> None:
    """One XLA device for each core, as the command line has it, and nothing compiled taken from an earlier run."""
    import jax

    from fedjax_fraud import devices

    devices.use_all_cores()
    jax.config.update("jax_enable_compilation_cache", False)


def peak_mib(who: int = resource.RUSAGE_SELF) -> float:
    """The largest size that this process, or a child that has ended, has had in memory."""
    return resource.getrusage(who).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def peak_recorder() -> tuple[dict[str, float], Callable[[str, int, int], None]]:
    """``(peaks, progress)``: ``progress`` is for ``sweep``; ``peaks``: phase -> MiB at the time when it began."""
    peaks: dict[str, float] = {}
    return peaks, lambda what, done, total: peaks.setdefault(what, peak_mib())


def machine() -> dict:
    """Processor, memory, versions and commit; nothing that names the computer or its user."""
    return dict(
        processor=_processor(),
        cores=num_cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=platform.system(),
        python=platform.python_version(),
        versions={name: metadata.version(name) for name in PACKAGES},
        commit=_commit(),
    )


def machine_line(machine: dict) -> str:
    """A record of ``machine`` as a line of a page."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python "
        f"{machine['python']}, {versions}, commit {machine['commit']}."
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left and the others to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _processor() -> str:
    """The model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _commit() -> str:
    """The commit of the code, with "+" if files differ from it; "unknown" outside a clone."""
    try:
        asked = [
            subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for command in (["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "--", "fedjax_fraud"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return asked[0] + ("+" if asked[1] else "")
