"""``fedjax-fraud partition``: what a partition does, before any training."""

import argparse

from fedjax_fraud.cli import folders, options, rows
from fedjax_fraud.cli.parser import PROGRAM, Parser, integer
from fedjax_fraud.cli.printing import print_json

BASIC = (
    *(
        "data",
        "label",
        "positive",
        "silo",
        "silo_buckets",
        "time",
        "rows",
        "alphas",
        "clients",
        "partition",
        "min_positives",
    ),
    *("bank_sizes", "bank_prevalences", "seed", "out", "config", "json"),
)
EXAMPLES = """examples:
  fedjax-fraud partition --alphas 0.1 1.0 --clients 5
  fedjax-fraud partition --data claims.csv --label is_fraud --silo bank
"""


def add(commands) -> None:
    """Adds the command."""
    parser: Parser = commands.add_parser(
        "partition",
        help="show what a partition does, before any training",
        description="Deals the training rows to banks; prints the banks and draws them.",
        usage=f"{PROGRAM} partition [options]",
        epilog=EXAMPLES,
        basic=BASIC,
    )
    options.add_data(parser)
    options.add_banks(parser)
    parser.add_argument("--seed", type=integer, default=0, metavar="S", help="which draw")
    options.add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Prints, draws and writes the partitions."""
    out = folders.new(args.out)
    from fedjax_fraud import checks, grid, report
    from fedjax_fraud.partition import summary

    checks.check_choice("partition", [args.partition], grid.PARTITIONS)
    checks.check_numbers("alphas", args.alphas)
    checks.check_count("num_clients", args.clients)
    banks = grid.Banks(args.min_positives, args.bank_sizes, args.bank_prevalences)
    grid.check_banks(args.partition, banks)
    train, _ = rows.load(args, scored=False)
    alphas = args.alphas if args.partition in grid.SKEWED else [float("nan")]
    names = grid.bank_names(train) if args.partition == "natural" else None
    tables = []
    for alpha in alphas:
        dealt = grid.partition_rows(
            args.partition, train, train, args.clients, alpha, args.seed, args.partition_feature, banks
        )
        table = summary(dealt, train.labels).assign(alpha=alpha, seed=args.seed)
        tables.append(grid.with_bank_names(table, names))
    with folders.writing(out):
        report.write_partitions(tables, out)
    if args.json:
        banks_of_all = [row for table in tables for row in table.to_dict("records")]
        print_json(dict(folder=str(out), banks=banks_of_all))
        return
    report.print_partitions(tables)
    print(f"Picture: {out / 'partition.png'}")
