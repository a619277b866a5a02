"""A saved session is whole or refused: damage, other versions, and a disk without room."""

import json
import random
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save_file

from segue.checkpoint.safetensors_files import SafetensorsFile
from segue.errors import CheckpointError
from segue.infer.sampling import SamplingSettings
from segue.infer.saved_session import sealed
from segue.infer.session import Session
from tests.infer.test_session import TEXT, session
from tests.mutations import damaged


def writing(name: str) -> Session:
    """A session with all that can be saved: a memory, a state, and a token that is not read yet."""
    one = session(name)
    one.feed(TEXT)
    for _ in zip(range(3), one.write(max_tokens=9, sampling=SamplingSettings(seed=4)), strict=False):
        pass
    return one


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["xl", "gpt"])
def test_damage_is_noticed(name: str, count: int, tmp_path: Path) -> None:
    one, chance = writing(name), random.Random(count)
    file = tmp_path / "a.session"
    one.save(file)
    before = one.fork().score("ab中").log_probability
    for _ in range(count):
        with damaged(tmp_path, chance), pytest.raises(CheckpointError):
            one.load(file)
    assert one.fork().score("ab中").log_probability == before
    one.load(file)
    assert one.score("ab中").log_probability == before


def test_the_same_session_gives_the_same_bytes(tmp_path: Path) -> None:
    one, files = writing("xl"), [tmp_path / f"{number}.session" for number in range(8)]
    for file in files:
        one.save(file)
    assert len({file.read_bytes() for file in files}) == 1


def test_values_of_the_header_cannot_be_exchanged(tmp_path: Path) -> None:
    """Not even those that say the same with other bytes: the whole file is covered."""
    one, file = writing("xl"), tmp_path / "session"
    one.save(file)
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    for change in ({"count": "7"}, {"sha256": "0" * 64}, {"sha256": "\ud800" * 64}, {"sha256": ""}, {"more": "x"}):
        text = json.dumps(header | {"__metadata__": header["__metadata__"] | change}).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
        with pytest.raises(CheckpointError, match="must match its own sha256"):
            one.load(file)


def test_sessions_without_a_checksum_say_what_to_do(tmp_path: Path) -> None:
    one, file = writing("xl"), tmp_path / "session"
    one.save(file)
    metadata = dict(SafetensorsFile(file).metadata) | {"format": "segue-session-1"}
    del metadata["sha256"]
    save_file(load(file.read_bytes()), file, metadata=metadata)
    with pytest.raises(CheckpointError, match=r"earlier version of segue saved without one.*Feed its text"):
        one.load(file)


def test_what_does_not_fit_is_refused_with_a_checksum_that_does(tmp_path: Path) -> None:
    one, file = writing("xl"), tmp_path / "session"
    one.save(file)
    metadata, tensors = dict(SafetensorsFile(file).metadata), load(file.read_bytes())

    def refuse(changed: dict[str, torch.Tensor], notes: dict[str, str]) -> None:
        file.write_bytes(b"".join(sealed(tensors | changed, metadata | notes)))
        with pytest.raises(CheckpointError, match="complete saved session"):
            one.load(file)

    for name, value in (
        ("valid", tensors["valid"][:, 1:]),
        ("key", tensors["key"].float()),
        ("recent", torch.tensor([10**6])),
        ("hidden", torch.zeros(1, 3, dtype=torch.float64)),
    ):
        refuse({name: value.contiguous()}, {})
    for text in ("[]", '{"text": 1, "read": 0, "given": 0}', "{"):
        refuse({}, {"text": text})
    file.write_bytes(b"".join(sealed(tensors, metadata)))
    one.load(file)


def test_a_full_disk_leaves_the_file_of_before(tmp_path: Path) -> None:
    one, file = writing("xl"), tmp_path / "session"
    one.save(file)
    whole = file.read_bytes()
    one.feed("ab")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="session must be writable; got File too large"):
            one.save(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["session"]
