"""``fedjax-fraud score``: new transactions through a kept model."""

import argparse
import contextlib
import pathlib
import warnings
from collections.abc import Iterator, Mapping

from fedjax_fraud.cli import folders, options
from fedjax_fraud.cli.parser import PROGRAM, Parser, number
from fedjax_fraud.cli.printing import print_json

ADDED = ("fraud_probability", "alert")
EXAMPLES = """examples:
  fedjax-fraud score model/model.safetensors tomorrow.csv
  fedjax-fraud score model/model.safetensors tomorrow.parquet --alerts-share 0.001 --out scored.parquet
"""


def add(commands) -> None:
    """Adds the command."""
    parser: Parser = commands.add_parser(
        "score",
        help="score new transactions with a kept model",
        description="Writes the rows of FILE with two more columns: fraud_probability, and alert (1 or 0).",
        usage=f"{PROGRAM} score MODEL FILE [options]",
        epilog=EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", help="model.safetensors, as train writes it")
    parser.add_argument("file", metavar="FILE", help="CSV, .csv.gz or .parquet with the columns of the training table")
    parser.add_argument(
        "--alerts-share", type=number, default=0.01, metavar="X", help="share of the test rows that were alerts"
    )
    parser.add_argument("--threshold", type=number, metavar="P", help="a probability, instead of that share")
    parser.add_argument("--out", metavar="FILE", help=".csv, .csv.gz or .parquet; default: beside FILE, with -scored")
    options.add_printing(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Scores the file and writes the table."""
    from fedjax_fraud import data, scorer

    if "://" in args.file:
        raise ValueError(f"FILE must be a CSV or Parquet file, got {args.file!r}. Export the rows from the database.")
    out = _output(args.file, args.out)
    kept = scorer.load_scorer(args.model)
    threshold = kept.threshold(args.alerts_share) if args.threshold is None else args.threshold
    if not 0 <= threshold <= 1 and args.threshold is not None:
        raise ValueError(f"`threshold` must be in [0, 1], got {threshold}. It is a probability.")
    frame = data.read_frame(args.file)
    for name in ADDED:
        if name in frame.columns:
            raise ValueError(
                f"`{name}` is a column of {args.file!r} already. Rename it, or score the table without it."
            )
    with _in_words_of(args.file):
        labels = kept.preprocessing.labels(frame)
        probabilities = kept.probabilities(frame)
        new_gaps = kept.preprocessing.new_gaps(frame)
    _warn_of_gaps(new_gaps)
    alert = probabilities >= threshold
    added = dict(zip(ADDED, (probabilities, alert.astype("int8")), strict=True))
    scored = _as_written(args.file, frame).assign(**added)
    with folders.writing(out):
        _write(scored, out, _separator(args.file))
    answer = dict(file=str(out), num_rows=len(frame), num_alerts=int(alert.sum()), threshold=threshold)
    answer |= dict(unseen_categories=kept.preprocessing.unseen(frame), new_gaps=new_gaps)
    if labels is not None and labels.any():
        answer |= _quality(labels, probabilities, alert)
    if args.json:
        print_json(answer)
    else:
        _print(answer)


@contextlib.contextmanager
def _in_words_of(file: str) -> Iterator[None]:
    """Errors about a table as errors about the file that it was read from."""
    try:
        yield
    except ValueError as error:
        words = str(error).replace("`frame`", repr(file)).replace("of the table", f"of {pathlib.Path(file).name}")
        raise ValueError(words) from error


def _warn_of_gaps(new_gaps: Mapping[str, int]) -> None:
    """Warns of gaps that the model cannot see: training had none in these columns."""
    if new_gaps:
        counts = ", ".join(f"`{name}` in {count:,} row{'s' * (count != 1)}" for name, count in new_gaps.items())
        warnings.warn(
            f"no value where the training rows had one: {counts}. The training median stands in for a number, no known "
            "category for a text. Fill the gaps, or train on rows with such gaps.",
            UserWarning,
            stacklevel=2,
        )


def _as_written(file: str, frame):
    """The table with its cells as they stand in the file: 08172 stays 08172."""
    import pandas as pd

    if pathlib.Path(file).suffix == ".parquet":
        return frame
    as_text = dict(dtype=str, keep_default_na=False, na_filter=False, encoding="utf-8-sig")
    return pd.read_csv(file, sep=_separator(file), **as_text)


def _separator(file: str) -> str:
    """What separates the fields of the file, and then of the scored one."""
    from fedjax_fraud.data import readers

    return "," if pathlib.Path(file).suffix == ".parquet" else readers.separator_of(pathlib.Path(file))


def _quality(labels, probabilities, alert) -> dict:
    """How good the scores were, where the file says what was fraud."""
    from fedjax_fraud import metrics

    caught = int((alert & (labels == 1)).sum())
    return dict(
        prevalence=float(labels.mean()),
        average_precision=float(metrics.average_precision_score(labels, probabilities)),
        recall=caught / int(labels.sum()),
        precision=caught / int(alert.sum()) if alert.any() else None,
    )


def _print(answer: dict) -> None:
    print(
        f"{answer['num_alerts']:,} alerts among {answer['num_rows']:,} rows "
        f"(probability {answer['threshold']:.4f} or more): {answer['file']}"
    )
    for name, count in answer["unseen_categories"].items():
        print(f"`{name}` has a value that the training rows did not have in {count:,} row{'s' * (count != 1)}")
    if "recall" in answer:
        precision = "undefined" if answer["precision"] is None else f"{answer['precision']:.4f}"
        print(
            f"By the labels in the file: average precision {answer['average_precision']:.4f} (prevalence "
            f"{answer['prevalence']:.4f}); of these alerts recall {answer['recall']:.4f}, precision {precision}"
        )


def _output(file: str, out: str | None) -> pathlib.Path:
    """Where the scored table goes; raises ValueError for a name that says no format, or that is taken."""
    source = pathlib.Path(file)
    suffix = ".parquet" if source.suffix == ".parquet" else ".csv"
    path = pathlib.Path(out) if out else source.with_name(f"{source.name.split('.')[0]}-scored{suffix}")
    if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise ValueError(f"--out must end in .csv, .csv.gz or .parquet, got {path.name!r}. Name it so.")
    folders.check_new_file(path)
    return path


def _write(table, path: pathlib.Path, separator: str) -> None:
    """The table under its name, whole or not at all."""
    from fedjax_fraud.files import replacing

    with replacing(path) as file:
        if path.suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, index=False, sep=separator, compression="gzip" if path.suffix == ".gz" else None)
