"""Build hook that compiles the native kernels at installation. Without a C++ compiler segue works without them, more
slowly.

CXX is the compiler, CXXFLAGS are additional flags. SEGUE_NO_MODELS=1 excludes the packaged models.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "segue", "model", "kernels")
MODELS = Path("src", "segue", "models")
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"]


class NativeKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling hook that builds libnative.so beside its sources and adds it to the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("SEGUE_NO_MODELS", "") not in ("", "0"):
            self.build_config.target_config.setdefault("exclude", []).append(f"/{MODELS.as_posix()}")
        folder = Path(self.root, FOLDER)
        problem = build(folder, folder / "libnative.so")
        if problem is not None:
            self.app.display_warning(f"segue: no native kernels, attention will be slower ({problem})")
            return
        build_data["artifacts"].append(str(FOLDER / "libnative.so"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def source_hash(folder: Path) -> str:
    """Return the sha256 of all sources, which is compiled into the library to identify them."""
    digest = hashlib.sha256()
    for source in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def build(folder: Path, library: Path) -> str | None:
    """Compile the sources of a folder, atomically. Return None, or the problem; the library of an earlier build is then
    removed."""
    vectors = ["-mavx2", "-mfma"] if platform.machine().lower() in {"x86_64", "amd64"} else []
    sources = [str(source) for source in sorted(folder.glob("*.cpp"))]
    digest = source_hash(folder)
    with tempfile.TemporaryDirectory(dir=library.parent) as place:
        made = Path(place, library.name)
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        own = shlex.split(os.environ.get("CXXFLAGS", ""))
        command = [*compiler, *FLAGS, *vectors, *own, f'-DSEGUE_SOURCE="{digest}"', *sources, "-o", str(made)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = f"{compiler[0]}: {error}"
        else:
            if run.returncode == 0:
                os.replace(made, library)
                return None
            problem = run.stderr.strip()[-500:] or f"{compiler[0]} ended with {run.returncode}"
    library.unlink(missing_ok=True)
    return problem
