"""A run that can be taken up again: everything between two rounds, kept on disk.

A folder holds one file for each program of a sweep (safetensors: models, server optimizers, controls, every client's
state, and the history so far) and ``identity.json``: what the run was asked for, on which rows, with which versions and
devices. Only a run with an equal identity may go on from it, and then ends in the same bits. A file appears whole or
not at all and carries the digest of its arrays, so a damaged one is refused by name.

A program is saved when it has finished, and on the way at most every two seconds and for at most a twentieth of the
time. A run that is killed so loses what was done since the last save, and no program that had finished.
"""

import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from safetensors.numpy import save

from fedjax_fraud import tensors
from fedjax_fraud.files import TEMPORARY, remove_temporaries, strict_json, write_bytes_atomically

IDENTITY = "identity.json"
ROWS = "rows_sha256"  # of an identity
_FOLLOWING = (ROWS, "packing", "start_sha256")  # from what was asked for, which is named first
LEAST_SECONDS = 2.0
SHARE = 0.05  # of the time may be spent on saving


class Progress(NamedTuple):
    """Where a program stands.

    Attributes:
      next_round: the first round that is not in ``history`` yet.
      state, history: pytrees of host arrays; ``history`` leaves ``[rounds so far, ...]``.
      run_seconds: wall time of these rounds, over all runs.
    """

    next_round: int
    state: Any
    history: Any
    run_seconds: float


def holds_run(folder: str | pathlib.Path) -> bool:
    """Whether there is a run to go on with. A process that is killed at once leaves a folder and no run."""
    return (pathlib.Path(folder) / IDENTITY).is_file()


def is_stillborn(folder: str | pathlib.Path) -> bool:
    """Whether a process was killed in that folder before there was a run: nothing in it but unfinished files."""
    path = pathlib.Path(folder)
    return path.is_dir() and all(TEMPORARY.fullmatch(entry.name) for entry in path.iterdir())


class Checkpoint:
    """The folder of one sweep. Not a value: it remembers when it last saved, and what saving costs.

    Args:
      folder: where to; created if it is not there.
      identity: what must be equal for a run to go on; JSON-like.
      resume: go on from what the folder holds; without it the folder must hold no checkpoint.

    Raises: ValueError if there is nothing to go on from, if it belongs to another run (the message says what
      differs), or if there is something that would be overwritten.
    """

    def __init__(self, folder: str | pathlib.Path, identity: Mapping, *, resume: bool):
        self.folder = pathlib.Path(folder)
        self._last_save, self._cost = time.monotonic(), 0.0
        known = self.folder / IDENTITY
        identity = json.loads(strict_json(identity))
        if resume:
            _check_identity(known, identity)
            remove_temporaries(self.folder)
        elif holds_run(folder):
            raise ValueError(
                f"`checkpoint` {str(self.folder)!r} holds an unfinished run. Resume it, or remove the folder."
            )
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_temporaries(self.folder)
            write_bytes_atomically(known, strict_json(identity).encode())

    def is_due(self) -> bool:
        """Whether it is time to save again: at most every two seconds, and at most a twentieth of the run."""
        return time.monotonic() - self._last_save >= max(LEAST_SECONDS, self._cost / SHARE)

    def save(self, name: str, progress: Progress) -> None:
        """Keeps where program ``name`` stands."""
        began = time.monotonic()
        arrays = tensors.named_arrays(progress.state, "state") | tensors.named_arrays(progress.history, "history")
        digest = tensors.digest(arrays)
        about = dict(next_round=str(progress.next_round), run_seconds=repr(progress.run_seconds), sha256=digest)
        write_bytes_atomically(self._file(name), save(arrays, about))
        self._last_save = time.monotonic()
        self._cost = self._last_save - began

    def load(self, name: str, like: Progress) -> Progress | None:
        """Where program ``name`` stood; None if it had not begun.

        Args:
          like: trees of the same structure, whatever their leaves.

        Raises: ValueError, with the file's name, if it is damaged or holds other arrays.
        """
        path = self._file(name)
        if not path.exists():
            return None
        what, remedy = f"The checkpoint {str(path)!r}", "Remove it to start its part anew."
        about, arrays = tensors.read(path, what, remedy)
        tensors.check_digest(about.get("sha256"), arrays, what, remedy)
        state = tensors.filled(like.state, "state", arrays, what, remedy)
        history = tensors.filled(like.history, "history", arrays, what, remedy)
        return Progress(int(about["next_round"]), state, history, float(about["run_seconds"]))

    def _file(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.safetensors"


def _check_identity(path: pathlib.Path, identity: Mapping) -> None:
    """Raises ValueError unless the folder belongs to this very run."""
    if not path.is_file():
        raise ValueError(f"There is nothing to resume in {str(path.parent)!r}. Start the run without `resume`.")
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"The checkpoint {str(path)!r} cannot be read. Remove its folder and start anew.") from None
    different = [
        f"{key}: {_short(known.get(key))} then, {_short(identity.get(key))} now"
        for key in sorted({*known, *identity}, key=lambda key: (key in _FOLLOWING, key))
        if known.get(key) != identity.get(key)
    ]
    if different:
        rows = ""
        if known.get(ROWS) != identity.get(ROWS):
            rows = "The data are other rows than the unfinished run's: give the same files, split alike. "
        raise ValueError(
            f"`resume` needs the run that {str(path.parent)!r} was made by; different are {'; '.join(different)}. "
            f"{rows}Ask for the same, or start anew in another folder."
        )


def _short(value: Any) -> str:
    """A value in a message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
