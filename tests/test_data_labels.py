"""Labels: which values mean fraud."""

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import load_table

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
