"""The command line: ``fedjax-fraud sweep | compare | partition | train | score | generate | report``.

Thin: a file for each command, which reads options and calls the library. Options come from the command line, or from a
TOML file (``--config``) with the same names; the command line wins.
"""

import os
import sys
from collections.abc import Sequence

from fedjax_fraud.cli import compare, errors, generate, options, parser, partition, report, score, sweep, train

COMMANDS = (sweep, compare, partition, train, score, generate, report)
EPILOG = """exit status:
  0  done
  1  an error that should not happen (--debug shows where)
  2  something that was asked for cannot be done; one line on standard error says what and why
  130  interrupted
  141  nobody reads the output any more

shell completion, for example:
  fedjax-fraud --print-completion bash > ~/.local/share/bash-completion/completions/fedjax-fraud
"""


def make_parser() -> parser.Parser:
    """The parser of all commands."""
    import shtab

    top = parser.Parser(
        prog=parser.PROGRAM,
        description="Which federated algorithm works on your skewed fraud data, how well, how surely?",
        epilog=EPILOG,
        usage=f"{parser.PROGRAM} COMMAND [options]",
    )
    top.add_argument("--version", action="version", version=_version())
    shtab.add_argument_to(top, ["--print-completion"], help="print a shell completion script")
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands", prog=parser.PROGRAM
    )
    for command in COMMANDS:
        command.add(commands)
    _complete_files(commands.choices.values())
    return top


def _complete_files(parsers) -> None:
    """Tells the completion which options name files or folders."""
    import shtab

    kinds = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for command in parsers:
        for action in command._actions:
            if action.metavar in kinds:
                action.complete = kinds[action.metavar]


def _version() -> str:
    from importlib import metadata

    return f"{parser.PROGRAM} {metadata.version('fedjax-fraud')}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: see ``EPILOG``."""
    argv = sys.argv[1:] if argv is None else list(argv)
    debug, command = "--debug" in argv, None
    try:
        args = parser.parse(make_parser(), argv)
        debug, command = args.debug, args.command
        options.settle(args)
        with errors.warnings_in_one_line(command):
            args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough, as ``head`` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.PIPE_CLOSED
    except (Exception, KeyboardInterrupt) as error:
        return errors.report(error, debug, command)
    return errors.DONE
