"""Monitor models on disk: model.json, rows.jsonl, entities.jsonl, tensors.safetensors, report.html and report.md, and
network/ if a network is combined with the linear model.

`segue.apps.folder` has their location.
"""

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from segue.api.predict import load_finetuned
from segue.apps.folder import FORMAT, MODEL, MODELS, model_names, packed, read_about, unpacked
from segue.apps.monitor.calibrate import Calibration, Mixture
from segue.apps.monitor.entities import Entities, entities_of
from segue.apps.monitor.joining import Joined
from segue.apps.monitor.labelled import SENTIMENTS, Labelled
from segue.apps.monitor.linear import Linear, Vocabulary
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.network import Network
from segue.checkpoint.files import verify
from segue.checkpoint.folder import read_tensors, write_tensors
from segue.errors import CheckpointError

ROWS, ENTITIES, TENSORS, NETWORK = "rows.jsonl", "entities.jsonl", "tensors.safetensors", "network"
OWN = ("format", "topics", "sentiment", "topic", "entity", "joined")
"""Keys of model.json that `write_model` sets; the others come from `about`."""
CORRECTIONS = "corrections"
"""Source of rows that come from corrections."""


def models_with(monitor: Path, texts: Collection[str]) -> list[str]:
    """Return the names of the models that were trained on corrections of these texts, and of damaged models, for which
    that is unknown."""

    def has(name: str) -> bool:
        try:
            rows = read_rows(monitor / MODELS / name)
        except CheckpointError:
            return True
        return any(row.source == CORRECTIONS and row.text in texts for row in rows)

    return [name for name in (model_names(monitor) if texts else ()) if has(name)]


def write_model(folder: Path, model: MonitorModel, rows: tuple[Labelled, ...], about: dict[str, Any]) -> None:
    """Write a model into an empty folder; `about` holds further keys for model.json."""
    values = {
        "format": FORMAT,
        "topics": list(model.topics),
        "sentiment": _values(model.sentiment),
        "topic": None if model.topic is None else _values(model.topic),
        "entity": None if model.entity is None else _values(model.entity),
        "joined": None if model.joined is None else _joined_values(model.joined),
        **about,
    }
    (folder / MODEL).write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    with (folder / ROWS).open("w", encoding="utf-8") as file:
        for row in rows:
            sentiment = None if row.sentiment is None else SENTIMENTS[row.sentiment]
            kept: dict[str, Any] = {
                "text": row.text,
                "sentiment": sentiment,
                "topic": row.topic,
                "time": row.time,
                "source": row.source,
            }
            if row.entities:
                kept["entities"] = {name: SENTIMENTS[place] for name, place in row.entities}
            file.write(json.dumps(kept, ensure_ascii=False) + "\n")
    with (folder / ENTITIES).open("w", encoding="utf-8") as file:
        for one in model.entities.all:
            file.write(json.dumps({"code": one.code, "names": one.names}, ensure_ascii=False) + "\n")
    vocabulary = model.linear.vocabulary
    letters, ends = packed(vocabulary.terms)
    tensors = {
        "terms": letters,
        "ends": ends,
        "inverse": vocabulary.inverse_V,
        "weight": model.linear.weight_VC,
        "bias": model.linear.bias_C,
    }
    write_tensors({name: torch.from_numpy(value) for name, value in tensors.items()}, folder / TENSORS)
    if model.joined is not None:
        shutil.copytree(model.joined.network.model.folder, folder / NETWORK)


def _values(calibration: Calibration) -> dict[str, Any]:
    return {"scale": calibration.scale, "bias": calibration.bias_C.tolist()}


def _joined_values(joined: Joined) -> dict[str, Any]:
    mixture = joined.mixture
    return {
        "linear": mixture.linear,
        "network": mixture.network,
        "bias": mixture.bias_C.tolist(),
        "chinese": joined.network.chinese,
    }


def read_rows(folder: Path) -> list[Labelled]:
    """Read the rows that a model was trained on, after verifying their hash."""
    verify(folder, [ROWS], remedy="Roll back to another model, or restore a back-up.")
    found = []
    with (folder / ROWS).open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            sentiment = None if row["sentiment"] is None else SENTIMENTS.index(row["sentiment"])
            found.append(
                Labelled(
                    text=row["text"],
                    sentiment=sentiment,
                    topic=row["topic"],
                    time=row["time"],
                    source=row["source"],
                    entities=tuple((name, SENTIMENTS.index(one)) for name, one in row.get("entities", {}).items()),
                )
            )
    return found


def read_model(folder: Path) -> MonitorModel:
    """Load a model, after verifying the hash of every file."""
    verify(folder)
    try:
        values = read_about(folder)
        if values["format"] != FORMAT:
            raise ValueError("another version")
        tensors = {name: value.numpy() for name, value in read_tensors(folder / TENSORS).items()}
        terms = unpacked(tensors["terms"], tensors["ends"])
        linear = Linear(
            vocabulary=Vocabulary(terms=terms, inverse_V=tensors["inverse"]),
            weight_VC=tensors["weight"],
            bias_C=tensors["bias"],
        )
        topics = tuple(values["topics"])
        entity = None if values.get("entity") is None else _calibration(values["entity"])
        kinds = len(SENTIMENTS) + len(topics) + (0 if entity is None else len(SENTIMENTS))
        if linear.weight_VC.shape != (len(terms), kinds):
            raise ValueError("weights of another shape")
        topic = None if values["topic"] is None else _calibration(values["topic"])
        sentiment, entities = _calibration(values["sentiment"]), _entities(folder)
        joined = None if values.get("joined") is None else _joined(folder, values["joined"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(
            f"{folder} must be a monitor model of this version; got something else ({str(error)[:80]}). Train it again."
        ) from None
    return MonitorModel(
        linear=linear,
        topics=topics,
        sentiment=sentiment,
        topic=topic,
        entities=entities,
        joined=joined,
        entity=entity,
    )


def _calibration(values: dict[str, Any]) -> Calibration:
    return Calibration(scale=float(values["scale"]), bias_C=np.array(values["bias"], dtype=np.float64))


def _joined(folder: Path, values: dict[str, Any]) -> Joined:
    """Load the network and its weight; raise ValueError if it does not classify sentiment."""
    chinese = values["chinese"]
    network = Network(model=load_finetuned(folder / NETWORK), chinese=None if chinese is None else bool(chinese))
    if not network.places:
        raise ValueError("a network without labels")
    mixture = Mixture(
        linear=float(values["linear"]),
        network=float(values["network"]),
        bias_C=np.array(values["bias"], dtype=np.float64),
    )
    return Joined(network=network, mixture=mixture)


def _entities(folder: Path) -> Entities:
    with (folder / ENTITIES).open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return entities_of((row["code"], row["names"]) for row in rows)
