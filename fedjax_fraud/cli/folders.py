"""The folder that a command writes to."""

import contextlib
import datetime
import pathlib

CHECKPOINT = "checkpoint"


def new(out: str | None) -> pathlib.Path:
    """The folder to write to, checked before any long work."""
    from fedjax_fraud import report

    folder = pathlib.Path(out or f"runs/{datetime.datetime.now():%Y%m%d-%H%M%S}")
    if (folder / CHECKPOINT).is_dir():
        raise ValueError(
            f"The output folder {str(folder)!r} holds an unfinished run. Add --resume to go on, or name another folder."
        )
    report.check_output_folder(folder)
    return folder


def unfinished(out: str | None) -> pathlib.Path:
    """The folder of the run to go on with."""
    if out is None:
        raise ValueError("--resume needs --out, the folder of the unfinished run. Name it.")
    folder = pathlib.Path(out)
    if (folder / "manifest.json").exists():
        raise ValueError(f"--resume: {out!r} holds finished results. There is nothing left to do.")
    if not (folder / CHECKPOINT).is_dir():
        raise ValueError(f"--resume: {out!r} holds no unfinished run. Start it without --resume.")
    return folder


def remove_if_empty(folder: pathlib.Path | None) -> None:
    """Takes back the folder of a run that was refused."""
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()
