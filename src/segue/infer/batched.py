"""Batched generation: several sessions of one model generate together, and the weights are read once for all.

In: sessions in any state. Out: the tokens of each, as they are generated. The result is what each would have generated
alone with the same settings, up to rounding.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from segue.errors import DataError
from segue.infer.generation import GeneratedToken, Generation
from segue.infer.sampling import SamplingSettings
from segue.infer.session import Session
from segue.infer.token_stream import TokenStream
from segue.infer.turns import Turn
from segue.model.cache import Cache


def write_batched(
    sessions: Sequence[Session],
    *,
    max_tokens: int = 200,
    sampling: SamplingSettings | Sequence[SamplingSettings] | None = None,
    stop: Sequence[str] = (),
) -> Iterator[tuple[int, GeneratedToken]]:
    """Yield the index of a session and a token that it generated, until all have ended. Settings may differ by session:
    with equal seeds, equal texts continue equally.

    While it runs, the sessions refuse other calls. The loop may be left early, as with one session.
    """
    if not sessions:
        raise DataError("batched generation needs at least one session; got none. Open one.")
    if len({id(session) for session in sessions}) != len(sessions):
        raise DataError("sessions that generate together must be distinct; got one twice. Fork it.")
    if not all(session.shares_weights_with(sessions[0]) for session in sessions):
        raise DataError(
            "sessions that generate together must share their weights; got different models. Fork them from one "
            "session."
        )
    settings = list(sampling) if isinstance(sampling, Sequence) else [sampling] * len(sessions)
    if len(settings) != len(sessions):
        raise DataError(
            f"sampling must be one setting, or one per session; got {len(settings)} for {len(sessions)}. Give one per "
            "session."
        )
    generations = [
        session.generation(max_tokens=max_tokens, sampling=one, stop=stop)
        for session, one in zip(sessions, settings, strict=True)
    ]
    turn = Turn(batched=True)
    try:
        streams = [session.ready(turn) for session in sessions]
    except BaseException:
        turn.over = True
        raise
    return _write(streams, generations, turn)


def _write(
    streams: list[TokenStream], generations: list[Generation], turn: Turn
) -> Iterator[tuple[int, GeneratedToken]]:
    for stream, generation in zip(streams, generations, strict=True):
        generation.begin(stream.recent)
    group = _Group(streams, list(range(len(streams))))
    try:
        while group.numbers:
            yield from group.put(generations)
            for number in group.numbers:
                if generations[number].done and (rest := generations[number].finish()) is not None:
                    yield number, rest
            group.advance([number for number in group.numbers if not generations[number].done])
    finally:
        group.part()
        turn.over = True


class _Group:
    """Streams whose caches are the rows of one cache, while they advance together."""

    def __init__(self, streams: list[TokenStream], numbers: list[int]) -> None:
        self._streams, self.numbers = streams, numbers
        self._cache: Cache
        self._hidden_BD: Tensor
        self._gather()

    def put(self, generations: list[Generation]) -> list[tuple[int, GeneratedToken]]:
        """Generate a token of each stream. All are drawn before any is returned, so an early end leaves all alike."""
        logits_BV = self._streams[0].streamer.logits(self._hidden_BD)
        return [
            (number, generations[number].put(self._streams[number], logits_BV[row]))
            for row, number in enumerate(self.numbers)
        ]

    def advance(self, going: list[int]) -> None:
        """Let the continuing streams read their last token. The others leave the group, and read theirs later."""
        full = [number for number in going if self._streams[number].window_is_full]
        if full or len(going) < len(self.numbers):
            self.part()
            for number in full:
                self._streams[number].begin_window()
            self.numbers = going
            if not going:
                return
            self._gather()
        streams = [self._streams[number] for number in self.numbers]
        ids_B1 = torch.tensor([stream.unread for stream in streams], device=self._hidden_BD.device)
        self._hidden_BD = streams[0].streamer.read(ids_B1, self._cache)[:, 0]
        for stream in streams:
            stream.note(stream.unread)

    def part(self) -> None:
        """Give each stream a separate cache again."""
        for row, number in enumerate(self.numbers):
            self._streams[number].cache = self._cache.select([row])
            self._streams[number].hidden_1D = self._hidden_BD[row : row + 1]

    def _gather(self) -> None:
        streams = [self._streams[number] for number in self.numbers]
        self._cache = Cache.join([stream.cache for stream in streams])
        states = [stream.hidden_1D for stream in streams if stream.hidden_1D is not None]
        assert len(states) == len(streams)
        self._hidden_BD = torch.cat(states)
