"""Desk models on disk: model.json, knowledge.jsonl, tensors.safetensors, network/ or pairs/, report.html and .md.

`segue.apps.folder` describes the folder that contains them.
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
from segue.apps.desk.index import Index
from segue.apps.desk.knowledge import Asked, Knowledge, Topic, new_name
from segue.apps.desk.learn import Fitted
from segue.apps.desk.linear import Linear
from segue.apps.desk.matcher import Matcher
from segue.apps.desk.model import DeskModel
from segue.apps.desk.network import Network
from segue.apps.desk.pairs import PairReader
from segue.apps.desk.parts import PARTS, Parts, topic_texts
from segue.apps.encoder import encoder_tensors, read_encoder
from segue.apps.folder import FORMAT, MODEL, MODELS, model_names, packed, read_about, unpacked
from segue.checkpoint.files import verify
from segue.checkpoint.folder import read_tensors, write_tensors
from segue.errors import CheckpointError

KNOWLEDGE, TENSORS, NETWORK, PAIRS = "knowledge.jsonl", "tensors.safetensors", "network", "pairs"
CONVERSATION = "conversation "
"""Prefix of the group of a reviewed question, followed by the id of its conversation."""


def models_with(desk: Path, conversations: Sequence[str]) -> list[str]:
    """Return the names of models trained on any of some conversations, or damaged, so that this cannot be checked."""
    wanted = set(conversations)
    return [name for name, learned in learned_from(desk).items() if wanted and (learned is None or learned & wanted)]


def learned_from(desk: Path) -> dict[str, set[str] | None]:
    """Return the conversations on which each model was trained; None for a damaged model."""
    found: dict[str, set[str] | None] = {}
    for name in model_names(desk):
        try:
            found[name] = conversations_of(read_knowledge_of(desk / MODELS / name))
        except CheckpointError:
            found[name] = None
    return found


def conversations_of(known: Knowledge) -> set[str]:
    """Return the ids of the conversations from which questions come."""
    return {one.group.removeprefix(CONVERSATION) for one in known.asked if one.group.startswith(CONVERSATION)}


def read_knowledge_of(folder: Path) -> Knowledge:
    """Return the knowledge of a model, after verifying its hash."""
    verify(folder, [MODEL, KNOWLEDGE], remedy="Roll back to another model, or restore a back-up.")
    return _knowledge(folder / KNOWLEDGE)


# ------------------------------------------------------------------------------------------------------------- writing


def write_model(folder: Path, model: DeskModel, about: dict[str, Any]) -> None:
    """Write a model into an empty folder; `about` is further metadata for model.json."""
    fitted = model.fitted
    values = {
        "format": FORMAT,
        "parts": list(PARTS),
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
            row = {"topic": topic.name, "answer": topic.answer, "source": topic.source, "cited": topic.cited}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        for one in model.knowledge.asked:
            file.write(
                json.dumps({"question": one.text, "topics": one.topics, "group": one.group}, ensure_ascii=False) + "\n"
            )
    write_tensors(_tensors(model), folder / TENSORS)
    if model.network is not None:
        shutil.copytree(model.network.model.folder, folder / NETWORK)
    if model.pairs is not None:
        shutil.copytree(model.pairs.model.folder, folder / PAIRS)


def _indexes(parts: Parts) -> dict[str, Index | None]:
    return {"questions": parts.questions, "answers": parts.answers}


def _tensors(model: DeskModel) -> dict[str, Tensor]:
    parts = model.parts
    found: dict[str, NDArray[Any]] = {"pairs": np.stack([parts.question_P, parts.topic_P])}
    for name, index in _indexes(parts).items():
        if index is not None:
            found[f"{name}.terms"], found[f"{name}.ends"] = packed(index.terms)
            found |= {f"{name}.starts": index.starts_V, f"{name}.texts": index.texts}
            found |= {f"{name}.weights": index.weights, f"{name}.inverse": index.inverse_V}
            found |= {f"{name}.size": np.array([index.size])}
    if parts.linear is not None:
        found["linear.terms"], found["linear.ends"] = packed(parts.linear.terms)
        found |= {"linear.inverse": parts.linear.inverse_V, "linear.weight": parts.linear.weight_VT}
        found |= {"linear.bias": parts.linear.bias_T}
    dense = {"asked": parts.asked_QE, "meanings": parts.answers_TE, "dense": parts.dense_ET}
    found |= {name: value for name, value in dense.items() if value is not None}
    if model.matcher is not None:
        found |= {"matcher.questions": model.matcher.question_EE, "matcher.answers": model.matcher.answer_EE}
    kept = {} if model.encoder is None else encoder_tensors(model.encoder)
    return kept | {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in found.items()}


# ------------------------------------------------------------------------------------------------------------- reading


def read_model(folder: Path) -> DeskModel:
    """Load a model, after verifying the hash of every file."""
    verify(folder)
    try:
        values = read_about(folder)
        if values["format"] != FORMAT or values["parts"] != list(PARTS):
            raise ValueError("another version")
        knowledge = _knowledge(folder / KNOWLEDGE)
        read = read_tensors(folder / TENSORS)
        tensors = {name: value.numpy() for name, value in read.items()}
        parts = _parts(knowledge, tensors, values["mean_lengths"])
        encoder = read_encoder(values["encoders"], read)
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
            f"{folder} must be a desk model of this version; got something else ({str(error)[:80]}). Train it again."
        ) from None
    matcher = None
    if "matcher.questions" in tensors:
        matcher = Matcher(question_EE=tensors["matcher.questions"], answer_EE=tensors["matcher.answers"])
    network, pairs = None, None
    if (folder / NETWORK).is_dir():
        network = Network(model=load_finetuned(folder / NETWORK), topics=len(knowledge.topics))
    if (folder / PAIRS).is_dir():
        pairs = PairReader(model=load_finetuned(folder / PAIRS))
    return DeskModel(
        knowledge=knowledge,
        parts=parts,
        encoder=encoder,
        matcher=matcher,
        network=network,
        pairs=pairs,
        fitted=fitted,
    )


def _knowledge(path: Path) -> Knowledge:
    topics, asked = [], []
    taken: set[str] = set()
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if "topic" in row:
                name = row["topic"] if row["topic"] not in taken else new_name(row["topic"], taken)
                taken.add(name)  # earlier versions gave some topics the same name
                topics.append(
                    Topic(name=name, answer=row["answer"], source=row["source"], cited=row.get("cited"))
                )  # earlier versions had no sources for visitors
            else:
                asked.append(Asked(text=row["question"], topics=tuple(row["topics"]), group=row["group"]))
    return Knowledge(topics=tuple(topics), asked=tuple(asked))


def _parts(knowledge: Knowledge, tensors: dict[str, NDArray[Any]], lengths: dict[str, float]) -> Parts:
    question_P, topic_P = tensors["pairs"]
    texts, _, without = topic_texts(knowledge, range(len(knowledge.asked)))
    linear = None
    if "linear.weight" in tensors:
        linear = Linear(
            terms=unpacked(tensors["linear.terms"], tensors["linear.ends"]),
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
        terms=unpacked(tensors[f"{name}.terms"], tensors[f"{name}.ends"]),
        starts_V=tensors[f"{name}.starts"],
        texts=tensors[f"{name}.texts"],
        weights=tensors[f"{name}.weights"],
        inverse_V=tensors[f"{name}.inverse"],
        mean_length=float(lengths[name]),
        size=int(tensors[f"{name}.size"][0]),
    )
