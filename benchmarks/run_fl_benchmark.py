"""How fast is the engine against competent alternatives on identical work? Everything in one run.

    python -m benchmarks.run_fl_benchmark                     # 5 repeats, about an hour on two cores
    python -m benchmarks.run_fl_benchmark --quick             # does everything work? a few minutes

Every contender is a process of its own (`benchmarks/peers/`); contenders take turns within each repeat. Writes
``fl_benchmark.json``, ``.md`` and ``.png``. Needs the extra ``bench``; a peer that is not installed, or that fails,
is reported as failed and the rest goes on. Keep the machine otherwise idle.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import fl_report, workload
from benchmarks.measure import Measured, measure
from benchmarks.peers import work

PEERS = ("ours", "numpy", "torch", "flower", "pfl", "floor")
LONG = "sweep270"
SINGLE = tuple(name for name in work.CASES if name.startswith("k"))
SWEEPS = ("sweep27", LONG)
# What an older OpenBLAS needs on some processors makes a current one slow.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class Entry(NamedTuple):
    """One process to time.

    Attributes:
      contender: its name in the report.
      peer: the name in ``--peers``, which also decides the interpreter.
      case: a key of ``work.CASES``, or "" for the floor.
      module: of ``benchmarks.peers``.
      arguments: beside the case and the files.
      start: "cold" with an empty compilation cache, "warm" with the one that the cold run before it filled, or "".
      launcher: what stands between the interpreter and the module.
    """

    contender: str
    peer: str
    case: str
    module: str
    arguments: tuple[str, ...] = ()
    start: str = ""
    launcher: tuple[str, ...] = ()


def entries() -> list[Entry]:
    """One repeat, in order: case by case, and the contenders of a case in turn."""
    one, two = ("--processes", "1"), ("--processes", "2")
    result = [Entry("floor", "floor", "", "floor")]
    for case in (*SWEEPS, *SINGLE):
        for start in ("cold", "warm"):
            result.append(Entry(f"fedjax_fraud, {start}", "ours", case, "ours", start=start))
        if case != LONG:
            result.append(Entry("NumPy, 1 process", "numpy", case, "numpy_loop", one))
        if case in SWEEPS:
            result.append(Entry("NumPy, 2 processes", "numpy", case, "numpy_loop", two))
        if case != LONG:
            result.append(Entry("PyTorch, 1 process", "torch", case, "torch_loop", one))
        if case == "sweep27":
            result.append(Entry("PyTorch, 2 processes", "torch", case, "torch_loop", two))
        if case == "k10-fedavg":
            torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
            result.append(Entry("pfl, 1 process", "pfl", case, "pfl_research"))
            result.append(Entry("pfl, 2 processes", "pfl", case, "pfl_research", launcher=torchrun))
            result.append(Entry("Flower", "flower", case, "flower"))
    for form in ("packed", "padded"):
        result.append(Entry(f"fedjax_fraud, {form}", "ours", "skewed9", "ours", ("--form", form), start=form))
    return result


def command_of(entry: Entry, options: argparse.Namespace, inputs: Path, record: Path) -> list[str]:
    """The command line of a contender."""
    python = dict(flower=options.flower_python, pfl=options.pfl_python).get(entry.peer) or sys.executable
    command = [python, *entry.launcher, "-m", f"benchmarks.peers.{entry.module}", "--json", str(record)]
    if entry.case:
        command += ["--case", entry.case, "--inputs", str(inputs), *entry.arguments]
        if options.quick:
            command += ["--num-rounds", "2", "--num-seeds", "1"]
    return command


def environment(entry: Entry, caches: Path) -> dict[str, str]:
    """The environment of a contender; a warm start finds the compilation cache of the cold start before it."""
    result = {name: value for name, value in os.environ.items() if name not in UNSET}
    if entry.start:
        folder = caches / (entry.case if entry.start in ("cold", "warm") else f"{entry.case}-{entry.start}")
        folder.mkdir(exist_ok=True)
        result["FEDJAX_FRAUD_CACHE"] = str(folder)
    return result


def run_entry(entry: Entry, options: argparse.Namespace, inputs: Path, folder: Path) -> dict:
    """Runs a contender and joins what it says of itself with what was seen from outside."""
    record = folder / "record.json"
    record.unlink(missing_ok=True)
    measured: Measured = measure(
        command_of(entry, options, inputs, record),
        cwd=workload.ROOT,
        env=environment(entry, folder),
        timeout=options.timeout,
    )
    seen = dict(contender=entry.contender, case=entry.case, whole_seconds=measured.seconds)
    if measured.error or not record.exists():
        return seen | dict(error=measured.error or "no record")
    said = json.loads(record.read_text())
    return seen | said | dict(peak_mib=max(measured.peak_mib, said.get("peak_mib", 0.0)))


def run_all(options: argparse.Namespace, folder: Path) -> Iterator[dict]:
    """All repeats of all entries. A contender that failed is not run again."""
    inputs = folder / "work.npz"
    chosen = [entry for entry in entries() if entry.peer in options.peers and entry.case in ("", *options.cases)]
    written = measure(
        [sys.executable, "-m", "benchmarks.peers.work", "--inputs", str(inputs)],
        cwd=workload.ROOT,
        env=dict(os.environ),
        timeout=options.timeout,
    )
    if written.error:
        raise RuntimeError(f"The inputs could not be written: {written.error}")
    _read_programs_once(chosen, options)
    failed = set()
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory(dir=folder) as caches:
            for entry in chosen:
                if entry in failed:
                    continue
                result = run_entry(entry, options, inputs, Path(caches)) | dict(repeat=repeat)
                if "error" in result:
                    failed.add(entry)
                if repeat:
                    result.pop("final", None)
                note = result.get("error") or f"{result.get('seconds', {}).get('run', 0.0):8.2f} s in rounds"
                print(f"{repeat + 1} {entry.case:14s} {entry.contender:22s} {result['whole_seconds']:8.2f} s  {note}")
                yield result


def _read_programs_once(chosen: list[Entry], options: argparse.Namespace) -> None:
    """Imports every contender once, untimed: the first import ever reads files from disk and writes bytecode."""
    for module, peer in dict.fromkeys((entry.module, entry.peer) for entry in chosen):
        entry = Entry("", peer, "", module)
        command = [*command_of(entry, options, Path(), Path()), "--help"]
        measure(command, cwd=workload.ROOT, env=dict(os.environ), timeout=options.timeout)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, help="of everything, interleaved (default: 5; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="2 rounds, 1 seed, fewer cases: a check, no measurement")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, help="contenders to run")
    parser.add_argument("--cases", nargs="+", choices=work.CASES, help="cases to run (default: all)")
    parser.add_argument("--out", type=Path, default=workload.RESULTS, help="folder for the results")
    parser.add_argument("--flower-python", help="interpreter that has flwr, if not this one")
    parser.add_argument("--pfl-python", help="interpreter that has pfl, if not this one")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds after which a process is ended")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (1 if options.quick else 5)
    options.cases = options.cases or (["sweep27", "k10-fedavg", "skewed9"] if options.quick else list(work.CASES))
    return options


def main() -> None:
    options = parse()
    began = datetime.datetime.now(datetime.UTC)
    with tempfile.TemporaryDirectory() as folder:
        runs = list(run_all(options, Path(folder)))
    given = [f"--repeats {options.repeats}", *["--quick"] * options.quick]
    given += [f"--{name} {' '.join(getattr(options, name))}" for name in ("peers", "cases")]
    result = dict(
        command=" ".join(["python -m benchmarks.run_fl_benchmark", *given]),
        began=began.isoformat(timespec="seconds"),
        ended=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        quick=options.quick,
        machine=workload.machine(),
    )
    name = "fl_benchmark_quick" if options.quick else "fl_benchmark"
    options.out.mkdir(parents=True, exist_ok=True)
    head = json.dumps(result, indent=1)[:-2]
    lines = ",\n".join(json.dumps(run) for run in runs)
    (options.out / f"{name}.json").write_text(f'{head},\n "runs": [\n{lines}\n ]\n}}\n')
    fl_report.write(options.out / f"{name}.json")


if __name__ == "__main__":
    main()
