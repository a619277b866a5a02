"""Projections of the bins of an adaptive vocabulary."""

from segue.config import ModelConfig


def projected(config: ModelConfig, bin_index: int) -> bool:
    """Return True if there is a projection between a bin and the model."""
    words = config.vocabulary
    width = (words.width or config.width) // words.shrink**bin_index
    return width != config.width or (words.shrink > 1 and words.project_first_bin)


def own_projections(config: ModelConfig) -> int:
    """Return the number of bins, counted from the first, that have a separate projection in the softmax."""
    count = len(config.vocabulary.cutoffs) + 1
    return {"none": count, "all_but_first": 1, "all": 0}[config.vocabulary.tie_projections]
