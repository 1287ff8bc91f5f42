"""A process seen from outside: its wall time, and the memory of it and its descendants."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SAMPLE_SECONDS = 0.25
MIB = 2**20


class Measured(NamedTuple):
    """How a process went.

    Attributes:
      seconds: from just before its start to its end.
      peak_mib: the largest sum of the resident sizes of the process and its descendants, sampled four times a second
        (pages that they share count for each), or the system's own record of the largest one if that is more.
      error: None, or why it failed, in a line without paths.
    """

    seconds: float
    peak_mib: float
    error: str | None


def measure(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float) -> Measured:
    """Runs a command to its end, or ends it after ``timeout`` seconds; standard output is dropped."""
    with tempfile.TemporaryFile("w+", errors="replace") as messages:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=messages, start_new_session=True
        )
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout, stop)
        timer.start()
        peak = [0]
        sampler = threading.Thread(target=_sample, args=(process.pid, peak), daemon=True)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.join()
        messages.seek(0)
        error = None
        if timed_out.is_set():
            error = f"not finished after {timeout:.0f} s"
        elif process.returncode:
            error = last_line(messages.read()) or f"exit status {process.returncode}"
    largest = usage.ru_maxrss * (1024 if sys.platform.startswith("linux") else 1)
    return Measured(seconds, max(peak[0], largest) / MIB, error)


def last_line(text: str) -> str:
    """The last line that is not empty, with paths cut out."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"(?<![\w.])/[^\s:,'\"]*/", "", lines[-1])[:200] if lines else ""


def _sample(pid: int, peak: list[int]) -> None:
    """Keeps the largest size in ``peak`` until the process has ended."""
    while size := _tree_bytes(pid):
        peak[0] = max(peak[0], size)
        time.sleep(SAMPLE_SECONDS)


def _tree_bytes(pid: int) -> int:
    """Resident bytes of a process and its descendants; 0 once it has ended."""
    total, waiting = 0, [pid]
    while waiting:
        process = Path("/proc", str(waiting.pop()))
        try:
            total += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for children in process.glob("task/*/children"):
                waiting += map(int, children.read_text().split())
        except (OSError, ValueError):
            continue
    return total
