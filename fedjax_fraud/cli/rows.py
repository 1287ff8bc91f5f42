"""The rows that the data options ask for."""

import argparse
import warnings

TABLE_OPTIONS = (
    *("positive", "silo", "silo_buckets", "time", "hours_per_unit", "amount", "entity", "drop"),
    *("categorical", "columns", "query"),
)


def load(args: argparse.Namespace, *, scored: bool = True):
    """The training and the test rows; ``args.split`` becomes what was done. Shows what the columns were taken for.

    Raises: ValueError, if models are to be scored on the test rows, for a side of one class.
    """
    from fedjax_fraud import checks, data

    table = _read(args)
    _check_banks_and_time(args, table)
    how = args.split or ("random" if table.time is None else "time")
    args.split = how
    with warnings.catch_warnings():
        if scored:  # what the split would warn of is then an error
            warnings.filterwarnings("ignore", message="0 positives in test")
        train, test = data.split(table, by=how, test_fraction=args.test_fraction, seed=args.data_seed)
    if scored:
        checks.check_classes("train", train.labels)
        checks.check_classes("test", test.labels)
    if not (args.quiet or args.json or getattr(args, "process_id", None)):
        _show(train, test)
    return train, test


def _check_banks_and_time(args: argparse.Namespace, table) -> None:
    """Raises ValueError for a single bank; warns where dates are not used to split by."""
    from fedjax_fraud.data import encoding

    if table.silo is not None and len(set(table.silo.tolist())) < 2:
        raise ValueError(
            f"`silo` has the value {str(table.silo[0])!r} only, and a federation needs two. Leave --silo out."
        )
    if args.label is None or args.time is not None or args.split is not None:
        return
    dates = [column.name for column in table.encoding.columns if column.kind == encoding.DATE]
    if dates:
        message = f"`{dates[0]}` holds dates, but rows are split at random. `--time {dates[0]}` tests on the future."
        warnings.warn(message, UserWarning, stacklevel=2)


def _read(args: argparse.Namespace):
    """All rows, before they are split."""
    from fedjax_fraud import cache, data

    if args.data is None:
        return data.paysim_like(args.rows, args.data_seed, features=args.features)
    source = args.data[0] if len(args.data) == 1 else args.data
    if args.label is None:
        given = [name for name in TABLE_OPTIONS if getattr(args, name)] + ["data"] * (len(args.data) > 1)
        if given:
            raise ValueError(
                f"--{given[0].replace('_', '-')} needs --label COLUMN too: without it the file is taken for PaySim's. "
                "Name the label."
            )
        if "://" in source:
            raise ValueError("--data with a database needs --label COLUMN and --query SQL. Name both.")
        return data.load_paysim(source, features=args.features, cache=cache.cache_folder() if args.cache else None)
    try:
        return data.load_table(
            source,
            args.label,
            silo=args.silo,
            time=args.time,
            amount=args.amount,
            drop=tuple(args.drop),
            categories=dict.fromkeys(args.categorical),
            hours_per_unit=args.hours_per_unit,
            positive=args.positive,
            missing=args.missing,
            silo_buckets=args.silo_buckets,
            entity=tuple(args.entity),
            query=args.query,
            columns=args.columns,
        )
    except ImportError as error:  # of a database: something to install, no fault of ours
        raise ValueError(str(error)) from error


def _show(train, test) -> None:
    """What the columns were taken for, a line for each kind."""
    num_rows, num_frauds = train.labels.size + test.labels.size, int(train.labels.sum() + test.labels.sum())
    print(
        f"{train.source}: {num_rows:,} rows, {num_frauds:,} frauds ({100 * num_frauds / num_rows:.3g} %), "
        f"{int(test.labels.sum()):,} of them in the test rows; {len(train.names)} inputs of the model"
    )
    if train.encoding is not None:
        print(train.encoding.summary())


def record(config: dict, args: argparse.Namespace) -> None:
    """Adds to ``config`` what the library does not know: the data options, and the model's widths."""
    names = ("features", "label", *TABLE_OPTIONS, "missing", "split", "test_fraction", "data_seed", "hidden")
    config |= {name: getattr(args, name) for name in names}
