"""Correlation of prices and sentiment on the same day and on the next day, with permutation p-values.

In: a table with the columns date, symbol and close, and the mean sentiment of each day. Out: correlations with
p-values. They describe the past and are not advice.
"""

import itertools
import math
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.cells import open_given, parse_time, rows_given
from segue.apps.monitor.watch import DAY
from segue.errors import DataError

COLUMNS = {
    "date": ("date", "day", "time", "日期"),
    "symbol": ("symbol", "code", "entity", "代码"),
    "close": ("close", "adjusted_close", "price", "收盘"),
}
PERMUTATIONS = 2000
LEAST = 20
"""Minimum number of days with a text and a price for a correlation."""

Closes = dict[int, float]
"""Closing prices by day since 1970."""


def read_prices(path: Path) -> dict[str, Closes]:
    """Read closing prices by symbol."""
    table = open_given(path)
    by_name = {column.strip().casefold(): column for column in reversed(table.columns)}
    names = {role: next((by_name[one] for one in known if one in by_name), None) for role, known in COLUMNS.items()}
    if missing := [role for role, name in names.items() if name is None]:
        raise DataError(
            f"{path} must have the columns date, symbol and close; got {', '.join(table.columns)[:200]}, without "
            f"{missing[0]}. Rename one of them."
        )
    found: dict[str, Closes] = {}
    for number, row in rows_given(table):
        time = parse_time(row[names["date"] or ""], UTC)
        try:
            close = float(row[names["close"] or ""])
        except (TypeError, ValueError):
            continue  # a day without a price
        if not math.isfinite(close):
            continue
        if time is None:
            raise DataError(f"{path}, row {number}, must have a date; got {str(row[names['date'] or ''])[:40]!r}.")
        found.setdefault(str(row[names["symbol"] or ""]).strip().removeprefix("$"), {})[int(time // DAY)] = close
    return found


def closes_between(closes: Closes, *, start: float, end: float) -> Closes:
    """Return the prices of a period and of the week before it, from which its first return is computed."""
    return {day: close for day, close in closes.items() if start - 7 * DAY <= day * DAY < end}


def beside(means: Mapping[int, float], closes: Closes, *, seed: int = 0) -> dict[str, Any]:
    """Return prices, and correlations of daily sentiment with the return of the same and of the next trading day."""
    days = sorted(closes)
    returns = {day: closes[day] / closes[before] - 1 for before, day in itertools.pairwise(days) if closes[before] > 0}
    following = dict(itertools.pairwise(days))
    same = [(means[day], returns[day]) for day in returns if day in means]
    later = [(means[day], returns[following[day]]) for day in returns if day in means and following.get(day) in returns]
    return {
        "days": [{"start": day * DAY, "close": closes[day]} for day in days],
        "same_day": _correlation(same, seed=seed),
        "next_day": _correlation(later, seed=seed),
    }


def _correlation(pairs: list[tuple[float, float]], *, seed: int) -> dict[str, Any] | None:
    if len(pairs) < LEAST:
        return None
    first, second = (_standard(np.array(column)) for column in zip(*pairs, strict=True))
    found = float(first @ second / len(pairs))
    draw = np.random.default_rng(seed)
    as_large = sum(
        abs(float(first @ second[draw.permutation(len(second))]) / len(pairs)) >= abs(found) - 1e-12
        for _ in range(PERMUTATIONS)
    )
    return {"days": len(pairs), "correlation": found, "p_value": (1 + as_large) / (1 + PERMUTATIONS)}


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    around = values - values.mean()
    found: NDArray[np.float64] = around / max(float(np.sqrt((around**2).mean())), 1e-12)
    return found
