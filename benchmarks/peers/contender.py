"""What all contenders share around their work: options, clocks, two processes, and the record that they write."""

import argparse
import json
import multiprocessing
import pathlib
import resource
import time
from collections.abc import Callable, Sequence
from importlib import metadata

import numpy as np

from benchmarks import workload
from benchmarks.peers import BEGAN, rounds, work
from benchmarks.peers.work import SCORES, Case, Inputs, Setting


class Clock:
    """Seconds by phase; the first phase began with the process's first import."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._last = BEGAN

    def lap(self, phase: str) -> None:
        """Ends a phase."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now


def options(description: str) -> argparse.ArgumentParser:
    """The options of every contender."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--case", choices=work.CASES, default="k10-fedavg")
    parser.add_argument("--inputs", type=pathlib.Path, default=work.DEFAULT_INPUTS, help="the .npz that `work` wrote")
    parser.add_argument("--json", type=pathlib.Path, help="the record to write (default: standard output)")
    parser.add_argument("--num-rounds", type=int, help="fewer rounds, to try it out")
    parser.add_argument("--num-seeds", type=int, help="fewer seeds, to try it out")
    return parser


def chosen_case(arguments: argparse.Namespace) -> Case:
    """The case, cut down if asked for."""
    case = work.CASES[arguments.case]
    num_rounds = arguments.num_rounds or case.num_rounds
    return case._replace(num_rounds=num_rounds, seeds=case.seeds[: arguments.num_seeds])


def the_fedavg_setting(arguments: argparse.Namespace, case: Case) -> Setting:
    """The only setting of a case, for contenders that run one FedAvg federation.

    Raises: ValueError for any other case.
    """
    if len(case.settings) != 1 or case.settings[0].algorithm != "fedavg":
        raise ValueError(f"`--case` must be one FedAvg setting, got {arguments.case}. Try k10-fedavg.")
    return case.settings[0]


# ---- two processes ----------------------------------------------------------------------------------------------


def deal(case: Case, inputs: Inputs, num_shares: int) -> list[list[int]]:
    """The settings of each process, by their numbers: largest first, each to the process with the least steps."""

    def num_steps(setting: Setting) -> int:
        return sum(-(-len(rows) // work.BATCH_SIZE) for rows in inputs.owned[setting.alpha, setting.seed])

    steps = [num_steps(setting) for setting in case.settings]
    shares, loads = [[] for _ in range(num_shares)], [0] * num_shares
    for i in sorted(range(len(steps)), key=lambda i: -steps[i]):
        least = loads.index(min(loads))
        shares[least].append(i)
        loads[least] += steps[i]
    return [share for share in shares if share]


def run_settings(
    run_share: Callable[[Sequence[Setting]], np.ndarray], case: Case, inputs: Inputs, num_processes: int
) -> np.ndarray:
    """Final scores ``[settings, 3]``. ``run_share`` runs settings one after the other; forks if more than one."""
    settings, shares = case.settings, deal(case, inputs, num_processes)
    if len(shares) == 1:
        return run_share(settings)
    context = multiprocessing.get_context("fork")

    def send_scores(share: list[int], connection) -> None:
        connection.send(run_share([settings[i] for i in share]))

    pipes = [context.Pipe(duplex=False) for _ in shares]
    processes = [
        context.Process(target=send_scores, args=(share, sender))
        for share, (_, sender) in zip(shares, pipes, strict=True)
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    final = np.empty((len(settings), len(SCORES)))
    for share, (receiver, _) in zip(shares, pipes, strict=True):
        final[share] = receiver.recv()
    for process in processes:
        process.join()
    return final


def run_loop(description: str, make_trainer: Callable[[Inputs], rounds.Trainer], packages: Sequence[str]) -> None:
    """The main function of a hand-written loop."""
    parser = options(description)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    clock = Clock()
    clock.lap("import")
    case = chosen_case(arguments)
    inputs = work.read_inputs(arguments.inputs, case)
    runner = rounds.Runner(make_trainer(inputs), inputs, case.num_rounds)
    clock.lap("setup")
    final = run_settings(runner.run, case, inputs, arguments.processes)
    clock.lap("run")
    write_record(arguments, case, clock, final, packages)


# ---- the record -------------------------------------------------------------------------------------------------


def write_record(
    arguments: argparse.Namespace,
    case: Case,
    clock: Clock,
    final: np.ndarray,
    packages: Sequence[str],
    **more,
) -> None:
    """Writes what the orchestrator reads. ``final``: scores after the last round, ``[settings, 3]``."""
    scores = [
        setting._asdict() | dict(zip(SCORES, map(float, row), strict=True))
        for setting, row in zip(case.settings, final, strict=True)
    ]
    record = dict(
        case=arguments.case,
        num_settings=len(scores),
        num_rounds=case.num_rounds,
        seconds=clock.seconds,
        rows_trained=work.NUM_TRAIN * case.num_rounds * len(scores),
        peak_mib=max(map(workload.peak_mib, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))),
        versions={name: metadata.version(name) for name in packages},
        final=scores,
        **more,
    )
    text = json.dumps(record, indent=1)
    if arguments.json:
        arguments.json.write_text(text)
    else:
        print(text)
