"""Input checks shared by all metrics: as many predictions as examples, at least one, and no NaN."""

from collections.abc import Sized

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segue.errors import DataError


def check_lengths(gold: Sized, predicted: Sized, *, names: tuple[str, str] = ("gold", "predicted")) -> None:
    """Raise DataError unless both have the same number of examples, at least one."""
    if len(gold) != len(predicted):
        raise DataError(
            f"{names[0]} and {names[1]} must have one entry for each example; got {len(gold)} and {len(predicted)}. "
            "Give them in the same order, without gaps."
        )
    if len(gold) == 0:
        raise DataError("a metric needs at least one example; got none. Check the file, and any filtering.")


def as_floats(values: ArrayLike, *, name: str, dimensions: int) -> NDArray[np.float64]:
    """Return finite numbers of the expected shape."""
    given = _as_array(values, name=name, dimensions=dimensions)
    if given.dtype.kind not in "fiub":
        raise DataError(f"{name} must be numbers; got {given.dtype}. Convert them first.")
    array = given.astype(np.float64)
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        where = ", ".join(map(str, wrong[0]))
        raise DataError(
            f"{name} must be finite; got {array[tuple(wrong[0])]} at [{where}], and {len(wrong)} such in all. "
            "A model that gives NaN has diverged: lower its learning rate."
        )
    return array


def as_probabilities(values: ArrayLike, *, num_labels: int) -> NDArray[np.float64]:
    """Return probabilities [N, num_labels], from 0 to 1."""
    probabilities_NC = as_floats(values, name="probabilities", dimensions=2)
    if len(probabilities_NC) and probabilities_NC.shape[1] != num_labels:
        raise DataError(
            f"probabilities must have one column for each label; got {probabilities_NC.shape[1]} columns and "
            f"num_labels {num_labels}. Use the labels that the model was trained with."
        )
    if probabilities_NC.size and not 0 <= probabilities_NC.min() <= probabilities_NC.max() <= 1.000001:
        raise DataError(
            f"probabilities must be from 0 to 1; got {probabilities_NC.min():g} to {probabilities_NC.max():g}. "
            "Logits need a softmax or a sigmoid first."
        )
    return probabilities_NC


def as_labels(values: ArrayLike, *, name: str, num_labels: int) -> NDArray[np.int64]:
    """Return labels [N], integers from 0 to num_labels - 1."""
    array = _as_array(values, name=name, dimensions=1)
    if array.size and array.dtype.kind not in "iub":
        raise DataError(f"{name} must be whole numbers; got {array.dtype}. Map label names to their numbers first.")
    labels_N = array.astype(np.int64)
    wrong = np.flatnonzero((labels_N < 0) | (labels_N >= num_labels))
    if len(wrong):
        raise DataError(
            f"{name} must be from 0 to {num_labels - 1} (num_labels {num_labels}); got {labels_N[wrong[0]]} at row "
            f"{wrong[0]}, and {len(wrong)} such in all. Remove examples without labels, or name all labels."
        )
    return labels_N


def _as_array(values: ArrayLike, *, name: str, dimensions: int) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{name} must have rows of one length; got rows of different length.") from error
    if array.shape == (0,):  # an empty list has no known number of columns
        array = array.reshape((0,) * dimensions)
    if array.ndim != dimensions:
        raise DataError(f"{name} must have {dimensions} dimension(s); got the shape {list(array.shape)}.")
    return array
