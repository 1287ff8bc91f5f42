"""``fedjax-fraud report``: the report again, from stored results."""

import argparse

from fedjax_fraud.cli import folders, options
from fedjax_fraud.cli.parser import PROGRAM, Parser
from fedjax_fraud.cli.printing import print_json


def add(commands) -> None:
    """Adds the command."""
    parser: Parser = commands.add_parser(
        "report",
        help="make the report again from stored results",
        description="Reads the tables of a finished sweep and writes its report anew.",
        usage=f"{PROGRAM} report DIR [options]",
    )
    parser.add_argument("folder", metavar="DIR", help="a folder that sweep wrote")
    options.add_mlflow(parser)
    options.add_printing(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Writes the report and names its files."""
    from fedjax_fraud import report, tracking

    if args.mlflow is not None:
        tracking.check_store(args.mlflow)
    result = report.load(args.folder)
    with folders.writing(args.folder, "DIR"):
        written = report.write(result, args.folder)
    if args.mlflow is not None:
        tracking.log_result(result, args.mlflow, folder=args.folder)
    if args.json:
        print_json(dict(folder=args.folder, files=[path.name for path in written]))
        return
    for path in written:
        print(path)
