"""The folder that a command writes to."""

import argparse
import contextlib
import datetime
import errno
import pathlib
import shutil
from collections.abc import Iterator

CHECKPOINT = "checkpoint"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def new(out: str | None, *, create: bool = True) -> pathlib.Path:
    """The folder to write to, checked before any long work; only looked at without ``create``."""
    from fedjax_fraud import checkpoint, report

    folder = pathlib.Path(out or f"runs/{datetime.datetime.now():%Y%m%d-%H%M%S}")
    if checkpoint.holds_run(folder / CHECKPOINT):
        raise ValueError(
            f"The output folder {str(folder)!r} holds an unfinished run. Add --resume to go on, or name another folder."
        )
    if create and checkpoint.is_stillborn(folder / CHECKPOINT):
        shutil.rmtree(folder / CHECKPOINT)
    report.check_output_folder(folder, create=create)
    return folder


def unfinished(out: str | None, *, tidy: bool = True) -> pathlib.Path:
    """The folder of the run to go on with; ``tidy``: without what a killed process left in it half-written."""
    from fedjax_fraud import checkpoint, files

    if out is None:
        raise ValueError("--resume needs --out, the folder of the unfinished run. Name it.")
    folder = pathlib.Path(out)
    if (folder / "manifest.json").exists():
        if tidy and (folder / CHECKPOINT).is_dir():  # killed after the last file was written
            shutil.rmtree(folder / CHECKPOINT)
        raise ValueError(f"--resume: {out!r} holds finished results. There is nothing left to do.")
    if not checkpoint.holds_run(folder / CHECKPOINT):
        raise ValueError(f"--resume: {out!r} holds no unfinished run. Start it without --resume.")
    if tidy:
        files.remove_temporaries(folder)
    return folder


def check(args: argparse.Namespace) -> None:
    """Raises ValueError for a folder that a run would refuse; changes nothing."""
    from fedjax_fraud.files import try_to_write

    if args.resume:
        unfinished(args.out, tidy=False)
        return
    folder = new(args.out, create=False)
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    with writing(folder):
        try_to_write(there)


def check_new_file(path: str | pathlib.Path) -> None:
    """Raises ValueError unless ``path`` is a new name that can be written: nobody's file is written over."""
    from fedjax_fraud.files import try_to_write

    path = pathlib.Path(path)
    with writing(path):
        if path.exists():
            raise ValueError(f"The file {str(path)!r} is there already. Name another with --out.")
        if path.parent.exists() and not path.parent.is_dir():
            raise ValueError(f"--out: {str(path.parent)!r} is a file, no folder. Name another place.")
        if not path.parent.is_dir():
            raise ValueError(f"--out: there is no folder {str(path.parent)!r}. Create it first.")
        try_to_write(path.parent)


@contextlib.contextmanager
def writing(path: str | pathlib.Path, name: str = "--out") -> Iterator[None]:
    """What the system says against writing to ``path``, as one line that names the option."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise ValueError(_not_written(path, name, error)) from error


@contextlib.contextmanager
def writing_below(folder: pathlib.Path | None) -> Iterator[None]:
    """The same for work that also reads: only what is about ``folder``, or a disk that takes no more."""
    try:
        yield
    except OSError as error:
        is_ours = folder is not None and str(error.filename).startswith(str(folder))
        if error.errno is None or not (is_ours or error.errno in FULL):
            raise
        raise ValueError(_not_written(folder, "--out", error)) from error


def _not_written(path: str | pathlib.Path | None, name: str, error: OSError) -> str:
    remedy = "Free some space, or name another place." if error.errno in FULL else "Name a place that you may write to."
    return f"{name}: {str(path)!r} cannot be written: {error.strerror}. {remedy}"


def remove_if_empty(folder: pathlib.Path | None) -> None:
    """Takes back the folder of a run that was refused."""
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()
