"""How soon is a change detected? Planted in the texts of companies of stocknet, against rules at equal false alarms.

From a day on, each text of a company becomes a negative one with some probability (the size), for a week. The monitor's
watch, a z-score of the mean of the last day, and a fixed number of negative texts in a day see the same texts. The
thresholds of the two rules are those that raise as many false alarms on the unchanged texts as the monitor does, over
all companies together; "each company" are the rules with thresholds that raise as many in every single one. A change
that is not detected within the week counts as a delay of a week. Alarms before the change suppress no later ones.

The settings of the watch were chosen on other companies: those with ranks 2, 4, 6 ... by the number of their texts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.watch import (
    AGAIN,
    DAY,
    ENOUGH,
    FARTHEST,
    HISTORY,
    HOUR,
    MOST_HISTORY,
    Seen,
    Subject,
    Usual,
    learn_usual,
)

Floats = NDArray[np.float64]
SIZES = (0.2, 0.4, 0.8)
WEEK = 7 * DAY
COOL = DAY
WARM = 120 * DAY
"""Seconds of history before anything is judged."""
BUDGET = 2.0
PLANTS = 8
"""Number of changes in each company, at random times."""
Z, COUNT = 0, 1
"""Columns of the values of the rules."""


def monitor_alarms(texts: Sequence[Seen], start: float, *, first_only: bool = False) -> list[float]:
    """Return the times of the monitor's alarms from a time on."""
    subject, quiet, tried, found = Subject(), -1e18, -1e18, []
    times = np.array([one.time for one in texts])
    begin = int(np.searchsorted(times, start - 1.5 * AGAIN))  # the usual level was learned half of that ago
    for place in range(begin, len(texts)):
        one = texts[place]
        due = one.time - subject.usual.learned >= AGAIN if subject.usual is not None else one.time >= tried
        if due and one.time != subject.last:
            tried = one.time + 3 * DAY
            usual, past = _usual(texts, times, one.time)
            if usual is not None:
                subject.renew(usual, past)
        if subject.see(one) is not None and one.time >= start and one.time >= quiet:
            quiet = one.time + COOL
            found.append(one.time)
            if first_only:
                break
    return found


def _usual(texts: Sequence[Seen], times: Floats, now: float) -> tuple[Usual | None, Sequence[Seen]]:
    """Return the usual level of a subject, learned as the monitor learns it from its database."""
    first, far, end = (int(one) for one in np.searchsorted(times, [now - HISTORY, now - FARTHEST, now]))
    past = texts[max(first, end - MOST_HISTORY) : end]
    if len(past) < ENOUGH:
        past = texts[max(far, end - ENOUGH) : end]
    start = min(now - HISTORY, past[0].time) if past else now
    hours: Counter[float] = Counter()
    for one in texts[
        int(np.searchsorted(times, start // HOUR * HOUR)) : int(np.searchsorted(times, now // HOUR * HOUR))
    ]:
        hours[one.time // HOUR * HOUR] += one.is_negative
    found = learn_usual(past, sorted(hours.items()), texts=len(past), now=now, budget=BUDGET, cool_down=COOL)
    return found, past


def day_values(texts: Sequence[Seen]) -> Floats:
    """Return at each text [N, 2]: the z-score of the mean of the last day against the eight weeks before, and the
    number of negative texts of the last day."""
    times = np.array([one.time for one in texts])
    scores = np.array([one.score for one in texts])
    sums, squares, negative = (
        np.concatenate([[0.0], np.cumsum(one)])
        for one in (scores, scores**2, [float(one.is_negative) for one in texts])
    )
    first, end = np.searchsorted(times, times - HISTORY), np.searchsorted(times, times - DAY)
    day, next = np.searchsorted(times, times - DAY, side="right"), np.arange(len(times)) + 1
    count = np.maximum(end - first, 1)
    mean = (sums[end] - sums[first]) / count
    deviation = np.maximum(0.05, np.sqrt(np.maximum(0.0, (squares[end] - squares[first]) / count - mean**2)))
    z = ((sums[next] - sums[day]) / (next - day) - mean) / deviation * np.sqrt(next - day)
    return np.column_stack([np.where(end - first >= 20, z, 0.0), negative[next] - negative[day]])


def times_of(texts: Sequence[Seen]) -> Floats:
    """Return the times of the texts."""
    return np.array([one.time for one in texts])


def rule_alarms(times: Floats, values: Floats, level: float, start: float) -> list[float]:
    """Return the times at which a rule is above its threshold, not again within the cool-down."""
    quiet, found = -1e18, []
    for time in times[(values > level) & (times >= start)].tolist():
        if time >= quiet:
            quiet = time + COOL
            found.append(time)
    return found


def planted(
    texts: Sequence[Seen], start: float, size: float, bad: Sequence[tuple[float, float]], draw: Any
) -> list[Seen]:
    """Return the texts with a change."""
    found = []
    for one in texts:
        if start <= one.time < start + WEEK and draw.random() < size:
            negative, positive = bad[int(draw.integers(len(bad)))]
            one = Seen(time=one.time, number=one.number, negative=negative, positive=positive)
        found.append(one)
    return found


def level_for(clean: Sequence[tuple[Floats, Floats, float]], most: int) -> float:
    """Return the lowest threshold of a rule that raises no more than `most` false alarms on unchanged texts: their
    times, the rule's values, and the time from which they count."""
    values = np.unique(np.concatenate([some for _, some, _ in clean]))
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        count = sum(len(rule_alarms(times, some, values[middle], begin)) for times, some, begin in clean)
        low, high = (low, middle) if count <= most else (middle + 1, high)
    return float(values[low])


def shifts(
    streams: dict[str, list[Seen]], bad: Sequence[tuple[float, float]], told: Callable[[str], object]
) -> dict[str, Any]:
    """Return delays and misses of each size, at equal false alarms."""
    draw = np.random.default_rng(0)
    starts = {name: texts[0].time + WARM for name, texts in streams.items()}
    clean = {name: (times_of(texts), day_values(texts)) for name, texts in streams.items()}
    false = {name: monitor_alarms(texts, starts[name]) for name, texts in streams.items()}
    months = {name: (texts[-1].time - starts[name]) / (30 * DAY) for name, texts in streams.items()}
    count = sum(map(len, false.values()))

    def level(column: int, names: Sequence[str], most: int) -> float:
        return level_for([(clean[one][0], clean[one][1][:, column], starts[one]) for one in names], most)

    def raised(column: int, levels: dict[str, float]) -> int:
        return sum(
            len(rule_alarms(clean[one][0], clean[one][1][:, column], levels[one], starts[one])) for one in levels
        )

    names = list(streams)
    rules = {
        "z-score": (Z, dict.fromkeys(names, level(Z, names, count))),
        "z-score, each company": (Z, {one: level(Z, [one], len(false[one])) for one in names}),
        "fixed threshold": (COUNT, dict.fromkeys(names, level(COUNT, names, count))),
        "fixed threshold, each company": (COUNT, {one: level(COUNT, [one], len(false[one])) for one in names}),
    }
    whole = sum(months.values())
    result: dict[str, Any] = {
        "companies": len(names),
        "company-months": round(whole, 1),
        "false alarms": count,
        "false alarms a company in 30 days": round(count / whole, 3),
        "most false alarms of a company in 30 days": {
            "monitor": round(max(len(false[one]) / months[one] for one in names), 2),
            **{
                name: round(max(raised(column, {one: levels[one]}) / months[one] for one in names), 2)
                for name, (column, levels) in rules.items()
            },
        },
        "budget": BUDGET,
        "false alarms of the rules": {name: raised(column, levels) for name, (column, levels) in rules.items()},
    }
    told(str(result))
    for size in SIZES:
        delays: dict[str, list[float]] = {"monitor": [], **{name: [] for name in rules}}
        for name, texts in streams.items():
            for when in draw.uniform(starts[name], texts[-1].time - 2 * WEEK, PLANTS).tolist():
                near = [one for one in texts if when - FARTHEST - 2 * AGAIN <= one.time < when + WEEK]
                changed = planted(near, when, size, bad, draw)
                delays["monitor"].append(_delay(monitor_alarms(changed, when, first_only=True), when))
                times, values = times_of(changed), day_values(changed)
                for rule, (column, levels) in rules.items():
                    delays[rule].append(_delay(rule_alarms(times, values[:, column], levels[name], when), when))
        result[f"size {size:g}"] = {
            rule: {
                "mean delay, hours": round(float(np.mean(some)) / HOUR, 1),
                "told within a week": round(float(np.mean([one < WEEK for one in some])), 3),
            }
            for rule, some in delays.items()
        }
        told(f"size {size}: {result[f'size {size:g}']}")
    return result


def _delay(alarms: Sequence[float], when: float) -> float:
    return next((one - when for one in alarms if when <= one < when + WEEK), WEEK)
