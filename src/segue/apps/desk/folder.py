"""A desk on disk.

    DESK/desk.json            what it is, the name of the model in use, and the URL of its database, if it has one
    DESK/models/0001/         a model: model.json, knowledge.jsonl, tensors.safetensors, network/ or pairs/, report.html
                              and .md
    DESK/desk.sqlite          conversations, made when the desk first runs

A model folder is whole or not there, and is never changed. Another one is put into use by one small file.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.api.predict import load_finetuned
from segue.apps.database import Place
from segue.apps.desk.encoder import Encoder, Reader, Whitening
from segue.apps.desk.index import Index
from segue.apps.desk.knowledge import Asked, Knowledge, Topic
from segue.apps.desk.learn import Fitted
from segue.apps.desk.linear import Linear
from segue.apps.desk.matcher import Matcher
from segue.apps.desk.model import DeskModel
from segue.apps.desk.network import Network
from segue.apps.desk.pairs import PairReader
from segue.apps.desk.parts import PARTS, Parts, topic_texts
from segue.apps.postgresql import check_url
from segue.checkpoint.files import read_small, verify
from segue.checkpoint.folder import read_tensors, write_tensors
from segue.errors import CheckpointError
from segue.files import write_file
from segue.infer.text_model import load_text_model

DESK, MODEL, KNOWLEDGE, TENSORS = "desk.json", "model.json", "knowledge.jsonl", "tensors.safetensors"
NETWORK, PAIRS = "network", "pairs"
MODELS, DATABASE = "models", "desk.sqlite"
CONVERSATION = "conversation "
"""Before the id of a conversation in the group of a question that was accepted there."""
FORMAT = 1
LARGEST = 1 << 24
"""Bytes of a small file."""


def current_model(desk: Path) -> str:
    """Name of the model in use."""
    return str(_read_desk(desk)["model"])


def place_of(desk: Path) -> Place:
    """Where its conversations are: a file of SQLite in the folder, or a database of PostgreSQL."""
    url = _read_desk(desk).get("database")
    return desk / DATABASE if url is None else check_url(str(url))


def has_conversations(desk: Path) -> bool:
    """Whether it ever ran, as far as the folder tells."""
    place = place_of(desk)
    return not isinstance(place, Path) or place.is_file()


def _read_desk(desk: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(read_small(desk / DESK, limit=LARGEST))
        if found["format"] != FORMAT or not str(found["model"]).isdigit():
            raise ValueError
    except (CheckpointError, OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{desk} must be a desk of this version; got another folder, or none. Make one with segue desk learn."
        ) from None
    return found


def write_desk(desk: Path, name: str, *, database: str | None) -> None:
    """Makes a desk of a folder that has this model. `database` is the URL of its conversations; None for SQLite."""
    values = {"format": FORMAT, "model": name}
    if database is not None:
        values["database"] = check_url(database)
    write_file(desk / DESK, json.dumps(values) + "\n", failure=CheckpointError)


def use_model(desk: Path, name: str) -> None:
    """Puts a model into use, from the next start or the next look at it on."""
    write_desk(desk, name, database=_read_desk(desk).get("database"))


def model_names(desk: Path) -> list[str]:
    """All models that the desk has, the oldest first."""
    folders = (desk / MODELS).iterdir() if (desk / MODELS).is_dir() else ()
    return sorted(one.name for one in folders if one.name.isdigit() and (one / MODEL).is_file())


def next_name(desk: Path) -> str:
    """Name for the next model."""
    return f"{int(model_names(desk)[-1]) + 1:04d}"


def models_with(desk: Path, conversations: Sequence[str]) -> list[str]:
    """Names of the models that have learned from one of some conversations."""
    return [name for name, learned in learned_from(desk).items() if learned & set(conversations)]


def learned_from(desk: Path) -> dict[str, set[str]]:
    """The conversations that each model has learned from."""
    return {
        name: {
            one.group.removeprefix(CONVERSATION)
            for one in read_knowledge_of(desk / MODELS / name).asked
            if one.group.startswith(CONVERSATION)
        }
        for name in model_names(desk)
    }


def read_knowledge_of(folder: Path) -> Knowledge:
    """What a model has learned from."""
    return _knowledge(folder / KNOWLEDGE)


# ------------------------------------------------------------------------------------------------------------- writing


def write_model(folder: Path, model: DeskModel, about: dict[str, Any]) -> None:
    """Into an empty folder; `about` is what else is to be remembered of it."""
    fitted = model.fitted
    readers = {} if model.encoder is None else {"other": model.encoder.other, "chinese": model.encoder.chinese}
    values = {
        "format": FORMAT,
        "parts": list(PARTS),
        "encoders": {place: reader.name for place, reader in readers.items() if reader is not None},
        "fitted": {
            "weights": fitted.weights_K.tolist(),
            "base": fitted.base_K.tolist(),
            "right": fitted.right_S.tolist(),
            "inside": fitted.inside_S.tolist(),
            "threshold": fitted.threshold,
            "outside": fitted.outside,
        },
        "mean_lengths": {name: index.mean_length for name, index in _indexes(model.parts).items() if index is not None},
        **about,
    }
    (folder / MODEL).write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    with (folder / KNOWLEDGE).open("w", encoding="utf-8") as file:
        for topic in model.knowledge.topics:
            row = {"topic": topic.name, "answer": topic.answer, "source": topic.source}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        for one in model.knowledge.asked:
            file.write(
                json.dumps({"question": one.text, "topics": one.topics, "group": one.group}, ensure_ascii=False) + "\n"
            )
    write_tensors(_tensors(model, readers), folder / TENSORS)
    if model.network is not None:
        shutil.copytree(model.network.model.folder, folder / NETWORK)
    if model.pairs is not None:
        shutil.copytree(model.pairs.model.folder, folder / PAIRS)


def _indexes(parts: Parts) -> dict[str, Index | None]:
    return {"questions": parts.questions, "answers": parts.answers}


def _tensors(model: DeskModel, readers: dict[str, Reader | None]) -> dict[str, Tensor]:
    parts = model.parts
    found: dict[str, NDArray[Any]] = {"pairs": np.stack([parts.question_P, parts.topic_P])}
    for name, index in _indexes(parts).items():
        if index is not None:
            found |= _terms(name, index.terms)
            found |= {f"{name}.starts": index.starts_V, f"{name}.texts": index.texts}
            found |= {f"{name}.weights": index.weights, f"{name}.inverse": index.inverse_V}
            found |= {f"{name}.size": np.array([index.size])}
    if parts.linear is not None:
        found |= _terms("linear", parts.linear.terms)
        found |= {"linear.inverse": parts.linear.inverse_V, "linear.weight": parts.linear.weight_VT}
        found |= {"linear.bias": parts.linear.bias_T}
    dense = {"asked": parts.asked_QE, "meanings": parts.answers_TE, "dense": parts.dense_ET}
    found |= {name: value for name, value in dense.items() if value is not None}
    if model.encoder is not None and model.encoder.matcher is not None:
        matcher = model.encoder.matcher
        found |= {"matcher.questions": matcher.question_EE, "matcher.answers": matcher.answer_EE}
    for place, reader in readers.items():
        if reader is not None:
            found |= {f"{place}.mean": reader.whitening.mean_E, f"{place}.matrix": reader.whitening.matrix_EE}
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in found.items()}


def _terms(name: str, terms: Sequence[str]) -> dict[str, NDArray[Any]]:
    encoded = [term.encode("utf-8", "surrogatepass") for term in terms]
    return {
        f"{name}.terms": np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(),
        f"{name}.ends": np.cumsum([len(term) for term in encoded], dtype=np.int64),
    }


# ------------------------------------------------------------------------------------------------------------- reading


def read_about(folder: Path) -> dict[str, Any]:
    """What is remembered of a model."""
    found: dict[str, Any] = json.loads(read_small(folder / MODEL, limit=LARGEST))
    return found


def read_model(folder: Path) -> DeskModel:
    """Loads the model of a folder, after comparing every file with its hash."""
    verify(folder)
    try:
        values = read_about(folder)
        if values["format"] != FORMAT or values["parts"] != list(PARTS):
            raise ValueError("another version")
        knowledge = _knowledge(folder / KNOWLEDGE)
        tensors = {name: value.numpy() for name, value in read_tensors(folder / TENSORS).items()}
        parts = _parts(knowledge, tensors, values["mean_lengths"])
        readers = {
            place: _reader(name, tensors[f"{place}.mean"], tensors[f"{place}.matrix"])
            for place, name in values["encoders"].items()
        }
        numbers = values["fitted"]
        fitted = Fitted(
            weights_K=np.array(numbers["weights"], dtype=np.float64),
            base_K=np.array(numbers["base"], dtype=np.float64),
            right_S=np.array(numbers["right"], dtype=np.float64),
            inside_S=np.array(numbers["inside"], dtype=np.float64),
            threshold=float(numbers["threshold"]),
            outside=float(numbers["outside"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(
            f"{folder} must be a model of a desk of this version; got something else ({str(error)[:80]}). Learn again."
        ) from None
    matcher = None
    if "matcher.questions" in tensors:
        matcher = Matcher(question_EE=tensors["matcher.questions"], answer_EE=tensors["matcher.answers"])
    encoder = None
    if readers:
        encoder = Encoder(other=readers.get("other"), chinese=readers.get("chinese"), matcher=matcher)
    network, pairs = None, None
    if (folder / NETWORK).is_dir():
        network = Network(model=load_finetuned(folder / NETWORK), topics=len(knowledge.topics))
    if (folder / PAIRS).is_dir():
        pairs = PairReader(model=load_finetuned(folder / PAIRS))
    return DeskModel(knowledge=knowledge, parts=parts, encoder=encoder, network=network, pairs=pairs, fitted=fitted)


def _reader(name: str, mean_E: NDArray[np.float32], matrix_EE: NDArray[np.float32]) -> Reader:
    return Reader(name=name, model=load_text_model(name), whitening=Whitening(mean_E=mean_E, matrix_EE=matrix_EE))


def _knowledge(path: Path) -> Knowledge:
    topics, asked = [], []
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if "topic" in row:
                topics.append(Topic(name=row["topic"], answer=row["answer"], source=row["source"]))
            else:
                asked.append(Asked(text=row["question"], topics=tuple(row["topics"]), group=row["group"]))
    return Knowledge(topics=tuple(topics), asked=tuple(asked))


def _parts(knowledge: Knowledge, tensors: dict[str, NDArray[Any]], lengths: dict[str, float]) -> Parts:
    question_P, topic_P = tensors["pairs"]
    texts, _, without = topic_texts(knowledge, range(len(knowledge.asked)))
    linear = None
    if "linear.weight" in tensors:
        linear = Linear(
            terms=_unpacked("linear", tensors),
            inverse_V=tensors["linear.inverse"],
            weight_VT=tensors["linear.weight"],
            bias_T=tensors["linear.bias"],
        )
    return Parts(
        topics=len(knowledge.topics),
        question_P=question_P,
        topic_P=topic_P,
        texts=(*texts, *(knowledge.topics[topic].answer or "" for topic in without)),
        questions=_index("questions", tensors, lengths),
        answers=_index("answers", tensors, lengths),
        linear=linear,
        asked_QE=tensors.get("asked"),
        answers_TE=tensors.get("meanings"),
        dense_ET=tensors.get("dense"),
    )


def _index(name: str, tensors: dict[str, NDArray[Any]], lengths: dict[str, float]) -> Index | None:
    if f"{name}.starts" not in tensors:
        return None
    return Index(
        terms=_unpacked(name, tensors),
        starts_V=tensors[f"{name}.starts"],
        texts=tensors[f"{name}.texts"],
        weights=tensors[f"{name}.weights"],
        inverse_V=tensors[f"{name}.inverse"],
        mean_length=float(lengths[name]),
        size=int(tensors[f"{name}.size"][0]),
    )


def _unpacked(name: str, tensors: dict[str, NDArray[Any]]) -> tuple[str, ...]:
    letters, ends = tensors[f"{name}.terms"].tobytes(), tensors[f"{name}.ends"].tolist()
    starts = [0, *ends[:-1]][: len(ends)]
    return tuple(letters[start:end].decode("utf-8", "surrogatepass") for start, end in zip(starts, ends, strict=True))
