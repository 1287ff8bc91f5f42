"""Devices and processes of a command: all cores of one process, or a group of processes that run one sweep."""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

from fedjax_fraud.cli import errors


def set_up_jax(keep_programs: bool) -> None:
    """All cores, and whether compiled programs are kept; before JAX starts."""
    import jax

    from fedjax_fraud import devices

    devices.use_all_cores()
    if not keep_programs:
        jax.config.update("jax_enable_compilation_cache", False)


def is_distributed(args: argparse.Namespace) -> bool:
    """Whether other processes run the same command."""
    return args.distributed or args.coordinator is not None


def check(args: argparse.Namespace) -> None:
    """Raises ValueError for options that cannot name a group of processes; needs none of them."""
    given = {
        "--coordinator": args.coordinator,
        "--num-processes": args.num_processes,
        "--process-id": args.process_id,
    }
    missing = [name for name, value in given.items() if value is None]
    present = [name for name in given if name not in missing]
    if args.distributed and present:
        raise ValueError(f"--distributed finds the processes itself, got {present[0]} too. Leave one of them out.")
    if not present:
        return
    if missing:
        raise ValueError(f"{present[0]} needs {' and '.join(missing)} too. Pass all three, or --distributed alone.")
    host, _, port = args.coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(
            f"--coordinator must be HOST:PORT, got {args.coordinator!r}. Pass an address such as 127.0.0.1:12345."
        )
    if args.num_processes < 1:
        raise ValueError(f"--num-processes must be at least 1, got {args.num_processes}. Count process 0 too.")
    if not 0 <= args.process_id < args.num_processes:
        raise ValueError(
            f"--process-id must be in [0, num_processes={args.num_processes}), got {args.process_id}. "
            "Number the processes from 0."
        )


def check_same_options(args: argparse.Namespace) -> None:
    """Raises ValueError if another process would run another sweep, which would end in a hang."""
    from importlib import metadata

    from fedjax_fraud import devices

    own = ("run", "config", "out", "cache", "checkpoint", "resume", "asked", "data", "process_id")
    printing = ("quiet", "json", "debug")
    shared = {name: value for name, value in vars(args).items() if name not in (*own, *printing)}
    versions = [metadata.version(name) for name in ("fedjax-fraud", "jax", "jaxlib", "flax", "numpy")]
    devices.check_same("The options and versions", repr((shared, versions)).encode())


def check_same_rows(train, test) -> None:
    """Raises ValueError if another process has read other rows."""
    from fedjax_fraud import devices
    from fedjax_fraud.record import rows_digest

    devices.check_same("The rows", rows_digest(train, test).encode())


@contextlib.contextmanager
def joined(args: argparse.Namespace) -> Iterator[bool]:
    """Joins the other processes if there are any; gives whether this is the process that reports."""
    if not is_distributed(args):
        yield True
        return
    import jax

    from fedjax_fraud import devices

    try:
        devices.join(args.coordinator, args.num_processes, args.process_id)
        yield jax.process_index() == 0
    except BaseException as error:
        # An ordinary end would wait for the others, which wait for this process.
        if args.debug or not isinstance(error, ValueError | OSError | RuntimeError | KeyboardInterrupt):
            traceback.print_exc()
        print(errors.line(error), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(errors.INTERRUPTED if isinstance(error, KeyboardInterrupt) else errors.USAGE_ERROR)
