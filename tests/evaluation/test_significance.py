import json

import numpy as np
import pytest
from scipy.stats import ttest_ind

from egohieraloc.errors import DataError
from egohieraloc.evaluation.significance import compare_seeds, measures_of_runs, paired_bootstrap

# The paper's appendix: success of five seeds, and of the baseline.
OURS, BASELINE = (61.65, 63.12, 62.18, 62.30, 62.95), (57.85, 58.34, 57.92, 58.15, 58.06)


def test_the_papers_table():
    found = compare_seeds(OURS, BASELINE)
    assert found.difference.first == pytest.approx(62.44)
    assert found.difference.second == pytest.approx(58.064)
    assert found.difference.value == pytest.approx(4.38, abs=0.01)
    # Sample deviations; the paper prints 0.62 and 0.18, which makes the reach 0.57, not 0.55.
    assert (found.std_first, found.std_second) == pytest.approx((0.59871, 0.19373), abs=1e-5)
    assert found.difference.high - found.difference.value == pytest.approx(0.5516, abs=1e-4)
    assert found.difference.p_value < 0.001


def test_welch_by_hand():
    # Means 2 and 5, variances 1 and 4, three runs each: t = -3 / sqrt(1/3 + 4/3).
    found = compare_seeds([1, 2, 3], [3, 5, 7])
    assert found.t == pytest.approx(-3 / np.sqrt(5 / 3))
    assert found.degrees_of_freedom == pytest.approx((5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2))
    assert found.difference.low == pytest.approx(-3 - 1.96 * np.sqrt(5 / 3))
    assert compare_seeds([1, 2], [4, 5]).difference.value == -3
    for first, second in ((OURS, BASELINE), ([1, 2, 4], [3.0, 3.1]), ([5, 6, 9, 2], [1, 2])):
        ours, theirs = compare_seeds(first, second), ttest_ind(first, second, equal_var=False)
        assert (ours.t, ours.degrees_of_freedom) == pytest.approx((theirs.statistic, theirs.df))
        assert ours.difference.p_value == pytest.approx(theirs.pvalue)
    assert compare_seeds([1, 2, 3], [5.0] * 3).t == pytest.approx(-3 * 3**0.5)
    same = compare_seeds([1.1] * 3, [2.0] * 3)
    assert (same.t, same.degrees_of_freedom, same.difference.p_value) == (None, None, None)
    assert same.difference.value == pytest.approx(-0.9)
    with pytest.raises(DataError, match="two runs of each"):
        compare_seeds([1.0], [2.0, 3.0])


def bootstrap(first, second, **options):
    def resampled(values):
        return lambda chosen: {"mean": values[chosen].mean(), "max": values[chosen].max()}

    one, other = (resampled(np.asarray(values, float)) for values in (first, second))
    return paired_bootstrap(one, other, len(first), **options)


def test_pairs_are_resampled_together():
    random = np.random.default_rng(1)
    base = random.normal(size=200) * 10
    # Always better by one: the interval has no width, though each system alone varies by far more.
    mean, largest = bootstrap(base + 1, base).values()
    assert (mean.low, mean.value, mean.high) == pytest.approx((1, 1, 1))
    assert mean.p_value == pytest.approx(2 / 2001)
    assert largest.value == pytest.approx(1)


def test_the_interval_is_that_of_the_mean_and_chance_is_recognised():
    random = np.random.default_rng(2)
    difference = random.normal(0.1, 1, size=400)
    mean = bootstrap(difference, np.zeros(400), resamples=4000)["mean"]
    error = 1.96 * difference.std() / 20
    assert mean.low == pytest.approx(difference.mean() - error, abs=0.02)
    assert mean.high == pytest.approx(difference.mean() + error, abs=0.02)
    same = bootstrap(difference, difference)["mean"]
    assert (same.value, same.p_value) == (0, 1)


def test_a_seed_decides_the_resamples():
    values = np.random.default_rng(3).random(50)
    assert bootstrap(values, values[::-1], seed=5) == bootstrap(values, values[::-1], seed=5)
    assert bootstrap(values, values[::-1], seed=5) != bootstrap(values, values[::-1], seed=6)


def test_a_measure_needs_both_and_a_resample_may_have_nothing_to_measure():
    def found(values):
        known = values[np.isfinite(values)]
        return {"number": float(len(values)), "mean": float(known.mean()) if known.size else None}

    def compared(*sides):
        first, second = (lambda chosen, side=side: found(side[chosen]) for side in sides)
        return paired_bootstrap(first, second, 2, resamples=400)

    # One of two answers is known: a quarter of the draws has none of it, the others have exactly it.
    half = np.array([3.0, np.nan])
    assert compared(half, half - 1)["mean"].low == pytest.approx(1)
    assert compared(half, half - 1)["mean"].p_value == pytest.approx(2 / 300, rel=0.1)
    assert compared(half, np.full(2, np.nan)).keys() == {"number"}


def test_measures_of_several_runs(tmp_path):
    def write(name, success, **more):
        results = {"own_score": {"num_queries": 5, "success": success, **more}, "groups": {"a": {"b": 1.0}}}
        (tmp_path / name).write_text(json.dumps({"benchmark": "vq2d", "results": results}))
        return tmp_path / name

    paths = [write("1.json", 61.5, tap=0.25), write("2.json", 62.5)]
    assert measures_of_runs(paths) == {"own_score.success": [61.5, 62.5]}
    paths[0].write_text('{"own_score": {}}')
    with pytest.raises(DataError, match=r"1\.json holds no scores"):
        measures_of_runs(paths)
