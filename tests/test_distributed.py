"""One sweep over two processes of the real command line, on loopback, against the same sweep in one process."""

import json
import os
import socket
import subprocess
import sys

import pandas as pd
import pytest

from fedjax_fraud import cli
from fedjax_fraud.cli import processes

TIMEOUT = 120
FLAGS = "--rows 2000 --seeds 2 --alphas 1.0 --rounds 2 --hidden --algorithms fedavg scaffold --clients 2 --split random"
COMMAND = [sys.executable, "-c", "import sys; from fedjax_fraud import cli; sys.exit(cli.main())", "sweep"]


def start(num_devices, *arguments):
    """A process of the command line with so many CPU devices."""
    environment = os.environ | dict(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES=str(num_devices))
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([*COMMAND, *map(str, arguments)], env=environment, **pipes)


def start_two(*arguments, own=((), ())):
    """Processes 0 and 1, which find each other; ``own``: what else each of them is told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = ["--coordinator", f"127.0.0.1:{port}", "--num-processes", 2]
    return [start(1, *arguments, *group, "--process-id", i, *own[i]) for i in range(2)]


def finish(processes):
    """(status, standard output, standard error) of each; a hang is a failure."""
    try:
        outputs = [process.communicate(timeout=TIMEOUT) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of both runs, and what the two processes said."""
    folder = tmp_path_factory.mktemp("distributed")
    ended = finish(start_two(*FLAGS.split(), own=(["--out", folder / "two"], ["--out", folder / "not_written"])))
    assert [status for status, _, _ in ended] == [0, 0], ended
    ((status, _, error),) = finish([start(2, *FLAGS.split(), "--out", folder / "one")])
    assert status == 0, error
    return folder, ended


@pytest.mark.parametrize("table", ["results", "banks", "partitions"])
def test_two_processes_give_what_one_process_gives(runs, table):
    """Exactly: both deal the settings to two devices, and nothing but whole results crosses between them."""
    folder, _ = runs
    one, two = (pd.read_parquet(folder / name / f"{table}.parquet") for name in ("one", "two"))
    assert len(one) > 0
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_process_0_alone_writes_and_prints(runs):
    folder, ((_, table, _), (_, silence, errors)) = runs
    assert {path.name for path in folder.iterdir()} == {"one", "two"}
    assert {path.name for path in (folder / "one").iterdir()} == {path.name for path in (folder / "two").iterdir()}
    assert "SCAFFOLD" in table
    assert "dossier.md" in table
    assert [line for line in silence.splitlines() if not line.startswith("[Gloo]")] == []  # from C++
    assert "fedjax-fraud" not in errors


def test_the_manifest_names_the_devices_of_both_processes(runs):
    folder, _ = runs
    one, two = (json.loads((folder / name / "manifest.json").read_text()) for name in ("one", "two"))
    assert len(one["devices"]) == len(two["devices"]) == len(set(two["devices"])) == 2
    assert one["config"] == two["config"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ((["--seeds", "2"], ["--seeds", "3"]), "options and versions must be the same on every process"),
        (([], ["--data", "no_such_file.csv"]), "no_such_file.csv"),
    ],
)
def test_a_process_that_cannot_go_on_ends_the_others(tmp_path, own, said):
    out = tmp_path / "out"
    flags = FLAGS.replace("--rows 2000 ", "")  # rows of the generator have no use beside a file
    ended = finish(start_two(*flags.split(), "--out", out, own=own))
    assert all(status != 0 for status, _, _ in ended), ended
    assert said in ended[1][2] or said in ended[0][2]
    assert not list(out.glob("*"))


# ---- refused before anything starts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--coordinator 127.0.0.1:9", ["--coordinator needs --num-processes and --process-id"]),
        ("--coordinator 127.0.0.1:9 --num-processes 2", ["--coordinator needs --process-id"]),
        ("--num-processes 2 --process-id 0", ["--num-processes needs --coordinator"]),
        ("--process-id 0", ["--process-id needs --coordinator and --num-processes"]),
        ("--distributed --process-id 0", ["--distributed", "got --process-id", "Leave one of them out"]),
        ("--coordinator 127.0.0.1 --num-processes 2 --process-id 0", ["HOST:PORT", "'127.0.0.1'"]),
        ("--coordinator :80 --num-processes 2 --process-id 0", ["HOST:PORT", "':80'"]),
        ("--coordinator host:70000 --num-processes 2 --process-id 0", ["HOST:PORT", "'host:70000'"]),
        ("--coordinator host:80 --num-processes 0 --process-id 0", ["--num-processes must be at least 1, got 0"]),
        ("--coordinator host:80 --num-processes 2 --process-id 2", ["--process-id must be in [0, num_processes=2)"]),
        ("--coordinator host:80 --num-processes 2 --process-id -1", ["--process-id must be in", "got -1"]),
    ],
)
def test_options_that_name_no_group_are_refused(monkeypatch, capsys, tmp_path, arguments, parts):
    monkeypatch.setattr(processes, "set_up_jax", lambda keep_programs: pytest.fail("JAX was set up"))
    assert cli.main(["sweep", *arguments.split(), "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err
    assert list(tmp_path.iterdir()) == []
