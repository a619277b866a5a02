"""Streaming output of rows with their predictions: JSON lines, csv or tsv.

In: rows of the table, and their predictions. Out: text. In csv and tsv, a cell of text that a spreadsheet would
evaluate as a formula is prefixed with ', unless that is disabled; numbers stay numbers. To undo it:

    re.sub(r"^'(?='*[=+\\-@\\t\\r])", "", cell)
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TextIO

from segue.errors import DataError

PredictionFormat = Literal["csv", "tsv", "jsonl"]
PROBLEM = "problem"
MOST_WAITING = 100_000
"""Maximum number of rows without a prediction that wait for the first one, which determines the columns of csv and
tsv."""

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def without_formula(text: str) -> str:
    """Return the text prefixed with ' if a spreadsheet would evaluate it as a formula."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


class PredictionWriter:
    """Writer of rows in order. The columns of csv and tsv are those of the table and of the first prediction."""

    def __init__(self, file: TextIO, to: PredictionFormat, columns: Sequence[str], *, escape_formulas: bool) -> None:
        self.file, self.to, self.columns, self.escape = file, to, list(columns), escape_formulas
        self.escaped = 0
        """Number of cells that were prefixed with '."""
        self.left_out: Counter[str] = Counter()
        """Fields without a column: those of JSON rows that the first rows do not have."""
        self._table: Any = None
        self._answers: dict[str, str] = {}
        self._waiting: list[tuple[Mapping[str, Any], str]] = []

    def write(self, row: Mapping[str, Any], answer: Mapping[str, Any], problem: str | None) -> str | None:
        """Write the next row; return its problem, if it has one now."""
        if self.to == "jsonl":
            values = {**row, **{self._apart(name, row): value for name, value in answer.items()}}
            values |= {self._apart(PROBLEM, row): problem} if problem else {}
            self.file.write(json.dumps(values, ensure_ascii=False, default=str) + "\n")
            return problem
        if self._table is None:
            if problem is not None:  # the columns of a prediction are not known yet
                self._wait(row, problem)
                return problem
            self._begin(answer)
        if not answer.keys() <= self._answers.keys():
            others = ", ".join(name for name in answer if name not in self._answers)
            answer, problem = {}, f"an answer with columns that the first one does not have ({others}): use --to jsonl"
        self._line(row, answer, problem or "")
        return problem

    def close(self) -> None:
        """Finish the output, after the last row. If no row has a prediction, there is still a column for their
        problems."""
        if self.to != "jsonl" and self._table is None:
            self._begin({})
        self.file.flush()

    def _wait(self, row: Mapping[str, Any], problem: str) -> None:
        self._waiting.append((row, problem))
        if len(self._waiting) > MOST_WAITING:
            raise DataError(
                f"one of the first {MOST_WAITING:,} rows must have an answer, which determines the columns of "
                f"{self.to}; got none ({self._waiting[0][1]}). Check --column and --columns, or write --to jsonl."
            )

    def _begin(self, answer: Mapping[str, Any]) -> None:
        self._answers = {name: self._apart(name, {}) for name in answer}
        self._table = csv.writer(self.file, delimiter="\t" if self.to == "tsv" else ",", lineterminator="\n")
        names = [*self.columns, *self._answers.values(), self._apart(PROBLEM, {})]
        self._table.writerow([self._cell(name) for name in names])
        for row, problem in self._waiting:
            self._line(row, {}, problem)
        self._waiting = []

    def _line(self, row: Mapping[str, Any], answer: Mapping[str, Any], problem: str) -> None:
        self.left_out.update(name for name in row if name not in self.columns and row[name] is not None)
        values = [row.get(name) for name in self.columns] + [answer.get(name) for name in self._answers]
        self._table.writerow([self._cell(value) for value in [*values, problem]])

    def _apart(self, name: str, row: Mapping[str, Any]) -> str:
        """Return another name for a column of the prediction, if the table has that one already."""
        return f"{name} (segue)" if name in self.columns or name in row else name

    def _cell(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False, default=str)
        text = str(value)
        if self.escape and not isinstance(value, int | float):
            safe = without_formula(text)
            self.escaped += safe != text
            return safe
        return text
