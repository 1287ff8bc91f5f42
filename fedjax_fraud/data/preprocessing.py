"""All that the training rows decide about features, as one value: a file can hold it, a new table be put through it.

``fit`` is given features before any fitting: those of ``encode`` (tables), of ``paysim``, or anybody's columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedjax_fraud.data import cells, encode, encoding, labels, paysim
from fedjax_fraud.data.encoding import Column, Encoding

# New values are held within the largest training value, or this many training standard deviations if that is more.
BOUND = 10.0
# A logarithm where the tails are far heavier than a normal's (whose excess kurtosis is 0, an exponential's 6), and it
# at least halves that.
HEAVY_TAILS, LOG_HELPS = 10.0, 0.5

VALUE, SIGNED_LOG, MISSING = "value", "signed log", "missing"


class Feature(NamedTuple):
    """One input of the model, made of one feature before fitting: ``(form(x) - center) / scale``, within ``bound``.

    Attributes:
      name: of the input.
      origin: the feature before fitting.
      form: "value"; "signed log": sign(x) log(1 + |x|); or "missing": 1 in a gap, else 0.
      fill: what a gap becomes, before the logarithm: the training median. None: there was none and may be none.
      center, scale, bound: mean and standard deviation of the training rows, and how far out a value may lie.
    """

    name: str
    origin: str
    form: str
    fill: float | None
    center: float
    scale: float
    bound: float


class Preprocessing(NamedTuple):
    """From a raw table to the float32 inputs of a model, as ``split`` fitted it on training rows.

    Attributes:
      fitted: the inputs in order.
      encoding: the columns that they come from; None: columns that have the features' own names.
    """

    fitted: tuple[Feature, ...]
    encoding: Encoding | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(feature.name for feature in self.fitted)

    def features(self, frame: pd.DataFrame) -> np.ndarray:
        """The inputs for every row of a raw table; the training table gives the training inputs to the bit.

        Args:
          frame: the columns that the training table had, in any order; label, silo and accounts may be absent.
            Categories that training did not hold give 0 in all indicators, see ``unseen``.
        Returns: ``[rows, features]`` float32.
        Raises: ValueError if a column is missing, holds what training did not allow, or is infinite.
        """
        if not len(frame):
            return np.zeros((0, len(self.fitted)), np.float32)
        return apply(self.fitted, raw_features(frame, self.encoding, self.fitted), self.raw_names())

    def labels(self, frame: pd.DataFrame) -> np.ndarray | None:
        """The labels of a raw table, read as the training table's were; None where it has no label column.

        Returns: ``[rows]`` int32, 1 = fraud.
        Raises: ValueError for a gap, or a value that is no label.
        """
        name = None if self.encoding is None else self.encoding.named(encoding.LABEL)
        if name is None or name not in frame.columns:
            return None
        remedy = "Correct the label, or leave the column out: it is not needed to score."
        return labels.read_labels(frame[name], self.encoding.positive, row_of_table, remedy)

    def raw_names(self) -> list[str]:
        """The features before fitting."""
        if self.encoding is None:
            return list(dict.fromkeys(feature.origin for feature in self.fitted))
        return list(paysim_or_table_columns(self.encoding))

    def unseen(self, frame: pd.DataFrame) -> dict[str, int]:
        """How many rows of a raw table hold a category that training did not: column -> rows, without zeros.

        A gap is no category here, see ``new_gaps``.
        """
        if self.encoding is None or self.encoding.format != "table":
            return {}
        counts = {}
        for column in self.encoding.columns:
            if column.kind == encoding.CATEGORY:
                is_unknown = encode.category_codes(frame[column.name], column.categories) < 0
                counts[column.name] = int((is_unknown & ~_gaps(frame, column.name)).sum())
        return {name: count for name, count in counts.items() if count}

    def new_gaps(self, frame: pd.DataFrame) -> dict[str, int]:
        """How many gaps a raw table has in a column that had none in training: column -> rows, without zeros.

        The model has no input that tells such a gap: a number becomes the training median, a category none that is
        known.
        """
        if self.encoding is None or self.encoding.format != "table":
            return {}
        needed = [one.name for one in self.encoding.columns if one.kind in encode.FEATURE_KINDS or one.parts]
        silent = [name for name in needed if encode.indicator_name(name, None) not in self.names]
        counts = {name: int(_gaps(frame, name).sum()) for name in silent}
        return {name: count for name, count in counts.items() if count}

    def record(self) -> dict[str, Any]:
        """Plain values that strict JSON can hold; ``from_record`` gives the same preprocessing back."""
        plan = None if self.encoding is None else self.encoding.record()
        return dict(fitted=[feature._asdict() for feature in self.fitted], encoding=plan)


def from_record(record: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing of which ``record`` is the ``record()``."""
    plan = record["encoding"]
    fitted = tuple(Feature(**feature) for feature in record["fitted"])
    return Preprocessing(fitted, None if plan is None else encoding.from_record(plan))


def paysim_or_table_columns(plan: Encoding) -> dict[str, str]:
    """The features before fitting, in order -> the column each comes from."""
    if plan.format == "paysim":
        return {name: name for name in paysim.feature_names(plan.feature_set)}
    return encode.feature_columns(plan)


def raw_features(frame: pd.DataFrame, plan: Encoding | None, fitted: Sequence[Feature]) -> np.ndarray:
    """The features of a raw table before fitting, ``[rows, raw features]`` float32."""
    if plan is not None and plan.format == "paysim":
        return paysim.frame_features(frame, plan.feature_set)
    if plan is None:
        names = dict.fromkeys(feature.origin for feature in fitted)
        plan = Encoding(tuple(Column(name, encoding.NUMBER) for name in names))
    return encode.encode(frame, plan, row_of_table)


def _gaps(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Which rows of a raw table have no value in a column."""
    return cells.tidy(frame[name]).isna().to_numpy()


def row_of_table(row: int) -> str:
    """Where a row is, for messages about a table in memory."""
    return f"row {row + 1} of the table"


def apply(
    fitted: Sequence[Feature], features: np.ndarray, names: Sequence[str], rows: np.ndarray | slice = slice(None)
) -> np.ndarray:
    """The inputs of some rows, column by column so that no float64 copy of all is made.

    Args:
      fitted: the inputs.
      features: ``[rows, raw features]`` float32, before fitting.
      names: of ``features``.
      rows: which of them, as row numbers, a mask, or a slice.
    Returns: ``[rows, inputs]`` float32.
    Raises: ValueError for a gap where there is nothing to fill it with.
    """
    position = {name: at for at, name in enumerate(names)}
    made = None
    for at, feature in enumerate(fitted):
        values = features[rows, position[feature.origin]].astype(np.float64)
        if made is None:
            made = np.empty((values.size, len(fitted)), np.float32)
        if feature.form == MISSING or feature.fill is not None or np.isnan(values.min(initial=0.0)):
            values = _filled(values, feature)
        if feature.form == SIGNED_LOG:
            values = signed_log(values)
        values -= feature.center
        values /= feature.scale
        made[:, at] = np.clip(values, -feature.bound, feature.bound, out=values)
    return made


def _filled(values: np.ndarray, feature: Feature) -> np.ndarray:
    """The values with their gaps filled, or for an input ``column is missing`` where the gaps are."""
    gaps = np.isnan(values)
    if feature.form == MISSING:
        return gaps.astype(np.float64)
    if feature.fill is None:
        where = row_of_table(int(np.argmax(gaps)))
        raise ValueError(f"`{feature.origin}` has a gap in {where}, and training had none. Fill it in.")
    return np.where(gaps, feature.fill, values)


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x) log(1 + |x|), which keeps the order and the sign, and is x near 0."""
    return np.sign(values) * np.log1p(np.abs(values))


# ---- fitting ----------------------------------------------------------------------------------------------------


def fit(features: np.ndarray, names: Sequence[str], in_train: np.ndarray, plan: Encoding | None) -> Preprocessing:
    """Fits the inputs on the training rows.

    A gap becomes the median of the training rows, and an input ``column is missing`` is added for each column with
    gaps there. Numbers of a table with heavy tails get a signed logarithm; columns and categories of a table with one
    value in the training rows are left out (its listed categories stay). Where a column varies by no more than float32
    rounding, scale is 1 and it becomes 0.

    Args:
      features: ``[rows, raw features]`` float32, all rows; NaN is a gap.
      names: of ``features``.
      in_train: ``[rows]`` bool.
      plan: what the features come from, see ``Preprocessing``.
    Returns: the preprocessing; its encoding says what the training rows decided.
    Raises: ValueError if no input is left.
    """
    is_table = plan is not None and plan.format == "table"
    column_of = {name: name for name in names} if plan is None else paysim_or_table_columns(plan)
    columns = {column.name: column for column in plan.columns} if is_table else {}
    fitted, gaps, train_rows = [], {}, np.flatnonzero(in_train)
    has_gaps = np.isnan(features.min(axis=0, initial=0.0)).tolist()
    for at, name in enumerate(names):
        values = features[train_rows, at].astype(np.float64)
        column = columns.get(column_of[name])
        if has_gaps[at] and np.isnan(values).any():
            gaps.setdefault(column_of[name], (name, np.isnan(values)))
        may_have_gaps = has_gaps[at] or (is_table and column.kind != encoding.CATEGORY)
        feature = _fit_value(name, values, column, may_have_gaps)
        if feature is not None:
            fitted.append(feature)
    for column, (origin, missing) in gaps.items():
        if not missing.all():
            fitted.append(_scaled(Feature(f"{column} is missing", origin, MISSING, None, 0, 1, 1), missing * 1.0)[0])
    if not fitted:
        raise ValueError(
            "`transactions` has no feature that varies in the training rows. Drop less, or load more rows."
        )
    return Preprocessing(tuple(fitted), _decided(plan, fitted, column_of) if is_table else plan)


def _fit_value(name: str, values: np.ndarray, column: Column | None, may_have_gaps: bool) -> Feature | None:
    """One input of a column's values; None if a table's column is constant. ``column`` is None outside tables."""
    fill = None
    if may_have_gaps:
        known = values[~np.isnan(values)]
        fill = float(np.median(known)) if known.size else 0.0
        values = np.where(np.isnan(values), fill, values)
    form = VALUE
    if column is not None and column.kind == encoding.NUMBER and has_heavy_tails(values):
        form, values = SIGNED_LOG, signed_log(values)
    feature, varies = _scaled(Feature(name, name, form, fill, 0.0, 1.0, BOUND), values)
    return feature if varies or column is None or column.fixed else None


def _scaled(feature: Feature, values: np.ndarray) -> tuple[Feature, bool]:
    """The feature with center, scale and bound from its training values in form; whether they vary."""
    center, scale, varies = _center_and_scale(values)
    farthest = max((values.max() - center) / scale, (center - values.min()) / scale)  # rounding keeps the order
    return feature._replace(center=center, scale=scale, bound=max(BOUND, float(np.float32(farthest)))), varies


def _center_and_scale(values: np.ndarray) -> tuple[float, float, bool]:
    """Mean, standard deviation, True; or the lowest value, 1, False if they only vary by float32 rounding."""
    low, high = float(values.min()), float(values.max())
    if high - low <= 4 * np.finfo(np.float32).eps * max(abs(low), abs(high)):
        return low, 1.0, False
    return float(values.mean()), float(values.std()), True


def has_heavy_tails(values: np.ndarray) -> bool:
    """Whether ``values`` have an excess kurtosis above 10 that a signed logarithm at least halves."""
    kurtosis = _excess_kurtosis(values)
    return kurtosis > HEAVY_TAILS and _excess_kurtosis(signed_log(values)) <= LOG_HELPS * kurtosis


def _excess_kurtosis(values: np.ndarray) -> float:
    """Fourth moment over squared variance, less a normal's 3; 0 where nothing varies."""
    largest = np.abs(values).max()
    if not 0 < largest < np.inf:
        return 0.0
    distance = values / largest  # no power of it overflows
    distance = distance - distance.mean()
    variance = float((distance**2).mean())
    return float((distance**4).mean()) / variance**2 - 3.0 if variance > np.finfo(np.float32).eps ** 2 else 0.0


def _decided(plan: Encoding, fitted: Sequence[Feature], column_of: Mapping[str, str]) -> Encoding:
    """The encoding with what the training rows decided: logarithms, the categories they hold, what is constant."""
    used = {feature.origin for feature in fitted}
    logs = {column_of[feature.origin] for feature in fitted if feature.form == SIGNED_LOG}
    gives = {column_of[name] for name in used}
    columns = []
    for column in plan.columns:
        if column.kind in encode.FEATURE_KINDS and column.name not in gives:
            note = "one value in the training rows"
            column = column._replace(kind=encoding.CONSTANT, categories=(), parts=(), note=note)
        elif column.kind == encoding.CATEGORY:
            known = (value for value in column.categories if encode.indicator_name(column.name, value) in used)
            column = column._replace(categories=tuple(known))
        elif column.name in logs:
            column = column._replace(kind=encoding.SIGNED_LOG)
        columns.append(column)
    return plan._replace(columns=tuple(columns))


# ---- what was filled --------------------------------------------------------------------------------------------


def gaps_filled(
    features: np.ndarray, names: Sequence[str], in_test: np.ndarray, plan: Encoding | None, made: Preprocessing
) -> dict[str, dict[str, Any]]:
    """column -> gaps in train and in test, and what they became: a number, or None for a category of their own."""
    column_of = {name: name for name in names} if plan is None else paysim_or_table_columns(plan)
    fills = {feature.origin: feature.fill for feature in made.fitted if feature.form != MISSING}
    has_gaps = np.isnan(features.min(axis=0, initial=0.0))
    found = {}
    for at, name in enumerate(names):
        column = column_of[name]
        own = name == encode.indicator_name(column, None)
        if column in found or not (own or has_gaps[at]):
            continue
        gaps = features[:, at] == 1 if own else np.isnan(features[:, at])
        if gaps.any():
            counts = dict(train=int(gaps[~in_test].sum()), test=int(gaps[in_test].sum()))
            found[column] = counts | dict(fill=None if own else fills.get(name))
    return found


def unseen_in_test(
    features: np.ndarray, names: Sequence[str], in_test: np.ndarray, plan: Encoding | None, made: Preprocessing
) -> dict[str, int]:
    """column -> test rows whose category the training rows did not hold, without zeros."""
    if plan is None or plan.format != "table":
        return {}
    kept = {column.name: column for column in made.encoding.columns if column.kind == encoding.CATEGORY}
    counts = dict.fromkeys(kept, 0)
    for at, (name, column) in enumerate(encode.feature_columns(plan).items()):
        if column in kept and name not in {encode.indicator_name(column, value) for value in kept[column].categories}:
            counts[column] += int((features[in_test, at] == 1).sum())
    return {column: count for column, count in counts.items() if count}
