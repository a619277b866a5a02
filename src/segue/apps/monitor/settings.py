"""Rules and limits of a monitor, set with `segue monitor run MONITOR --set false_alarms=1`."""

from typing import Annotated

from pydantic import Field

from segue.apps.monitor.stream import Rules
from segue.config import PublicSection
from segue.serve.settings import Bytes, Count, Seconds


class MonitorSettings(PublicSection):
    """Rules for raising alarms, and limits on requests."""

    # ---------------------------------------------------------------------------------------------------------- alarms
    false_alarms: Annotated[float, Field(gt=0, le=1000)] = 2.0
    """Budget of false alarms per subject in 30 days."""
    cool_down: Annotated[float, Field(ge=0, le=10**7)] = 86_400.0
    """Seconds after an alarm during which its subject raises no other; related alarms in that time are merged."""
    lateness: Annotated[float, Field(ge=0, le=10**7)] = 3600.0
    """Maximum delay in seconds of a text that arrives out of order and is still judged."""
    watch_pairs: bool = False
    """Whether to watch each entity within each topic too, if the pair has enough texts. Each pair has a budget of false
    alarms of its own."""
    near_texts: Count = 20_000
    """Number of recent texts to compare a new one with, to detect near-duplicates."""

    find_names: str = "rule-en"
    """How to find names that are missing from the list: rule-en (English, by capital letters), entities-zh (the
    packaged tagger for Chinese) or the folder of your own tagger, en=FOLDER for one language; several are separated by
    commas, and an empty value turns the search off. A tagger takes some hundredths of a second per text that mentions
    no known entity."""

    # -------------------------------------------------------------------------------------------------------- requests
    max_body: Bytes = 5_000_000
    """Maximum size of a request in bytes."""
    max_texts: Count = 1000
    """Maximum number of texts in a request."""
    max_comment: Count = 4000
    """Maximum number of characters in a comment."""
    max_streams: Count = 200
    """Maximum number of pages waiting for updates."""
    max_export: Count = 1_000_000
    """Maximum number of rows in an export."""
    rate: Annotated[float, Field(gt=0, le=10**6)] = 5.0
    """Rate limit: requests per second from an address without an agent key."""
    burst: Count = 60
    """Maximum burst of requests above the rate limit."""
    trusted_proxy: str = ""
    """Address of a proxy whose X-Forwarded-For header is trusted."""
    body_timeout: Seconds = 30.0
    """Timeout in seconds for a request to arrive."""
    header_timeout: Seconds = 15.0
    """Timeout in seconds for the header of a request to arrive."""
    write_timeout: Seconds = 30.0
    """Timeout in seconds for a page to accept an event before it is considered closed."""
    ping: Seconds = 15.0
    """Seconds of silence before a keep-alive comment is sent on a stream."""
    max_connections: Count = 1000
    """Maximum number of open connections."""
    max_queue: Count = 20
    """Maximum number of waiting requests with texts; further ones are refused with 429."""
    drain: Annotated[float, Field(ge=0, le=10**6)] = 10.0
    """Seconds for open requests to finish after SIGTERM."""

    def rules(self) -> Rules:
        """The rules for the stream."""
        return Rules(
            lateness=self.lateness,
            budget=self.false_alarms,
            cool_down=self.cool_down,
            near_texts=self.near_texts,
            pairs=self.watch_pairs,
            find_names=self.find_names,
        )
