"""Conversion of tables to examples: columns are found, rows converted, and unusable rows counted by the rule they
break."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from segue.data.problems import MEANING
from segue.data.tables import Row, Table, find_column
from segue.errors import DataError
from segue.tasks.task import Example, Task, TaskKind, UnusableRowError

NumberedRow = tuple[int, Row]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of one table."""

    table: Table
    examples: list[Example]
    unusable: dict[str, tuple[int, int]]
    """Unusable rows by the rule they break: their count, and the number of the first."""

    def problems(self) -> list[str]:
        """Return descriptions of corrections made in the table, and of rows that the task could not use."""
        mended = self.table.problems
        return [
            f"{self.table.source}: {count:,} {MEANING[kind]}, first {mended.first[kind]}"
            for kind, count in mended.counts.items()
        ] + [
            f"{self.table.source}: left out for {rule}: {count:,}, first {self.table.place(first)}"
            for rule, (count, first) in self.unusable.items()
        ]


def column_names(kind: TaskKind, table: Table, chosen: Mapping[str, str], *, labelled: bool) -> dict[str, str]:
    """Return the column of the table for each role. `chosen` are those that the user named."""
    known = [column.role for column in kind.columns]
    for role in chosen:
        if role not in known:
            raise DataError(f"a column of task {kind.name} is one of {', '.join(known)}; got {role!r}. Check the name.")
    found: dict[str, str] = {}
    for column in kind.columns:
        if column.answer and not labelled:
            continue
        wanted = chosen.get(column.role)
        free = [name for name in table.columns if name not in found.values()]
        if column.optional and wanted is None and not {n.lower() for n in free} & set(column.names):
            continue
        found[column.role] = find_column(
            free, wanted, column.names, source=table.source, option=f"--column {column.role}=NAME"
        )
    return found


def rows_with_roles(table: Table, names: Mapping[str, str]) -> Iterator[NumberedRow]:
    """Yield the rows with the task's roles as keys."""
    for number, row in table:
        yield number, {role: row.get(name) for role, name in names.items()}


def gathered(kind: TaskKind, rows: Iterable[NumberedRow]) -> list[NumberedRow]:
    """Return the rows for training and evaluation: one for each example."""
    return list(rows if kind.gather is None else kind.gather(list(rows)))


def understand(task: Task, table: Table, rows: Iterable[NumberedRow], *, labelled: bool) -> Examples:
    """Convert every row of the table to an example; errors name the row."""
    examples: list[Example] = []
    unusable: dict[str, tuple[int, int]] = {}
    for number, row in rows:
        try:
            examples.append(task.example(number, row, labelled=labelled))
        except UnusableRowError as error:
            count, first = unusable.get(str(error), (0, number))
            unusable[str(error)] = (count + 1, first)
        except DataError as error:
            raise DataError(f"{table.place(number)}: {error}") from None
    if not examples:
        reasons = "; ".join(f"{count} with {rule}" for rule, (count, _) in unusable.items()) or "no rows"
        raise DataError(f"{table.source} must have examples; got {reasons}. Check the columns.")
    return Examples(table=table, examples=examples, unusable=unusable)


def split_off(
    examples: Sequence[Example], keys: Sequence[Hashable], *, share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Return the examples without a random part, and that part, each in its order. Examples with the same key go
    together, unless all have the same."""
    count = max(1, round(len(examples) * share))
    if len(examples) < 2:
        raise DataError("holding out validation examples needs at least two examples; got one. Give --valid FILE.")
    groups: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(key, []).append(number)
    order = np.random.default_rng(seed).permutation(len(examples)).tolist()
    apart: set[int] = set()
    for number in order:
        group = groups[keys[number]]
        if number not in apart and len(apart) + len(group) <= count:
            apart.update(group)
    if not apart:
        apart.update(order[:count])
    return (
        [example for number, example in enumerate(examples) if number not in apart],
        [example for number, example in enumerate(examples) if number in apart],
    )
