"""Charts put points where they belong."""

import re

import pytest

from segue.report.charts import Point, Series, averaged, chart, number, ticks


def test_charts_put_points_where_they_belong() -> None:
    points = [Point(x=0, y=0.0), Point(x=10, y=1.0, full=True), Point(x=5, y=float("nan"))]
    svg = chart([Series(name="<a>", points=points)], title="<t>", x_label="x", y_label="y")
    (line,) = re.findall(r'points="([^"]+)"', svg)
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in line.split())
    assert (x0, x1) == (70, 740)
    assert y0 > y1
    assert "<t>" not in svg
    assert chart([Series(name="a", points=points[2:])], title="", x_label="", y_label="") == ""
    assert "<circle" in chart([Series(name="a", points=points[:1])], title="", x_label="", y_label="")


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(1, 3, whole=True) == [1, 2, 3]
    assert ticks(1e-5, 1e-3, log=True) == pytest.approx([1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3])
    assert [number(value) for value in (0, 0.25, 1500, 2e-5, 1.25e-4)] == ["0", "0.25", "1,500", "2e-5", "1.25e-4"]


def test_long_curves_become_means() -> None:
    points, each = averaged([(float(n), float(n % 3)) for n in range(999)])
    assert each == 5
    assert len(points) == 200
    assert points[0] == Point(x=4.0, y=(0 + 1 + 2 + 0 + 1) / 5)
