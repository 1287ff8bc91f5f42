"""The command line: one clear line for everything that can be wrong, and a folder of results when nothing is."""

import errno
import json
import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import cli, data
from fedjax_fraud.cli import errors, options, parser, processes, rows

HEADER = (
    "step,type,amount,nameOrig,oldbalanceOrg,newbalanceOrig,nameDest,oldbalanceDest,newbalanceDest,"
    "isFraud,isFlaggedFraud"
)
GOOD = "2,PAYMENT,9839.64,C1,170136.00,160296.36,M1,0.00,0.00,0,0"


def paysim_lines():
    """Forty good rows over eight hours, every fifth a fraud."""
    rows = [
        f"{1 + i // 5},TRANSFER,{100 + i}.00,C{i},500.00,0.00,C{i + 100},0.00,0.00,{int(i % 5 == 0)},0"
        for i in range(40)
    ]
    return [HEADER, *rows]


@pytest.fixture
def write(tmp_path):
    """Writes lines to a file and gives its path."""

    def to_file(*lines, name="rows.csv"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return to_file


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
    """The number of devices is set once for a process, before its first computation."""
    monkeypatch.setattr(processes, "set_up_jax", lambda keep_programs: None)


@pytest.fixture
def refused(capsys, tmp_path):
    """Runs a command that must fail: gives its one line, after checking that nothing was left behind."""

    def run(*arguments, out=None):
        folder = tmp_path / "out" if out is None else out
        try:
            status = cli.main(list(map(str, arguments)))
        except SystemExit as stop:
            status = stop.code
        captured = capsys.readouterr()
        assert status == 2
        assert captured.out == ""
        assert captured.err.count("\n") == 1 and captured.err.endswith("\n"), captured.err
        assert captured.err.startswith("fedjax-fraud: error: "), captured.err
        assert "Traceback" not in captured.err
        assert not folder.is_dir() or not list(folder.iterdir())
        return captured.err

    return run


def arguments_of(command, tmp_path, *more):
    """A command on forty good rows."""
    path = tmp_path / "good.csv"
    path.write_text("\n".join(paysim_lines()) + "\n")
    return [
        command,
        "--data",
        str(path),
        "--split",
        "random",
        "--quiet",
        "--out",
        str(tmp_path / "out"),
        *map(str, more),
    ]


def check_words(line, words):
    assert all(word in line for word in words), line


# ---- files that cannot be read ----------------------------------------------------------------------------------


def changed(old, new, line=3):
    """The good file with one line changed."""
    lines = paysim_lines()
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    return lines


LINE_3 = paysim_lines()[2]
FILES = {
    "a missing column": ([line.rsplit(",", 2)[0] for line in paysim_lines()], ["`isFraud`", "missing", "load_table"]),
    "a renamed column": (changed("isFraud,", "IsFraud,", 1), ["`isFraud`", "Rename `IsFraud`"]),
    "too many fields": (changed(LINE_3, LINE_3 + ",7"), ["12 fields", "line 3", "expected 11", "Correct"]),
    "too few fields": (changed(LINE_3, LINE_3[:-2]), ["10 fields", "line 3", "expected 11", "Correct"]),
    "an unknown type": (changed("TRANSFER", "TRANSFORM"), ["`type`", "'TRANSFORM'", "line 3", "Correct"]),
    "text for a number": (changed("101.00", "a lot"), ["`amount`", "'a lot'", "line 3", "Correct"]),
    "thousands separators": (changed("101.00", '"1,101.00"'), ["`amount`", "'1,101.00'", "line 3", "separators"]),
    "no label": (changed(",0,0", ",,0", 4), ["`isFraud`", "no value", "line 4", "Correct"]),
    "a label of 2": (changed(",0,0", ",2,0", 4), ["`isFraud`", "2.0", "line 4", "Correct"]),
    "a feature that is NaN": (changed("101.00", "nan"), ["`amount`", "no value", "line 3", "Correct"]),
    "an infinite feature": (changed("101.00", "inf"), ["`amount`", "inf", "line 3", "Correct"]),
    "no fraud at all": ([HEADER, *[GOOD] * 30], ["`isFraud`", "no fraud", "30 rows", "Load"]),
    "nothing but a header": ([HEADER], ["rows.csv", "no rows", "Check"]),
    "nothing at all": ([""], ["rows.csv", "empty", "column names"]),
}


@pytest.mark.parametrize("command", ["sweep", "partition"])
@pytest.mark.parametrize("kind", FILES)
def test_a_broken_file_is_one_line_that_says_where(refused, write, tmp_path, kind, command):
    lines, words = FILES[kind]
    check_words(refused(command, "--data", write(*lines), "--out", tmp_path / "out"), words)


@pytest.mark.parametrize("command", ["sweep", "partition"])
def test_a_missing_file_is_named(refused, tmp_path, command):
    line = refused(command, "--data", tmp_path / "nowhere.csv", "--out", tmp_path / "out")
    check_words(line, ["nowhere.csv", "Check the name"])


def test_a_table_without_its_label_column_is_refused(refused, write, tmp_path):
    path = write("a,b,fraud", *["1.0,2.0,0", "2.0,1.0,1"] * 10)
    line = refused("sweep", "--data", path, "--label", "Class", "--out", tmp_path / "out")
    check_words(line, ["`label`", "`Class`", "Choose from a, b, fraud"])


# ---- options out of range ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        ("--alphas 0", ["alphas", "0.0", "Pass"]),
        ("--alphas -1", ["alphas", "-1.0", "Pass"]),
        ("--alphas nan", ["alphas", "nan", "Pass"]),
        ("--alphas inf", ["alphas", "inf", "Pass"]),
        ("--alphas abc", ["--alphas", "'abc'", "Pass"]),
        ("--alphas 1 1", ["alphas", "1.0", "Remove"]),
        ("--alphas", ["--alphas", "expected at least one argument"]),
        ("--clients 0", ["clients", "0", "Pass"]),
        ("--clients 1.5", ["--clients", "'1.5'", "Pass"]),
        ("--clients 900", ["clients", "900", "Lower"]),
        ("--rounds 0", ["rounds", "0", "Pass"]),
        ("--epochs 0", ["epochs", "0", "Pass"]),
        ("--batch-size 0", ["batch_size", "0", "Pass"]),
        ("--seeds 0", ["seeds", "0", "Pass"]),
        ("--seeds 100000000", ["`seeds` (--seeds)", "100,000,000", "900,000,000 settings", "Lower it to 37,037"]),
        ("--seeds 9999999999", ["`seeds` (--seeds)", "9,999,999,999", "Pass fewer"]),
        ("--client-lr 0", ["client_lr", "0.0", "Pass"]),
        ("--mu -1", ["mu", "-1.0", "Pass"]),
        ("--hidden 0", ["hidden", "0", "Use ()"]),
        ("--participation 0", ["participation", "0.0", "share"]),
        ("--participation 1.5", ["participation", "1.5", "share"]),
        ("--participation nan", ["participation", "nan", "share"]),
        ("--algorithms fedsgd", ["algorithms", "'fedsgd'", "fedavg, fedprox", "Choose"]),
        ("--partition labelz", ["partition", "'labelz'", "Choose"]),
        ("--partition natural", ["natural", "silo", "labels"]),
        ("--partition feature --partition-feature shade", ["partition_feature", "'shade'", "Choose"]),
        ("--min-positives -1", ["--min-positives", "-1", "Pass"]),
        ("--min-positives 3", ["--min-positives", "3", "Lower"]),
        ("--min-positives 1 --partition iid", ["--min-positives", "'iid'", "Leave it out"]),
        ("--partition controlled", ["--bank-sizes", "--bank-prevalences", "Pass"]),
        ("--bank-sizes 0.5 0.5", ["--bank-sizes", "controlled", "'labels'"]),
        ("--partition controlled --bank-sizes 1 1 --bank-prevalences 1 1", ["--bank-sizes", "2", "Divide"]),
        ("--partition controlled --bank-sizes 0.9 0.1 --bank-prevalences 1 99", ["bank 1", "Lower"]),
        ("--alerts-per-day 0", ["--alerts-per-day", "0", "Pass"]),
        ("--false-alarm-cost -2", ["--false-alarm-cost", "-2.0", "Pass"]),
        ("--features before", ["features", "'before'", "Choose"]),
        ("--split nightly", ["nightly", "Choose"]),
        ("--test-fraction 1", ["test_fraction", "1.0", "share"]),
        ("--test-fraction 0", ["test_fraction", "0.0", "share"]),
        ("--test-fraction most", ["--test-fraction", "'most'", "Pass"]),
        ("--data-seed -1", ["seed", "-1", "Choose"]),
        ("--alpha 0.1", ["--alpha", "sweep --help"]),
        ("--epoch 2", ["--epoch", "sweep --help"]),
        ("--secure-agg", ["--secure-agg", "sweep --help"]),
        ("--rows 500", ["--rows 500", "no use", "--data"]),
        ("--baselines=False", ["--baselines", "False"]),
        ("--baselines False", ["False", "sweep --help"]),
        ("--quiet=no", ["--quiet", "no"]),
    ],
)
def test_a_wrong_option_is_one_line_with_the_value_and_what_to_do(refused, tmp_path, options, words):
    check_words(refused(*arguments_of("sweep", tmp_path, *options.split())), words)


@pytest.mark.parametrize(
    "options, words",
    [
        ("--alphas 0", ["alpha", "0.0"]),
        ("--alphas abc", ["--alphas", "'abc'"]),
        ("--clients 0", ["clients", "0"]),
        ("--clients 5000", ["clients", "5000"]),
        ("--seed -1", ["seed", "-1"]),
        ("--partition labelz", ["partition", "'labelz'", "Choose"]),
        ("--partition natural", ["natural", "silo"]),
        ("--algorithms fedavg", ["--algorithms", "partition --help"]),
    ],
)
def test_partition_refuses_what_sweep_refuses(refused, tmp_path, options, words):
    line = refused(*arguments_of("partition", tmp_path, *options.split()))
    check_words(line, words)


@pytest.mark.parametrize(
    "options, words",
    [
        ("--algorithm centralised", ["`algorithm` (--algorithm) knows fedavg, fedprox", "'centralised'", "Choose"]),
        ("--alpha -1", ["`alpha` (--alpha)", "-1.0", "Pass"]),
        ("--seed -1", ["`seed` (--seed)", "-1", "Pass"]),
        ("--data-seed -1", ["`seed` must be 0 or more", "-1", "Choose"]),
        ("--algorithm scaffold --client-optimizer adam", ["scaffold"]),
    ],
)
def test_train_names_its_own_options(refused, tmp_path, options, words):
    line = refused(*arguments_of("train", tmp_path, *options.split()))
    check_words(line, words)
    assert not [name for name in ("algorithms", "alphas", "seeds") if name in line], line


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], ["COMMAND"]),
        (["learn"], ["'learn'", "sweep"]),
        (["sweep", "--rows", "10", "--out", "{}"], ["rows", "10", "Raise"]),
        (["sweep", "--rows", "1000", "--out", "{}"], ["no fraud", "796 training rows", "load more rows"]),
        (["generate", "--rows", "1000"], ["--out"]),
        (["generate", "--rows", "5", "--out", "{}/rows.csv"], ["rows", "5", "Raise"]),
        (["generate", "--rows", "500", "--fraud-rate", "12", "--out", "{}/rows.csv"], ["fraud_rate", "12.0", "share"]),
        (["generate", "--rows", "500", "--out", "{}/nowhere/rows.csv"], ["nowhere", "Create"]),
        (["generate", "--rows", "500", "--out", "{}"], ["there already", "--out"]),
        (["sweep", "--rounds", "1e3"], ["fedjax-fraud sweep --help"]),
    ],
)
def test_other_commands_refuse_in_one_line_too(refused, tmp_path, arguments, words):
    folder = tmp_path / "out"
    folder.mkdir()
    check_words(refused(*(argument.format(folder) for argument in arguments)), words)


# ---- where to write ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["sweep", "partition"])
def test_an_output_folder_that_is_not_empty_stays_as_it_is(refused, tmp_path, command):
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    check_words(refused(command, "--out", folder), ["full", "not empty", "notes.txt", "Name another folder"])
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("command", ["sweep", "partition"])
def test_an_output_folder_that_is_a_file_or_below_one_is_refused(refused, write, command):
    path = write("mine", name="taken")
    check_words(refused(command, "--out", path), ["taken", "is a file", "Name another folder"])
    check_words(refused(command, "--out", f"{path}/below"), ["below", "cannot be written", "Name a folder"])
    assert pathlib.Path(path).read_text() == "mine\n"


OUT_COMMANDS = {
    "generate": "generate --rows 500 --out {}/x.csv",
    "score": "score model.safetensors rows.csv --out {}/x.csv",
    "compare": "compare a b --out {}/x.md",
    "sweep": "sweep --out {}/x",
    "train": "train --out {}/x",
    "partition": "partition --out {}/x",
    "a dry run": "sweep --dry-run --out {}/x",
}


@pytest.mark.parametrize("command", OUT_COMMANDS)
def test_a_place_below_a_file_is_refused_with_the_option(refused, write, command):
    path = write("mine", name="taken")
    check_words(refused(*OUT_COMMANDS[command].format(path).split()), ["--out", f"{path}", "Name a"])
    assert pathlib.Path(path).read_text() == "mine\n"


@pytest.mark.parametrize("command", ["generate", "score", "compare", "sweep", "train", "partition"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_place_that_takes_no_file_is_refused_before_any_work(refused, monkeypatch, tmp_path, command, number):
    def fail(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pathlib.Path, "write_bytes", fail)
    line = refused(*OUT_COMMANDS[command].format(tmp_path).split(), out=tmp_path / "unused")
    check_words(line, ["--out", f"{tmp_path}/x", "cannot be written", os.strerror(number), "ame a"])


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "No luck")])
def test_a_disk_that_fills_up_on_the_way_is_one_line_with_the_option(refused, monkeypatch, tmp_path, error):
    def fail(handle):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    line = refused("generate", "--rows", "500", "--out", tmp_path / "x.csv")
    check_words(line, ["--out", "x.csv", error.strerror, "ame a"])
    assert ("Free some space" in line) == (error.errno == errno.ENOSPC)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error, is_out",
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (PermissionError(errno.EACCES, "Permission denied", "{}/out/checkpoint/identity.json"), True),
        (PermissionError(errno.EACCES, "Permission denied", "{}/rows.csv"), False),
    ],
)
def test_while_a_sweep_runs_only_what_is_about_its_folder_names_the_option(
    refused, monkeypatch, tmp_path, error, is_out
):
    def fail(args):
        error.filename = error.filename and error.filename.format(tmp_path)
        raise error

    monkeypatch.setattr(rows, "load", fail)
    line = refused(*arguments_of("sweep", tmp_path))
    assert ("--out: " in line and "cannot be written" in line) == is_out and error.strerror in line


def test_a_report_needs_a_folder_with_results(refused, tmp_path):
    check_words(refused("report", tmp_path), [str(tmp_path), "manifest.json", "missing"])
    check_words(refused("report", tmp_path / "nowhere"), ["nowhere", "no such folder"])
    assert list(tmp_path.iterdir()) == []


# ---- configuration files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, words",
    [
        ("rounds = = 3", ["--config", "bad.toml", "not TOML", "line 1", "Mend"]),
        ("round = 3", ["`round`", "Did you mean `rounds`"]),
        ("rounds = 'many'", ["--rounds", "'many'", "Pass"]),
        ("alphas = [0.1, 0.0]", ["alphas", "0.0", "Pass"]),
        ("alphas = [-1.0]", ["alphas", "-1.0", "Pass"]),
        ("[training]\nrounds = 3", ["--config", "bad.toml", "[training]", "top level"]),
        ("baselines = 'False'", ["False", "sweep --help"]),
    ],
)
def test_a_wrong_configuration_file_is_one_line(refused, write, tmp_path, text, words):
    path = write(text, name="bad.toml")
    check_words(refused(*arguments_of("sweep", tmp_path, "--config", path)), words)


def test_a_missing_configuration_file_is_named(refused, tmp_path):
    line = refused(*arguments_of("sweep", tmp_path, "--config", tmp_path / "nowhere.toml"))
    check_words(line, ["--config", "nowhere.toml", "Check the name"])


def test_a_configuration_file_that_is_not_text_is_named(refused, tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"rounds = 3 # \xff\xfe")
    line = refused(*arguments_of("sweep", tmp_path, "--config", tmp_path / "binary.toml"))
    check_words(line, ["--config", "binary.toml", "not TOML", "Mend"])


class AskedError(BaseException):
    """Carries what the command line asked of `sweep`, past the place where errors become lines."""


def catching_what_is_asked(monkeypatch):
    """Runs a command line and gives what it calls `sweep` with: (train, test, keyword arguments)."""

    def fake(train, test, **options):
        raise AskedError(train, test, options)

    monkeypatch.setattr(sys.modules["fedjax_fraud.sweep"], "sweep", fake)

    def run(arguments):
        with pytest.raises(AskedError) as caught:
            cli.main(arguments)
        return caught.value.args

    return run


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What `sweep` is called with on forty good rows."""
    run = catching_what_is_asked(monkeypatch)
    return lambda *arguments: run(arguments_of("sweep", tmp_path, *arguments))


SHOWN = ("algorithms", "alphas", "seeds", "num_rounds", "num_epochs", "client_lr", "mu", "baselines", "participation")


def shown(options):
    return {name: options[name] for name in SHOWN}


def test_a_configuration_file_says_the_same_as_options_do(asked, write):
    path = write(
        'alphas = [0.2, 2]\nalgorithms = ["scaffold", "fedprox"]\nseeds = 4\nrounds = 7\nepochs = [1, 3]\n'
        "client-lr = 0.05\nmu = [0.0, 0.5]\nbaselines = false\nparticipation = 0.5\nbatch_size = 32\nquiet = true\n"
        "test-fraction = 0.3\nhidden = []\n",
        name="good.toml",
    )
    _, test, from_file = asked("--config", path)
    options = (
        "--alphas 0.2 2 --algorithms scaffold fedprox --seeds 4 --rounds 7 --epochs 1 3 --client-lr 0.05 --mu 0 0.5 "
        "--no-baselines --participation 0.5 --batch-size 32 --test-fraction 0.3 --hidden"
    )
    _, same_test, from_options = asked(*options.split())
    assert shown(from_file) == shown(from_options)
    assert from_file["batch_size"] == from_options["batch_size"] == 32
    assert from_file["model"].description == from_options["model"].description
    np.testing.assert_array_equal(test.features, same_test.features)


def test_a_switch_that_is_off_in_a_configuration_file_is_off(asked, write):
    _, _, options = asked("--config", write("quiet = false\nrounds = 3", name="off.toml"))
    assert options["num_rounds"] == 3


def test_an_empty_list_in_a_configuration_file_is_the_empty_list(asked, write):
    _, _, options = asked("--config", write("drop = []\nhidden = []\nrounds = 3", name="empty.toml"))
    assert options["num_rounds"] == 3
    assert "logistic" in options["model"].description


def test_the_command_line_wins_over_the_configuration_file(asked, write):
    path = write("alphas = [0.2, 2]\nseeds = 4\nbaselines = false\nrounds = 3", name="good.toml")
    _, _, options = asked("--config", path, "--alphas", "1.0", "--baselines", "--rounds", "5")
    assert (options["alphas"], options["seeds"], options["baselines"]) == ([1.0], 4, True)
    assert options["num_rounds"] == 5


def test_a_generated_file_holds_what_the_built_in_generator_makes(asked, capsys, tmp_path):
    path = tmp_path / "rows.csv.gz"
    assert cli.main(["generate", "--rows", "2000", "--seed", "5", "--fraud-rate", "0.02", "--out", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.csv.gz"]
    train, test, _ = asked("--data", path)
    wanted = data.split(data.paysim_like(2000, 5, fraud_rate=0.02), by="random")
    for found, made in zip((train, test), wanted, strict=True):
        np.testing.assert_array_equal(found.labels, made.labels)
        np.testing.assert_allclose(found.features, made.features, rtol=1e-5, atol=1e-5)


# ---- a sweep from start to end ----------------------------------------------------------------------------------

FLAGS = (
    "--rows 3000 --data-seed 1 --seeds 2 --alphas 1.0 --rounds 2 --hidden --algorithms fedavg scaffold --clients 2 "
    "--split random"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder that a small sweep writes."""
    path = tmp_path_factory.mktemp("cli") / "nested" / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "set_up_jax", lambda keep_programs: None)
        assert cli.main(["sweep", *FLAGS.split(), "--quiet", "--out", str(path)]) == 0
    return path


def test_a_sweep_writes_its_results(folder):
    names = {path.name for path in folder.iterdir()}
    wanted = {
        "results.parquet",
        "summary.csv",
        "dossier.md",
        "report.html",
        "convergence.png",
        "convergence.svg",
        "manifest.json",
    }
    assert wanted <= names
    assert not [name for name in names if name.startswith(".") or name.endswith(".tmp")]
    frame = pd.read_parquet(folder / "results.parquet")
    assert set(frame.algorithm) == {"fedavg", "scaffold", "centralised", "local_only"}
    assert frame.groupby("algorithm").size().to_dict() == {
        "fedavg": 4,
        "scaffold": 4,
        "centralised": 4,
        "local_only": 2,
    }
    assert (folder / "convergence.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "convergence.svg").read_text()


def test_the_manifest_is_strict_json_with_the_effective_configuration(folder):
    manifest = json.loads((folder / "manifest.json").read_text(), parse_constant=pytest.fail)
    config = manifest["config"]
    wanted = dict(
        algorithms=["fedavg", "scaffold"],
        alphas=[1.0],
        seeds=[0, 1],
        num_rounds=2,
        num_clients=2,
        num_epochs=[1],
        batch_size=64,
        client_lr=[0.1],
        baselines=True,
        split="random",
        features="known_before",
        test_fraction=0.2,
        data_seed=1,
        hidden=[],
    )
    assert config | wanted == config
    assert {"jax", "random_generator", "fedjax_fraud", "python"} <= set(manifest["versions"])
    assert "num_rows=3000" in manifest["data"]["source"]
    assert manifest["timings"]["wall_seconds"] >= manifest["timings"]["total_seconds"] > 0


def test_report_writes_the_same_dossier_and_summary_again(folder, capsys):
    before = {name: (folder / name).read_bytes() for name in ("dossier.md", "summary.csv")}
    for name in before:
        (folder / name).unlink()
    assert cli.main(["report", str(folder)]) == 0
    printed = capsys.readouterr().out
    for name, content in before.items():
        assert (folder / name).read_bytes() == content
        assert name in printed


def test_a_second_sweep_does_not_write_over_the_first(folder, refused):
    before = (folder / "manifest.json").read_bytes()
    line = refused("sweep", *FLAGS.split(), "--out", folder, out=pathlib.Path("not written"))
    check_words(line, ["not empty", "Name another folder"])
    assert (folder / "manifest.json").read_bytes() == before


def test_partition_prints_a_table_and_draws_it(capsys, tmp_path):
    out = tmp_path / "partition"
    arguments = ["partition", "--rows", "3000", "--alphas", "0.1", "1.0", "--clients", "4", "--out", str(out)]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert (out / "partition.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(out / "partitions.csv")
    assert table.groupby("alpha").size().to_dict() == {0.1: 4, 1.0: 4}
    for positives in table.num_positives:
        assert str(positives) in printed
    assert str(out / "partition.png") in printed


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("fedjax-fraud 0.")


def test_an_interrupted_run_says_so(monkeypatch, capsys, tmp_path):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(rows, "load", interrupt)
    assert cli.main(arguments_of("sweep", tmp_path)) == 130
    assert capsys.readouterr().err == "fedjax-fraud: interrupted\n"


@pytest.mark.parametrize(
    "option", ["--alphas -1", "--clients 0", "--seeds 0", "--participation 2", "--algorithms fedfoo", "--rounds 0"]
)
def test_a_wrong_option_is_refused_before_the_data_are_read(refused, tmp_path, option):
    out = tmp_path / "out"
    line = refused("sweep", "--data", tmp_path / "nowhere.csv", *option.split(), "--out", out)
    assert "nowhere" not in line and option.split()[1] in line


# ---- for people, for scripts, for the one who looks for a fault -------------------------------------------------


@pytest.fixture
def stopped(capsys, monkeypatch):
    """What a command prints that ends at once, such as ``--help``."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(list(arguments))
        assert stop.value.code == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("command", ["sweep", "partition"])
def test_help_fits_a_screen_and_help_all_holds_every_option(stopped, command):
    short, full = stopped(command, "--help"), stopped(command, "--help-all")
    assert len(short.splitlines()) <= 60 and "examples:" in short and "--help-all" in short
    of_command = parser.Parser(prog="all")
    options.add_data(of_command)
    options.add_banks(of_command)
    options.add_output(of_command)
    for action in of_command._actions:
        assert action.option_strings[0] in full
    assert len(full.splitlines()) > len(short.splitlines())
    assert "\x1b[" not in short + full  # colour belongs on terminals


def test_the_main_help_documents_every_exit_status(stopped):
    text = stopped("--help")
    assert all(f"  {status}  " in text for status in (0, 1, 2, 130, 141))
    assert all(f"    {command} " in text for command in ("sweep", "compare", "partition", "generate", "report"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_completion_script_knows_commands_and_options(stopped, shell, tmp_path):
    script = stopped("--print-completion", shell)
    assert "sweep" in script and "alphas" in script
    if shell == "bash":
        (tmp_path / "completion").write_text(script)
        subprocess.run(["bash", "-n", str(tmp_path / "completion")], check=True)


def test_json_is_all_that_a_script_gets(capsys, tmp_path):
    arguments = [*FLAGS.split(), "--quiet", "--json", "--out", str(tmp_path / "out")]
    assert cli.main(["sweep", *arguments]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out, parse_constant=pytest.fail)
    assert said.err == ""
    assert set(answer["files"]) == {path.name for path in pathlib.Path(answer["folder"]).iterdir()}
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    of_json = {(row["algorithm"], row["alpha"]): row["average_precision"] for row in answer["summary"]}
    of_table = {(row.algorithm, row.alpha): row.average_precision for row in table.itertuples()}
    assert of_json.keys() == of_table.keys()
    for key, value in of_table.items():
        np.testing.assert_allclose(of_json[key], value, rtol=1e-6)


@pytest.mark.parametrize("command", ["generate", "partition"])
def test_other_commands_print_json_too(capsys, tmp_path, command):
    out = tmp_path / ("rows.csv" if command == "generate" else "out")
    assert cli.main([command, "--rows", "3000", "--json", "--out", str(out)]) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    if command == "generate":
        assert answer == {"file": str(out), "num_rows": 3000}
    else:
        assert len(answer["banks"]) == 9  # three banks at each of three alphas


@pytest.mark.parametrize(
    "error, status, words",
    [
        (ValueError("`num_rounds` is 0.\nPass 1."), 2, "error: `num_rounds` (--rounds) is 0. Pass 1."),
        (FileNotFoundError("no such thing"), 2, "error: no such thing"),
        (RuntimeError("out of memory"), 1, "unexpected error: RuntimeError: out of memory (--debug shows where"),
        (MemoryError("Unable to allocate 9 TiB"), 2, "error: that is more than this machine holds (Unable to allocate"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_an_error_has_its_exit_status_one_line_and_a_traceback_only_on_request(
    monkeypatch, capsys, tmp_path, error, status, words, debug
):
    def fail(args):
        raise error

    monkeypatch.setattr(rows, "load", fail)
    assert cli.main(arguments_of("sweep", tmp_path, *["--debug"] * debug)) == status
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith(f"fedjax-fraud: {words}")
    assert ("Traceback" in said) == debug and (debug or said.count("\n") == 1)


def test_a_warning_is_one_line_without_the_place_in_our_code(monkeypatch, capsys, tmp_path):
    def warn(args):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("0 positives in test:\nraise `test_fraction`.", UserWarning, stacklevel=1)
        raise ValueError("enough")

    monkeypatch.setattr(rows, "load", warn)
    assert cli.main(arguments_of("sweep", tmp_path)) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "fedjax-fraud: warning: 0 positives in test: raise `test_fraction` (--test-fraction)."


# ---- before, after and beside a run -----------------------------------------------------------------------------


def test_a_dry_run_says_what_would_run_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", *FLAGS.split(), "--quiet", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "4 federations and 6 baselines, 2 banks, 2 rounds; 2 programs to compile." in said.out
    assert "rows trained" in said.out and "Estimated time" in said.out and said.err == ""
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_counts_what_the_sweep_did(folder, capsys):
    assert cli.main(["sweep", *FLAGS.split(), "--quiet", "--json", "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    work = json.loads((folder / "manifest.json").read_text())["work"]
    assert sum(row["rows"] for row in plan["settings"]) == work["rows_trained"]
    assert plan["estimate"]["peak_bytes"] > 0 and len(plan["partitions"]) == 2


@pytest.mark.parametrize(
    "options", ["--clients 900", "--seeds 100000000", "--alphas -1", "--resume", "--distributed", "--test-fraction 1"]
)
def test_a_dry_run_refuses_what_a_run_refuses(refused, tmp_path, options):
    refused(*arguments_of("sweep", tmp_path, "--dry-run", *options.split()))
    assert not (tmp_path / "out").exists()


def test_a_dry_run_looks_at_the_folder(refused, folder, tmp_path):
    check_words(refused("sweep", "--dry-run", "--out", folder, out=tmp_path), ["not empty"])
    before = sorted(folder.iterdir())
    check_words(refused("sweep", "--dry-run", "--resume", "--out", folder, out=tmp_path), ["finished results"])
    assert sorted(folder.iterdir()) == before


def test_compare_prints_tables_or_json_and_writes_a_page(folder, capsys, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    assert cli.main(["compare", str(folder), str(other), "--out", str(tmp_path / "both.md")]) == 0
    printed = capsys.readouterr().out
    assert f"A = {folder}" in printed and "+0.0000 [+0.000, +0.000]" in printed
    assert "SCAFFOLD" in (tmp_path / "both.md").read_text()
    assert cli.main(["compare", str(folder), str(other), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert answer["runs"] == [str(folder), str(other)] and answer["differences"] == []
    assert {row["num_pairs"] for row in answer["comparison"] if row["reference"]} == {2}


def test_compare_refuses_in_one_line(folder, refused, tmp_path):
    check_words(refused("compare", folder), ["at least two"])
    check_words(refused("compare", folder, tmp_path), [str(tmp_path), "manifest.json", "missing"])
    check_words(refused("compare", folder, tmp_path, "--out", tmp_path / "x.txt"), ["x.txt", ".md or .csv"])
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in folder.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    (damaged / "banks.parquet").write_bytes(b"PAR1")
    check_words(refused("compare", folder, damaged), ["banks.parquet", "damaged", "Restore it from a copy"])


def test_a_run_that_cannot_be_logged_is_refused_before_the_data_are_read(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    line = refused("sweep", "--data", tmp_path / "nowhere.csv", "--mlflow", "sqlite:///x.db", "--out", tmp_path / "out")
    check_words(line, ["--mlflow", "fedjax-fraud[mlflow]"])
    check_words(refused("report", tmp_path, "--mlflow", "sqlite:///x.db"), ["fedjax-fraud[mlflow]"])


def test_a_resumed_run_finds_a_finished_one_and_clears_what_is_left(folder, refused, tmp_path):
    """Killed between the manifest and the removal of the checkpoint."""
    out = tmp_path / "out"
    (out / "checkpoint").mkdir(parents=True)
    (out / "manifest.json").write_text("{}")
    line = refused("sweep", *FLAGS.split(), "--resume", "--out", out, out=tmp_path / "unused")
    check_words(line, ["finished results", "nothing left to do"])
    assert [path.name for path in out.iterdir()] == ["manifest.json"]


def test_a_run_that_was_killed_before_it_kept_anything_starts_anew(asked, refused, tmp_path):
    out = tmp_path / "out"
    (out / "checkpoint").mkdir(parents=True)
    (out / "checkpoint" / ".identity.json.0123abcd.tmp").write_bytes(b"{")
    (out / ".probe.0123abcd.tmp").write_bytes(b"")
    check_words(refused("sweep", "--resume", "--out", out, out=tmp_path / "unused"), ["no unfinished run"])
    _, _, options = asked()
    assert options["checkpoint"] == out / "checkpoint" and not options["resume"]
    assert list(out.iterdir()) == []


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = "import sys; from fedjax_fraud import cli; sys.exit(cli.main(sys.argv[1:]))"
    arguments = ["generate", "--rows", "500", "--out", str(tmp_path / "rows.csv")]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_banks_of_the_data_keep_their_names_before_any_training(capsys, tmp_path):
    rows = pd.DataFrame({"x": range(60), "bank": ["north", "south", "west"] * 20, "fraud": [0, 1, 0, 0, 0, 0] * 10})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    given = ["--data", str(tmp_path / "rows.csv"), "--label", "fraud", "--silo", "bank"]
    assert cli.main(["partition", *given, "--out", str(tmp_path / "out")]) == 0
    assert cli.main(["sweep", *given, "--dry-run", "--seeds", "1", "--algorithms", "fedavg"]) == 0
    printed = capsys.readouterr().out
    assert all(printed.count(f"|{name}") == 2 for name in ("north", "south", "west"))
    assert set(pd.read_csv(tmp_path / "out" / "partitions.csv")["bank"]) == {"north", "south", "west"}


def test_a_model_is_trained_with_noise_and_its_report_says_so(capsys, tmp_path):
    small = ["--rows", "10000", "--rounds", "1", "--hidden", "--noise-multiplier", "1", "--clip-norm", "0.5"]
    out = tmp_path / "model"
    assert cli.main(["train", *small, "--out", str(out)]) == 0
    assert "epsilon" in capsys.readouterr().out
    assert "## Privacy" in (out / "dossier.md").read_text() and 'id="privacy"' in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--noise-multiplier 0 1 --algorithms fedavg ditto", ["--noise-multiplier", "ditto", "scaffold"]),
        ("--clip-norm 3", ["--clip-norm", "no use", "--noise-multiplier"]),
        ("--noise-multiplier -1", ["--noise-multiplier", "-1"]),
        ("--noise-multiplier 1 --delta 2", ["--delta", "2"]),
    ],
)
def test_noise_that_a_sweep_cannot_use_is_refused_with_its_option(refused, tmp_path, options, words):
    check_words(refused(*arguments_of("sweep", tmp_path, *options.split())), words)


def test_the_package_is_a_command_too():
    run = subprocess.run([sys.executable, "-m", "fedjax_fraud", "--version"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.split()[-1][0].isdigit()


def test_too_much_for_the_memory_is_said_in_one_line_and_not_as_a_fault_of_ours(capsys):
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 399999999996 bytes.")
    assert errors.report(error, debug=False) == 2
    assert "more than this machine holds" in capsys.readouterr().err


def test_a_dry_run_refuses_a_place_that_cannot_be_written(refused):
    check_words(refused("sweep", "--rows", "3000", "--dry-run", "--out", "/proc/x"), ["--out", "/proc/x", "written"])
