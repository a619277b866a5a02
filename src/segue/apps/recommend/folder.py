"""Model folders of a recommender: model.json, items.jsonl, tensors.safetensors, report.html and report.md.

`segue.apps.folder` has the layout around them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.apps.encoder import encoder_tensors, read_encoder
from segue.apps.folder import FORMAT, MODEL, MODELS, model_names, read_about
from segue.apps.recommend.features import Features
from segue.apps.recommend.final import final_of, final_tensors
from segue.apps.recommend.model import Recommender
from segue.apps.recommend.network import EventNetwork
from segue.apps.recommend.tables import Item
from segue.checkpoint.files import verify
from segue.checkpoint.folder import read_tensors, write_tensors
from segue.config import model_config
from segue.errors import CheckpointError, SegueError

ITEMS, TENSORS = "items.jsonl", "tensors.safetensors"


def check_name(folder: Path, name: str) -> str:
    """Return the name of a model; raise CheckpointError if it does not exist."""
    names = model_names(folder)
    if name not in names:
        raise CheckpointError(
            f"a model of {folder} must be one of {', '.join(names)}; got {name[:40]!r}. Use one of them."
        )
    return name


def models_with(folder: Path, events: list[dict[str, Any]]) -> list[str]:
    """Return the names of models that may have been trained on some of these events, damaged ones included."""
    first = min((one["number"] for one in events), default=None)

    def has(name: str) -> bool:
        try:
            return first is not None and read_about(folder / MODELS / name)["last_event"] >= first
        except CheckpointError:
            return True

    return [name for name in model_names(folder) if has(name)]


def write_model(folder: Path, model: Recommender, about: dict[str, Any]) -> None:
    """Write a model into an empty folder; `about` has further values to store."""
    features, network = model.features, model.network
    readers = {} if features.encoder is None else features.encoder.readers
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
        "encoders": {place: reader.name for place, reader in readers.items()},
        **about,
    }
    (folder / MODEL).write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    with (folder / ITEMS).open("w", encoding="utf-8") as file:
        for item in model.items[: model.learned]:
            known = {name: value for name, value in vars(item).items() if name != "withdrawn"}  # of the database
            file.write(json.dumps(known, ensure_ascii=False) + "\n")
    tensors: dict[str, Tensor] = {f"network.{name}": value for name, value in network.state_dict().items()}
    tensors["counts"] = torch.from_numpy(model.counts_V[: model.learned + 1].copy())
    if model.final is not None:
        tensors |= final_tensors(model.final, model.learned)
    if features.encoder is not None:
        tensors |= encoder_tensors(features.encoder)
    write_tensors(tensors, folder / TENSORS)


def read_model(folder: Path) -> Recommender:
    """Load the model of a folder, after comparing every file with its hash."""
    verify(folder)
    try:
        values = read_about(folder)
        if values["format"] != FORMAT:
            raise ValueError("another version")
        tensors = read_tensors(folder / TENSORS)
        encoder = read_encoder(values["encoders"], tensors)
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
            final=final_of(
                values.get("final"),
                tensors,
                tags=len(features.tags),
                kind_weights=weights["kind_weights"].tolist(),
            ),
        )
    except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
        if isinstance(error, SegueError):
            raise
        raise CheckpointError(
            f"{folder} must be a recommender model of this version; got something else ({str(error)[:80]}). Train it "
            "again."
        ) from None


def _items(path: Path) -> Sequence[Item]:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [Item(**(row | {"tags": tuple(row["tags"])})) for row in rows]
