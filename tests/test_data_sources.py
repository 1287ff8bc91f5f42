"""Sources: one file, one file for each bank, files without a line of names."""

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import load_table, read_frame

NAMES = ["x", "kind", "y"]


@pytest.fixture
def write(tmp_path):
    def to_file(name: str, *lines: str):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    return to_file


def test_each_file_is_a_bank(write):
    paths = [write("north.csv", "x,y", "1,0", "2,1"), write("south.csv", "y,x", "1,3.5")]
    loaded = load_table(paths, "y")
    assert loaded.silo.tolist() == ["north", "north", "south"]
    assert loaded.names == ("x",)
    assert loaded.features[:, 0].tolist() == [1.0, 2.0, 3.5]
    assert loaded.source == "north.csv, south.csv"


def test_one_file_in_a_list_is_that_file_and_no_bank(write):
    loaded = load_table([write("one.csv", "x,y", "1,0", "2,1")], "y")
    assert loaded.silo is None and loaded.names == ("x",)


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    paths = []
    for bank in ("a", "b"):
        (tmp_path / bank).mkdir()
        paths.append(tmp_path / bank / "rows.parquet")
        pd.DataFrame({"x": [1, 2], "y": [0, 1]}).to_parquet(paths[-1])
    assert load_table(paths, "y").silo.tolist() == [str(paths[0])] * 2 + [str(paths[1])] * 2


def test_a_column_of_gaps_in_one_file_takes_its_type_from_the_other(write):
    frame = read_frame([write("a.csv", "x,y", "?,0", "?,1"), write("b.csv", "x,y", "1.5,0")])
    assert frame.x.isna().tolist() == [True, True, False]
    assert frame.x.dtype == np.float64


def test_files_with_other_columns_are_named(write):
    with pytest.raises(ValueError, match=r"`z` is in b\.csv, not in a\.csv"):
        read_frame([write("a.csv", "x,y", "1,0"), write("b.csv", "x,y,z", "1,0,2")])


def test_files_with_other_types_are_refused(write):
    with pytest.raises(ValueError, match="do not fit together"):
        read_frame([write("a.csv", "x,y", "1,0"), write("b.csv", "x,y", "red,0")])


def test_names_can_be_given_to_a_file_that_has_none(write):
    path = write("bare.data", "1,shop,0", "2,web,1")
    loaded = load_table(path, "y", columns=NAMES)
    assert loaded.names == ("x", "kind=shop", "kind=web")
    assert loaded.labels.tolist() == [0, 1]


def test_a_place_in_a_file_without_names_is_the_line_itself(write):
    with pytest.raises(ValueError, match=r"line 2 of bare\.data"):
        load_table(write("bare.data", "1,shop,0", "2,web,3"), "y", columns=NAMES)
    with pytest.raises(ValueError, match=r"2 fields in line 2 of bare\.data, expected 3"):
        load_table(write("bare.data", "1,shop,0", "2,1"), "y", columns=NAMES)


def test_a_place_in_the_second_file_is_in_the_second_file(write):
    paths = [write("a.csv", "x,y", "1,0", "2,1"), write("b.csv", "x,y", "1,0", "1,5")]
    with pytest.raises(ValueError, match=r"line 3 of b\.csv"):
        load_table(paths, "y")


def test_names_are_for_csv_files_only(tmp_path):
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.parquet", pd.DataFrame({"x": [1]})):
        with pytest.raises(ValueError, match="`columns` is for CSV"):
            read_frame(source, columns=["z"])


def test_no_file_at_all_is_refused():
    with pytest.raises(ValueError, match="at least one file"):
        read_frame([])
