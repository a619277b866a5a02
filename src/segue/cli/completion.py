"""Shell completion of model names, preset names and paths, without loading torch."""

import glob
import os


def complete_model(incomplete: str) -> list[str]:
    """Return packaged models and paths."""
    from segue.api.catalogue import packaged_names

    return [name for name in packaged_names() if name.startswith(incomplete)] + paths(incomplete)


def complete_config(incomplete: str) -> list[str]:
    """Return presets and paths."""
    from segue.api.catalogue import config_names

    return [name for name in config_names() if name.startswith(incomplete)] + paths(incomplete)


def complete_name(incomplete: str) -> list[str]:
    """Return all names that `segue models` lists."""
    from segue.api.catalogue import all_names

    return [name for name in all_names() if name.startswith(incomplete)]


def paths(incomplete: str) -> list[str]:
    """Return files and folders with this prefix; folders end in a slash."""
    found = sorted(glob.glob(f"{glob.escape(incomplete)}*"))
    return [f"{path}{os.sep}" if os.path.isdir(path) else path for path in found]
