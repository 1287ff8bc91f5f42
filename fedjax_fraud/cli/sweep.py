"""``fedjax-fraud sweep``: algorithms x skew x seeds, the table, the report."""

import argparse
import pathlib
import shlex
import shutil
import sys
import time
from collections.abc import Sequence

from fedjax_fraud.cli import folders, options, processes, rows
from fedjax_fraud.cli.parser import PROGRAM, Parser
from fedjax_fraud.cli.printing import print_json
from fedjax_fraud.cli.progress import Display

BASIC = (
    *("data", "label", "positive", "silo", "silo_buckets", "time", "entity", "drop", "alphas", "clients", "partition"),
    *("algorithms", "seeds", "rounds", "epochs", "client_lr", "mu", "stragglers", "policy"),
    *("out", "config", "resume", "dry_run", "quiet", "json"),
)
EXAMPLES = """examples:
  fedjax-fraud sweep --out results
  fedjax-fraud sweep --data claims.csv --label is_fraud --silo bank --time ts
  fedjax-fraud sweep --algorithms fedavg scaffold --client-lr 0.03 0.1 --seeds 20
  fedjax-fraud sweep --stragglers 0 0.5 0.9 --policy wait partial drop
  fedjax-fraud sweep --data claims.csv --label is_fraud --dry-run
"""


def add(commands) -> None:
    """Adds the command."""
    parser: Parser = commands.add_parser(
        "sweep",
        help="run algorithms x skew x seeds, print the table, write the report",
        description="Runs algorithms x skew x seeds as one compiled program; prints the table and writes the report.",
        usage=f"{PROGRAM} sweep [options]",
        epilog=EXAMPLES,
        basic=BASIC,
    )
    options.add_data(parser)
    options.add_banks(parser)
    options.add_training(parser)
    options.add_conditions(parser)
    options.add_privacy(parser)
    options.add_clock(parser)
    options.add_decisions(parser)
    options.add_processes(parser)
    options.add_long_runs(parser)
    options.add_mlflow(parser)
    options.add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the sweep and writes its folder; or says what would run."""
    began = time.perf_counter()
    processes.check(args)
    if args.mlflow is not None:
        _check_mlflow(args)
    if args.dry_run:
        _plan(args)
        return
    processes.set_up_jax(args.cache)
    with processes.joined(args) as is_first:
        out = _folder(args) if is_first else None
        may_keep = is_first and args.checkpoint and not processes.is_distributed(args)
        kept = out / folders.CHECKPOINT if may_keep else None
        try:
            with folders.writing_below(out):
                result = _run(args, is_first, kept)
        except (ValueError, OSError):
            folders.remove_if_empty(out)
            raise
        except KeyboardInterrupt:
            if kept is not None and kept.is_dir():
                again = shlex.join([PROGRAM, *args.asked, *([] if args.out else ["--out", str(out)])])
                print(f"{PROGRAM}: to go on: {again}{'' if args.resume else ' --resume'}", file=sys.stderr)
            raise
        result.manifest["timings"]["wall_seconds"] = time.perf_counter() - began
        if is_first:
            _write(result, out, began, args)
        if kept is not None:
            shutil.rmtree(kept)
        if is_first and args.mlflow is not None:
            _log(result, out, args.mlflow)


def _folder(args: argparse.Namespace) -> pathlib.Path:
    return folders.unfinished(args.out) if args.resume else folders.new(args.out)


def _check_mlflow(args: argparse.Namespace) -> None:
    """Raises ValueError, before any long work, if the result could not be logged; a dry run asks no store."""
    from fedjax_fraud import tracking

    if args.dry_run:
        tracking.check_installed(args.mlflow)
    else:
        tracking.check_store(args.mlflow)


def _log(result, out: pathlib.Path, uri: str) -> None:
    """Logs to MLflow. The folder is complete by then: a store that fails costs no result."""
    from fedjax_fraud import tracking

    try:
        tracking.log_result(result, uri, folder=out)
    except ValueError as error:
        raise ValueError(
            f"{error} The results are in {out}: log them with {PROGRAM} report {out} --mlflow URI."
        ) from None


def _plan(args: argparse.Namespace) -> None:
    """Says what the sweep would do; writes nothing."""
    from fedjax_fraud import report

    if processes.is_distributed(args):
        raise ValueError("--dry-run lays out the work of one process, got several. Leave the processes out.")
    folders.check(args)
    processes.set_up_jax(keep_programs=False)
    args.cache = False
    plan = _run(args, True, None)
    if args.json:
        print_json(
            plan._asdict() | {name: getattr(plan, name).to_dict("records") for name in ("settings", "partitions")}
        )
    else:
        report.print_plan(plan)


def chosen(args: argparse.Namespace) -> dict:
    """The arguments of the library's ``check_options``, which are also ``sweep``'s."""
    from fedjax_fraud.grid import CONDITION_KEYS

    return dict(
        algorithms=args.algorithms,
        alphas=args.alphas,
        num_clients=args.clients,
        num_rounds=args.rounds,
        num_epochs=args.epochs,
        batch_size=args.batch_size,
        client_lr=args.client_lr,
        mu=args.mu,
        server_lr=args.server_lr,
        client_optimizer=args.client_optimizer,
        **{name: getattr(args, name) for name in CONDITION_KEYS},
        straggler_work=tuple(args.straggler_work),
        max_update_norm=args.max_update_norm,
        partition_kind=args.partition,
        min_positives=args.min_positives,
        bank_sizes=args.bank_sizes,
        bank_prevalences=args.bank_prevalences,
        delta=args.delta,
    )


def _run(args: argparse.Namespace, is_first: bool, kept: pathlib.Path | None):
    """The library's sweep with these options, or its plan; shows how far it is."""
    from fedjax_fraud import checks, evaluate, models, parts
    from fedjax_fraud.sweep import check_options, sweep

    checks.check_count("seeds", args.seeds, most=checks.NUM_SEEDS)
    check_options(**chosen(args), seeds=range(args.seeds))
    clock = {name: _one_or_each(getattr(args, name)) for name in parts.Speeds._fields}
    available = _read_availability(args.availability)
    alerts = evaluate.Policy(alerts_per_day=args.alerts_per_day, false_alarm=args.false_alarm_cost)
    evaluate.check_policy(alerts)
    if processes.is_distributed(args):
        processes.check_same_options(args)
    train, test = rows.load(args)
    if processes.is_distributed(args):
        processes.check_same_rows(train, test)
    with Display(args.quiet or not is_first) as display:
        result = sweep(
            train,
            test,
            **chosen(args),
            **clock,
            seeds=args.seeds,
            available=available,
            diagnostics=args.diagnostics,
            checkpoint=kept,
            resume=args.resume and kept is not None,
            model=models.perceptron(train.features.shape[1], tuple(args.hidden)),
            partition_feature=args.partition_feature,
            baselines=args.baselines,
            alerts=alerts,
            progress=display,
            dry_run=args.dry_run,
        )
    if not args.dry_run:
        rows.record(result.manifest["config"], args)
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


def _write(result, out: pathlib.Path, began: float, args: argparse.Namespace) -> None:
    """The folder, and what is printed."""
    with Display(args.quiet) as display:
        display("report", 0, 1)
        report_began = time.perf_counter()
        from fedjax_fraud import report
        from fedjax_fraud.report import tables

        with folders.writing(out):
            written = report.write(result, out)
    report_seconds = time.perf_counter() - report_began
    if args.json:
        summary = tables.summarise(result.rounds).to_dict("records")
        print_json(dict(folder=str(out), files=[path.name for path in written], summary=summary))
        return
    report.print_summary(result)
    picture = next(path for path in reversed(written) if path.name.startswith(("conditions", "convergence")))
    timings, work = result.manifest["timings"], result.manifest["work"]
    print(
        f"{work['num_federations']} federations (and baselines) in {time.perf_counter() - began:.1f} s: compile "
        f"{timings['compile_seconds']:.1f} s, run {timings['run_seconds']:.1f} s, report {report_seconds:.1f} s; "
        f"{work['rows_per_second'] / 1e6:.2f} million rows trained a second.\n"
        f"Report: {out / 'report.html'} (as text: {out / 'dossier.md'}), picture: {picture}"
    )
