"""Labels: which values mean fraud."""

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import labels, load_table

NUM_ROWS = 200


def frame():
    return pd.DataFrame({"y": np.arange(NUM_ROWS) % 5 == 0, "x": np.arange(NUM_ROWS) % 7})


POSITIVES = {
    "text": (["No", "Yes"] * 100, "Yes"),
    "several": (["none", "first party"] * 50 + ["none", "third party"] * 50, ["first party", "third party"]),
    "numbers": ([0, 3] * 100, 3),
    "numbers as text": ([0.0, 3.0] * 100, "3"),
    "truth": ([False, True] * 100, True),
}


@pytest.mark.parametrize("case", POSITIVES)
def test_the_positive_value_says_what_fraud_is(case):
    values, positive = POSITIVES[case]
    table = load_table(frame().assign(y=values), "y", positive=positive)
    assert table.labels.tolist() == [0, 1] * 100
    (label,) = (column for column in table.encoding.columns if column.kind == "label")
    assert label.note.startswith("fraud where ")


def test_a_positive_value_that_does_not_occur_is_refused():
    with pytest.raises(ValueError, match=r"`positive` 'yes' does not occur in `y`, which holds No, Yes"):
        load_table(frame().assign(y=["No", "Yes"] * 100), "y", positive="yes")


@pytest.mark.parametrize(
    "values, shown",
    [([0, 1, 2, 3, 10] * 40, "0, 1, 2, 3, 10"), (["no", "yes"] * 100, "no, yes"), ([1, 2] * 100, "1, 2")],
)
def test_a_label_of_other_values_is_shown_with_them_and_the_way_to_name_fraud(values, shown):
    with pytest.raises(ValueError, match=rf"`y` holds {shown}, and must be 1 .*Name the values.* in `positive`"):
        load_table(frame().assign(y=values), "y")


def test_of_many_values_the_first_are_shown():
    with pytest.raises(ValueError, match="holds 0, 1, 2, 3, 4, 5, 6, 7 and 192 more, and must"):
        load_table(frame().assign(y=np.arange(NUM_ROWS)), "y")


@pytest.mark.parametrize("positive", [None, "1"])
def test_a_label_that_is_missing_is_to_be_given_and_the_column_not_to_be_dropped(positive):
    with pytest.raises(ValueError, match=r"`y` must have a value.*row 3 .*label, or remove") as caught:
        load_table(frame().assign(y=[0, 1, None, 0] * 50), "y", positive=positive)
    assert "drop" not in str(caught.value)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_columns_of_two_values_may_be_the_label_and_those_that_are_called_so_come_first(tmp_path, name):
    table = frame().assign(note="x", flag=["a", "b"] * 100, is_fraud=0)
    table.to_csv(tmp_path / name, index=False) if name.endswith("csv") else table.to_parquet(tmp_path / name)
    assert labels.candidates(tmp_path / name) == ["is_fraud", "y", "flag"]


def test_a_file_that_cannot_be_read_has_no_column_to_offer(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    assert labels.candidates(tmp_path / "rows.parquet") == []
