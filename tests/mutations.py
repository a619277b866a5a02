"""Damage to files, drawn from a seed: flipped bits, cut, longer, exchanged and missing files, exchanged JSON values."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Files = dict[Path, bytes]


@contextmanager
def damaged(folder: Path, chance: random.Random) -> Iterator[str]:
    """The folder with one thing changed in its files, which is named; afterwards they are as before."""
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    changed: dict[Path, bytes | None] = {}
    while not changed:
        way = chance.choice(WAYS)
        changed = {path: data for path, data in way(files, chance).items() if data != files[path]}
    try:
        for path, data in changed.items():
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)
        yield f"{way.__name__} of {', '.join(path.name for path in changed)}"
    finally:
        for path in changed:
            path.write_bytes(files[path])


def _one(files: Files, chance: random.Random) -> tuple[Path, bytes]:
    path = chance.choice([path for path, data in files.items() if data])
    return path, files[path]


def flipped_bit(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    path, data = _one(files, chance)
    place = chance.randrange(len(data))
    return {path: data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]}


def overwritten_block(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    path, data = _one(files, chance)
    start = chance.randrange(len(data))
    block = data[start : start + chance.randint(1, 64)]
    new = bytes(len(block)) if chance.random() < 0.5 else chance.randbytes(len(block))
    return {path: data[:start] + new + data[start + len(block) :]}


def exchanged_blocks(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    path, data = _one(files, chance)
    size = chance.randint(1, 16)
    first, second = sorted(chance.randrange(max(1, len(data) - size)) for _ in range(2))
    if second < first + size:
        return {}
    middle, after = data[first + size : second], data[second + size :]
    return {path: data[:first] + data[second : second + size] + middle + data[first : first + size] + after}


def truncation(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    path, data = _one(files, chance)
    return {path: data[: chance.randrange(len(data))]}


def longer_file(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    path, data = _one(files, chance)
    return {path: data + chance.choice([b"\0", b"\n", chance.randbytes(chance.randint(1, 9))])}


def missing_file(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    return {_one(files, chance)[0]: None}


def exchanged_files(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    """Two files of one kind exchanged, such as two shards, where there are some."""
    path, data = _one(files, chance)
    alike = [other for other in files if other.suffix == path.suffix and other != path]
    if not alike:
        return {}
    other = chance.choice(alike)
    return {path: files[other], other: data}


def exchanged_values(files: Files, chance: random.Random) -> dict[Path, bytes | None]:
    """Two values of a JSON file, or one that is another, twice the same or gone."""
    readable = [path for path in files if path.suffix == ".json"]
    if not readable:
        return {}
    path = chance.choice(readable)
    content = json.loads(files[path])
    places = list(_places(content))
    (where, key), (other, other_key) = chance.choice(places), chance.choice(places)
    match chance.randrange(4):
        case 0:
            where[key], other[other_key] = other[other_key], where[key]
        case 1:
            where[key] = other[other_key]
        case 2 if isinstance(where, dict):
            del where[key]
        case _:
            old = where[key]
            where[key] = not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else [old]
    try:
        return {path: json.dumps(content).encode()}
    except ValueError:  # a value was put inside itself
        return {}


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    for key in content if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


WAYS: list[Callable[[Files, random.Random], dict[Path, bytes | None]]] = [
    flipped_bit,
    flipped_bit,
    overwritten_block,
    exchanged_blocks,
    truncation,
    longer_file,
    missing_file,
    exchanged_files,
    exchanged_values,
]
