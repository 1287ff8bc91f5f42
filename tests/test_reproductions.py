"""The reproductions of published results: numbers of R1 and R4, the laws of the data of R2, R3 and R5, and the page."""

import json
import math

import numpy as np
import pytest

from benchmarks import reproduce
from benchmarks.reproductions import cubes, digits, hospitals, outcome, quadratics, synthetic
from fedjax_fraud.report.intervals import mean_interval

# ---- R1 ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quadratic_paths():
    return quadratics.paths()


def test_every_published_number_of_the_quadratics_comes_out(quadratic_paths):
    lines, _ = quadratics.number_lines(quadratic_paths)
    assert len(lines) == len(quadratics.PUBLISHED) + 1
    assert [line.what for line in lines if line.verdict != outcome.HOLDS] == []


@pytest.mark.parametrize("num_steps, wanted", [(2, 0.0555556), (10, 0.6202902)])
@pytest.mark.parametrize("gap", [0.0, 1.0, 10.0, 100.0])
def test_fedavg_on_quadratics_rests_at_its_fixed_point(quadratic_paths, num_steps, wanted, gap):
    rho = 0.8**num_steps
    fixed = (num_steps * 0.1 - (1 - rho) / 2) / (1 - rho)
    np.testing.assert_allclose(fixed, wanted, atol=5e-8)
    np.testing.assert_allclose(quadratic_paths["fedavg", num_steps, gap][-1], gap * fixed, atol=2e-6 * max(1, gap))


# ---- R2 ---------------------------------------------------------------------------------------------------------

LABELS = np.arange(digits.NUM_TRAIN) * 7 % 10


@pytest.mark.parametrize("similarity", digits.SIMILARITIES)
def test_digits_are_dealt_each_once_and_sorted_as_far_as_asked(similarity):
    order = digits.similar_order(LABELS, similarity, seed=0)
    np.testing.assert_array_equal(np.sort(order), np.arange(digits.NUM_TRAIN))
    of_client = LABELS[order].reshape(digits.NUM_CLIENTS, digits.ROWS_EACH)
    most = np.array([np.bincount(labels).max() for labels in of_client])
    # 150 rows of each label, 15 of each client: sorted, every client has one label.
    least, largest = {0: (15, 15), 10: (7, 15), 100: (2, 9)}[similarity]
    assert least <= most.min() and most.max() <= largest


def test_rounds_to_a_target_take_the_best_rate_and_count_what_is_never_reached():
    scores = np.zeros((4, 1, len(digits.RATES), 2))
    scores[2:, 0, 3] = 0.9
    scores[1:, 0, 4, 0] = 0.9  # the other seed never gets there: (2 + 5) / 2 > 3
    (found,) = digits.rounds_needed(scores, 0.9)
    assert found.rate == digits.RATES[3] and found.rounds.tolist() == [3, 3]
    (never,) = digits.rounds_needed(scores, 0.95)
    assert never.rounds.tolist() == [5, 5]


# ---- R3 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", synthetic.VARIANTS)
def test_synthetic_devices_have_the_recipe_s_shapes_and_labels(variant):
    devices, sizes = synthetic.make_devices(variant, 1), synthetic.device_sizes(1)
    assert len(devices) == 30 and sizes.min() >= 50
    for device, size in zip(devices, sizes, strict=True):
        assert device.features.shape == (size, 60) and device.labels.shape == (size,)
        assert device.weights.shape == (60, 10)
        np.testing.assert_array_equal(device.labels, np.argmax(device.features @ device.weights + device.bias, axis=1))
    assert {int(label) for device in devices for label in device.labels} <= set(range(10))


def test_the_iid_variant_shares_one_model_and_centres_its_inputs_and_zero_zero_does_not():
    iid, other = (synthetic.make_devices(variant, 1) for variant in ("IID", "(0, 0)"))
    assert all((device.weights == iid[0].weights).all() and (device.bias == iid[0].bias).all() for device in iid)
    assert all((device.center == 0).all() for device in iid)
    assert not any(np.array_equal(device.weights, other[0].weights) for device in other[1:])
    assert all(abs(device.center).max() > 0 for device in other)


def test_synthetic_inputs_have_variances_that_fall_like_a_power():
    rows = np.concatenate([device.features for device in synthetic.make_devices("IID", 1)])
    variance = np.arange(1, 61) ** -1.2
    # The sample variance of n normal numbers has standard deviation variance * sqrt(2 / n); 60 of them, so 5 of those.
    np.testing.assert_allclose(rows.var(axis=0), variance, rtol=5 * math.sqrt(2 / len(rows)))


def test_alpha_and_beta_are_standard_deviations_of_the_devices_means():
    """Of 30 devices x 8 seeds: mean of W_k has variance alpha^2 + 1 / 600, that of v_k beta^2 + 1 / 60."""
    for variant, spread in (("(0, 0)", 0.0), ("(0.5, 0.5)", 0.5), ("(1, 1)", 1.0)):
        devices = [device for seed in (0, 1, 2, 4, 5, 6, 7, 9) for device in synthetic.make_devices(variant, seed)]
        within = 5 * math.sqrt(2 / len(devices))
        for values, own in ((device_means(devices, "weights"), 1 / 600), (device_means(devices, "center"), 1 / 60)):
            np.testing.assert_allclose(values.var(), spread**2 + own, rtol=within)


def device_means(devices, field):
    return np.array([getattr(device, field).mean() for device in devices])


def test_cohorts_of_ten_are_the_same_at_every_straggler_level_and_stragglers_make_1_to_19_epochs():
    everybody, _ = synthetic.local_work(3, 50, 0.0)
    assert ((everybody > 0).sum(axis=1) == 10).all() and set(np.unique(everybody)) == {0.0, 1.0}
    for level, slow in ((0.5, 5), (0.9, 9)):
        dropped, partial = synthetic.local_work(3, 50, level)
        np.testing.assert_array_equal(partial > 0, everybody > 0)
        assert ((dropped > 0).sum(axis=1) == 10 - slow).all()
        epochs = partial[(partial > 0) & (partial < 1)] * 20
        assert len(epochs) == 50 * slow and set(np.round(epochs, 9)) == set(range(1, 20))
        np.testing.assert_array_equal(partial[dropped > 0], 1)


# ---- R4 ---------------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_one_seed_of_all_six_strategies_reaches_the_stored_weights_and_the_published_accuracies(shared_data):
    study = hospitals.load(shared_data / "heart_disease")
    assert [hospital.is_train.sum() for hospital in study.hospitals] == [199, 172, 30, 85]
    assert [(~hospital.is_train).sum() for hospital in study.hospitals] == [104, 89, 16, 45]
    found = hospitals.replay(study, scalings=("client",), num_seeds=1)
    for strategy in hospitals.STRATEGIES:
        one = hospitals.compare(study, found, strategy.name, "client", num_seeds=1)
        assert one.difference <= strategy.tolerance, strategy.name
        assert one.num_equal == one.num_published == 5, strategy.name


# ---- R5 ---------------------------------------------------------------------------------------------------------


def test_cube_has_equal_label_shares_the_first_sign_as_label_and_two_octants_a_region():
    cube = cubes.make_cube(0)
    assert cube.features.shape == (4, 1000, 3) and cube.test_features.shape == (1000, 3)
    np.testing.assert_array_equal(cube.labels.mean(axis=1), 0.5)
    np.testing.assert_array_equal(cube.labels, np.where(cube.features[..., 0] > 0, 0, 1))
    np.testing.assert_array_equal(cube.test_labels, np.where(cube.test_features[:, 0] > 0, 0, 1))
    seen = [set(cubes.octants(points).tolist()) for points in cube.features]
    assert all(len(one) == 2 for one in seen) and set.union(*seen) == set(range(8))
    for region, signs in enumerate([(1, 1), (1, -1), (-1, 1), (-1, -1)]):
        np.testing.assert_array_equal(np.sign(cube.features[region, ::2, 1:]), np.broadcast_to(signs, (500, 2)))
    assert abs(cube.test_features).max() <= 1 and (cube.test_features < 0).any()


# ---- verdicts and the page --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, wanted",
    [
        ([1.0, 1.1, 0.9], outcome.HOLDS),
        ([-1.0, -1.1, -0.9], outcome.FAILS),
        ([1.0, -1.1, 0.9], outcome.UNDECIDED),
        ([1.0], outcome.UNDECIDED),
    ],
)
def test_a_difference_is_told_by_its_interval(values, wanted):
    assert outcome.sign_verdict(mean_interval(values)) == wanted


def test_the_page_shows_every_line_and_the_record_is_strict_json():
    lines = [outcome.Line("x | y", "1", "2", verdict, "why") for verdict in (outcome.HOLDS, outcome.NOT_TESTED)]
    table = outcome.Table("A table.", ["a", "b"], [["1", "2"]])
    made = outcome.Outcome(
        "R9", "A title", "a paper", ["How."], lines, [table], {}, {"x": np.float32(0.5), "y": math.inf}
    )
    record = reproduce.plain(reproduce.as_record(made, 1.0, quick=True))
    assert json.loads(json.dumps(record, allow_nan=False))["record"] == {"x": 0.5, "y": "inf"}
    page = reproduce.page({"R9": record}, "pictures")
    assert "| [R9 A title](#r9-a-title) | 1 | 0 | 0 | 1 |" in page
    assert page.count("x \\| y") == 2 and "A table." in page and "a quick run" in page
    assert "not tested" in reproduce.printed("R9", record)
