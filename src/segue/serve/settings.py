"""Every limit and time of the server. Each can be set: `segue serve MODEL --set max_tokens=1000`."""

from typing import Annotated

from pydantic import Field

from segue.config import Section

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=1, le=2**50)]
Seconds = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]


class ServeSettings(Section):
    """What the server allows, and when it does what."""

    # -------------------------------------------------------------------------------------------------- one request
    max_body: Bytes = 2_000_000
    """Bytes of a request in JSON."""
    max_feed: Bytes = 2**30
    """Bytes of one text that is fed to a session."""
    max_prompt_tokens: Count = 1_000_000
    """Tokens of a prompt, or of a text to score."""
    max_echo_tokens: Count = 20_000
    """Tokens of a prompt that is given back with log-probabilities, or of a text that a session scores."""
    max_tokens: Count = 4096
    """Tokens that a request may write."""
    max_n: Count = 64
    """Texts that a request may write: its prompts, times the texts for each."""
    max_logprobs: Count = 20
    """Likeliest tokens reported with each token."""
    max_stop: Count = 16
    """Stop strings, and texts to choose from."""
    max_stop_characters: Count = 1000
    """Characters of each of them."""
    max_logit_bias: Count = 1024
    """Tokens with a bias."""
    max_inputs: Count = 1024
    """Texts to classify, to embed, to rank, in one request."""
    max_input_tokens: Count = 100_000
    """Tokens of one of these texts."""
    max_explain_tokens: Count = 512
    """Tokens of a text to explain."""
    body_timeout: Seconds = 30.0
    """Seconds for a request in JSON to arrive, and between two parts of a text that is fed."""
    header_timeout: Seconds = 20.0
    """Seconds for the header of a request to arrive."""
    write_timeout: Seconds = 60.0
    """Seconds a client may take no text of a stream before it counts as gone."""
    ping: Seconds = 15.0
    """Seconds of silence in a stream before a comment shows that it is alive."""

    # ------------------------------------------------------------------------------------------------ all together
    max_queue: Count = 256
    """Requests that compute or wait; those above it are refused with 429."""
    max_queue_per_tenant: Count = 128
    """The same for one tenant."""
    max_connections: Count = 4000
    """Open connections; those above it are refused with 503."""
    max_rows: Count = 32
    """Texts of one model that are written at the same time; more take turns."""
    slice_tokens: Annotated[int, Field(ge=16, le=4096)] = 128
    """Tokens of a prompt that are read between two steps of those who write."""
    turn_tokens: Count = 64
    """Tokens that a text may be written on while others wait for a place."""
    batch_window: Annotated[float, Field(ge=0, le=1)] = 0.005
    """Seconds that texts to classify or to embed wait for others to be read together with."""
    batch_rows: Count = 32
    """Number of encoder requests that are batched together."""
    batch_tokens: Count = 8192
    """Number of their tokens that are batched together."""
    drain: Annotated[float, Field(ge=0, le=10**6)] = 30.0
    """Seconds that requests have to end after SIGTERM."""

    # --------------------------------------------------------------------------------------------------- sessions
    max_sessions: Count = 10_000
    """Sessions of a tenant."""
    max_session_bytes: Bytes = 20 * 2**30
    """Bytes of all sessions of a tenant."""
    session_memory: Bytes = 2 * 2**30
    """Bytes of sessions in memory, all tenants together; those that were idle for longest go to disk."""
    save_after: Seconds = 2.0
    """Seconds after its last use when a session is written to disk."""
    session_lifetime: Seconds = 7 * 86400.0
    """Seconds without use after which a session is deleted. Time in which the server does not run does not count."""
    lease: Annotated[float, Field(ge=0.2, le=3600)] = 30.0
    """Seconds for which a session in Redis is busy after the server that used it was killed."""
