import subprocess
import sys

import numpy as np
import pytest

from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import BLOCK, FEWEST, Floats, measure, measure_means, wilson


def test_the_interval_of_a_mean_is_that_of_its_standard_error() -> None:
    scores_N = np.random.default_rng(1).normal(3, 2, size=2000)
    metric = measure_means({"mean": scores_N})["mean"]
    assert metric.name == "mean"
    assert metric.value == pytest.approx(scores_N.mean(), abs=1e-12)
    assert metric.low is not None
    assert metric.high is not None
    assert metric.high - metric.low == pytest.approx(2 * 1.96 * scores_N.std() / np.sqrt(2000), rel=0.07)
    assert (metric.low + metric.high) / 2 == pytest.approx(metric.value, abs=0.01)


def test_the_seed_decides() -> None:
    scores = {"mean": np.arange(50.0)}
    assert measure_means(scores, seed=3) == measure_means(scores, seed=3)
    assert measure_means(scores, seed=3) != measure_means(scores, seed=4)


def test_no_resamples_no_interval() -> None:
    metric = measure_means({"mean": np.arange(3.0)}, resamples=None)["mean"]
    assert (metric.value, metric.low, metric.high) == (1.0, None, None)
    with pytest.raises(DataError, match="Use None"):
        measure_means({"mean": np.arange(3.0)}, resamples=0)


@pytest.mark.parametrize("count", [1, 2, FEWEST - 1])
def test_few_examples_have_no_interval(count: int) -> None:
    metric = measure_means({"mean": np.arange(count) / count})["mean"]
    assert (metric.low, metric.high) == (None, None)
    more = measure_means({"mean": np.arange(FEWEST) / FEWEST})["mean"]
    assert more.low is not None


def test_equal_resamples_are_no_interval() -> None:
    metric = measure_means({"mean": np.full(1000, 0.25)})["mean"]
    assert (metric.value, metric.low, metric.high) == (0.25, None, None)


def test_the_interval_of_wilson() -> None:
    """Against numbers of statsmodels' proportion_confint(method="wilson")."""
    assert wilson(0, 10) == pytest.approx((0.0, 0.277533), abs=1e-6)
    assert wilson(10, 10) == pytest.approx((0.722467, 1.0), abs=1e-6)
    assert wilson(30, 100) == pytest.approx((0.218949, 0.395849), abs=1e-6)


@pytest.mark.parametrize("copies", [np.ones(60, dtype=np.int64), np.array([10, 20, 30])])
def test_every_resample_is_as_large_as_the_data(copies: np.ndarray) -> None:
    seen = []

    def formula(weights_RK: Floats) -> dict[str, Floats]:
        seen.append(weights_RK)
        return {"size": weights_RK.sum(axis=1)}

    metric = measure(formula, copies, resamples=400)["size"]
    assert metric.value == 60
    drawn = np.concatenate(seen[1:])
    assert drawn.shape == (400, len(copies))
    np.testing.assert_allclose(drawn.mean(axis=0), copies, rtol=0.3)
    assert (drawn.std(axis=0) > 0.5).all()


def test_counted_kinds_and_single_examples_have_the_same_interval() -> None:
    ones_N = np.repeat([1.0, 0.0], [300, 700])
    single = measure_means({"share": ones_N}, resamples=4000)["share"]
    kinds = measure(lambda w_RK: {"share": w_RK[:, 0] / 1000}, np.array([300, 700]), resamples=4000)["share"]
    assert kinds.value == single.value == 0.3
    assert kinds.low == pytest.approx(single.low, abs=0.003)
    assert kinds.high == pytest.approx(single.high, abs=0.003)


def test_large_data_goes_in_blocks() -> None:
    sizes = []

    def formula(weights_RK: Floats) -> dict[str, Floats]:
        sizes.append(len(weights_RK))
        return {"first": weights_RK[:, 0]}

    measure(formula, np.ones(BLOCK // 3, dtype=np.int64), resamples=7)
    assert sizes == [1, 3, 3, 1]


def test_importing_the_metrics_loads_nothing_heavy() -> None:
    code = """
import sys, pkgutil, importlib
import segue.evaluation.metrics as folder
names = [module.name for module in pkgutil.iter_modules(folder.__path__)]
assert len(names) >= 8, names
for name in names:
    importlib.import_module(f"segue.evaluation.metrics.{name}")
heavy = {"torch", "sklearn", "scipy", "sacrebleu", "seqeval"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
