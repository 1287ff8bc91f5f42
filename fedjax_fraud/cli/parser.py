"""The parser: errors in one line, a help that fits a screen, and options from a TOML file."""

import argparse
import difflib
import pathlib
import tomllib
from collections.abc import Collection, Sequence

from rich_argparse import RawDescriptionRichHelpFormatter

PROGRAM = "fedjax-fraud"
USAGE_ERROR = 2
NOT_OPTIONS = ("command", "run", "config", "print_completion")


class _Help(RawDescriptionRichHelpFormatter):
    """Coloured on terminals; shows a default only where it tells something."""

    group_name_formatter = str.capitalize

    def __init__(self, prog):
        super().__init__(prog, max_help_position=27)

    def _get_help_string(self, action):
        default = action.default
        if default in (None, False, [], argparse.SUPPRESS) or "default" in action.help:
            return action.help
        values = ("yes",) if default is True else default if isinstance(default, list) else (default,)
        shown = " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        return f"{action.help} (default {shown})"


class _HelpAll(argparse.Action):
    """``--help-all``: every option."""

    def __init__(self, option_strings, dest, **kwargs):
        super().__init__(option_strings, dest, nargs=0, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        parser.basic = ()
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which takes no abbreviated options.

    Args:
      basic: destinations of the options that ``--help`` shows; ``--help-all`` shows all. Empty: ``--help`` does.
    """

    def __init__(self, *, basic: Collection[str] = (), **kwargs):
        super().__init__(allow_abbrev=False, formatter_class=_Help, **kwargs)
        self.basic = basic
        if basic:
            text = "show every option: conditions, clock, decisions, ..."
            self.add_argument("--help-all", action=_HelpAll, default=argparse.SUPPRESS, help=text)

    def error(self, message):
        self.exit(USAGE_ERROR, f"{PROGRAM}: error: {message} (see {self.prog} --help)\n")

    def format_help(self):
        """The help; with ``basic`` options, without the others and without what is said of groups."""
        shown = (*self.basic, "help", "help_all")
        hidden = [action for action in self._actions if self.basic and action.dest not in shown]
        texts = [(action, "help", argparse.SUPPRESS) for action in hidden]
        texts += [(group, "description", None) for group in self._action_groups if self.basic]
        before = [getattr(item, name) for item, name, _ in texts]
        try:
            for item, name, text in texts:
                setattr(item, name, text)
            return super().format_help()
        finally:
            for (item, name, _), text in zip(texts, before, strict=True):
                setattr(item, name, text)


def number(text: str) -> float:
    """A float of the command line."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}. Pass a number such as 0.5.") from None


def ratio(text: str) -> float:
    """A float of the command line, or a ratio such as 1/3600."""
    top, slash, bottom = text.partition("/")
    if not slash:
        return number(text)
    if number(bottom) == 0:
        raise argparse.ArgumentTypeError(f"must be a number or a ratio, got {text!r}. Pass one such as 1/3600.")
    return number(top) / number(bottom)


def integer(text: str) -> int:
    """An int of the command line."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}. Pass a whole number.") from None


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """The options of the command line, over those of its ``--config`` file."""
    options = _parse_all(parser, argv)
    if getattr(options, "config", None):
        known = [name for name in vars(options) if name not in NOT_OPTIONS]
        options = _parse_all(parser, [argv[0], *_config_arguments(options.config, known), *argv[1:]])
    options.asked = list(argv)
    return options


def _parse_all(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """argparse's ``parse_args``, but an unknown option is an error of the command, whose help lists those there are."""
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.prog = f"{PROGRAM} {options.command}"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _config_arguments(path: str, known: Sequence[str]) -> list[str]:
    """The options of a TOML file as command-line arguments, so that they meet the same checks."""
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"`--config` must name a file, got {path!r}. Check the name and the folder.")
    try:
        table = tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"`--config` {path} is not TOML: {error}. Mend that line.") from None
    arguments = []
    for name, value in table.items():
        if isinstance(value, dict):
            raise ValueError(f"`--config` {path}: [{name}] is a table. Write the options at the top level.")
        option = "--" + name.replace("_", "-")
        if name.replace("-", "_") not in known:
            close = difflib.get_close_matches(name.replace("-", "_"), known, n=1)
            remedy = f"Did you mean `{close[0]}`?" if close else f"It knows {', '.join(sorted(known))}."
            raise ValueError(f"`--config` {path}: unknown key `{name}`. {remedy}")
        if isinstance(value, bool):
            arguments.append(option if value else f"--no-{option[2:]}")
        else:
            arguments += [option, *map(str, value if isinstance(value, list) else [value])]
    return arguments
