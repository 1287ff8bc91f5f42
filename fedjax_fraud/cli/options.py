"""The options that commands share, in groups. What a value may be is checked where it is used, in the library."""

import argparse

from fedjax_fraud import conditions
from fedjax_fraud.cli.parser import Parser, integer, number, ratio

NUM_ROWS, NUM_CLIENTS, ALPHAS, ALPHA = 80_000, 3, [0.1, 0.5, 1.0], 0.5


def settle(args: argparse.Namespace) -> None:
    """Sets what has its default by other options: who has banks of their own keeps them."""
    if getattr(args, "partition", "") is None:
        has_banks = args.silo is not None or len(args.data or ()) > 1
        args.partition = "natural" if has_banks else "labels"
    _refuse_unused(args)


def _refuse_unused(args: argparse.Namespace) -> None:
    """Raises ValueError for options that the others leave without a use, as far as they differ from their defaults."""
    unused = {}
    if getattr(args, "partition", None) == "natural":
        unused |= dict(clients=(NUM_CLIENTS, "banks of your own"), alphas=(ALPHAS, "banks of your own"))
        unused |= dict(alpha=(ALPHA, "banks of your own"))
    if getattr(args, "data", None) is not None:
        unused |= dict(rows=(NUM_ROWS, "data of your own (--data)"))
    for name, (default, why) in unused.items():
        value = getattr(args, name, default)
        if value != default:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            raise ValueError(f"--{name} {shown} has no use with {why}. Leave it out.")


def add_data(parser: Parser) -> None:
    """Which rows, and how they are split."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        nargs="+",
        metavar="FILE",
        help="transactions, or one file for each bank, or a database URL; without it, the built-in generator",
    )
    group.add_argument("--rows", type=integer, default=NUM_ROWS, metavar="N", help="rows of the built-in generator")
    group.add_argument("--data-seed", type=integer, default=0, metavar="S", help="seed of the generator and the split")
    group.add_argument(
        "--features", default="known_before", metavar="SET", help="PaySim features: known_before, or all (they leak)"
    )
    _add_table(group)
    group.add_argument("--split", metavar="HOW", help="time or random; time where there is a time column")
    group.add_argument("--test-fraction", type=number, default=0.2, metavar="X", help="share of the rows to test on")


def _add_table(group) -> None:
    """What the columns of a table are."""
    group.add_argument("--label", metavar="COLUMN", help="label column of a table that is not in PaySim's format")
    group.add_argument("--positive", nargs="+", metavar="VALUE", help="its values that mean fraud; default 1")
    group.add_argument("--silo", metavar="COLUMN", help="its column with the bank of each row")
    group.add_argument(
        "--silo-buckets", type=integer, metavar="N", help="deal that column's values to N banks, by a stable hash"
    )
    group.add_argument("--time", metavar="COLUMN", help="its time column")
    group.add_argument(
        "--hours-per-unit", type=ratio, metavar="X", help="of it: 24 for days, 1/3600; known for dates and PaySim"
    )
    group.add_argument("--amount", metavar="COLUMN", help="its column with the money at stake; remains a feature")
    group.add_argument(
        "--entity", nargs="+", default=[], metavar="COLUMN", help="its accounts, customers: counted, no features"
    )
    group.add_argument("--drop", nargs="*", default=[], metavar="COLUMN", help="its columns to leave out")
    group.add_argument(
        "--categorical", nargs="+", default=[], metavar="COLUMN", help="its numbers that are codes; text always is"
    )
    group.add_argument("--missing", default="fill", metavar="HOW", help="gaps: fill, or refuse")
    group.add_argument("--columns", nargs="+", metavar="NAME", help="names for CSV files without a line of names")
    group.add_argument("--query", metavar="SQL", help="what to ask the database")


def add_banks(parser: Parser, one: bool = False) -> None:
    """How the rows are dealt to banks; ``one``: with a single alpha."""
    group = parser.add_argument_group("banks")
    if one:
        group.add_argument("--alpha", type=number, default=ALPHA, metavar="X", help="Dirichlet skew")
    else:
        several = dict(type=number, nargs="+", metavar="X")
        group.add_argument("--alphas", default=ALPHAS, **several, help="Dirichlet skew")
    group.add_argument("--clients", type=integer, default=NUM_CLIENTS, metavar="K", help="number of banks")
    group.add_argument(
        "--partition",
        metavar="KIND",
        help="labels, feature, quantity, iid, natural (--silo) or controlled (--bank-sizes, --bank-prevalences); "
        "default natural with --silo or several files, else labels",
    )
    group.add_argument("--partition-feature", default="amount", metavar="NAME", help="for feature: amount, hour, type")
    group.add_argument("--min-positives", type=integer, default=0, metavar="N", help="for labels: frauds of each bank")
    group.add_argument("--bank-sizes", type=number, nargs="+", metavar="X", help="for controlled: shares of the rows")
    group.add_argument(
        "--bank-prevalences", type=number, nargs="+", metavar="X", help="for controlled: fraud rates, in these ratios"
    )


def _add_value(group, one: bool, option: str, default, metavar: str, text: str, kind=number) -> None:
    """An option that takes ``one`` value, or several to cross."""
    several = {} if one else dict(nargs="+")
    default = default if one or default is None else [default]
    group.add_argument(option, type=kind, default=default, metavar=metavar, help=text, **several)


def add_training(parser: Parser, one: bool = False) -> None:
    """What is compared and how it is trained; ``one``: a single setting."""
    group = parser.add_argument_group("training", None if one else "Several values are crossed.")

    def add(option: str, default, metavar: str, text: str, kind=number):
        _add_value(group, one, option, default, metavar, text, kind)

    if one:
        add("--algorithm", "fedavg", "NAME", "how the banks train", str)
        add("--seed", 0, "S", "of the banks, the start and the batches", integer)
    else:
        names = ["fedavg", "fedprox", "scaffold"]
        group.add_argument("--algorithms", nargs="+", default=names, metavar="NAME", help="what to compare")
        group.add_argument("--seeds", type=integer, default=10, metavar="N", help="runs of every federation")
    group.add_argument("--rounds", type=integer, default=10, metavar="N", help="communication rounds")
    add("--epochs", 1, "N", "local epochs a round", integer)
    group.add_argument("--batch-size", type=integer, default=64, metavar="N", help="rows of a local batch")
    add("--client-lr", 0.1, "X", "local learning rate")
    add("--mu", 0.01, "X", "pull of FedProx, FedDyn, Ditto")
    add("--server-lr", None, "X", "of FedAvgM, FedAdagrad, FedAdam, FedYogi")
    group.add_argument("--client-optimizer", default="sgd", metavar="NAME", help="sgd, momentum or adam")
    group.add_argument(
        "--hidden", type=integer, nargs="*", default=[64, 32], metavar="N", help="widths; no number: logistic"
    )
    if not one:
        group.add_argument(
            "--baselines", action=argparse.BooleanOptionalAction, default=True, help="banks alone, and all rows pooled"
        )


def add_conditions(parser: Parser) -> None:
    """What goes wrong in a federation."""
    group = parser.add_argument_group("conditions", "What goes wrong. Several values are crossed.")
    ideal = conditions.IDEAL

    def add(option: str, default, metavar: str, text: str, kind=number, nargs="+"):
        group.add_argument(option, type=kind, nargs=nargs, default=default, metavar=metavar, help=text)

    add("--participation", [ideal.participation], "X", "share of the banks that are asked in a round")
    add("--cohort", [ideal.cohort], "HOW", "uniform, by_size, or independent coins", str)
    add("--stragglers", [ideal.stragglers], "X", "share of the cohort that is slow")
    add(
        "--straggler-work", list(ideal.straggler_work), "X", "least and largest share of its work it gets done", nargs=2
    )
    add("--policy", [ideal.policy], "HOW", "who is late: wait, partial (take what there is), drop", str)
    add("--deadline", [ideal.deadline], "S", "seconds of a round; inf: each bank's own nominal time")
    add("--drop-before", [ideal.drop_before], "P", "probability of a bank to be gone before it starts")
    add("--drop-after", [ideal.drop_after], "P", "probability to be gone after training")
    add("--fault", [ideal.fault], "KIND", "nan, inf, huge, stale, duplicate or none", str)
    add("--fault-rate", [ideal.fault_rate], "P", "probability of an update to be faulty")
    add("--max-update-norm", None, "X", "reject larger updates; default 10000 with faults, else none", nargs=None)
    group.add_argument("--availability", metavar="FILE", help="CSV of 0 and 1: a line for each round, a column a bank")


def add_privacy(parser: Parser, one: bool = False) -> None:
    """Noise that protects the rows; ``one``: a single setting."""
    group = parser.add_argument_group("privacy", None if one else "Several values are crossed.")
    noise = "noise of the local gradients (DP-SGD), over the clipping norm; 0: none"
    _add_value(group, one, "--noise-multiplier", 0.0, "Z", noise)
    clip = "largest norm of one row's gradient, where there is noise"
    _add_value(group, one, "--clip-norm", conditions.CLIP_NORM, "C", clip)
    group.add_argument("--delta", type=number, default=1e-6, metavar="D", help="at which epsilon is reported")


def add_clock(parser: Parser) -> None:
    """How fast the banks and their lines are."""
    group = parser.add_argument_group("simulated clock", "One value, or one for each bank.")
    group.add_argument("--step-seconds", type=number, nargs="+", default=[0.001], metavar="S", help="of a local step")
    group.add_argument(
        "--bytes-per-second", type=number, nargs="+", default=[12.5e6], metavar="X", help="of a bank's line, each way"
    )
    group.add_argument(
        "--latency-seconds", type=number, nargs="+", default=[0.05], metavar="S", help="of a round, beside these"
    )
    group.add_argument(
        "--diagnostics",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="measure gradient dissimilarity and inexactness too",
    )


def add_decisions(parser: Parser) -> None:
    """What alerts are worth."""
    group = parser.add_argument_group("decisions")
    group.add_argument(
        "--alerts-per-day", type=number, default=10.0, metavar="X", help="a budget; needs times of a known unit"
    )
    group.add_argument(
        "--false-alarm-cost",
        type=number,
        metavar="X",
        help="in the currency of the amounts; default mean amount / 100",
    )


def add_processes(parser: Parser) -> None:
    """One sweep over several processes."""
    group = parser.add_argument_group("several processes", "One command on each of them; see docs/distributed.md.")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 waits for the others")
    group.add_argument("--num-processes", type=integer, metavar="N", help="how many there are")
    group.add_argument("--process-id", type=integer, metavar="I", help="which this is, from 0; 0 writes the report")
    group.add_argument(
        "--distributed",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="instead of these: what SLURM, Open MPI or the cloud tells JAX",
    )


def add_long_runs(parser: Parser) -> None:
    """What becomes of a run that was stopped."""
    group = parser.add_argument_group("long runs")
    group.add_argument(
        "--checkpoint", action=argparse.BooleanOptionalAction, default=True, help="keep unfinished runs for --resume"
    )
    group.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=False, help="go on with the unfinished run in --out"
    )
    group.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="say what would run, its time and memory; write nothing",
    )


def add_output(parser: Parser) -> None:
    """Where results go and what is printed."""
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", help="new or empty folder; default runs/ and the time")
    group.add_argument("--config", metavar="FILE", help="a TOML file with these options; the command line wins")
    group.add_argument(
        "--cache", action=argparse.BooleanOptionalAction, default=True, help="keep compiled programs and parsed PaySim"
    )
    add_printing(parser, group)


def add_mlflow(parser: Parser) -> None:
    """Where results go beside the folder."""
    group = parser.add_argument_group("tracking")
    group.add_argument("--mlflow", metavar="URI", help="log the result to MLflow too: sqlite:///runs.db, a server, ...")


def add_printing(parser: Parser, group=None) -> None:
    """What a command says: for people, for scripts, for the one who looks for a fault."""
    group = group or parser.add_argument_group("output")
    group.add_argument("--quiet", action=argparse.BooleanOptionalAction, default=False, help="no progress")
    group.add_argument(
        "--json", action=argparse.BooleanOptionalAction, default=False, help="print strict JSON, and no table"
    )
    group.add_argument(
        "--debug", action=argparse.BooleanOptionalAction, default=False, help="show where an error was raised"
    )
