"""What a shell offers after the TAB key: names of models and presets, and paths. No torch is loaded for it."""

import glob
import os


def complete_model(incomplete: str) -> list[str]:
    """Packaged models, and paths."""
    from segue.checkpoint.packaged import packaged_models

    return [name for name in sorted(packaged_models()) if name.startswith(incomplete)] + paths(incomplete)


def complete_config(incomplete: str) -> list[str]:
    """Presets, and paths."""
    from segue.config.presets import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)] + paths(incomplete)


def complete_name(incomplete: str) -> list[str]:
    """All that `segue models` lists."""
    from segue.checkpoint.packaged import packaged_models
    from segue.config.presets import preset_names
    from segue.model.named import named_models

    names = {*packaged_models(), *named_models(), *preset_names()}
    return sorted(name for name in names if name.startswith(incomplete))


def paths(incomplete: str) -> list[str]:
    """Files and folders that begin so; folders end in a slash."""
    found = sorted(glob.glob(f"{glob.escape(incomplete)}*"))
    return [f"{path}{os.sep}" if os.path.isdir(path) else path for path in found]
