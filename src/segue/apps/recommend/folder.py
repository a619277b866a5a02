"""A recommender on disk.

    REC/recommend.json        what it is, and the name of the model in use
    REC/models/0001/          a model: model.json, items.jsonl, tensors.safetensors, report.html and .md
    REC/recommend.sqlite      events, items, sessions
    REC/rules.json            rules of the house, if there are any

A model folder is whole or not there, and is never changed. Another one is put into use by one small file.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segue.apps.desk.encoder import Encoder, Reader, Whitening
from segue.apps.recommend.features import Features
from segue.apps.recommend.final import final_of, final_tensors
from segue.apps.recommend.model import Recommender
from segue.apps.recommend.network import EventNetwork
from segue.apps.recommend.tables import Item
from segue.checkpoint.files import read_small, verify
from segue.checkpoint.folder import read_tensors, write_tensors
from segue.config import model_config
from segue.errors import CheckpointError, SegueError
from segue.files import write_file
from segue.infer.text_model import load_text_model

RECOMMEND, MODEL, ITEMS, TENSORS, MODELS = (
    "recommend.json",
    "model.json",
    "items.jsonl",
    "tensors.safetensors",
    "models",
)
FORMAT = 1
LARGEST = 1 << 24
"""Bytes of a small file."""


def current_model(folder: Path) -> str:
    """Name of the model in use."""
    try:
        found = json.loads(read_small(folder / RECOMMEND, limit=LARGEST))
        name = str(found["model"])
        if found["format"] != FORMAT or not name.isdigit():
            raise ValueError
    except (CheckpointError, OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{folder} must be a recommender of this version; got another folder, or none. Make one with segue "
            "recommend learn."
        ) from None
    return name


def use_model(folder: Path, name: str) -> None:
    """Puts a model into use, from the next start or the next look at it on."""
    write_file(folder / RECOMMEND, json.dumps({"format": FORMAT, "model": name}) + "\n", failure=CheckpointError)


def model_names(folder: Path) -> list[str]:
    """All models that the recommender has, the oldest first."""
    folders = (folder / MODELS).iterdir() if (folder / MODELS).is_dir() else ()
    return sorted(one.name for one in folders if one.name.isdigit() and (one / MODEL).is_file())


def check_name(folder: Path, name: str) -> str:
    """The name of a model that is there."""
    names = model_names(folder)
    if name not in names:
        raise CheckpointError(f"a model of {folder} must be one of {', '.join(names)}; got {name[:40]!r}.")
    return name


def write_model(folder: Path, model: Recommender, about: dict[str, Any]) -> None:
    """Into an empty folder; `about` is what else is to be remembered of it."""
    features, network = model.features, model.network
    encoder = features.encoder
    readers = {} if encoder is None else {"other": encoder.other, "chinese": encoder.chinese}
    values = {
        "format": FORMAT,
        "config": network.config.model_dump(mode="json", exclude_none=True),
        "ids": network.ids,
        "kinds": model.kinds,
        "window": model.window,
        "repeats": model.repeats,
        "tags": list(features.tags),
        "price": features.price,
        "final": None if model.final is None else {"method": model.final.method, "weights": model.final.weights},
        "encoders": {place: reader.name for place, reader in readers.items() if reader is not None},
        **about,
    }
    (folder / MODEL).write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    with (folder / ITEMS).open("w", encoding="utf-8") as file:
        for item in model.items[: model.learned]:
            file.write(json.dumps(vars(item), ensure_ascii=False) + "\n")
    tensors: dict[str, Tensor] = {f"network.{name}": value for name, value in network.state_dict().items()}
    tensors["counts"] = torch.from_numpy(model.counts_V[: model.learned + 1].copy())
    if model.final is not None:
        tensors |= final_tensors(model.final, model.learned)
    for place, reader in readers.items():
        if reader is not None:
            tensors[f"{place}.mean"] = torch.from_numpy(reader.whitening.mean_E)
            tensors[f"{place}.matrix"] = torch.from_numpy(np.ascontiguousarray(reader.whitening.matrix_EE))
    write_tensors(tensors, folder / TENSORS)


def read_about(folder: Path) -> dict[str, Any]:
    """What is remembered of a model."""
    found: dict[str, Any] = json.loads(read_small(folder / MODEL, limit=LARGEST))
    return found


def read_model(folder: Path) -> Recommender:
    """Loads the model of a folder, after comparing every file with its hash."""
    verify(folder)
    try:
        values = read_about(folder)
        if values["format"] != FORMAT:
            raise ValueError("another version")
        tensors = read_tensors(folder / TENSORS)
        readers = {
            place: Reader(
                name=name,
                model=load_text_model(name),
                whitening=Whitening(
                    mean_E=tensors[f"{place}.mean"].numpy(), matrix_EE=tensors[f"{place}.matrix"].numpy()
                ),
            )
            for place, name in values["encoders"].items()
        }
        encoder = Encoder(other=readers.get("other"), chinese=readers.get("chinese")) if readers else None
        price = None if values["price"] is None else (float(values["price"][0]), float(values["price"][1]))
        features = Features(tags=tuple(values["tags"]), price=price, encoder=encoder)
        weights = {name[8:]: value for name, value in tensors.items() if name.startswith("network.")}
        network = EventNetwork(
            model_config(**values["config"]),
            kind_weights=weights["kind_weights"].tolist(),
            features_VF=weights["features_VF"],
            ids=bool(values["ids"]),
        )
        network.load_state_dict(weights)
        items = _items(folder / ITEMS)
        if len(tensors["counts"]) != len(items) + 1 or network.config.vocabulary.size != len(items) + 1:
            raise ValueError("another number of items")
        return Recommender(
            network,
            items=items,
            features=features,
            kinds={str(name): int(place) for name, place in values["kinds"].items()},
            counts_V=tensors["counts"].numpy(),
            window=int(values["window"]),
            repeats=bool(values["repeats"]),
            final=final_of(values.get("final"), tensors, tags=len(features.tags)),
        )
    except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
        if isinstance(error, SegueError):
            raise
        raise CheckpointError(
            f"{folder} must be a model of a recommender of this version; got something else ({str(error)[:80]}). Learn "
            "again."
        ) from None


def _items(path: Path) -> Sequence[Item]:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [Item(**(row | {"tags": tuple(row["tags"])})) for row in rows]
