"""Every limit and rule of a monitor. Each can be set: `segue monitor run MONITOR --set false_alarms=1`."""

from typing import Annotated

from pydantic import Field

from segue.apps.monitor.stream import Rules
from segue.config import Section
from segue.serve.settings import Bytes, Count, Seconds


class MonitorSettings(Section):
    """When alarms are raised, and what others may send."""

    # ---------------------------------------------------------------------------------------------------------- alarms
    false_alarms: Annotated[float, Field(gt=0, le=1000)] = 2.0
    """Budget: false alarms of a subject in 30 days."""
    cool_down: Annotated[float, Field(ge=0, le=10**7)] = 86_400.0
    """Seconds after an alarm in which its subject raises no other; related alarms of that time are merged."""
    lateness: Annotated[float, Field(ge=0, le=10**7)] = 3600.0
    """Seconds that a text may come later than others with later times, and still be judged."""
    watch_pairs: bool = False
    """Whether each entity is watched within each topic too, where the two together have texts enough. Each pair has a
    false-alarm budget of its own."""
    near_texts: Count = 20_000
    """Texts that a new one is compared with, to see whether it nearly repeats one."""

    find_names: str = "rule-en"
    """How names that are not in the list are found, to be proposed: rule-en (English, by capital letters), entities-zh
    (the packaged tagger of Chinese) or the folder of a tagger of your own, en=FOLDER for one language; several with
    commas between them, empty for none. A tagger takes some hundredths of a second for each text without a known
    entity."""

    # -------------------------------------------------------------------------------------------------------- requests
    max_body: Bytes = 5_000_000
    """Bytes of a request."""
    max_texts: Count = 1000
    """Texts of a request."""
    max_comment: Count = 4000
    """Characters of a comment."""
    max_streams: Count = 200
    """Pages that wait for what is new."""
    max_export: Count = 1_000_000
    """Rows of an export."""
    rate: Annotated[float, Field(gt=0, le=10**6)] = 5.0
    """Requests a second of an address without a key of an agent,"""
    burst: Count = 60
    """and how many it may make at once."""
    trusted_proxy: str = ""
    """Address of a proxy whose X-Forwarded-For is believed."""
    body_timeout: Seconds = 30.0
    """Seconds for a request to arrive."""
    header_timeout: Seconds = 15.0
    """Seconds for the header of a request to arrive."""
    write_timeout: Seconds = 30.0
    """Seconds that a page may take no event before it counts as gone."""
    ping: Seconds = 15.0
    """Seconds of silence before a comment shows that a stream is alive."""
    max_connections: Count = 1000
    """Open connections."""
    max_queue: Count = 20
    """Requests with texts that wait; those above it are refused with 429."""
    drain: Annotated[float, Field(ge=0, le=10**6)] = 10.0
    """Seconds that requests have to end after SIGTERM."""

    def rules(self) -> Rules:
        """What the stream goes by."""
        return Rules(
            lateness=self.lateness,
            budget=self.false_alarms,
            cool_down=self.cool_down,
            near_texts=self.near_texts,
            pairs=self.watch_pairs,
            find_names=self.find_names,
        )
