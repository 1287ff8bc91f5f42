"""How far a long run is: a bar on a terminal, a line now and then in a log."""

import contextlib
import sys
from collections.abc import Iterator

from fedjax_fraud.cli.parser import PROGRAM


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator:
    """A bar on standard error, or nothing where nobody watches."""
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(
        rich.progress.TextColumn("{task.description:<10}"),
        rich.progress.BarColumn(),
        rich.progress.TaskProgressColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as bar:
        task = bar.add_task("start", total=None)

        def update(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total if done else None)
            if not (quiet or console.is_terminal) and what != "rounds":
                print(f"{PROGRAM}: {what} ...", file=sys.stderr, flush=True)

        yield update
