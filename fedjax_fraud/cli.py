"""The command line: ``fedjax-fraud sweep | partition | generate | report``.

Thin: it reads options, calls the library, and turns an error into one line and exit status 2. Options come from the
command line, or from a TOML file (``--config``) with the same names; the command line wins.
"""

import argparse
import contextlib
import datetime
import difflib
import os
import pathlib
import shlex
import shutil
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator, Sequence

from fedjax_fraud import conditions

PROGRAM = "fedjax-fraud"
CHECKPOINT = "checkpoint"
USAGE_ERROR, INTERRUPTED = 2, 130
OPTION_OF = {
    "`num_clients`": "--clients",
    "`num_rounds`": "--rounds",
    "`num_epochs`": "--epochs",
    "`num_rows`": "--rows",
    "`batch_size`": "--batch-size",
    "`client_lr`": "--client-lr",
    "`server_lr`": "--server-lr",
    "`client_optimizer`": "--client-optimizer",
    "`straggler_work`": "--straggler-work",
    "`drop_before`": "--drop-before",
    "`drop_after`": "--drop-after",
    "`fault_rate`": "--fault-rate",
    "`max_update_norm`": "--max-update-norm",
    "`hours_per_unit`": "--hours-per-unit",
    "`available`": "--availability",
    "`step_seconds`": "--step-seconds",
    "`bytes_per_second`": "--bytes-per-second",
    "`latency_seconds`": "--latency-seconds",
    "`partition_kind`": "--partition",
    "`partition_feature`": "--partition-feature",
    "`test_fraction`": "--test-fraction",
    "`load_table`": "--label COLUMN",
    "`silo=...`": "--silo COLUMN",
    "`bank_sizes`": "--bank-sizes",
    "`bank_prevalences`": "--bank-prevalences",
    "`sizes`": "--bank-sizes",
    "`prevalences`": "--bank-prevalences",
    "`min_positives`": "--min-positives",
    "`alerts_per_day`": "--alerts-per-day",
    "`false_alarm`": "--false-alarm-cost",
    "`drop`": "--drop",
    "`coordinator`": "--coordinator HOST:PORT",
    "by='time'": "--split time",
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which takes no abbreviated options."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter, **kwargs)

    def error(self, message):
        self.exit(USAGE_ERROR, f"{PROGRAM}: error: {message} (see {self.prog} --help)\n")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}. Pass a number such as 0.5.") from None


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}. Pass a whole number.") from None


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument("--data", metavar="FILE", help="transactions; without it, the built-in generator")
    group.add_argument("--rows", type=_integer, default=80_000, metavar="N", help="rows of the built-in generator")
    group.add_argument("--data-seed", type=_integer, default=0, metavar="S", help="seed of the generator and the split")
    group.add_argument(
        "--features", default="known_before", metavar="SET", help="PaySim features: known_before, or all (they leak)"
    )
    group.add_argument("--label", metavar="COLUMN", help="label column of a table that is not in PaySim's format")
    group.add_argument("--silo", metavar="COLUMN", help="its column with the bank of each row")
    group.add_argument("--time", metavar="COLUMN", help="its time column")
    group.add_argument(
        "--hours-per-unit", type=_number, metavar="X", help="of that column: 24 for days; known for dates and PaySim"
    )
    group.add_argument("--amount", metavar="COLUMN", help="its column with the money at stake; remains a feature")
    group.add_argument("--drop", nargs="*", default=[], metavar="COLUMN", help="its columns to leave out")
    group.add_argument("--split", default=None, metavar="HOW", help="time or random; time where there is a time column")
    group.add_argument("--test-fraction", type=_number, default=0.2, metavar="X", help="share of the rows to test on")


def _add_partition_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("banks")
    group.add_argument("--alphas", type=_number, nargs="+", default=[0.1, 0.5, 1.0], metavar="X", help="Dirichlet skew")
    group.add_argument("--clients", type=_integer, default=3, metavar="K", help="number of banks")
    group.add_argument(
        "--partition",
        default="labels",
        metavar="KIND",
        help="labels, feature, quantity, iid, natural (--silo) or controlled (--bank-sizes, --bank-prevalences)",
    )
    group.add_argument("--partition-feature", default="amount", metavar="NAME", help="for feature: amount, hour, type")
    group.add_argument("--min-positives", type=_integer, default=0, metavar="N", help="for labels: frauds of each bank")
    group.add_argument("--bank-sizes", type=_number, nargs="+", metavar="X", help="for controlled: shares of the rows")
    group.add_argument(
        "--bank-prevalences", type=_number, nargs="+", metavar="X", help="for controlled: fraud rates, in these ratios"
    )


def _add_condition_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("conditions", "What goes wrong. Several values are crossed.")
    ideal = conditions.IDEAL

    def add(option: str, default, metavar: str, text: str, kind=_number, nargs="+"):
        group.add_argument(option, type=kind, nargs=nargs, default=default, metavar=metavar, help=text)

    add("--participation", [ideal.participation], "X", "share of the banks that are asked in a round")
    add("--cohort", [ideal.cohort], "HOW", "uniform, by_size, or independent coins", str)
    add("--stragglers", [ideal.stragglers], "X", "share of the cohort that is slow")
    add(
        "--straggler-work", list(ideal.straggler_work), "X", "least and largest share of its work it gets done", nargs=2
    )
    add("--policy", [ideal.policy], "HOW", "who is late: wait, partial (take what there is), drop", str)
    add("--deadline", [ideal.deadline], "S", "seconds of a round; default each bank's own nominal time")
    add("--drop-before", [ideal.drop_before], "P", "probability of a bank to be gone before it starts")
    add("--drop-after", [ideal.drop_after], "P", "probability to be gone after training")
    add("--fault", [ideal.fault], "KIND", "nan, inf, huge, stale, duplicate or none", str)
    add("--fault-rate", [ideal.fault_rate], "P", "probability of an update to be faulty")
    add("--max-update-norm", None, "X", "reject larger updates; default 10000 with faults, else none", nargs=None)
    group.add_argument("--availability", metavar="FILE", help="CSV of 0 and 1: a line for each round, a column a bank")


def _add_clock_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("simulated clock", "One value, or one for each bank.")
    group.add_argument("--step-seconds", type=_number, nargs="+", default=[0.001], metavar="S", help="of a local step")
    group.add_argument(
        "--bytes-per-second", type=_number, nargs="+", default=[12.5e6], metavar="X", help="of a bank's line, each way"
    )
    group.add_argument(
        "--latency-seconds", type=_number, nargs="+", default=[0.05], metavar="S", help="of a round, beside these"
    )
    group.add_argument(
        "--diagnostics",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="measure gradient dissimilarity and inexactness too",
    )


def _add_process_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several processes", "One command on each of them; see docs/distributed.md.")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 waits for the others")
    group.add_argument("--num-processes", type=_integer, metavar="N", help="how many there are")
    group.add_argument("--process-id", type=_integer, metavar="I", help="which this is, from 0; 0 writes the report")
    group.add_argument(
        "--distributed",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="instead of these: what SLURM, Open MPI or the cloud tells JAX",
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="Which federated algorithm works on your skewed fraud data, how surely?")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    sweep = commands.add_parser("sweep", help="run algorithms x skew x seeds, print the table, write the report")
    _add_data_options(sweep)
    _add_partition_options(sweep)
    group = sweep.add_argument_group("training")
    group.add_argument(
        "--algorithms", nargs="+", default=["fedavg", "fedprox", "scaffold"], metavar="NAME", help="what to compare"
    )
    group.add_argument("--seeds", type=_integer, default=10, metavar="N", help="runs of every federation")
    group.add_argument("--rounds", type=_integer, default=10, metavar="N", help="communication rounds")
    group.add_argument("--epochs", type=_integer, nargs="+", default=[1], metavar="N", help="local epochs a round")
    group.add_argument("--batch-size", type=_integer, default=64, metavar="N", help="rows of a local batch")
    group.add_argument("--client-lr", type=_number, nargs="+", default=[0.1], metavar="X", help="local learning rate")
    group.add_argument(
        "--mu", type=_number, nargs="+", default=[0.01], metavar="X", help="pull of FedProx, FedDyn, Ditto"
    )
    group.add_argument(
        "--server-lr", type=_number, nargs="+", metavar="X", help="of FedAvgM, FedAdagrad, FedAdam, FedYogi"
    )
    group.add_argument("--client-optimizer", default="sgd", metavar="NAME", help="sgd, momentum or adam")
    group.add_argument("--hidden", type=_integer, nargs="*", default=[64, 32], metavar="N", help="none: logistic")
    group.add_argument(
        "--baselines", action=argparse.BooleanOptionalAction, default=True, help="banks alone, and all rows pooled"
    )
    _add_condition_options(sweep)
    _add_clock_options(sweep)
    group = sweep.add_argument_group("decisions")
    group.add_argument(
        "--alerts-per-day", type=_number, default=10.0, metavar="X", help="a budget; needs times of a known unit"
    )
    group.add_argument(
        "--false-alarm-cost",
        type=_number,
        metavar="X",
        help="in the currency of the amounts; default mean amount / 100",
    )
    _add_process_options(sweep)
    group = sweep.add_argument_group("long runs")
    group.add_argument(
        "--checkpoint", action=argparse.BooleanOptionalAction, default=True, help="keep unfinished runs for --resume"
    )
    group.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=False, help="go on with the unfinished run in --out"
    )
    _add_output_options(sweep)
    sweep.set_defaults(run=_sweep)

    partition = commands.add_parser("partition", help="show what a partition does, before any training")
    _add_data_options(partition)
    _add_partition_options(partition)
    partition.add_argument("--seed", type=_integer, default=0, metavar="S", help="which draw")
    _add_output_options(partition)
    partition.set_defaults(run=_partition)

    generate = commands.add_parser("generate", help="write PaySim-like transactions as CSV (or .csv.gz)")
    generate.add_argument("--rows", type=_integer, default=100_000, metavar="N", help="number of transactions")
    generate.add_argument("--seed", type=_integer, default=0, metavar="S", help="same seed, same file")
    generate.add_argument("--fraud-rate", type=_number, default=0.00129, metavar="X", help="share of frauds")
    generate.add_argument("--out", required=True, metavar="FILE", help="the file to write")
    generate.set_defaults(run=_generate)

    report = commands.add_parser("report", help="make the report again from stored results")
    report.add_argument("folder", metavar="DIR", help="a folder that sweep wrote")
    report.set_defaults(run=_report)
    return parser


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", help="new or empty folder; default runs/ and the time")
    group.add_argument("--config", metavar="FILE", help="a TOML file with these options; the command line wins")
    group.add_argument(
        "--cache", action=argparse.BooleanOptionalAction, default=True, help="keep compiled programs and parsed PaySim"
    )
    group.add_argument("--quiet", action=argparse.BooleanOptionalAction, default=False, help="no progress")


def _version() -> str:
    from importlib import metadata

    return f"{PROGRAM} {metadata.version('fedjax-fraud')}"


def _config_arguments(path: str, known: Sequence[str]) -> list[str]:
    """The options of a TOML file as command-line arguments, so that they meet the same checks."""
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"`--config` must name a file, got {path!r}. Check the name and the folder.")
    try:
        table = tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"`--config` {path} is not TOML: {error}. Mend that line.") from None
    arguments = []
    for name, value in table.items():
        if isinstance(value, dict):
            raise ValueError(f"`--config` {path}: [{name}] is a table. Write the options at the top level.")
        option = "--" + name.replace("_", "-")
        if name.replace("-", "_") not in known:
            close = difflib.get_close_matches(name.replace("-", "_"), known, n=1)
            remedy = f"Did you mean `{close[0]}`?" if close else f"It knows {', '.join(sorted(known))}."
            raise ValueError(f"`--config` {path}: unknown key `{name}`. {remedy}")
        if isinstance(value, bool):
            arguments.append(option if value else f"--no-{option[2:]}")
        else:
            arguments += [option, *map(str, value if isinstance(value, list) else [value])]
    return arguments


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    options = _parse_all(argv)
    if getattr(options, "config", None):
        known = [name for name in vars(options) if name not in ("command", "run", "config")]
        options = _parse_all([argv[0], *_config_arguments(options.config, known), *argv[1:]])
    return options


def _parse_all(argv: Sequence[str]) -> argparse.Namespace:
    """argparse's ``parse_args``, but an unknown option is an error of the command, whose help lists those there are."""
    parser = _parser()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.prog = f"{PROGRAM} {options.command}"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0 done, 2 an error in what was asked, 130 interrupted."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        options = _parse(argv)
        options.asked = argv
        options.run(options)
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError) as error:
        print(f"{PROGRAM}: error: {_in_options(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    return 0


def _in_options(message: str) -> str:
    """A message of the library on one line, with the option beside each argument that has another name here."""
    message = " ".join(message.split())
    for argument, option in OPTION_OF.items():
        message = message.replace(argument, f"{argument} ({option})", 1)
    return message


# ---- commands ---------------------------------------------------------------------------------------------------


def _sweep(options: argparse.Namespace) -> None:
    began = time.perf_counter()
    _check_processes(options)
    _set_up_jax(options.cache)
    with _joined(options) as is_first:
        out = _sweep_folder(options) if is_first else None
        kept = out / CHECKPOINT if is_first and options.checkpoint and not _is_distributed(options) else None
        try:
            result = _run_sweep(options, is_first, kept)
        except (ValueError, OSError):
            _remove_if_empty(out)
            raise
        except KeyboardInterrupt:
            if kept is not None and kept.is_dir():
                again = shlex.join([PROGRAM, *options.asked, *([] if options.out else ["--out", str(out)])])
                print(f"{PROGRAM}: to go on: {again}{'' if options.resume else ' --resume'}", file=sys.stderr)
            raise
        result.manifest["timings"]["wall_seconds"] = time.perf_counter() - began
        if is_first:
            _write_sweep(result, out, began)
        if kept is not None:
            shutil.rmtree(kept)


def _remove_if_empty(folder: pathlib.Path | None) -> None:
    """Takes back the folder of a run that was refused."""
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _sweep_folder(options: argparse.Namespace) -> pathlib.Path:
    """A new folder, or with --resume the one of an unfinished run."""
    if not options.resume:
        return _output_folder(options.out)
    if options.out is None:
        raise ValueError("--resume needs --out, the folder of the unfinished run. Name it.")
    folder = pathlib.Path(options.out)
    if (folder / "manifest.json").exists():
        raise ValueError(f"--resume: {options.out!r} holds finished results. There is nothing left to do.")
    if not (folder / CHECKPOINT).is_dir():
        raise ValueError(f"--resume: {options.out!r} holds no unfinished run. Start it without --resume.")
    return folder


def _run_sweep(options: argparse.Namespace, is_first: bool, kept: pathlib.Path | None):
    """The library's sweep with these options; shows how far it is."""
    from fedjax_fraud import checks, evaluate, models, parts
    from fedjax_fraud.grid import CONDITION_KEYS
    from fedjax_fraud.sweep import check_options, sweep

    checks.check_count("seeds", options.seeds)
    chosen = dict(
        algorithms=options.algorithms,
        alphas=options.alphas,
        num_clients=options.clients,
        num_rounds=options.rounds,
        num_epochs=options.epochs,
        batch_size=options.batch_size,
        client_lr=options.client_lr,
        mu=options.mu,
        server_lr=options.server_lr,
        client_optimizer=options.client_optimizer,
        **{name: getattr(options, name) for name in CONDITION_KEYS},
        straggler_work=tuple(options.straggler_work),
        max_update_norm=options.max_update_norm,
        partition_kind=options.partition,
        min_positives=options.min_positives,
        bank_sizes=options.bank_sizes,
        bank_prevalences=options.bank_prevalences,
    )
    check_options(**chosen, seeds=list(range(options.seeds)))
    clock = {name: _one_or_each(getattr(options, name)) for name in parts.Speeds._fields}
    available = _read_availability(options.availability)
    alerts = evaluate.Policy(alerts_per_day=options.alerts_per_day, false_alarm=options.false_alarm_cost)
    evaluate.check_policy(alerts)
    if _is_distributed(options):
        _check_same_options(options)
    train, test = _load(options)
    if _is_distributed(options):
        _check_same_rows(train, test)
    width = train.features.shape[1]
    with _progress(options.quiet or not is_first) as progress:
        result = sweep(
            train,
            test,
            **chosen,
            **clock,
            seeds=options.seeds,
            available=available,
            diagnostics=options.diagnostics,
            checkpoint=kept,
            resume=options.resume and kept is not None,
            model=models.mlp(width, tuple(options.hidden)) if options.hidden else models.logistic_regression(width),
            partition_feature=options.partition_feature,
            baselines=options.baselines,
            alerts=alerts,
            progress=progress,
        )
    shown = ["features", "label", "silo", "time", "hours_per_unit", "amount", "drop"]
    shown += ["split", "test_fraction", "data_seed", "hidden"]
    result.manifest["config"] |= {name: getattr(options, name) for name in shown}
    return result


def _one_or_each(values: Sequence[float]):
    """One value for all banks, or the list with one for each."""
    return values[0] if len(values) == 1 else values


def _read_availability(path: str | None):
    """The table of rounds and banks, or None."""
    if path is None:
        return None
    import numpy as np

    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"`--availability` must name a file, got {path!r}. Check the name and the folder.")
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError as error:
        raise ValueError(f"`--availability` {path} is not a table of numbers: {error}. Write 0 and 1 only.") from None


def _write_sweep(result, out: pathlib.Path, began: float) -> None:
    from fedjax_fraud import report

    written = report.write(result, out)
    report.print_summary(result)
    picture = next(path for path in reversed(written) if path.name.startswith(("conditions", "convergence")))
    timings, work = result.manifest["timings"], result.manifest["work"]
    print(
        f"{work['num_federations']} federations (and baselines) in {time.perf_counter() - began:.1f} s: compile "
        f"{timings['compile_seconds']:.1f} s, run {timings['run_seconds']:.1f} s, "
        f"{work['rows_per_second'] / 1e6:.2f} million rows trained a second.\n"
        f"Report: {out / 'dossier.md'}, picture: {picture}"
    )


def _partition(options: argparse.Namespace) -> None:
    out = _output_folder(options.out)
    from fedjax_fraud import checks, grid, report
    from fedjax_fraud.partition import summary

    checks.check_choice("partition", [options.partition], grid.PARTITIONS)
    checks.check_numbers("alphas", options.alphas)
    checks.check_count("num_clients", options.clients)
    banks = grid.Banks(options.min_positives, options.bank_sizes, options.bank_prevalences)
    grid.check_banks(options.partition, banks)
    train, _ = _load(options)
    alphas = options.alphas if options.partition in grid.SKEWED else [float("nan")]
    tables = []
    for alpha in alphas:
        rows = grid.partition_rows(
            options.partition, train, train, options.clients, alpha, options.seed, options.partition_feature, banks
        )
        tables.append(summary(rows, train.labels).assign(alpha=alpha, seed=options.seed))
    report.write_partitions(tables, out)
    report.print_partitions(tables)
    print(f"Picture: {out / 'partition.png'}")


def _generate(options: argparse.Namespace) -> None:
    from fedjax_fraud.data import write_paysim_csv

    write_paysim_csv(options.out, options.rows, options.seed, options.fraud_rate)
    print(f"{options.rows} transactions in {options.out}")


def _report(options: argparse.Namespace) -> None:
    from fedjax_fraud import report

    result = report.load(options.folder)
    for path in report.write(result, options.folder):
        print(path)


# ---- around the commands ----------------------------------------------------------------------------------------


def _load(options: argparse.Namespace):
    """The training and the test rows that the data options ask for."""
    from fedjax_fraud import cache, data

    if options.data is None:
        table = data.paysim_like(options.rows, options.data_seed, features=options.features)
    elif options.label is None:
        kept = cache.cache_folder() if options.cache else None
        table = data.load_paysim(options.data, features=options.features, cache=kept)
    else:
        table = data.load_table(
            options.data,
            options.label,
            silo=options.silo,
            time=options.time,
            amount=options.amount,
            drop=tuple(options.drop),
            hours_per_unit=options.hours_per_unit,
        )
    how = options.split or ("random" if table.time is None else "time")
    options.split = how
    return data.split(table, by=how, test_fraction=options.test_fraction, seed=options.data_seed)


def _output_folder(out: str | None) -> pathlib.Path:
    """The folder to write to, checked before any long work."""
    from fedjax_fraud import report

    folder = pathlib.Path(out or f"runs/{datetime.datetime.now():%Y%m%d-%H%M%S}")
    if (folder / CHECKPOINT).is_dir():
        raise ValueError(
            f"The output folder {str(folder)!r} holds an unfinished run. Add --resume to go on, or name another folder."
        )
    report.check_output_folder(folder)
    return folder


def _set_up_jax(keep_programs: bool) -> None:
    """All cores, and whether compiled programs are kept; before JAX starts."""
    import jax

    from fedjax_fraud import devices

    devices.use_all_cores()
    if not keep_programs:
        jax.config.update("jax_enable_compilation_cache", False)


def _is_distributed(options: argparse.Namespace) -> bool:
    return options.distributed or options.coordinator is not None


def _check_processes(options: argparse.Namespace) -> None:
    """Raises ValueError for options that cannot name a group of processes; needs none of them."""
    given = {
        "--coordinator": options.coordinator,
        "--num-processes": options.num_processes,
        "--process-id": options.process_id,
    }
    missing = [name for name, value in given.items() if value is None]
    present = [name for name in given if name not in missing]
    if options.distributed and present:
        raise ValueError(f"--distributed finds the processes itself, got {present[0]} too. Leave one of them out.")
    if not present:
        return
    if missing:
        raise ValueError(f"{present[0]} needs {' and '.join(missing)} too. Pass all three, or --distributed alone.")
    host, _, port = options.coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(
            f"--coordinator must be HOST:PORT, got {options.coordinator!r}. Pass an address such as 127.0.0.1:12345."
        )
    if options.num_processes < 1:
        raise ValueError(f"--num-processes must be at least 1, got {options.num_processes}. Count process 0 too.")
    if not 0 <= options.process_id < options.num_processes:
        raise ValueError(
            f"--process-id must be in [0, num_processes={options.num_processes}), got {options.process_id}. "
            "Number the processes from 0."
        )


def _check_same_options(options: argparse.Namespace) -> None:
    """Raises ValueError if another process would run another sweep, which would end in a hang."""
    from importlib import metadata

    from fedjax_fraud import devices

    own = ("run", "config", "out", "quiet", "cache", "checkpoint", "resume", "asked", "data", "process_id")
    shared = {name: value for name, value in vars(options).items() if name not in own}
    versions = [metadata.version(name) for name in ("fedjax-fraud", "jax", "jaxlib", "flax", "numpy")]
    devices.check_same("The options and versions", repr((shared, versions)).encode())


def _check_same_rows(train, test) -> None:
    """Raises ValueError if another process has read other rows."""
    from fedjax_fraud import devices
    from fedjax_fraud.record import rows_digest

    devices.check_same("The rows", rows_digest(train, test).encode())


@contextlib.contextmanager
def _joined(options: argparse.Namespace) -> Iterator[bool]:
    """Joins the other processes if there are any; gives whether this is the process that reports."""
    if not _is_distributed(options):
        yield True
        return
    import jax

    from fedjax_fraud import devices

    try:
        devices.join(options.coordinator, options.num_processes, options.process_id)
        yield jax.process_index() == 0
    except BaseException as error:
        # An ordinary end would wait for the others, which wait for this process.
        if not isinstance(error, ValueError | OSError | RuntimeError | KeyboardInterrupt):
            traceback.print_exc()
        print(f"{PROGRAM}: error: {_in_options(str(error)) or type(error).__name__}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else USAGE_ERROR)


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator:
    """A bar on standard error, or nothing where nobody watches."""
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(
        rich.progress.TextColumn("{task.description:<10}"),
        rich.progress.BarColumn(),
        rich.progress.TaskProgressColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as bar:
        task = bar.add_task("start", total=None)

        def update(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total if done else None)
            if not (quiet or console.is_terminal) and what != "rounds":
                print(f"{PROGRAM}: {what} ...", file=sys.stderr, flush=True)

        yield update
