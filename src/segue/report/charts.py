"""Charts as inline SVG, without a plotting library: lines and points over steps, trials or settings.

In: named series of points. Out: an <svg> element with escaped texts, in the colours of the page's style (`pages`).
Points that are not finite are left out; a chart without points is an empty string.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 34, 46
MOST_POINTS = 200


@dataclass(frozen=True, kw_only=True)
class Point:
    """A value, with its interval if there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    full: bool = False
    """Highlight the point, as the best one."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one kind."""

    name: str
    points: Sequence[Point]
    colour: Literal["first", "second"] = "first"
    line: bool = True
    dots: bool = False
    faint: bool = False


@dataclass(frozen=True, kw_only=True)
class _Axis:
    low: float
    high: float
    log: bool
    from_pixel: float
    to_pixel: float

    def pixel(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.from_pixel + (at - low) / (high - low) * (self.to_pixel - self.from_pixel)


def chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    whole_x: bool = False,
    x_names: Sequence[str] = (),
) -> str:
    """Return a chart. `log_x` is for rates, `whole_x` for counts; `x_names` name the positions 0, 1, 2 ... of
    choices."""
    kept = [(one, [point for point in one.points if _finite(point, log_x=log_x)]) for one in series]
    points = [point for _, some in kept for point in some]
    if not points:
        return ""
    xs = [float(n) for n in range(len(x_names))] or [point.x for point in points]
    ys = [v for point in points for v in (point.y, point.low, point.high) if v is not None]
    x_low, x_high = _range(xs, log=log_x, margin=0.5 if x_names else 0.0)
    y_low, y_high = _range(ys, log=False, margin=0.05 * (max(ys) - min(ys)))
    x_axis = _Axis(low=x_low, high=x_high, log=log_x, from_pixel=LEFT, to_pixel=WIDTH - RIGHT)
    y_axis = _Axis(low=y_low, high=y_high, log=False, from_pixel=HEIGHT - BOTTOM, to_pixel=TOP)
    parts = _grid(x_axis, y_axis, x_names=x_names, whole_x=whole_x)
    for one, some in kept:
        parts += _drawn(one, some, x_axis.pixel, y_axis.pixel)
    parts += _legend([one for one, some in kept if some])
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(_text(middle, HEIGHT - 8, x_label, anchor="middle", style="pale"))
    parts.append(_text(LEFT, 16, y_label, anchor="start", style="pale"))
    label = html.escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def averaged(points: Sequence[tuple[float, float]]) -> tuple[list[Point], int]:
    """Return at most MOST_POINTS points, each the mean of consecutive points, at the last of them, and the number of
    points averaged."""
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    each = max(1, math.ceil(len(finite) / MOST_POINTS))
    groups = [finite[start : start + each] for start in range(0, len(finite), each)]
    return [Point(x=group[-1][0], y=sum(y for _, y in group) / len(group)) for group in groups], each


def _finite(point: Point, *, log_x: bool) -> bool:
    return math.isfinite(point.x) and math.isfinite(point.y) and (point.x > 0 or not log_x)


def _range(values: Sequence[float], *, log: bool, margin: float) -> tuple[float, float]:
    low, high = min(values) - margin, max(values) + margin
    if low < high:
        return low, high
    return (low / 2, high * 2) if log else (low - max(0.5, abs(low) / 10), high + max(0.5, abs(high) / 10))


def ticks(low: float, high: float, *, log: bool = False, whole: bool = False) -> list[float]:
    """Return four to nine round numbers between the two, or on a logarithmic axis 1, 2 and 5 times each power of
    ten."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        found = [value for value in found if low * 0.999 <= value <= high * 1.001]
        return found if len(found) <= 10 else [value for value in found if f"{value:e}"[0] == "1"]
    raw = (high - low) / 7
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    if whole:
        step = max(1.0, float(round(step)))
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Return a number in short form: 0.25, 1,500, 2e-05."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        mantissa, power = f"{value:.3e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    return f"{value:.4g}" if abs(value) < 1 else f"{value:,.4f}".rstrip("0").rstrip(".")


def _grid(x_axis: _Axis, y_axis: _Axis, *, x_names: Sequence[str], whole_x: bool) -> list[str]:
    parts = []
    for value in ticks(y_axis.low, y_axis.high):
        at = y_axis.pixel(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(LEFT - 8, at + 4, number(value), anchor="end"))
    if x_names:
        every = math.ceil(len(x_names) / 12)
        marks = [(float(n), name[:16]) for n, name in enumerate(x_names) if n % every == 0]
    else:
        marks = [(value, number(value)) for value in ticks(x_axis.low, x_axis.high, log=x_axis.log, whole=whole_x)]
    for value, name in marks:
        at = x_axis.pixel(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(_text(at, HEIGHT - BOTTOM + 16, name, anchor="middle"))
    return parts


def _drawn(
    series: Series, points: Sequence[Point], across: Callable[[float], float], up: Callable[[float], float]
) -> list[str]:
    faint = " faint" if series.faint else ""
    parts = []
    for point in points:
        if point.low is not None and point.high is not None:
            at = f"{across(point.x):.1f}"
            parts.append(
                f'<line class="whisker {series.colour}" x1="{at}" x2="{at}" '
                f'y1="{up(point.low):.1f}" y2="{up(point.high):.1f}"/>'
            )
    if series.line and len(points) > 1:
        path = " ".join(f"{across(point.x):.1f},{up(point.y):.1f}" for point in points)
        parts.append(f'<polyline class="line {series.colour}{faint}" points="{path}"/>')
    for point in points:
        if series.dots or len(points) == 1 or point.full:
            full = " full" if point.full else ""
            parts.append(
                f'<circle class="dot {series.colour}{full}{faint}" cx="{across(point.x):.1f}" '
                f'cy="{up(point.y):.1f}" r="{5 if point.full else 4}"/>'
            )
    return parts


def _legend(series: Sequence[Series]) -> list[str]:
    """Return the legend, from right to left above the plot, if there is more than one name."""
    parts: list[str] = []
    names = {one.name: one for one in series}
    if len(names) < 2:
        return parts
    right = float(WIDTH - RIGHT)
    for name, one in reversed(names.items()):
        parts.append(_text(right, 16, name, anchor="end"))
        right -= 7 * sum(2 if ord(letter) > 0x2E7F else 1 for letter in name) + 8
        faint = " faint" if one.faint else ""
        if one.line:
            parts.append(
                f'<line class="line {one.colour}{faint}" x1="{right - 20:.1f}" x2="{right:.1f}" y1="12" y2="12"/>'
            )
        if one.dots:
            parts.append(f'<circle class="dot {one.colour}{faint}" cx="{right - 10:.1f}" cy="12" r="4"/>')
        right -= 36
    return parts


def _text(x: float, y: float, text: str, *, anchor: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{html.escape(text)}</text>'
