"""How soon is a change told? Planted in the texts of companies of stocknet, against two rules at equal false alarms.

From a day on, each text of a company becomes a negative one with some probability (the size), for a week. The monitor's
watch, a z-score of the mean of the last day, and a fixed number of negative texts in a day see the same texts. The
thresholds of the two rules are those that raise as many false alarms on the unchanged texts as the monitor does. A
change that is not told within the week counts as a delay of a week.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from segue.apps.monitor.watch import AGAIN, DAY, HISTORY, HOUR, MOST_HISTORY, Seen, Subject, learn_usual

SIZES = (0.2, 0.4, 0.8)
WEEK = 7 * DAY
COOL = DAY
WARM = 120 * DAY
"""History before anything is judged."""
BUDGET = 2.0
PLANTS = 8
"""Changes in each company, at times that are drawn."""
STEPS = 40


def monitor_alarms(texts: Sequence[Seen], start: float) -> list[float]:
    """Times of the monitor's alarms from a time on."""
    subject, quiet, tried, found = Subject(), -1e18, -1e18, []
    times = [one.time for one in texts]
    for place, one in enumerate(texts):
        if one.time < start - AGAIN:
            continue
        due = one.time - subject.usual.learned >= AGAIN if subject.usual is not None else one.time >= tried
        if due:
            tried = one.time + 3 * DAY
            first = bisect_left(times, one.time - HISTORY)
            past = texts[first:place]
            hours: dict[float, int] = {}
            for each in past:
                if each.time < one.time // HOUR * HOUR:
                    begin = each.time // HOUR * HOUR
                    hours[begin] = hours.get(begin, 0) + each.is_negative
            usual = learn_usual(
                past[-MOST_HISTORY:], sorted(hours.items()), texts=len(past), now=one.time, budget=BUDGET
            )
            if usual is not None:
                subject.usual = usual
                subject.begin(one.time, one.number - 1)
        if subject.see(one) is not None and one.time >= quiet:
            quiet = one.time + COOL
            if one.time >= start:
                found.append(one.time)
    return found


def day_values(texts: Sequence[Seen]) -> list[tuple[float, float, float]]:
    """At each text: its time, the z-score of the mean of the last day, and the negative texts of the last day."""
    last: deque[Seen] = deque()
    total = negative = 0.0
    scores = np.array([one.score for one in texts])
    times = np.array([one.time for one in texts])
    sums, squares = np.concatenate([[0], np.cumsum(scores)]), np.concatenate([[0], np.cumsum(scores**2)])
    found = []
    for _place, one in enumerate(texts):
        last.append(one)
        total += one.score
        negative += one.is_negative
        while last[0].time <= one.time - DAY:
            gone = last.popleft()
            total -= gone.score
            negative -= gone.is_negative
        first, end = np.searchsorted(times, [one.time - HISTORY, one.time - DAY])
        count = end - first
        z = 0.0
        if count >= 20:
            mean = (sums[end] - sums[first]) / count
            deviation = max(0.05, float(np.sqrt(max(0.0, (squares[end] - squares[first]) / count - mean**2))))
            z = float((total / len(last) - mean) / deviation * np.sqrt(len(last)))
        found.append((one.time, z, negative))
    return found


def rule_alarms(values: Sequence[tuple[float, float, float]], column: int, level: float, start: float) -> list[float]:
    """Times at which a rule is above its level, not again within the cool-down."""
    quiet, found = -1e18, []
    for row in values:
        if row[0] >= start and row[column] > level and row[0] >= quiet:
            quiet = row[0] + COOL
            found.append(row[0])
    return found


def planted(
    texts: Sequence[Seen], start: float, size: float, bad: Sequence[tuple[float, float]], draw: Any
) -> list[Seen]:
    """The texts with a change."""
    found = []
    for one in texts:
        if start <= one.time < start + WEEK and draw.random() < size:
            negative, positive = bad[int(draw.integers(len(bad)))]
            one = Seen(time=one.time, number=one.number, negative=negative, positive=positive)
        found.append(one)
    return found


def level_for(
    clean: Sequence[Sequence[tuple[float, float, float]]], column: int, starts: Sequence[float], most: int
) -> float:
    """The lowest level of a rule that raises no more false alarms than `most` on the unchanged texts."""
    values = sorted({row[column] for some in clean for row in some})
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        count = sum(
            len(rule_alarms(some, column, values[middle], begin)) for some, begin in zip(clean, starts, strict=True)
        )
        low, high = (low, middle) if count <= most else (middle + 1, high)
    return float(values[low])


def shifts(
    streams: dict[str, list[Seen]], bad: Sequence[tuple[float, float]], told: Callable[[str], object]
) -> dict[str, Any]:
    """Delays and misses of each size, at equal false alarms."""
    draw = np.random.default_rng(0)
    names = list(streams)
    starts = [streams[name][0].time + WARM for name in names]
    clean = [day_values(streams[name]) for name in names]
    false = [monitor_alarms(streams[name], begin) for name, begin in zip(names, starts, strict=True)]
    months = sum((streams[name][-1].time - begin) / (30 * DAY) for name, begin in zip(names, starts, strict=True))
    count = sum(map(len, false))
    levels = {
        "z-score": (1, level_for(clean, 1, starts, count)),
        "fixed threshold": (2, level_for(clean, 2, starts, count)),
    }
    told(f"{count} false alarms in {months:.0f} company-months; levels {levels}")
    result: dict[str, Any] = {
        "companies": len(names),
        "company-months": round(months, 1),
        "false alarms": count,
        "false alarms a company in 30 days": round(count / months, 3),
        "budget": BUDGET,
        "false alarms of the rules": {
            name: sum(len(rule_alarms(some, column, level, begin)) for some, begin in zip(clean, starts, strict=True))
            for name, (column, level) in levels.items()
        },
    }
    for size in SIZES:
        delays: dict[str, list[float]] = {"monitor": [], **{name: [] for name in levels}}
        for name, begin in zip(names, starts, strict=True):
            texts = streams[name]
            for when in draw.uniform(begin, texts[-1].time - 2 * WEEK, PLANTS).tolist():
                near = [one for one in texts if when - HISTORY - AGAIN - DAY - WARM <= one.time < when + WEEK]
                changed = planted(near, when, size, bad, draw)
                delays["monitor"].append(_delay(monitor_alarms(changed, when), when))
                values = day_values(changed)
                for rule, (column, level) in levels.items():
                    delays[rule].append(_delay(rule_alarms(values, column, level, when), when))
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
