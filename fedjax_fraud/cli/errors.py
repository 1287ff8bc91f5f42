"""What a failed command says, and its exit status."""

import contextlib
import sys
import traceback
import warnings
from collections.abc import Iterator

from fedjax_fraud.cli.parser import PROGRAM, USAGE_ERROR

DONE, UNEXPECTED, INTERRUPTED, PIPE_CLOSED = 0, 1, 130, 141
OPTION_OF = {
    "`path`": "--data",
    "`path_or_frame`": "--data",
    "`alphas`": "--alphas",
    "`seeds`": "--seeds",
    "`algorithms`": "--algorithms",
    "`stragglers`": "--stragglers",
    "`participation`": "--participation",
    "`deadline`": "--deadline",
    "`policy`": "--policy",
    "`fault`": "--fault",
    "`mu`": "--mu",
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
    "`noise_multiplier`": "--noise-multiplier",
    "`clip_norm`": "--clip-norm",
    "`delta`": "--delta",
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
    "`entity`": "--entity",
    "`positive`": "--positive VALUE",
    "`silo_buckets`": "--silo-buckets",
    "`missing`": "--missing",
    "`columns`": "--columns",
    "`query`": "--query",
    "`mlflow`": "--mlflow",
    "`coordinator`": "--coordinator HOST:PORT",
    "by='time'": "--split time",
    "by='random'": "--split random",
    "`time=...`": "--time COLUMN",
    "`amount=...`": "--amount COLUMN",
    "The output folder": "--out",
    "The comparison": "--out",
    "in another folder": "--out",
}

IN_COMMAND = {
    "train": {
        "`algorithms`": "`algorithm` (--algorithm)",
        "`alphas`": "`alpha` (--alpha)",
        "`seed` must be an integer": "`seed` (--seed) must be an integer",  # the data's seed has another message
    },
    "score": {
        "`path`": "`path` (FILE)",
        "`path_or_frame`": "`path_or_frame` (FILE)",
        "`model`": "`model` (MODEL)",
        "`share`": "`share` (--alerts-share)",
        "`threshold`": "`threshold` (--threshold)",
    },
}
"""Where a command takes one value instead of several, or has no options for its files."""


def report(error: BaseException, debug: bool, command: str | None = None) -> int:
    """Prints one line about ``error`` on standard error, after its traceback if asked; returns the exit status."""
    if debug:
        traceback.print_exception(error)
    print(line(error, command), file=sys.stderr)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    expected = isinstance(error, ValueError | OSError) or _is_too_much(error)
    return USAGE_ERROR if expected else UNEXPECTED


def _is_too_much(error: BaseException) -> bool:
    """Whether the machine has too little memory; JAX says so in an error of its own."""
    return isinstance(error, MemoryError | OverflowError) or "RESOURCE_EXHAUSTED" in str(error)


def line(error: BaseException, command: str | None = None) -> str:
    """The one line about an error of a command."""
    if isinstance(error, KeyboardInterrupt):
        return f"{PROGRAM}: interrupted"
    words = in_options(str(error), command)
    if _is_too_much(error):
        less = "Lower --rounds, --rows, --seeds or --hidden."
        return f"{PROGRAM}: error: that is more than this machine holds ({words}). {less}"
    if isinstance(error, ValueError | OSError):
        return f"{PROGRAM}: error: {words or type(error).__name__}"
    return f"{PROGRAM}: unexpected error: {type(error).__name__}: {words} (--debug shows where; please report it)"


def in_options(message: str, command: str | None = None) -> str:
    """A message of the library on one line, with the option beside each argument that has another name here."""
    message = " ".join(message.split())
    own = IN_COMMAND.get(command, {})
    for argument, option in ({name: f"{name} ({option})" for name, option in OPTION_OF.items()} | own).items():
        message = message.replace(argument, option, 1)
    return message


@contextlib.contextmanager
def warnings_in_one_line(command: str | None = None) -> Iterator[None]:
    """Warnings of a command without the place in our code where they arose."""

    def show(message, category, filename, lineno, file=None, line=None):
        print(f"{PROGRAM}: warning: {in_options(str(message), command)}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
