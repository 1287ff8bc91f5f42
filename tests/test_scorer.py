"""A kept model scores a new table as the training did, names what is wrong with it, and knows its thresholds."""

import json
import warnings

import chex
import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedjax_fraud import cli, data, models, scorer
from fedjax_fraud.cli import processes

NUM_ROWS = 600


def make_table(seed=0, num_rows=NUM_ROWS):
    """A table with a gap, a category, a date and a label that they explain."""
    rng = np.random.default_rng(seed)
    amount = rng.lognormal(3, 2, num_rows)
    kind = rng.choice(["card", "wire", "cash"], num_rows)
    label = (rng.random(num_rows) < 0.05 + 0.4 * ((kind == "wire") & (amount > 50))).astype(int)
    amount[::50] = np.nan
    when = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(num_rows) * 37, unit="min")
    return pd.DataFrame(dict(amount=amount, kind=kind, when=when, fraud=label))


@pytest.fixture(scope="module", params=[(), (5, 3)], ids=["logistic", "perceptron"])
def kept(request):
    """A scorer with random parameters, and the split that it was made from."""
    train, test = data.split(data.load_table(make_table(), "fraud", time="when"))
    width, hidden = train.features.shape[1], request.param
    model = models.mlp(width, hidden) if hidden else models.logistic_regression(width)
    params = model.init(jax.random.key(1))
    params = jax.tree.map(
        lambda leaf: leaf + np.linspace(-1, 1, leaf.size, dtype=np.float32).reshape(leaf.shape), params
    )
    made = scorer.make_scorer(train, test, params, hidden=hidden, about=dict(algorithm="fedavg", none=None))
    return made, model, train, test


def test_a_table_is_scored_as_the_split_that_it_was_trained_on(kept):
    made, model, train, test = kept
    frame = make_table()
    both = np.concatenate([model.apply(made.params, side.features) for side in (train, test)])
    np.testing.assert_allclose(made.logits(frame), both, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(made.probabilities(frame), 1 / (1 + np.exp(-both.astype(np.float64))), rtol=1e-4)
    shuffled = frame.sample(frac=1, random_state=0)
    np.testing.assert_allclose(made.logits(shuffled), made.logits(frame)[shuffled.index], rtol=1e-5, atol=1e-5)


def test_the_label_may_be_missing_and_no_row_is_a_table_too(kept):
    made, *_ = kept
    frame = make_table(seed=3).drop(columns="fraud")
    assert made.probabilities(frame).shape == (NUM_ROWS,)
    assert made.probabilities(frame.head(0)).shape == (0,)
    with pytest.raises(ValueError, match="kind"):
        made.probabilities(frame.drop(columns="kind"))


def test_saving_and_loading_gives_the_same_scorer_to_the_bit(kept, tmp_path):
    made, *_ = kept
    path = scorer.save_scorer(made, tmp_path / "model.safetensors")
    again = scorer.load_scorer(path)
    chex.assert_trees_all_equal(jax.tree.map(np.asarray, made.params), again.params)
    assert again.hidden == made.hidden and again.about == dict(made.about)
    assert again.preprocessing == made.preprocessing
    frame = make_table(seed=5)
    np.testing.assert_array_equal(again.logits(frame), made.logits(frame))
    np.testing.assert_array_equal(again.test_logits, made.test_logits)


@pytest.mark.parametrize("place", [40, -3, 0.5])
def test_a_damaged_file_is_refused_by_name(kept, tmp_path, place):
    path = scorer.save_scorer(kept[0], tmp_path / "model.safetensors")
    content = bytearray(path.read_bytes())
    at = int(place * len(content)) if isinstance(place, float) else place
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        scorer.load_scorer(path)


def test_what_is_no_model_is_refused(kept, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        scorer.load_scorer(tmp_path / "nowhere.safetensors")
    (tmp_path / "text.safetensors").write_text("not a model")
    with pytest.raises(ValueError, match=r"text\.safetensors"):
        scorer.load_scorer(tmp_path / "text.safetensors")
    with pytest.raises(ValueError, match=r"\.safetensors"):
        scorer.save_scorer(kept[0], tmp_path / "model.bin")
    made, _, train, test = kept
    with pytest.raises(ValueError, match="preprocessing"):
        scorer.make_scorer(train._replace(preprocessing=None), test, made.params, hidden=made.hidden, about={})


@pytest.mark.parametrize("hidden", [(9,), (5, 4), (5, 3, 2)])
def test_parameters_of_another_model_are_refused(kept, hidden):
    """The model's function would take them: it looks at the number of layers only."""
    made, _, train, test = kept
    with pytest.raises(ValueError, match=r"`params` must be those of a model of .* features with hidden widths"):
        scorer.make_scorer(train, test, made.params, hidden=hidden, about={})


def test_a_scorer_is_shown_in_one_line_without_its_arrays(kept):
    made, _, train, test = kept
    model = "perceptron 5-3" if made.hidden else "logistic regression"
    wanted = f"Scorer({model}, fedavg, {train.features.shape[1]} features, {len(test.labels)} test scores)"
    assert repr(made) == str(made) == wanted
    assert "scaffold, " in repr(made._replace(about=dict(config=dict(algorithms=["scaffold"]))))


@given(
    logits=st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 0.50001, 2.0, 80.0]), min_size=1, max_size=30),
    share=st.floats(0.001, 1.0),
)
def test_a_threshold_gives_at_most_its_share_of_alerts_and_no_lower_one_does(logits, share):
    ascending = np.sort(np.array(logits, np.float32))
    made = scorer.Scorer(None, (), None, ascending, {})
    threshold = made.threshold(share)
    probabilities = 1 / (1 + np.exp(-ascending.astype(np.float64)))
    allowed = np.floor(share * len(logits) + 1e-9)
    assert (probabilities >= threshold).sum() <= allowed
    lower = np.unique(probabilities[probabilities < threshold])
    if lower.size:  # the next lower score would flag too many
        assert (probabilities >= lower[-1]).sum() > allowed


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_out_of_range_is_refused(kept, share):
    with pytest.raises(ValueError, match=r"`share` must be in \(0, 1\]"):
        kept[0].threshold(share)


def test_train_and_score_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(processes, "set_up_jax", lambda keep_programs: None)
    table, new = tmp_path / "table.csv", tmp_path / "new.csv"
    make_table().to_csv(table, index=False)
    make_table(seed=7).drop(columns="fraud").to_csv(new, index=False)
    options = "--label fraud --time when --rounds 3 --clients 2 --hidden --quiet --json"
    assert cli.main(["train", "--data", str(table), *options.split(), "--out", str(tmp_path / "out")]) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert 0 < answer["average_precision"] <= 1 and answer["test"]["num_rows"] < NUM_ROWS
    assert {"dossier.md", "manifest.json", "model.safetensors"} <= {path.name for path in (tmp_path / "out").iterdir()}

    assert cli.main(["score", answer["model"], str(new), "--alerts-share", "0.05", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    scored = pd.read_csv(said["file"])
    assert said["num_rows"] == len(scored) == NUM_ROWS and said["num_alerts"] == scored["alert"].sum() > 0
    wanted = scorer.load_scorer(answer["model"]).probabilities(pd.read_csv(new, parse_dates=["when"]))
    np.testing.assert_allclose(scored["fraud_probability"], wanted, rtol=1e-6)
    np.testing.assert_array_equal(scored["alert"], wanted >= said["threshold"])

    text = new.read_text().replace("wire", "cheque", 1)  # a category that training does not know
    odd = tmp_path / "odd.csv"
    odd.write_text("code," + text.replace("\n", "\n08172,").removesuffix("08172,"))
    assert cli.main(["score", answer["model"], str(odd), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["unseen_categories"] == {"kind": 1}
    written = pd.read_csv(said["file"], dtype=str, keep_default_na=False)
    assert set(written["code"]) == {"08172"} and (written["amount"] == "").sum() == NUM_ROWS // 50

    for arguments, words in (
        ([answer["model"], str(new)], "there already"),
        ([answer["model"], str(tmp_path / "no.csv")], "no.csv"),
        ([str(new), str(table), "--out", str(tmp_path / "x.csv")], "new.csv"),
        ([answer["model"], str(new), "--out", str(tmp_path / "x.txt")], ".csv"),
        ([answer["model"], str(new), "--out", str(tmp_path / "x.csv"), "--alerts-share", "5"], "(0, 1]"),
        ([answer["model"], str(new), "--out", str(tmp_path / "x.csv"), "--threshold", "3"], "[0, 1]"),
    ):
        assert cli.main(["score", *arguments]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()


def test_a_model_that_diverged_is_not_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(processes, "set_up_jax", lambda keep_programs: None)
    make_table().to_csv(tmp_path / "table.csv", index=False)
    options = "--label fraud --time when --rounds 2 --clients 2 --client-lr 1e20 --quiet"
    out = tmp_path / "out"
    assert cli.main(["train", "--data", str(tmp_path / "table.csv"), *options.split(), "--out", str(out)]) == 2
    assert "diverged" in capsys.readouterr().err and not out.exists()


@pytest.fixture
def scored(kept, tmp_path, capsys, monkeypatch):
    """Runs ``score`` on a table: gives its exit status, and what it prints and warns of."""
    monkeypatch.setattr(processes, "set_up_jax", lambda keep_programs: None)
    path = scorer.save_scorer(kept[0], tmp_path / "model.safetensors")

    def run(frame, *options, **csv):
        frame.to_csv(tmp_path / "new.csv", index=False, **csv)
        status = cli.main(["score", str(path), str(tmp_path / "new.csv"), *options])
        return status, *capsys.readouterr()

    return run


def test_gaps_that_training_did_not_have_are_warned_of_and_in_the_json(scored):
    frame = make_table(seed=4).drop(columns="fraud")
    frame.loc[:4, "kind"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, out, err = scored(frame, "--json")
    assert status == 0 and json.loads(out)["new_gaps"] == {"kind": 5}  # amount had gaps in training
    assert json.loads(out)["unseen_categories"] == {}
    assert err.startswith("fedjax-fraud: warning: no value where the training rows had one: `kind` in 5 rows.")
    assert err.count("\n") == 1


def test_without_new_gaps_nothing_is_warned_of(scored):
    status, out, err = scored(make_table(seed=4), "--json")
    assert (status, err, json.loads(out)["new_gaps"]) == (0, "", {})


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda rows: rows.drop(columns="kind"), "new.csv' lacks the column `kind`"),
        (lambda rows: rows.assign(amount="much"), "`amount` must hold numbers, got 'much' in row 1 of new.csv"),
        (
            lambda rows: rows.assign(fraud=7),
            "`fraud` holds 7, and must be 1 (fraud) or 0 (genuine), got 7.0 in row 1 of new",
        ),
        (lambda rows: rows.assign(fraud=rows.fraud.where(rows.index > 0)), "leave the column out: it is not needed"),
        (lambda rows: rows.assign(when="soon"), "`when` must hold dates"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_in_words_of_score(scored, change, words):
    status, _, err = scored(change(make_table(seed=4)))
    assert status == 2 and words in err and err.count("\n") == 1, err
    assert not [word for word in ("`frame`", "--drop", "--data", "--positive", "--missing") if word in err], err


@pytest.mark.parametrize(
    "options, words",
    [("--alerts-share 5", "`share` (--alerts-share) must be in"), ("--threshold 3", "`threshold` (--threshold) must")],
)
def test_an_option_of_score_out_of_range_is_named(scored, options, words):
    assert words in scored(make_table(seed=4), *options.split())[2]


def test_a_file_with_semicolons_is_scored_as_it_is_written(scored, tmp_path):
    assert scored(make_table(seed=4), sep=";")[0] == 0
    header, first, *_ = (tmp_path / "new-scored.csv").read_text().splitlines()
    assert header == "amount;kind;when;fraud;fraud_probability;alert" and first.count(";") == 5
