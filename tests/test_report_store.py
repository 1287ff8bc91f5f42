"""Files: whole or not at all, JSON that every reader accepts, and folders that are what they claim to be."""

import dataclasses
import json
import os
import pathlib
from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import SweepResult, files, report
from tests.test_report import bare_reports, fake_result


def read_strictly(text: str):
    """What a reader without NaN sees."""

    def fail(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=fail)


# ---- JSON -------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: float
    right: int


@dataclasses.dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (float("nan"), None),
        (-np.inf, None),
        (np.float32("inf"), None),
        (np.array([0.5, np.nan, np.inf]), [0.5, None, None]),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.int64(2**60), 2**60),
        (np.bool_(True), True),
        (jnp.float32(0.5), 0.5),
        (jnp.array([1.0, jnp.nan]), [1.0, None]),
        (jnp.bfloat16(0.5), 0.5),
        ((1, "a", None, True), [1, "a", None, True]),
        ({"b", "a"}, ["a", "b"]),
        (Pair(np.nan, 2), {"left": None, "right": 2}),
        (Point(1.5), {"x": 1.5}),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        ({np.int64(3): {0.1: np.nan}}, {"3": {"0.1": None}}),
    ],
)
def test_json_holds_plain_values_and_null_for_what_is_not_finite(value, plain):
    assert read_strictly(report.strict_json({"value": value})) == {"value": plain}


def test_json_has_sorted_keys():
    assert report.strict_json({"b": 1, "a": 2}).index('"a"') < report.strict_json({"b": 1, "a": 2}).index('"b"')


def test_json_refuses_keys_that_become_the_same_text():
    with pytest.raises(ValueError, match="same text"):
        report.strict_json({1: "a", "1": "b"})


@pytest.mark.parametrize("value", [object(), 1j, np.array([object()])])
def test_json_refuses_what_it_has_no_form_for(value):
    with pytest.raises(TypeError, match="no form in JSON"):
        report.strict_json([value])


# ---- atomic files -----------------------------------------------------------------------------------------------


def test_a_written_file_holds_the_bytes_and_leaves_nothing_beside_it(tmp_path):
    report.write_bytes_atomically(tmp_path / "a.bin", b"old")
    report.write_bytes_atomically(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new" and os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_half_written(tmp_path, monkeypatch, step):
    (tmp_path / "a.bin").write_bytes(b"old")

    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(OSError, match="no space"):
        report.write_bytes_atomically(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"old" and os.listdir(tmp_path) == ["a.bin"]


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    left = tmp_path / ".a.bin.0123abcd.tmp"
    kept = [tmp_path / name for name in (".a.bin.tmp", "a.tmp", ".a.bin.0123abcd.tmp2", "a.bin")]
    for path in (left, *kept):
        path.write_bytes(b"")
    assert files.remove_temporaries(tmp_path) == [left]
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_writer_that_is_killed_leaves_a_name_that_is_recognised(tmp_path):
    with files.replacing(tmp_path / "a.bin"):
        (name,) = os.listdir(tmp_path)
    assert files.TEMPORARY.fullmatch(name)


# ---- output folder ----------------------------------------------------------------------------------------------


def test_an_absent_output_folder_is_created_with_its_parents_and_left_empty(tmp_path):
    folder = report.check_output_folder(tmp_path / "a" / "b")
    assert folder.is_dir() and not os.listdir(folder)


def test_an_empty_output_folder_is_accepted_as_text_too(tmp_path):
    assert report.check_output_folder(str(tmp_path)) == tmp_path


def test_an_output_folder_with_files_is_refused_by_name(tmp_path):
    (tmp_path / "results.parquet").touch()
    with pytest.raises(ValueError, match=r"is not empty \(it holds 'results.parquet'\). Name another folder"):
        report.check_output_folder(tmp_path)


def test_a_file_in_place_of_the_output_folder_is_refused(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(ValueError, match=r"is a file\. Name another folder\.$"):
        report.check_output_folder(tmp_path / "out")
    with pytest.raises(ValueError, match="cannot be written"):
        report.check_output_folder(tmp_path / "out" / "inner")


def test_an_output_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def fail(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "write_bytes", fail)
    with pytest.raises(ValueError, match=r"Permission denied\. Name a folder that you may write to"):
        report.check_output_folder(tmp_path)


def test_an_output_folder_can_be_checked_without_a_trace(tmp_path):
    folder = tmp_path / "a" / "b"
    assert report.check_output_folder(folder, create=False) == folder
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").touch()
    for path, words in ((tmp_path, "not empty"), (tmp_path / "taken", "is a file"), (tmp_path / "taken/in", "written")):
        with pytest.raises(ValueError, match=words):
            report.check_output_folder(path, create=False)


def test_a_folder_that_holds_only_what_a_killed_process_left_is_empty(tmp_path):
    (tmp_path / ".probe.0123abcd.tmp").touch()
    assert report.check_output_folder(tmp_path) == tmp_path
    assert list(tmp_path.iterdir()) == []


# ---- reading back -----------------------------------------------------------------------------------------------


FILES = ["manifest.json", "results.parquet", "banks.parquet", "partitions.parquet", "models.safetensors"]
MODELS = {"Dense_0": {"kernel": np.arange(24, dtype=np.float32).reshape(4, 3, 2), "bias": np.zeros((4, 2))}}


class WithModels(NamedTuple):
    """A made-up result with final models."""

    rounds: pd.DataFrame
    banks: pd.DataFrame
    partitions: pd.DataFrame
    manifest: dict
    params: dict


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of results."""
    folder = tmp_path_factory.mktemp("written")
    with bare_reports():
        report.write(WithModels(*fake_result(num_seeds=2, alphas=(0.5,), num_rounds=2), MODELS), folder)
    return folder


@pytest.fixture
def copied(written, tmp_path):
    """The same folder, free to be damaged."""
    for file in written.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_loaded_folder_holds_the_tables_as_they_were(written):
    result, loaded = fake_result(num_seeds=2, alphas=(0.5,), num_rounds=2), report.load(written)
    for name in ("rounds", "banks", "partitions"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(result, name), check_exact=True)
    assert repr(loaded).startswith("StoredResult(") and len(repr(loaded).splitlines()) == 1
    assert "files" not in loaded.manifest and loaded.manifest["config"]["num_rounds"] == 2
    chex.assert_trees_all_equal(loaded.params, MODELS, strict=True)


def test_a_folder_without_models_has_none(tmp_path):
    with bare_reports():
        report.write(fake_result(num_seeds=2, alphas=(0.5,), num_rounds=2), tmp_path)
    assert report.load(tmp_path).params is None


def test_a_sweeps_result_is_loaded_as_such(written):
    loaded = SweepResult.load(written)
    assert isinstance(loaded, SweepResult) and loaded.decisions is None
    pd.testing.assert_frame_equal(loaded.frame(), report.load(written).rounds, check_exact=True)


@pytest.mark.parametrize("schema", [0, 2, "1.0", None])
def test_another_schema_is_refused(copied, schema):
    manifest = json.loads((copied / "manifest.json").read_text())
    assert manifest["schema"] == 1
    (copied / "manifest.json").write_text(json.dumps(manifest | {"schema": schema}))
    with pytest.raises(ValueError, match=f"schema {schema!r}.*reads schema 1"):
        report.load(copied)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        report.load(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"it is a file\. Name its folder"):
        report.load(tmp_path / "manifest.json")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(copied, name):
    (copied / name).unlink()
    with pytest.raises(ValueError, match=rf"{name}.* is missing\..* run the sweep"):
        report.load(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(copied, name):
    content = (copied / name).read_bytes()
    (copied / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=rf"{name} .*is damaged.*\. Restore it from a copy, or run the sweep again"):
        report.load(copied)


def test_a_damaged_table_is_named_even_without_digests(copied):
    manifest = json.loads((copied / "manifest.json").read_text())
    del manifest["files"]
    (copied / "manifest.json").write_text(json.dumps(manifest))
    (copied / "banks.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"banks.parquet .*is damaged.*\. Restore it"):
        report.load(copied)


def test_a_manifest_that_is_no_object_is_refused(copied):
    (copied / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match=r"not a JSON object\. Restore it"):
        report.load(copied)
