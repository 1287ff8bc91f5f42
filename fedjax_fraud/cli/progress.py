"""How far a long run is: a bar on a terminal, a line now and then in a log."""

import math
import time

from fedjax_fraud.cli.parser import PROGRAM
from fedjax_fraud.progress import Pace

LOG_SECONDS = 5.0
"""Between two lines about rounds in a log."""


class Display:
    """Shows the progress of a sweep: pass it as ``progress``, and enter it around the call.

    On a terminal a bar that disappears at the end; elsewhere a line for each phase, and one about rounds at most every
    five seconds. Whatever is printed after the ``with`` starts a line of its own, also when an error ended it.

    Args:
      quiet: show nothing.
      console: where to, a ``rich`` console; default standard error.
    """

    def __init__(self, quiet: bool = False, console=None):
        import rich.console
        import rich.progress

        self._console = rich.console.Console(stderr=True) if console is None else console
        self._quiet = quiet
        self._live = not quiet and self._console.is_terminal
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description:<10}"),
            rich.progress.BarColumn(bar_width=20),
            rich.progress.TaskProgressColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("{task.fields[pace]}"),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._task = self._bar.add_task("start", total=None, pace="")
        self._words = ""
        self._last_line = -math.inf

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *error) -> None:
        self._bar.stop()

    def pace(self, pace: Pace) -> None:
        """How far the rounds are; shown with the next call."""
        self._words = pace.describe()

    def __call__(self, what: str, done: int, total: int) -> None:
        """What is being done, and how much of it is."""
        is_rounds = what == "rounds"
        words = self._words if is_rounds else ""
        if self._live:
            shown = total if is_rounds else None
            self._bar.update(self._task, description=what, completed=done, total=shown, pace=words)
        elif not self._quiet:
            self._log(what, done, total, words)

    def _log(self, what: str, done: int, total: int, words: str) -> None:
        now = time.monotonic()
        if what != "rounds":
            self._print(f"{what} ...")
        elif done == total or now - self._last_line >= LOG_SECONDS:
            self._last_line = now
            self._print(f"rounds {done / total:.0%}{', ' if words else ''}{words}")

    def _print(self, text: str) -> None:
        """A whole line at once, never wrapped."""
        self._console.file.write(f"{PROGRAM}: {text}\n")
        self._console.file.flush()
