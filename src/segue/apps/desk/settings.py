"""Every limit and time of a desk. Each can be set: `segue desk run DESK --set max_message=500`."""

from typing import Annotated

from pydantic import Field

from segue.config import Section
from segue.serve.settings import Bytes, Count, Seconds


class DeskSettings(Section):
    """What visitors and agents may send, and when a person takes over."""

    # ------------------------------------------------------------------------------------------------------- requests
    max_body: Bytes = 100_000
    """Bytes of a request."""
    max_message: Count = 2000
    """Characters of a message of a visitor."""
    max_reply: Count = 20_000
    """Characters of a message of an agent."""
    max_messages: Count = 500
    """Messages of one conversation."""
    max_open: Count = 20
    """Conversations that a person may have open;"""
    idle: Seconds = 3600.0
    """those in which nothing was said for so many seconds are closed to make room for a new one."""
    max_conversations: Count = 1_000_000
    """Conversations of the desk; the oldest that are resolved can be deleted."""
    max_streams: Count = 2000
    """Pages of visitors that wait for messages,"""
    max_streams_of_address: Count = 50
    """how many of them may have the same address,"""
    max_agent_streams: Count = 200
    """and pages of agents that do."""
    rate: Annotated[float, Field(gt=0, le=10**6)] = 2.0
    """Requests a second of one address, of visitors,"""
    burst: Count = 60
    """and how many it may make at once."""
    trusted_proxy: str = ""
    """Address of a proxy whose X-Forwarded-For is believed: its last address is the visitor's."""
    body_timeout: Seconds = 15.0
    """Seconds for a request to arrive."""
    header_timeout: Seconds = 15.0
    """Seconds for the header of a request to arrive."""
    write_timeout: Seconds = 30.0
    """Seconds that a page may take no event before it counts as gone."""
    ping: Seconds = 15.0
    """Seconds of silence before a comment shows that a stream is alive."""
    max_connections: Count = 4000
    """Open connections."""
    max_queue: Count = 200
    """Questions that wait for the model; those above it are refused with 429."""
    drain: Annotated[float, Field(ge=0, le=10**6)] = 10.0
    """Seconds that requests have to end after SIGTERM."""
    embed: str = ""
    """Sites that may show the page in a frame, with a space between them: "https://shop.example"."""

    # ------------------------------------------------------------------------------------------------------- hand-over
    failures: Count = 2
    """Questions without an answer, one after the other, after which a person takes over."""
    suggest: bool = True
    """Whether "did you mean" is asked before a person takes over."""
    generate: str = ""
    """Folder or name of a language model, or of one fine-tuned for `generate`, that may write a reply of its own
    together with "did you mean". It is shown as written by a machine, with its sources. Default: none is written."""
    max_generated: Count = 60
    """Tokens that a language model may write; each takes time in which no other question is answered."""
