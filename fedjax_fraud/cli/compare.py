"""``fedjax-fraud compare``: several stored results side by side."""

import argparse

from fedjax_fraud.cli import folders, options
from fedjax_fraud.cli.parser import PROGRAM, Parser

EXAMPLES = """examples:
  fedjax-fraud compare runs/before runs/after
  fedjax-fraud compare runs/a runs/b runs/c --out comparison.md
  fedjax-fraud compare runs/a runs/b --json
"""


def add(commands) -> None:
    """Adds the command."""
    parser: Parser = commands.add_parser(
        "compare",
        help="say in what stored results differ, with paired differences",
        description="Says in what results of sweeps differ: configuration, data, versions, and scores.",
        usage=f"{PROGRAM} compare DIR DIR [DIR ...] [options]",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "folders", nargs="+", metavar="DIR", help="folders that sweep wrote; the first is compared with"
    )
    parser.add_argument("--out", metavar="FILE", help="write it too: .md for a page, .csv for a table")
    options.add_printing(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Prints the comparison, and writes it if asked."""
    from fedjax_fraud import report

    if args.out is not None:
        report.check_comparison_file(args.out)
    results = report.load_runs(args.folders)
    if args.out is not None:
        with folders.writing(args.out):
            report.write_comparison(results, args.out)
    if args.json:
        print(report.as_json(results), end="")
    else:
        report.print_comparison(results)
