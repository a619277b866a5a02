"""The operator's configuration of sources, mail and prices in TOML; paths and addresses never come from data.

[[source]]
name = "wire"
kind = "feed"                 # RSS or Atom; json: a list of objects; file, folder, stdin
url = "https://news.example/rss"
every = 300

[[source]]
name = "posts"
kind = "folder"
path = "posts"                # beside this file
pattern = "*.jsonl"
columns = {text = "body"}
zone = "Asia/Shanghai"

[mail]
host = "mail.example"
sender = "monitor@example.com"
to = ["desk@example.com"]

[prices]
path = "prices.csv"           # date, symbol, close
"""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from segue.apps.cells import zone_of
from segue.apps.monitor.texts import COLUMNS, Rows
from segue.apps.webhooks import check_address
from segue.checkpoint.files import read_small
from segue.config import Section, settings
from segue.errors import ConfigError

LARGEST = 1 << 20
Kind = Literal["file", "folder", "feed", "json", "stdin"]
LONGEST_NAME = 64
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[\w.-]+$")]
POSTED = "post"
"""Name of the source of texts that were sent to the POST route."""


class Source(Section):
    """A source of texts."""

    name: Name
    """Unique name."""
    kind: Kind
    path: str = ""
    """File or folder, relative to the configuration file."""
    pattern: str = "*"
    """Pattern of the file names in a folder."""
    url: str = ""
    """Address of a feed or of JSON."""
    every: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    """Seconds between requests to an address; growing files are checked every two seconds."""
    follow: bool = True
    """Whether to wait for more when everything is read."""
    encoding: str = "utf-8"
    zone: str = "UTC"
    """Time zone of times without one."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Columns by role (text, title, time, author, id), if column names do not match."""

    def rows(self) -> Rows:
        """Return how its rows are interpreted."""
        return Rows(source=self.name, columns=self.columns, zone=zone_of(self.zone))


class Mail(Section):
    """Mail server and addresses for alarms. The password is in the environment variable SEGUE_MAIL_PASSWORD."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65_535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    """Encryption; "none" is neither encrypted nor authenticated, for a server on this machine."""
    user: str = ""
    sender: Annotated[str, Field(min_length=3, max_length=200, pattern=r"^[^\s@]+@[^\s@]+$")]
    to: Annotated[list[Annotated[str, Field(pattern=r"^[^\s@]+@[^\s@]+$")]], Field(min_length=1, max_length=50)]


class Prices(Section):
    """A table of prices with the columns date, symbol and close."""

    path: Annotated[str, Field(min_length=1)]


class Listed(Section):
    """The whole configuration."""

    source: list[Source] = Field(default_factory=list)
    mail: Mail | None = None
    prices: Prices | None = None


def source_name(path: Path) -> str:
    """Return the name of a file or folder in the form of a source name, with other characters replaced, and cut.

    >>> source_name(Path("in/my texts (1).csv"))
    'my-texts-1-.csv'
    """
    return re.sub(r"[^\w.-]+", "-", path.absolute().name)[-LONGEST_NAME:] or "files"


def read_sources(path: Path) -> Listed:
    """Read and validate the configuration; its paths are resolved against its folder."""
    try:
        values = tomllib.loads(read_small(path, limit=LARGEST).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} must be a list of sources in TOML; got {str(error)[:120]}. Correct it.") from None
    found = settings(Listed, values)
    names: set[str] = set()
    for one in found.source:
        _check(one, path)
        if one.name in names or one.name == POSTED:
            raise ConfigError(f"{path}: every source must have a name of its own; got {one.name!r} again. Rename it.")
        names.add(one.name)
    placed = [
        one.model_copy(update={"path": str(path.parent / one.path)}) if one.kind in ("file", "folder") else one
        for one in found.source
    ]
    prices = None if found.prices is None else Prices(path=str(path.parent / found.prices.path))
    return found.model_copy(update={"source": placed, "prices": prices})


def check_encoding(name: str, where: str) -> None:
    """Raise ConfigError unless Python knows an encoding, and line ends are encoded as in ASCII."""
    try:
        ends = "\n".encode(name)
    except (LookupError, ValueError):
        raise ConfigError(
            f"{where} must have an encoding that Python knows; got {name!r}. Use utf-8 or gb18030."
        ) from None
    if ends != b"\n":
        raise ConfigError(
            f"{where} must have an encoding in which a line ends with one byte; got {name!r}. Save the file as UTF-8."
        )


def _check(one: Source, path: Path) -> None:
    where = f"{path}, source {one.name!r},"
    if one.kind in ("file", "folder") and not one.path:
        raise ConfigError(f"{where} must have a path; got none. Name the {one.kind}.")
    if one.kind == "folder" and (not one.pattern or Path(one.pattern).is_absolute() or ".." in Path(one.pattern).parts):
        raise ConfigError(
            f"{where} must have a pattern of file names inside of its folder; got {one.pattern[:80]!r}. Use *.jsonl, "
            "for example."
        )
    if one.kind in ("feed", "json"):
        check_address(one.url, what=f"{where} url")
    if unknown := sorted(set(one.columns) - set(COLUMNS)):
        raise ConfigError(f"{where} must name columns by {', '.join(COLUMNS)}; got {unknown[0]!r}. Use one of them.")
    zone_of(one.zone)
    check_encoding(one.encoding, where)
