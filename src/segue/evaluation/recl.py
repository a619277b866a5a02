"""Relative effective context length: the length up to which a longer context still helps a model, in a group of models.

In: the loss of each model of a group at each token and context length, or the models and a text. Out: the length for
each model. The definition is that of Dai et al. 2019, appendix C (arXiv 1901.02860), with l_i(c, t) the loss of model i
at token t from the c tokens before it:

    b(c, t)    = min over i of l_i(c, t)                       the best of the group with the short context
    f_i(c, c') = mean over t in T of min(b(c, t), l_i(c', t))  T: the share r of all tokens where b(c, t) is largest
    g_i(c, c') = 1 - exp f_i(c, c') / exp f_i(c, c)            the relative gain in perplexity of the longer context

From the shortest c on, c' is the next length; the result is the first c with g_i(c, c') below 0.01. All models must
improve on the same b, so a model does not benefit from being bad at short contexts. Noise in the losses also counts as
a gain, because the minimum takes what falls and leaves what rises: compare the perplexities, and use steps that are
long enough, such as the paper's of 100 tokens.

The paper does not specify how a context is limited to c tokens. Here a model with memory sees exactly c keys, the token
it reads included: in one layer nothing else; through the states in memory, several layers reach further, as they do
when the model is used. With `exact`, and for models without memory or with learned positions, each token is predicted
from a window of c tokens that is read anew, as in the formula: c times the work. A model with learned positions reads
no more tokens than it has positions, so for it longer contexts equal the longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError
from segue.evaluation.perplexity import Progress, TokenSource, causal_losses, window_losses
from segue.model import LanguageModel

CONTEXTS = tuple(range(100, 1001, 100))
"""Context lengths in the paper's plots."""
SHARES = (0.1, 0.5, 1.0)
"""Values of the share r in the paper's table."""
THRESHOLD = 0.01


@dataclass(frozen=True, kw_only=True)
class EffectiveLength:
    """The result for one model."""

    context: int
    """Length up to which more context helped. If it is the shortest that was measured, less might have been enough."""
    open_end: bool
    """Whether context helped up to the longest length that was measured, so that the true value may be larger."""
    gains: tuple[float, ...]
    """g_i(c, c') for each c and the next."""


def effective_lengths(
    losses_NCT: NDArray[np.float64],
    contexts: Sequence[int],
    *,
    share: float,
    threshold: float = THRESHOLD,
) -> list[EffectiveLength]:
    """Return the effective length of each of N models, from its loss in nats at C context lengths and T tokens."""
    check_contexts(contexts)
    if losses_NCT.ndim != 3 or losses_NCT.shape[1] != len(contexts) or 0 in losses_NCT.shape:
        raise DataError(
            f"losses must have the shape [models, {len(contexts)} contexts, tokens], none zero; got "
            f"{list(losses_NCT.shape)}. Measure every model at every length, on the same tokens."
        )
    if not np.isfinite(losses_NCT).all():
        raise DataError("losses must be finite; got NaN or infinity. Check the models: segue doctor MODEL.")
    if not 0 < share <= 1 or not 0 < threshold < 1:
        raise DataError(
            f"the share of tokens must be above 0 and at most 1, the threshold between 0 and 1; got {share} and "
            f"{threshold}. Use 0.1 and 0.01, for example."
        )
    gains_NC = np.stack([_gains(losses_NCT, at, share=share) for at in range(len(contexts) - 1)], axis=1)
    return [_first_below(gains_C, contexts, threshold=threshold) for gains_C in gains_NC]


def _gains(losses_NCT: NDArray[np.float64], at: int, *, share: float) -> NDArray[np.float64]:
    """Return g_i(c, c') of every model, for the context with index `at` and the next."""
    baseline_T = losses_NCT[:, at].min(axis=0)
    count = max(1, round(share * len(baseline_T)))
    hardest = np.argsort(-baseline_T, kind="stable")[:count]
    short = baseline_T[hardest].mean()  # f_i(c, c) is the same for all: no model is below the baseline
    long_N = np.minimum(baseline_T[hardest], losses_NCT[:, at + 1, hardest]).mean(axis=1)
    return cast(NDArray[np.float64], -np.expm1(long_N - short))


def _first_below(gains_C: NDArray[np.float64], contexts: Sequence[int], *, threshold: float) -> EffectiveLength:
    gains = tuple(float(gain) for gain in gains_C)
    for context, gain in zip(contexts, gains, strict=False):
        if gain < threshold:
            return EffectiveLength(context=context, open_end=False, gains=gains)
    return EffectiveLength(context=contexts[-1], open_end=True, gains=gains)


# --------------------------------------------------------------------------------------------- losses of a model


def context_losses(
    model: LanguageModel,
    tokens: TokenSource,
    *,
    contexts: Sequence[int] = CONTEXTS,
    limit: int | None = None,
    exact: bool = False,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Return -log p at each context length, [contexts, tokens], of the tokens that have the longest context before
    them, among the first `limit`. `progress` is called with the number of tokens processed and the total."""
    check_contexts(contexts)
    longest = contexts[-1]
    length = tokens.length if limit is None else limit
    if not longest < length <= tokens.length:
        raise DataError(
            f"the limit must be above the longest context and at most the length of the text; got {length:,}, "
            f"{longest:,} and {tokens.length:,} tokens. Use shorter contexts, another limit, or a longer text."
        )
    _check_model(model)
    by_window = exact or reads_windows(model)
    costs = [(length - longest) * context if by_window else length for context in contexts]
    losses = []
    for number, context in enumerate(contexts):
        report = _part_of(progress, costs, number)
        if by_window:
            window = min(context, model.config.learned_positions or context)
            reader = model.adjusted(memory=None, attention_span=None)
            losses.append(window_losses(reader, tokens, window=window, first=longest, stop=length, progress=report))
        else:
            reader = model.adjusted(memory={"length": context}, attention_span=context)
            segment = min(512, max(64, context))  # affects only the speed: the span limits each token's context
            found = causal_losses(reader, tokens, segment_length=segment, lanes=1, limit=length, progress=report)
            losses.append(found[longest - 1 :])
    return np.stack(losses)


def reads_windows(model: LanguageModel) -> bool:
    """Return True if the contexts of a model can only be windows that are read anew."""
    return model.config.memory is None or model.config.learned_positions is not None


def _part_of(progress: Progress | None, costs: Sequence[int], number: int) -> Progress | None:
    """Return a progress function for one length that reports the progress of all."""
    if progress is None:
        return None
    before, total = sum(costs[:number]), sum(costs)

    def report(done: int, of: int) -> None:
        progress(before + round(costs[number] * done / of), total)

    return report


# ----------------------------------------------------------------------------------------------------- checks


def check_contexts(contexts: Sequence[int]) -> None:
    """Raise DataError unless there are two or more lengths, ascending from at least 1."""
    if len(contexts) < 2 or contexts[0] < 1 or list(contexts) != sorted(set(contexts)):
        raise DataError(
            "context lengths must be two or more that ascend from at least 1, because each is compared with the next; "
            f"got {list(contexts)}. Use 100,200,300, for example."
        )


def _check_model(model: LanguageModel) -> None:
    if model.config.objective != "causal":
        raise DataError(
            'the effective context length needs objective "causal", where all context precedes the token; got '
            f'"{model.config.objective}". Use a causal model.'
        )
