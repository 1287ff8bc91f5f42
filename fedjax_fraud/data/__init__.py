"""Loading, generating and splitting transactions, on the host in NumPy."""

from fedjax_fraud.data.encoding import Column, Encoding
from fedjax_fraud.data.paysim import load_paysim
from fedjax_fraud.data.preprocess import describe_split, split
from fedjax_fraud.data.preprocessing import Preprocessing
from fedjax_fraud.data.sources import read_frame
from fedjax_fraud.data.synthetic import paysim_like, write_paysim_csv
from fedjax_fraud.data.table import load_table

__all__ = [
    "Column",
    "Encoding",
    "Preprocessing",
    "describe_split",
    "load_paysim",
    "load_table",
    "paysim_like",
    "read_frame",
    "split",
    "write_paysim_csv",
]
