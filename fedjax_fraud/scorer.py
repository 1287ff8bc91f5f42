"""A finished model that scores new transactions: its parameters, its preprocessing, and where its scores lie."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from safetensors.numpy import save as to_safetensors

from fedjax_fraud import models, tensors
from fedjax_fraud.data import preprocessing as preprocessings
from fedjax_fraud.files import strict_json, write_bytes_atomically
from fedjax_fraud.types import Transactions

FORMAT = 1
ROWS_AT_A_TIME = 1 << 16


class Scorer(NamedTuple):
    """A global model, ready for the rows of another day.

    Attributes:
      preprocessing: from a table as it is read to the model's features, as fitted on the training rows.
      hidden: widths of the perceptron's hidden layers; () = logistic regression.
      params: its parameters, as ``models.mlp`` or ``models.logistic_regression`` hold them.
      test_logits: ``[samples]`` float32, ascending: the scores of the test rows, which thresholds are read from.
      about: how it was trained and what it scored: configuration, data, versions; JSON-like.
    """

    preprocessing: preprocessings.Preprocessing
    hidden: tuple[int, ...]
    params: Any
    test_logits: np.ndarray
    about: Mapping

    def __repr__(self) -> str:
        asked = self.about.get("algorithm") or ", ".join(self.about.get("config", {}).get("algorithms", ()))
        model = f"perceptron {'-'.join(map(str, self.hidden))}" if self.hidden else "logistic regression"
        names = () if self.preprocessing is None else self.preprocessing.names
        parts = [model, *([asked] if asked else []), f"{len(names)} features", f"{len(self.test_logits):,} test scores"]
        return f"Scorer({', '.join(parts)})"

    def logits(self, frame: pd.DataFrame) -> np.ndarray:
        """Scores of a table with the columns of the training table; the label may be missing.

        Returns: ``[rows]`` float32; the larger, the more suspicious.

        Raises: ValueError if a column is missing or holds a value that cannot be a feature.
        """
        return _logits(self.hidden, self.params, self.preprocessing.features(frame))

    def probabilities(self, frame: pd.DataFrame) -> np.ndarray:
        """The model's probabilities of fraud, ``[rows]`` float64. How well they are calibrated the report tells."""
        return _probabilities(self.logits(frame))

    def threshold(self, share: float) -> float:
        """The lowest probability at which at most ``share`` of the test rows are alerts (probability >= threshold).

        Args:
          share: of the rows, in (0, 1]: 0.001 = one alert in a thousand transactions.

        Returns: a probability; just above the highest if that is shared by too many rows, so that nothing is an alert.

        Raises: ValueError if ``share`` is out of range.
        """
        if not 0 < share <= 1:
            raise ValueError(f"`share` must be in (0, 1], got {share}. It is a share of the rows, not a percentage.")
        return _threshold(self.test_logits, share)


def make_scorer(
    train: Transactions, test: Transactions, params: Any, *, hidden: tuple[int, ...], about: Mapping
) -> Scorer:
    """A scorer from a finished model.

    Args:
      train, test: as ``data.split`` returns them; ``train`` carries the preprocessing.
      params: of ``models.mlp`` with these ``hidden`` widths, or of ``models.logistic_regression`` for ().
      hidden: see ``Scorer``.
      about: see ``Scorer``.

    Raises: ValueError if ``train`` does not know how it was made, as a table that was built by hand does not, or if
      ``params`` are those of another model.
    """
    if train.preprocessing is None:
        raise ValueError(
            "`train` has no `preprocessing`. Make it with `data.load_table` or `load_paysim`, and `split`."
        )
    width = test.features.shape[1]
    shapes, wanted = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (params, _shapes(width, hidden)))
    if shapes != wanted:
        raise ValueError(
            f"`params` must be those of a model of {width} features with hidden widths {tuple(hidden)}, got arrays of "
            f"shapes {shapes}. Pass the `hidden` that the model was made with; () is logistic regression."
        )
    logits = np.sort(_logits(hidden, params, test.features))
    return Scorer(train.preprocessing, tuple(hidden), params, logits, about)


def save_scorer(scorer: Scorer, path: str | os.PathLike) -> pathlib.Path:
    """Writes one file (safetensors: plain arrays and JSON, no code), whole or not at all. Returns: its path.

    Raises: ValueError if the name does not end in ``.safetensors``.
    """
    path = pathlib.Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"`path` must end in .safetensors, got {path.name!r}. Name it so.")
    arrays = tensors.named_arrays(scorer.params, "params") | {"test_logits": scorer.test_logits}
    text = strict_json(
        dict(hidden=scorer.hidden, preprocessing=scorer.preprocessing.record(), about=dict(scorer.about))
    )
    about = dict(format=str(FORMAT), scorer=text, sha256=tensors.digest(arrays | {"json": _bytes(text)}))
    return write_bytes_atomically(path, to_safetensors(arrays, about))


def load_scorer(path: str | os.PathLike) -> Scorer:
    """Reads what ``save_scorer`` wrote.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is damaged, or not a model of this package.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`model` must name a file, got {str(path)!r}. Check the name and the folder.")
    what, remedy = f"The model {path.name!r}", "Copy it again."
    about, arrays = tensors.read(path, what, remedy)
    if about.get("format") != str(FORMAT):
        raise ValueError(f"{path.name!r} is not a model that this version saved. Train it again.")
    tensors.check_digest(about.get("sha256"), arrays | {"json": _bytes(about.get("scorer", ""))}, what, remedy)
    known = json.loads(about["scorer"])
    hidden = tuple(known["hidden"])
    preprocessing = preprocessings.from_record(known["preprocessing"])
    params = tensors.filled(_shapes(len(preprocessing.names), hidden), "params", arrays, what, remedy)
    return Scorer(preprocessing, hidden, params, arrays["test_logits"], known["about"])


def _shapes(num_features: int, hidden: tuple[int, ...]) -> Any:
    """The parameters of such a model, without their values."""
    return jax.eval_shape(models.perceptron(num_features, hidden).init, jax.random.key(0))


def _logits(hidden: tuple[int, ...], params: Any, features: np.ndarray) -> np.ndarray:
    """``[rows]`` float32, some rows at a time; the last ones padded, so that one program does for all."""
    run = jax.jit(models.perceptron(features.shape[1], hidden).apply)
    size = min(ROWS_AT_A_TIME, max(len(features), 1))
    found = np.empty(len(features), np.float32)
    for first in range(0, len(features), size):
        some = features[first : first + size]
        padded = np.pad(some, ((0, size - len(some)), (0, 0)))
        found[first : first + size] = np.asarray(run(params, padded))[: len(some)]
    return found


def _probabilities(logits: np.ndarray) -> np.ndarray:
    """float64, from float32 logits."""
    from scipy.special import expit  # a quarter of a second to import, which only those who score wait for

    return expit(logits.astype(np.float64))


def _threshold(ascending: np.ndarray, share: float) -> float:
    """The probability of the lowest score that at most ``share`` of the rows reach."""
    probabilities = _probabilities(ascending)
    allowed = int(np.floor(share * ascending.size + 1e-9))
    if allowed == ascending.size:
        return float(probabilities[0])
    # Rows with the first score that is too low for the budget are out, and so are all that share its score.
    over = probabilities[ascending.size - allowed - 1]
    return float(np.nextafter(over, 2.0))


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)
