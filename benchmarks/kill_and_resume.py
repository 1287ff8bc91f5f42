"""Does a sweep that is killed at random times end in the same bits? SIGKILL, resume, compare.

    python -m benchmarks.kill_and_resume                # 20 trials; prints kill times and "20 of 20 equal"
    python -m benchmarks.kill_and_resume --trials 3 --quick     # a sweep of a fifth of the rows

One sweep runs undisturbed. Each trial starts the same command, kills it without warning at a random time of its run,
and resumes it until it ends, killed again in every other start. Tables and models must be the same bytes in both. Exit
status 1 if one is not.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

FILES = ("results.parquet", "banks.parquet", "partitions.parquet", "decisions.parquet", "models.safetensors")
SWEEP = (
    "sweep --seeds 4 --alphas 1.0 10.0 --clients 5 --rounds 40 --algorithms fedavg scaffold --no-baselines "
    "--client-lr 0.01 --stragglers 0.4 --policy partial --drop-after 0.2 --quiet --rows"
)
ROWS, QUICK_ROWS = 40_000, 8_000
MAX_STARTS = 30
AGAIN = 0.5  # the share of resumed processes that are killed too


class Trial(NamedTuple):
    """Seconds after which each process was killed, and the files that differ from those of the undisturbed run."""

    kills: list[float]
    different: list[str]


def main() -> int:
    """Runs the trials; returns 0 if all ended in the same bits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="kills at random times")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of these times")
    parser.add_argument("--quick", action="store_true", help="a smaller sweep")
    options = parser.parse_args()
    rows = QUICK_ROWS if options.quick else ROWS
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        if start(work / "warm", work, rows).wait():  # so that all later starts find their programs
            raise SystemExit("The undisturbed sweep failed.")
        began = time.monotonic()
        if start(work / "whole", work, rows).wait():
            raise SystemExit("The undisturbed sweep failed.")
        whole = time.monotonic() - began
        print(f"undisturbed: {whole:.1f} s", flush=True)
        equal = 0
        for number in range(1, options.trials + 1):
            trial = run_trial(work / f"trial-{number}", work, rows, whole, draw)
            equal += not trial.different
            times = ", ".join(f"{seconds:.1f}" for seconds in trial.kills)
            verdict = f"differs: {', '.join(trial.different)}" if trial.different else "equal"
            print(f"trial {number}: killed after {times} s; {verdict}", flush=True)
            shutil.rmtree(work / f"trial-{number}")
    print(f"{equal} of {options.trials} equal")
    return int(equal != options.trials)


def start(out: Path, work: Path, rows: int) -> subprocess.Popen:
    """The sweep as a process of its own, resumed if there is something to resume."""
    resume = ["--resume"] if (out / "checkpoint" / "identity.json").is_file() else []
    code = "import sys; from fedjax_fraud.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"FEDJAX_FRAUD_CACHE": str(work / "cache")}
    command = [sys.executable, "-c", code, *SWEEP.split(), str(rows), "--out", str(out), *resume]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def run_trial(out: Path, work: Path, rows: int, whole: float, draw: random.Random) -> Trial:
    """Starts, kills and resumes until the sweep has ended by itself; at least one process is killed."""
    kills: list[float] = []
    for _ in range(MAX_STARTS):
        process, after, began = start(out, work, rows), draw.uniform(0, whole), time.monotonic()
        spared = bool(kills) and draw.random() >= AGAIN
        if spared or has_ended(process, after):
            if process.wait():
                raise SystemExit(f"A resumed sweep failed with status {process.returncode}; it is in {out}.")
            if kills:
                break
            whole = time.monotonic() - began  # faster than the undisturbed run: nothing was shown, so once more
            shutil.rmtree(out)
            continue
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills.append(after)
        if is_finished(out):  # killed between the last file and the end
            break
    else:
        raise SystemExit(f"{MAX_STARTS} starts did not finish the sweep in {out}.")
    return Trial(kills, [name for name in FILES if not same_bytes(work / "whole" / name, out / name)])


def has_ended(process: subprocess.Popen, seconds: float) -> bool:
    """Whether a process ends within some seconds."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return True
    return False


def is_finished(out: Path) -> bool:
    """Whether the results are complete: the manifest is written last."""
    return (out / "manifest.json").is_file()


def same_bytes(one: Path, other: Path) -> bool:
    """Whether both files are there and equal."""
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
