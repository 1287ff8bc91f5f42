"""Parsed columns kept as Parquet: the same values, whatever happens to the source or to the kept file."""

import concurrent.futures
import gzip
import os
import pathlib
import sys
import warnings

import chex
import numpy as np
import pytest

from fedjax_fraud import files
from fedjax_fraud.data import load_paysim, parsed, paysim, readers, write_paysim_csv

FEATURES = ("known_before", "all")


@pytest.fixture(autouse=True)
def _keep_small_files(monkeypatch):
    monkeypatch.setattr(parsed, "MIN_BYTES", 0)


@pytest.fixture
def source(tmp_path) -> pathlib.Path:
    path = tmp_path / "tiny.csv"
    write_paysim_csv(path, 2000, seed=0, fraud_rate=0.05)
    return path


@pytest.fixture
def cache(tmp_path) -> pathlib.Path:
    return tmp_path / "user" / "cache"


@pytest.fixture
def no_text(monkeypatch):
    """After ``no_text()`` reading the text of a CSV file is an error."""

    def refuse(*_):
        raise AssertionError("the text was read again")

    return lambda: monkeypatch.setattr(readers, "stream_csv", refuse)


def kept_file(cache: pathlib.Path) -> pathlib.Path:
    (path,) = cache.iterdir()
    return path


def assert_loads_the_text(source, cache, features="known_before"):
    chex.assert_trees_all_equal(
        load_paysim(source, features, cache=cache)._asdict(), load_paysim(source, features)._asdict(), strict=True
    )


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("zipped", [False, True])
def test_kept_columns_give_the_values_of_the_text(source, cache, no_text, features, zipped):
    if zipped:
        source.with_suffix(".csv.gz").write_bytes(gzip.compress(source.read_bytes()))
        source = source.with_suffix(".csv.gz")
    from_text = {name: load_paysim(source, name) for name in FEATURES}
    assert_loads_the_text(source, cache, features)
    no_text()
    for name, expected in from_text.items():
        chex.assert_trees_all_equal(load_paysim(source, name, cache=cache), expected, strict=True)


def test_blocks_of_any_size_are_joined_in_order(source, cache, monkeypatch):
    whole = load_paysim(source)
    monkeypatch.setattr(paysim, "BLOCK_ROWS", 300)
    for _ in range(2):
        chex.assert_trees_all_equal(load_paysim(source, cache=cache), whole, strict=True)


def test_a_file_without_balances_and_accounts_is_kept_without_them(tmp_path, cache, no_text):
    path = tmp_path / "few.csv"
    path.write_text("step,type,amount,isFraud\n1,PAYMENT,2,0\n2,TRANSFER,3,1\n")
    first = load_paysim(path, cache=cache)
    no_text()
    again = load_paysim(path, cache=cache)
    assert again.rule_alarm is None and again.accounts == {}
    chex.assert_trees_all_equal(again.features, first.features, strict=True)


def _append(path):
    with open(path, "a") as file:
        file.write("1,PAYMENT,9839.64,C1231006815,170136.00,160296.36,M1979787155,0.00,0.00,0,0\n")


def _touch(path):
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def _other_first_row(path):
    """Another amount, under the same size and time."""
    time = path.stat().st_mtime_ns
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    digit = content.index(b".", first) - 1
    path.write_bytes(content[:digit] + (b"7" if content[digit : digit + 1] != b"7" else b"8") + content[digit + 1 :])
    os.utime(path, ns=(time, time))


@pytest.mark.parametrize("change", [_append, _touch, _other_first_row])
def test_a_changed_source_is_read_again_and_takes_the_place_of_the_old_one(source, cache, no_text, change):
    load_paysim(source, cache=cache)
    before = kept_file(cache)
    change(source)
    assert_loads_the_text(source, cache)
    assert kept_file(cache) == before
    expected = load_paysim(source)
    no_text()
    chex.assert_trees_all_equal(load_paysim(source, cache=cache), expected, strict=True)


def test_columns_of_another_meaning_are_read_again(source, cache, monkeypatch, no_text):
    load_paysim(source, cache=cache)
    monkeypatch.setattr(paysim, "PARSED_VERSION", "other")
    no_text()
    with pytest.raises(AssertionError, match="read again"):
        load_paysim(source, cache=cache)


def test_two_sources_of_one_name_are_kept_apart(source, cache):
    other = source.parent / "elsewhere" / source.name
    other.parent.mkdir()
    write_paysim_csv(other, 500, seed=1, fraud_rate=0.05)
    for path in (source, other, source):
        assert_loads_the_text(path, cache)
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no Parquet at all" * 100])
def test_what_is_no_parquet_file_is_written_again_with_a_warning(source, cache, no_text, content):
    expected = load_paysim(source, cache=cache)
    kept_file(cache).write_bytes(content)
    with pytest.warns(UserWarning, match=r"`cache` holds a damaged parsed-\w+\.parquet: .* written again"):
        chex.assert_trees_all_equal(load_paysim(source, cache=cache), expected, strict=True)
    no_text()
    chex.assert_trees_all_equal(load_paysim(source, cache=cache), expected, strict=True)


def test_no_damaged_byte_changes_a_value(source, cache):
    """Pages carry checksums; a damaged description does not fit the source, or cannot be read."""
    expected = load_paysim(source, "all", cache=cache)
    path = kept_file(cache)
    content = path.read_bytes()
    description = len(content) - int.from_bytes(content[-8:-4], "little") - 8
    rng = np.random.default_rng(0)
    for position in [*rng.integers(0, description, 10), *rng.integers(description, len(content), 20)]:
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            chex.assert_trees_all_equal(load_paysim(source, "all", cache=cache), expected, strict=True)


def test_a_truncated_file_is_written_again(source, cache):
    expected = load_paysim(source, cache=cache)
    path = kept_file(cache)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="damaged"):
        chex.assert_trees_all_equal(load_paysim(source, cache=cache), expected, strict=True)


def test_writers_at_the_same_time_leave_one_whole_file(source, cache, no_text):
    expected = load_paysim(source)
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        loaded = list(executor.map(lambda _: load_paysim(source, cache=cache), range(8)))
    for transactions in loaded:
        chex.assert_trees_all_equal(transactions, expected, strict=True)
    assert kept_file(cache).suffix == ".parquet"
    no_text()
    chex.assert_trees_all_equal(load_paysim(source, cache=cache), expected, strict=True)


def test_a_source_that_changes_while_it_is_read_is_not_kept(source, cache, monkeypatch):
    stream = readers.stream_csv

    def stream_and_touch(path, types):
        yield from stream(path, types)
        _touch(path)

    monkeypatch.setattr(readers, "stream_csv", stream_and_touch)
    with pytest.warns(UserWarning, match=r"`cache` could not keep tiny\.csv: the source changed"):
        load_paysim(source, cache=cache)
    assert not list(cache.iterdir())


def test_a_source_that_cannot_be_loaded_is_not_kept(source, cache):
    content = source.read_text()
    for broken in (content + "1,PAYMENT,x,C1,1,1,M1,0,0,0,0\n", content[: content.index("\n")] + "\n"):
        source.write_text(broken)
        with pytest.raises(ValueError):
            load_paysim(source, cache=cache)
    assert not list(cache.iterdir())


def test_a_folder_that_cannot_be_written_to_costs_a_warning_only(source, tmp_path):
    (tmp_path / "file").write_text("in the way")
    expected = load_paysim(source)
    with pytest.warns(UserWarning, match=r"`cache` could not keep tiny\.csv: \w+.* read it again"):
        chex.assert_trees_all_equal(load_paysim(source, cache=tmp_path / "file"), expected, strict=True)


@pytest.mark.parametrize("step", ["write", "rename"])
def test_a_full_disk_costs_a_warning_only(source, cache, monkeypatch, step):
    def fail(*_):
        raise OSError(28, "No space left on device")

    expected = load_paysim(source)
    if step == "write":
        monkeypatch.setattr(parsed.pq.ParquetWriter, "write_batch", fail)
    else:
        monkeypatch.setattr(files.os, "replace", fail)
    with pytest.warns(UserWarning, match="No space left on device"):
        chex.assert_trees_all_equal(load_paysim(source, cache=cache), expected, strict=True)
    assert not list(cache.iterdir())


def test_small_files_are_not_kept(source, cache, monkeypatch):
    monkeypatch.setattr(parsed, "MIN_BYTES", source.stat().st_size + 1)
    assert_loads_the_text(source, cache)
    assert not cache.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX file modes")
def test_what_is_kept_is_for_its_user_alone(source, cache):
    load_paysim(source, cache=cache)
    assert cache.stat().st_mode & 0o077 == 0
    assert kept_file(cache).stat().st_mode & 0o077 == 0
