"""Where the rows come from, what the numbers mean, and the record of the run."""

import math
from collections.abc import Mapping

from fedjax_fraud.files import strict_json

from . import facts
from .case import Case
from .wording import count_text, number, quantity, readable, shown


def data_section(case: Case) -> str:
    """Where the rows come from, the rule to beat, the accounts on both sides, the features."""
    manifest, features = case.manifest, facts.feature_names(case.manifest)
    named = ", ".join(f"`{name}`" for name in features) or "not recorded"
    lines = [
        f"Source: {facts.fact(manifest, 'data', 'source') or 'not recorded'}.",
        *(_side_words(manifest, side) for side in ("train", "test")),
        _rule_words(manifest),
        *_overlap_words(manifest),
        *_crossing_words(manifest),
        *_leak_words(manifest),
        *_filled_words(manifest),
        f"Features ({len(features)}): {named}.",
    ]
    return "## Data\n\n" + "\n".join(f"- {line}" for line in lines)


def _side_words(manifest: Mapping, side: str) -> str:
    """One side of the split."""
    rows, positives, share = (
        facts.number_fact(manifest, "data", side, name) for name in ("num_rows", "num_positives", "prevalence")
    )
    time = facts.fact(manifest, "data", side, "time_range")
    period = f"; time {shown(time[0])} to {shown(time[1])}" if time else ""
    counts = f"{count_text(rows)} rows, {count_text(positives)} frauds, prevalence {quantity(share)}"
    return f"{side.capitalize()}ing rows: {counts}{period}." if side == "train" else f"Test rows: {counts}{period}."


def _rule_words(manifest: Mapping) -> str:
    """The hand-written rule beside the model."""
    if not facts.fact(manifest, "data", "one_rule"):
        return "One-rule baseline: not available for these data (the columns that the rule needs are not there)."
    recall, precision = (facts.number_fact(manifest, "data", "one_rule", name) for name in ("recall", "precision"))
    return (
        "One-rule baseline on the test rows (a transfer or cash-out that empties the account): recall "
        f"{number(recall)}, precision {number(precision)}. One line of code finds this, because generated frauds take "
        "all that there is; read the score of any model that sees balances beside it."
    )


def _overlap_words(manifest: Mapping) -> list[str]:
    """Accounts that stand on both sides of the split."""
    overlap = facts.fact(manifest, "data", "account_overlap")
    if not overlap:
        return ["Account overlap between training and test rows: not known (no account columns)."]
    words = _by_role(overlap, "num_accounts_on_both_sides", "share_of_test_rows", "the test rows")
    return [f"Account overlap between training and test rows, by role: {words}."]


def _crossing_words(manifest: Mapping) -> list[str]:
    """Accounts of two banks."""
    crossings = facts.fact(manifest, "data", "silo_crossings")
    if not crossings:
        return []
    words = _by_role(crossings, "num_accounts_in_two_silos", "share_of_rows", "the rows")
    return [f"Accounts that two banks or more have rows of, by role: {words}."]


def _by_role(found: Mapping, count: str, share: str, rows: str) -> str:
    """How many accounts each role has, and in what share of which rows."""
    return "; ".join(
        f"{role}: {count_text(facts.number_fact(found, role, count))} accounts, in "
        f"{100 * facts.number_fact(found, role, share):.2f} % of {rows}"
        for role in found
    )


def _leak_words(manifest: Mapping) -> list[str]:
    """Columns that may give the label away."""
    leaks = facts.fact(manifest, "data", "suspected_leaks") or ()
    return [
        f"**Suspected leak**: `{leak['rule']}` finds {100 * leak['recall']:.1f} % of the training frauds, and "
        f"{100 * leak['precision']:.1f} % of what it finds is fraud."
        + ("" if leak["is_feature"] else " The column is no feature.")
        for leak in leaks
    ]


def _filled_words(manifest: Mapping) -> list[str]:
    """Gaps that were filled, and categories that training did not hold."""
    filled = facts.fact(manifest, "data", "filled") or {}
    words = [
        f"`{column}` {one['train']:,} and {one['test']:,}, "
        + ("a category of their own" if one["fill"] is None else f"by {quantity(one['fill'])}")
        for column, one in filled.items()
    ]
    lines = [f"Gaps filled in training and test rows: {'; '.join(words)}."] if words else []
    unseen = facts.fact(manifest, "data", "unseen_categories") or {}
    if unseen:
        words = [f"`{column}` in {rows:,} rows" for column, rows in unseen.items()]
        lines.append(f"Test rows with a category that no training row has: {', '.join(words)}.")
    return lines


def meaning_section(case: Case) -> str:
    """What each number is, and what an interval covers."""
    ratio = facts.number_fact(case.manifest, "diverged_loss_ratio")
    far = f"over {ratio:g} times the untrained model's" if math.isfinite(ratio) else "far above the untrained model's"
    lines = (
        "**PR-AUC** is the average precision: the step sum over thresholds of precision times gained recall, as in "
        "scikit-learn, with ties in one step; not a trapezoid area. Read it beside the prevalence.",
        "**Pooled** scores rank the test rows of all banks together; **per-bank** scores rank each bank's own rows.",
        "**Validation loss** is the mean log loss on the test rows.",
        "**MB** is 1,000,000 bytes, counted from the model's size, the vectors that an algorithm sends and the banks "
        "that took part; no protocol overhead, no compression. *MB vs FedAvg* is the ratio of whole bytes.",
        "**Drift** is the norm of a client's update minus the aggregated update, a mean over the cohort, the rounds "
        "and the seeds. *Largest client step* is the largest norm of any client's update in any round and seed.",
        "**Intervals** are 95 % Student t intervals of the mean over seeds. A seed sets the partition, the start of "
        "the model, the cohorts and the batches; the intervals cover these. They do **not** cover the choice of the "
        "test rows, which are the same for every seed, nor another period, bank or country. With few seeds they are "
        "wide. They are cut where a score ends (0 and 1); an interval that reaches an end is a sign of too few seeds.",
        "Intervals are not corrected for the number of comparisons: where there is no difference at all, about one "
        "paired interval in twenty still excludes 0.",
        f"**Diverged** settings (loss not finite at the end, or {far}, or beyond return on the way) are left out of "
        "means and counted beside them: an algorithm with many has a mean over the seeds that were kind to it.",
        "**Idle** settings, in which every round was skipped because no update came back in time or none was accepted, "
        "are left out too: their scores would be the untrained model's.",
    )
    return "## What the numbers mean\n\n" + "\n".join(f"- {line}" for line in lines)


def record_section(case: Case) -> str:
    """Versions, timings, devices and the whole configuration."""
    parts = ["## Record"]
    for section in ("versions", "timings", "work", "devices"):
        value = case.manifest.get(section)
        if value:
            flat = dict(facts.flatten(value)) if isinstance(value, dict) else {section: value}
            words = "; ".join(f"{readable(key)} {shown(item)}" for key, item in flat.items())
            parts.append(f"**{section.capitalize()}.** {words}.")
    parts.append(f"**Data SHA-256.** `{facts.fact(case.manifest, 'data', 'sha256') or 'not recorded'}`")
    config = strict_json(case.manifest.get("config") or {}).rstrip()
    parts.append(f"**Configuration.**\n\n```json\n{config}\n```")
    return "\n\n".join(parts)
