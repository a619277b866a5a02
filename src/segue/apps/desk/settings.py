"""Settings of a running desk, changed with `segue desk run DESK --set max_message=500`."""

from typing import Annotated

from pydantic import Field

from segue.apps.desk.decide import ANGER_EN, ANGER_ZH
from segue.config import Section
from segue.serve.settings import Bytes, Count, Seconds

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Cue = Annotated[str, Field(max_length=80, pattern=r"[^\s*]")]
Cues = Annotated[tuple[Cue, ...], Field(strict=False, max_length=500)]


class DeskSettings(Section):
    """Limits on requests, rules for handing over to a person, and replies to small talk."""

    # ------------------------------------------------------------------------------------------------------- requests
    max_body: Bytes = 100_000
    """Maximum size of a request in bytes."""
    max_message: Count = 2000
    """Maximum number of characters in a message of a visitor."""
    max_reply: Count = 20_000
    """Maximum number of characters in a message of an agent."""
    max_messages: Count = 500
    """Maximum number of messages in a conversation."""
    max_open: Count = 20
    """Maximum number of open conversations per person."""
    idle: Seconds = 3600.0
    """Seconds without a message after which a conversation may be closed to make room for a new one of its person."""
    max_conversations: Count = 1_000_000
    """Maximum number of conversations of the desk; further ones are refused with 429."""
    max_streams: Count = 2000
    """Maximum number of visitor pages waiting for messages."""
    max_streams_of_address: Count = 50
    """Maximum number of visitor pages waiting for messages from one address."""
    max_agent_streams: Count = 200
    """Maximum number of agent pages waiting for messages."""
    rate: Annotated[float, Field(gt=0, le=10**6)] = 2.0
    """Rate limit for visitors: requests per second from one address."""
    burst: Count = 60
    """Maximum burst of requests above the rate limit."""
    trusted_proxy: str = ""
    """Address of a proxy whose X-Forwarded-For header is trusted; the last address in it is the visitor's."""
    body_timeout: Seconds = 15.0
    """Timeout in seconds for a request to arrive."""
    header_timeout: Seconds = 15.0
    """Timeout in seconds for the header of a request to arrive."""
    write_timeout: Seconds = 30.0
    """Timeout in seconds for a page to accept an event before it is considered closed."""
    ping: Seconds = 15.0
    """Seconds of silence before a keep-alive comment is sent on a stream."""
    max_connections: Count = 4000
    """Maximum number of open connections."""
    max_queue: Count = 200
    """Maximum number of questions waiting for the model; further ones are refused with 429."""
    drain: Annotated[float, Field(ge=0, le=10**6)] = 10.0
    """Seconds for open requests to finish after SIGTERM."""
    embed: str = ""
    """Sites that may embed the page in a frame, separated by spaces: "https://shop.example"."""

    # ------------------------------------------------------------------------------------------------------- hand-over
    failures: Count = 2
    """Number of consecutive unanswered questions after which a person takes over."""
    suggest: bool = True
    """Whether to ask "did you mean" before a person takes over."""
    anger_en: Cues = ANGER_EN
    """Cues of anger in English, after which a person takes over: words, where * stands for the rest of a word."""
    anger_zh: Cues = ANGER_ZH
    """Cues of anger in Chinese: runs of characters."""
    anger_shouting: bool = True
    """Whether a message in capital letters with "!!" counts as angry."""
    generate: str = ""
    """Folder or name of a language model, or of one fine-tuned for `generate`, to write a reply along with "did you
    mean". The reply is marked as machine-written and shown with its sources. Default: none."""
    max_generated: Count = 60
    """Maximum number of tokens in a generated reply; no other question is answered while it is written."""

    # ------------------------------------------------------------------------------------------------------ small talk
    greeting_en: Text = "Hello! How can I help you?"
    """Reply to a greeting, in English."""
    greeting_zh: Text = "您好！请问有什么可以帮您？"
    """Reply to a greeting, in Chinese."""
    thanks_en: Text = "Glad to help. Is there anything else I can do for you?"
    """Reply to thanks, in English."""
    thanks_zh: Text = "很高兴能帮到您。请问还有其他问题吗？"
    """Reply to thanks, in Chinese."""
    goodbye_en: Text = "Goodbye, and have a nice day!"
    """Reply to a goodbye, in English."""
    goodbye_zh: Text = "再见，祝您生活愉快！"
    """Reply to a goodbye, in Chinese."""
