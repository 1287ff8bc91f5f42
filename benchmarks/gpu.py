"""Is the engine right on an accelerator, and how fast? One prepared script within a time budget; builds nothing.

    python -m benchmarks.gpu                     # 27, 270 and 2,700 federations, at most 5 minutes
    python -m benchmarks.gpu --quick             # small sizes, to runs/gpu: also a smoke test on a CPU

1. The same sweep on all devices of the default platform and on one CPU device of this process: do models and scores
   agree? Once with the platform's own precision of matrix products and once with the highest.
2. Sweeps of growing size, a run each: rows a second, compile time, memory of the device.
3. The cost of a training step that does not depend on how many clients it serves: on a GPU mostly launches of kernels.

A step that would probably not fit the rest of the budget is skipped, and the page says so. The page is written after
every step, and when the budget is used up the script ends. Exit status 1: something disagrees; 2: out of time.
"""

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import workload
from benchmarks.workload import Case

# Largest differences that rounding explains. Noise in float32's last bit (2^-24), put on the features of this case on a
# CPU, moves parameters and log loss by up to 1e-6; features cut to TF32 (2^-11), to which a GPU may round by itself
# ("default"), move parameters by 7e-4. Products round weights and activations too, hence the room above that.
TOLERANCES = {
    "highest": dict(params=1e-4, log_loss=1e-5, average_precision=1e-4),
    "default": dict(params=2e-2, log_loss=5e-3, average_precision=5e-3),
}


FEW_LANES_SLOWER = 8  # at most, than with as many lanes as the engine chooses


class Plan(NamedTuple):
    """The sizes to run.

    Attributes:
      agreement: the case that is run on both platforms. Few rounds and no alpha of 0.1, where SCAFFOLD is on its way to
        diverging: it multiplies any noise, by 30 already in three rounds.
      sizes: the cases of growing size.
      launches: the case that is run with two numbers of lanes, and these; both must keep all lanes busy.
    """

    agreement: Case
    sizes: Sequence[Case]
    launches: tuple[Case, tuple[int, int]]


FULL = Plan(
    agreement=Case(num_rounds=3, alphas=(0.5, 1.0)),
    sizes=[Case(num_seeds=num_seeds) for num_seeds in (3, 30, 300)],
    launches=(Case(num_seeds=30, num_rounds=3), (32, 64)),
)
SMALL = Case(num_rows=6_000, num_rounds=2, algorithms=("fedavg",), alphas=(0.5, 1.0))
QUICK = Plan(
    agreement=SMALL._replace(algorithms=("fedavg", "scaffold")),
    sizes=[SMALL, SMALL._replace(num_seeds=10)],
    launches=(SMALL._replace(num_seeds=10), (4, 8)),
)


class SkippedError(Exception):
    """A step that does not fit the budget."""


class Budget:
    """Seconds left, and what a step would probably take."""

    def __init__(self, seconds: float):
        self._end = time.perf_counter() + seconds

    @property
    def left(self) -> float:
        """Seconds until the budget is used up."""
        return self._end - time.perf_counter()

    def check(self, estimate: float) -> None:
        """Raises SkippedError unless ``estimate`` seconds fit."""
        if estimate > self.left:
            raise SkippedError(f"skipped: about {estimate:.0f} s would be needed, {max(self.left, 0):.0f} s were left")


def size(case: Case) -> int:
    """What a sweep's time is in proportion to, apart from compiling."""
    return case.num_settings * case.num_rounds * case.num_rows


def estimate_seconds(figures: dict, growth: float) -> float:
    """A sweep ``growth`` times as large as the one measured: rounds and tables grow with it, compiling does not.

    The rest is counted twice, since partitions, a small part of it, grow with the seeds.
    """
    growing = figures["run_seconds"] + figures["table_seconds"]
    return growth * growing + 2 * (figures["total_seconds"] - growing)


@contextlib.contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """The precision of matrix products for all threads: ``jax.default_matmul_precision`` sets that of one only."""
    import jax

    before = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", None if name == "default" else name)
    try:
        yield
    finally:
        jax.config.update("jax_default_matmul_precision", before)


# ---- steps ------------------------------------------------------------------------------------------------------


class Bench:
    """The steps, with the rows that they share."""

    def __init__(self, plan: Plan, budget: Budget):
        self._plan, self._budget = plan, budget
        self._rows: dict[int, Any] = {}
        self._largest: tuple[Case, dict] | None = None

    def _run(self, case: Case, slower: float = 1.0, **more) -> tuple[Any, dict]:
        """A sweep and its figures, unless it would not fit the budget. ``slower``: than the largest sweep so far."""
        if self._largest is not None:
            largest, figures = self._largest
            self._budget.check(estimate_seconds(figures, slower * size(case) / size(largest)))
        if case.num_rows not in self._rows:
            self._rows[case.num_rows] = workload.make_rows(case.num_rows)
        result = workload.run_sweep(case, *self._rows[case.num_rows], **more)
        figures = workload.sweep_figures(result)
        if self._largest is None or size(case) >= size(self._largest[0]):
            self._largest = case, figures
        return result, figures | dict(num_settings=case.num_settings, device_peak_mib=device_peak_mib())

    def agreement(self) -> list[dict]:
        """The largest differences between the accelerator and one CPU device, for each precision."""
        import jax

        with matmul_precision("highest"):
            expected, _ = self._run(self._plan.agreement, devices=jax.devices("cpu")[:1])
        found = []
        for precision, tolerances in TOLERANCES.items():
            with matmul_precision(precision):
                result, figures = self._run(self._plan.agreement)
            differences, num_compared = compare(result, expected)
            agrees = all(differences[name] <= tolerance for name, tolerance in tolerances.items())
            found.append(
                dict(precision=precision, num_compared=num_compared, differences=differences, tolerances=tolerances)
                | dict(agrees=agrees, rows_per_second=figures["rows_per_second"])
            )
        return found

    def speed(self, case: Case) -> dict:
        """One sweep with the precision that users get."""
        return self._run(case)[1]

    def launches(self) -> dict:
        """The fixed cost of a step, from two runs of the same work with different numbers of lanes."""
        case, lanes = self._plan.launches
        runs = [self._run(case, FEW_LANES_SLOWER, num_lanes=num_lanes)[1] for num_lanes in lanes]
        steps = [
            run["executed_steps"] / num_lanes / len(run["devices"]) for run, num_lanes in zip(runs, lanes, strict=True)
        ]
        return dict(num_lanes=lanes, num_steps=steps, run_seconds=[run["run_seconds"] for run in runs]) | fixed_cost(
            lanes, [run["run_seconds"] / num_steps for run, num_steps in zip(runs, steps, strict=True)]
        )


def compare(result, expected) -> tuple[dict[str, float], int]:
    """The largest differences of final parameters and of scores after any round, over settings that did not diverge.

    A diverging setting multiplies every rounding error, so that nothing can be said of it.
    """
    import jax

    last = expected.rounds.groupby("setting")["diverged"].last()
    kept = last.index[~last]
    pairs = zip(jax.tree.leaves(result.params), jax.tree.leaves(expected.params), strict=True)
    differences = dict(params=float(np.max([np.abs(a - b)[kept].max() for a, b in pairs])))
    ours, theirs = (table[table["setting"].isin(kept)] for table in (result.rounds, expected.rounds))
    for name in ("log_loss", "average_precision"):
        differences[name] = float(np.abs(ours[name].to_numpy() - theirs[name].to_numpy()).max())
    return differences, len(kept)


def fixed_cost(lanes: Sequence[int], seconds_per_step: Sequence[float]) -> dict:
    """Fits ``seconds = fixed + lanes * per_lane`` through two measurements; neither part may be negative."""
    (few, many), (fast, slow) = lanes, seconds_per_step
    per_lane = min(max((slow - fast) / (many - few), 0.0), fast / few)
    fixed = fast - few * per_lane
    return dict(
        fixed_microseconds=fixed * 1e6,
        per_lane_microseconds=per_lane * 1e6,
        fixed_share={str(num_lanes): fixed / (fixed + num_lanes * per_lane) for num_lanes in (*lanes, 1024)},
    )


def device_peak_mib() -> float | None:
    """The largest memory in use on the first device so far; None where the platform does not say."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return stats["peak_bytes_in_use"] / 2**20 if "peak_bytes_in_use" in stats else None


# ---- record -----------------------------------------------------------------------------------------------------


def page(record: dict) -> str:
    """The record as Markdown."""
    device = record["device"]
    return "\n\n".join(
        [
            "# The engine on an accelerator",
            "Written by `python -m benchmarks.gpu`.",
            f"{device['count']} x {device['kind']} ({device['platform']}); {workload.machine_line(record['machine'])} "
            f"{record['seconds']:.0f} s of a budget of {record['budget_seconds']:.0f} s.",
            *_agreement_page(record),
            *_sizes_page(record),
            *_launches_page(record),
        ]
    )


def _agreement_page(record: dict) -> list[str]:
    title = "## Agreement with one CPU device"
    steps = record.get("agreement")
    if not isinstance(steps, list):
        return [title, f"Not measured: {steps or 'not reached'}."]
    rows = []
    for step in steps:
        pairs = zip(step["differences"].values(), step["tolerances"].values(), strict=True)
        cells = [f"{difference:.1e} of {tolerance:.0e}" for difference, tolerance in pairs]
        rows.append([step["precision"], *cells, "yes" if step["agrees"] else "**no**"])
    header = ["precision of matrix products", "parameters", "log loss", "average precision", "within tolerance"]
    return [
        title,
        "Largest absolute difference of its tolerance: final parameters, and scores on the test rows after any round, "
        f"of the {steps[0]['num_compared']} settings that did not diverge.",
        workload.markdown_table(header, rows),
    ]


def _sizes_page(record: dict) -> list[str]:
    header = ["sweep", "compile, s", "rounds, s", "whole sweep, s", "million rows trained / s"]
    rows = []
    for name, found in record["sizes"]:
        if isinstance(found, str):
            rows.append([name, found, *[""] * 4])
            continue
        seconds = [f"{found[f'{phase}_seconds']:.2f}" for phase in ("compile", "run", "total")]
        peak = "not told" if found["device_peak_mib"] is None else f"{found['device_peak_mib']:.0f}"
        rows.append([name, *seconds, f"{found['rows_per_second'] / 1e6:.2f}", peak])
    return [
        "## Speed",
        "One run each, with the platform's own precision of matrix products.",
        workload.markdown_table([*header, "peak of the device so far, MiB"], rows),
    ]


def _launches_page(record: dict) -> list[str]:
    title, launches = "## Fixed cost of a step", record.get("launches")
    if not isinstance(launches, dict):
        return [title, f"Not measured: {launches or 'not reached'}."]
    few, many = launches["num_lanes"]
    shares = ", ".join(f"{share:.0%} at {num_lanes} lanes" for num_lanes, share in launches["fixed_share"].items())
    return [
        title,
        f"The same work with {few} and with {many} lanes took {launches['run_seconds'][0]:.2f} and "
        f"{launches['run_seconds'][1]:.2f} s, in {launches['num_steps'][0]:.0f} and {launches['num_steps'][1]:.0f} "
        f"steps one after the other. A line through the two times a step gives {launches['fixed_microseconds']:.1f} us "
        f"a step plus {launches['per_lane_microseconds']:.3f} us a lane. The fixed part is {shares} (1024: beyond "
        "what was measured). It holds the launches of kernels and also the time that a kernel takes however little it "
        "has to do, so it is an upper bound for launches; scoring and aggregation are spread over the steps.",
    ]


def write(record: dict, out: Path) -> None:
    """The JSON and the page, as far as they have come."""
    from fedjax_fraud.report.store import strict_json

    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(strict_json(record))
    (out / "gpu.md").write_text(page(record) + "\n")


def run_steps(plan: Plan, budget_seconds: float, out: Path) -> dict:
    """All steps in order of importance; the record after each is on the disk."""
    workload.start_jax()
    import jax

    began, budget = time.perf_counter(), Budget(budget_seconds)
    device, bench = jax.devices()[0], Bench(plan, budget)
    record = dict(
        machine=workload.machine(),
        device=dict(platform=device.platform, kind=device.device_kind, count=len(jax.devices())),
        budget_seconds=budget_seconds,
        sizes=[],
    )

    def step(name: str, run: Callable[[], Any], keep: Callable[[Any], None]) -> None:
        print(f"{name}: {budget.left:.0f} s left", file=sys.stderr, flush=True)
        try:
            keep(run())
        except (SkippedError, jax.errors.JaxRuntimeError) as error:  # the latter: most likely out of memory
            keep(str(error).splitlines()[0])
        record["seconds"] = time.perf_counter() - began
        write(record, out)

    def speed(case: Case) -> None:
        name = f"{case.num_settings} federations"
        step(name, lambda: bench.speed(case), lambda found: record["sizes"].append([name, found]))

    step("agreement", bench.agreement, lambda found: record.update(agreement=found))
    *small, largest = plan.sizes
    for case in small:
        speed(case)
    step("fixed cost of a step", bench.launches, lambda found: record.update(launches=found))
    speed(largest)
    return record


def end_after(seconds: float) -> threading.Timer:
    """Ends the process when the time is up, whatever it is doing: estimates can be wrong."""

    def end() -> None:
        print("The budget is used up; the page has what was measured before.", file=sys.stderr, flush=True)
        os._exit(2)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=300, help="seconds")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--out", type=Path, help="folder; default benchmarks/results, with --quick runs/gpu")
    options = parser.parse_args(arguments)
    out = options.out or (workload.ROOT / "runs" / "gpu" if options.quick else workload.RESULTS)
    timer = end_after(options.budget)
    record = run_steps(QUICK if options.quick else FULL, options.budget, out)
    timer.cancel()
    print((out / "gpu.md").read_text())
    steps = record["agreement"]
    return int(isinstance(steps, list) and not all(step["agrees"] for step in steps))


if __name__ == "__main__":
    sys.exit(main())
