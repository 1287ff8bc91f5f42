"""``fedjax-fraud generate``: PaySim-like transactions in a file."""

import argparse

from fedjax_fraud.cli import folders, options
from fedjax_fraud.cli.parser import PROGRAM, Parser, integer, number
from fedjax_fraud.cli.printing import print_json

EXAMPLES = """example:
  fedjax-fraud generate --rows 1000000 --seed 0 --out transactions.csv.gz
"""


def add(commands) -> None:
    """Adds the command."""
    parser: Parser = commands.add_parser(
        "generate",
        help="write PaySim-like transactions as CSV (or .csv.gz)",
        description="Writes generated transactions in the format of Kaggle's PaySim file.",
        usage=f"{PROGRAM} generate --out FILE [options]",
        epilog=EXAMPLES,
    )
    parser.add_argument("--rows", type=integer, default=100_000, metavar="N", help="number of transactions")
    parser.add_argument("--seed", type=integer, default=0, metavar="S", help="same seed, same file")
    parser.add_argument("--fraud-rate", type=number, default=0.00129, metavar="X", help="share of frauds")
    parser.add_argument("--out", required=True, metavar="FILE", help="the file to write")
    options.add_printing(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Writes the file."""
    from fedjax_fraud.data import write_paysim_csv

    folders.check_new_file(args.out)
    with folders.writing(args.out):
        write_paysim_csv(args.out, args.rows, args.seed, args.fraud_rate)
    if args.json:
        print_json(dict(file=args.out, num_rows=args.rows))
    else:
        print(f"{args.rows} transactions in {args.out}")
