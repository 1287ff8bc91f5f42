"""The rows that the data options ask for."""

import argparse


def load(args: argparse.Namespace):
    """The training and the test rows; ``args.split`` becomes what was done."""
    from fedjax_fraud import cache, data

    if args.data is None:
        table = data.paysim_like(args.rows, args.data_seed, features=args.features)
    elif args.label is None:
        kept = cache.cache_folder() if args.cache else None
        table = data.load_paysim(args.data, features=args.features, cache=kept)
    else:
        table = data.load_table(
            args.data,
            args.label,
            silo=args.silo,
            time=args.time,
            amount=args.amount,
            drop=tuple(args.drop),
            hours_per_unit=args.hours_per_unit,
        )
    how = args.split or ("random" if table.time is None else "time")
    args.split = how
    return data.split(table, by=how, test_fraction=args.test_fraction, seed=args.data_seed)


def record(config: dict, args: argparse.Namespace) -> None:
    """Adds to ``config`` what the library does not know: the data options, and the model's widths."""
    names = ("features", "label", "silo", "time", "hours_per_unit", "amount", "drop")
    names += ("split", "test_fraction", "data_seed", "hidden")
    config |= {name: getattr(args, name) for name in names}
