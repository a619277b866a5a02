"""The set-up builds the native kernels where it can, and does without them where it cannot."""

import ctypes
import shutil
import sys
from pathlib import Path

import pytest

from segue.model.kernels import library

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from hatch_build import build  # noqa: E402


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with copies of the sources."""
    for path in [*library.SOURCES.glob("*.cpp"), *library.SOURCES.glob("*.h")]:
        shutil.copy(path, tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler here")
def test_a_compiler_makes_a_library_that_knows_its_source(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("CXXFLAGS", "-O0")  # four times as quick
    made = sources / "libnative.so"
    assert build(sources, made) is None
    loaded = ctypes.CDLL(str(made))
    loaded.segue_source.restype = ctypes.c_char_p
    assert loaded.segue_source().decode() == library.source_hash()
    assert sorted(path.name for path in sources.iterdir()) == [
        "cross_entropy.cpp",
        "lanes.h",
        "libnative.so",
        "native.cpp",
        "step.cpp",
    ]


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_there_is_no_library(sources: Path, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler)
    made = sources / "libnative.so"
    made.write_text("of an earlier build")
    assert compiler in str(build(sources, made))
    assert not made.exists()


def test_a_library_of_other_sources_is_not_used(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not library.available():
        pytest.skip("the native library is not built here")
    source = sources / "lanes.h"
    source.write_text(source.read_text(encoding="utf-8") + "// changed\n", encoding="utf-8")
    monkeypatch.setattr(library, "SOURCES", sources)
    library.library.cache_clear()
    try:
        with pytest.warns(UserWarning, match="another version of its sources"):
            assert not library.available()
    finally:
        monkeypatch.undo()
        library.library.cache_clear()
    assert library.available()
