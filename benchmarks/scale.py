"""How does the engine scale: with rows, clients, settings and the model's width, and to the size of PaySim?

    python -m benchmarks.scale                        # the four curves and the PaySim-size sweep
    python -m benchmarks.scale --parts csv            # load_paysim on a full-size CSV file, without and with its cache
    python -m benchmarks.scale --quick                # all parts with small sizes, in under a minute, to runs/scale

Each measurement is a process of its own, so that its compile time is a first one and its peak memory is its own.
Parts that are not run keep their results of the time before; the page and the picture show them all.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import workload
from benchmarks.workload import Case

FULL_ROWS = 6_362_620  # of Kaggle's file
PARTS = ("curves", "paysim", "csv")


class Plan(NamedTuple):
    """The sizes to run.

    Attributes:
      base: the case that the axes cross in.
      axes: name -> the cases along it, from small to large.
      paysim: arguments of ``paysim_job``.
      csv_rows: rows of the CSV file.
      repeats: processes for each case of the curves.
    """

    base: Case
    axes: dict[str, list[Case]]
    paysim: dict[str, Any]
    csv_rows: int
    repeats: int


FULL = Plan(
    base=Case(),
    axes=dict(
        rows=[Case(num_rows=num_rows) for num_rows in (6_000, 20_000, 60_000, 200_000, 600_000)],
        clients=[Case(num_clients=num_clients) for num_clients in (3, 10, 100, 1_000, 10_000)],
        settings=[
            Case(algorithms=["fedavg"], alphas=[0.5]),
            Case(alphas=[0.5]),
            *(Case(num_seeds=num_seeds) for num_seeds in (1, 3, 10, 33)),
        ],
        width=[Case(hidden=hidden) for hidden in ((16, 8), (64, 32), (128, 64), (256, 128), (512, 256))],
    ),
    paysim=dict(num_rows=6_400_000, batch_size=1024, num_rounds=10, algorithms=["fedavg", "fedprox", "scaffold"]),
    csv_rows=FULL_ROWS,
    repeats=3,
)
SMALL = Case(num_rows=6_000, num_rounds=3, algorithms=["fedavg"], alphas=[0.5])
QUICK = Plan(
    base=SMALL,
    axes=dict(
        rows=[SMALL, SMALL._replace(num_rows=20_000)],
        clients=[SMALL, SMALL._replace(num_clients=100)],
        settings=[SMALL, SMALL._replace(alphas=[0.1, 0.5, 1.0])],
        width=[SMALL, SMALL._replace(hidden=(128, 64))],
    ),
    paysim=dict(num_rows=60_000, batch_size=1024, num_rounds=3, algorithms=["fedavg"]),
    csv_rows=50_000,
    repeats=1,
)


# ---- jobs: what runs in a process of its own --------------------------------------------------------------------


def sweep_job(**sizes: Any) -> dict:
    """One sweep on rows made for it."""
    workload.start_jax()
    case = Case(**sizes)
    result = workload.run_sweep(case, *workload.make_rows(case.num_rows))
    return workload.sweep_figures(result) | dict(peak_mib=workload.peak_mib())


class Phases:
    """Seconds by phase, and the peak of the process when each ended."""

    def __init__(self):
        self.found: list[dict] = []
        self._last = time.perf_counter()

    def end(self, name: str) -> None:
        """Ends the phase that began when the one before ended."""
        now = time.perf_counter()
        self.add(name, now - self._last, workload.peak_mib())
        self._last = now

    def add(self, name: str, seconds: float, peak_mib: float) -> None:
        """A phase that was measured elsewhere."""
        self.found.append(dict(phase=name, seconds=seconds, peak_mib=peak_mib))


def paysim_job(num_rows: int, **sizes: Any) -> dict:
    """Generate, split and sweep (3 banks, 3 alphas), with seconds and the peak so far for each phase."""
    phases = Phases()
    workload.start_jax()
    import fedjax_fraud as ff

    phases.end("import")
    table = ff.data.paysim_like(num_rows, seed=0)
    phases.end("generate")
    train, test = ff.data.split(table)
    del table
    phases.end("split")
    case = Case(num_clients=3, **sizes)
    peaks, progress = workload.peak_recorder()
    figures = workload.sweep_figures(workload.run_sweep(case, train, test, progress=progress))
    compile_seconds, run_seconds, table_seconds = (figures[f"{name}_seconds"] for name in ("compile", "run", "table"))
    rest = figures["total_seconds"] - compile_seconds - run_seconds - table_seconds
    phases.add("partitions, checks, hashes", rest, peaks["compile"])
    phases.add("compile", compile_seconds, peaks["rounds"])
    phases.add("rounds", run_seconds, peaks["banks"])
    phases.add("tables", table_seconds, workload.peak_mib())
    return figures | dict(
        phases=phases.found,
        num_settings=case.num_settings,
        num_train=len(train.labels),
        num_test=len(test.labels),
        num_features=train.features.shape[1],
        peak_mib=workload.peak_mib(),
    )


def write_csv_job(path: str, num_rows: int) -> dict:
    """Writes the generator's rows as CSV."""
    from fedjax_fraud.data import write_paysim_csv

    began = time.perf_counter()
    write_paysim_csv(path, num_rows, seed=0)
    return dict(seconds=time.perf_counter() - began, megabytes=Path(path).stat().st_size / 1e6)


def load_csv_job(path: str, cache: str | None) -> dict:
    """Loads the CSV file, with a folder to keep its parsed columns in, or without."""
    from fedjax_fraud.data import load_paysim

    imported_mib, began = workload.peak_mib(), time.perf_counter()
    num_positives = int(load_paysim(path, cache=cache).labels.sum())
    seconds = time.perf_counter() - began
    kept = sum(file.stat().st_size for file in Path(cache).iterdir()) / 1e6 if cache else 0.0
    return dict(
        seconds=seconds,
        peak_mib=workload.peak_mib(),
        imported_mib=imported_mib,
        num_positives=num_positives,
        kept_megabytes=kept,
    )


JOBS: dict[str, Callable[..., dict]] = dict(
    sweep=sweep_job, paysim=paysim_job, write_csv=write_csv_job, load_csv=load_csv_job
)


def run_job(name: str, timeout: float, **arguments: Any) -> dict:
    """What a job returns from a process of its own; ``{"error": why}`` if it did not end well."""
    command = [sys.executable, "-m", "benchmarks.scale", "--job", name, json.dumps(arguments)]
    try:
        ended = subprocess.run(command, cwd=workload.ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return dict(error=f"stopped after {timeout:g} s")
    if ended.returncode:
        return dict(error=f"ended with status {ended.returncode}")
    return json.loads(ended.stdout.splitlines()[-1])


# ---- parts ------------------------------------------------------------------------------------------------------


def run_curves(plan: Plan, timeout: float) -> dict:
    """All cases of all axes, each once a repeat, so that a slow minute of the machine hits them all alike."""
    cases = {json.dumps(case._asdict()): case for axis in plan.axes.values() for case in axis}
    runs: dict[str, list[dict]] = {key: [] for key in cases}
    for repeat in range(plan.repeats):
        for number, (key, case) in enumerate(cases.items(), start=1):
            runs[key].append(run_job("sweep", timeout, **case._asdict()))
            print(f"curves: {number} of {len(cases)}, repeat {repeat + 1} of {plan.repeats}", file=sys.stderr)

    def point(case: Case) -> dict:
        return dict(case=case._asdict(), num_settings=case.num_settings, runs=runs[json.dumps(case._asdict())])

    base = dict(case=plan.base._asdict(), num_settings=plan.base.num_settings)
    return dict(
        base=base,
        repeats=plan.repeats,
        axes={axis: [point(case) for case in along] for axis, along in plan.axes.items()},
    )


def run_paysim(plan: Plan, timeout: float) -> dict:
    """The sweep on as many rows as PaySim has."""
    return dict(arguments=plan.paysim, run=run_job("paysim", timeout, **plan.paysim))


def run_csv(plan: Plan, timeout: float) -> dict:
    """A CSV file of the given size: written, loaded without a cache, and twice with one."""
    with tempfile.TemporaryDirectory() as folder:
        path, cache = str(Path(folder, "paysim.csv")), str(Path(folder, "cache"))
        written = run_job("write_csv", timeout, path=path, num_rows=plan.csv_rows)
        loads = {
            name: run_job("load_csv", timeout, path=path, cache=where)
            for name, where in (("without a cache", None), ("first, kept", cache), ("second, from the cache", cache))
        }
    return dict(num_rows=plan.csv_rows, written=written, loads=loads)


RUN_PART = dict(curves=run_curves, paysim=run_paysim, csv=run_csv)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="default: curves and paysim; with --quick all")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, help="processes for each case of the curves")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a process is given up")
    parser.add_argument("--out", type=Path, help="folder; default benchmarks/results, with --quick runs/scale")
    parser.add_argument("--job", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        name, sizes = options.job
        return print(json.dumps(JOBS[name](**json.loads(sizes))))

    plan = QUICK if options.quick else FULL
    plan = plan._replace(repeats=options.repeats or plan.repeats)
    out = options.out or (workload.ROOT / "runs" / "scale" if options.quick else workload.RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    for part in options.parts or (PARTS if options.quick else PARTS[:2]):
        record = dict(machine=workload.machine(), **RUN_PART[part](plan, options.timeout))
        (out / f"scale-{part}.json").write_text(json.dumps(record, indent=1) + "\n")

    from benchmarks import scale_report

    scale_report.write(out)


if __name__ == "__main__":
    main()
