"""How far are the time and memory that `--dry-run` estimates from what the sweep then takes?

    python -m benchmarks.plan_error            # five sweeps, each planned and run in a process of its own
    python -m benchmarks.plan_error --quick    # the two smallest
    python -m benchmarks.plan_error --cpu      # seconds of processor time: for a machine that has other work to do

Prints a Markdown table: seconds of the rounds and in all (programs compiled anew), and peak memory, estimated and real.
"""

import argparse
import json
import subprocess
import sys
import time

from benchmarks import workload

CASES = {
    "default (80,000 rows, 3 banks, 10 seeds)": (80_000, {}),
    "logistic, 20 banks, 5 seeds": (40_000, dict(num_clients=20, seeds=5, hidden=(), alphas=[0.1, 1.0])),
    "one federation, 10 banks": (60_000, dict(num_clients=10, seeds=1, alphas=[0.5], algorithms=["fedavg"])),
    "wide (256, 128), stragglers": (
        20_000,
        dict(seeds=2, hidden=(256, 128), alphas=[0.5], stragglers=0.5, policy="partial", num_rounds=20),
    ),
    "five methods, 2 epochs, batch 256": (
        100_000,
        dict(seeds=3, alphas=[0.5], num_epochs=2, batch_size=256, num_clients=5,
             algorithms=["fedavg", "scaffold", "feddyn", "ditto", "fedadam"]),
    ),
}  # fmt: skip
QUICK = ("one federation, 10 banks", "wide (256, 128), stragglers")


def main() -> None:
    """Runs the cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the two smallest")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cpu:
        time.perf_counter = time.process_time  # before the package is imported; all threads together
    if options.case:
        print(json.dumps(plan_and_run(options.case)))
        return
    rows = []
    for name in QUICK if options.quick else CASES:
        command = [sys.executable, "-m", "benchmarks.plan_error", "--case", name, *["--cpu"] * options.cpu]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        rows.append([name, *(f"{guess:.1f} / {real:.1f} ({guess / real - 1:+.0%})" for guess, real in found)])
        print(rows[-1], file=sys.stderr, flush=True)
    header = ("sweep", "rounds [s]: estimated / real", "in all [s]", "peak memory [GiB]")
    print(workload.markdown_table(header, rows))


def plan_and_run(name: str) -> list[tuple[float, float]]:
    """(estimated, real) of the rounds, of everything, and of memory."""
    import fedjax_fraud as ff

    num_rows, changes = CASES[name]
    changes = dict(changes)
    workload.start_jax()
    train, test = ff.data.split(ff.data.paysim_like(num_rows, seed=0))
    width, hidden = train.features.shape[1], changes.pop("hidden", (64, 32))
    model = ff.models.perceptron(width, hidden)
    guess = ff.sweep(train, test, model=model, dry_run=True, **changes).estimate
    timings = ff.sweep(train, test, model=model, **changes).manifest["timings"]
    whole = guess.compile_seconds + guess.run_seconds + guess.table_seconds
    return [
        (guess.run_seconds, timings["run_seconds"]),
        (whole, timings["total_seconds"]),
        (guess.peak_bytes / 2**30, workload.peak_mib() / 2**10),
    ]


if __name__ == "__main__":
    main()
