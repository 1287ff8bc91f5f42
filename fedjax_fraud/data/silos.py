"""Who owns a row, where no column says so: a stable hash of a column deals its values to banks."""

import numpy as np
import pandas as pd
import pyarrow as pa

from fedjax_fraud import checks
from fedjax_fraud.data import cells
from fedjax_fraud.data.accounts import account_codes


def hashed_silos(column: pd.Series, num_buckets: int) -> np.ndarray:
    """The bank, 0 to ``num_buckets - 1``, of each value of a column: one value is always with one bank.

    The same value goes to the same bank in every file, on every machine, and whether it is stored as 7, 7.0 or "7".
    Banks hold about equally many *values*; their rows differ as the values' rows do.

    Args:
      column: a tidy column without gaps, such as the number of a terminal or a customer.
      num_buckets: how many banks, at least 2.
    Returns: ``[rows]`` int64.
    Raises: ValueError if ``num_buckets`` is no such number.
    """
    checks.check_count("silo_buckets", num_buckets, 2)
    codes, texts = cells.distinct_texts(column)
    hashed = _mixed(account_codes(pa.array(texts, pa.string())).view(np.uint64))
    return (hashed % np.uint64(num_buckets)).astype(np.int64)[codes]


def _mixed(codes: np.ndarray) -> np.ndarray:
    """Every bit of a 64-bit code made to depend on all of them: the remainder of FNV's own would not.

    Reference: Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014, variant 13 of Stafford.
    """
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))
