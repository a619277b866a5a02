"""Text from a causal model, token by token, with memory: each step reads one token and all that is remembered."""

import torch

from segue.errors import DataError
from segue.model import Batch, LanguageModel


@torch.no_grad()
def generate(
    model: LanguageModel, prompt: list[int], *, count: int, temperature: float = 1.0, top_k: int = 40, seed: int = 0
) -> list[int]:
    """`count` further tokens, each drawn from the `top_k` likeliest. The same seed gives the same tokens."""
    if model.config.objective != "causal":
        raise DataError(f'generation is for objective "causal"; got "{model.config.objective}". Use a causal model.')
    if not prompt:
        raise DataError("generation needs at least one token to start from; got none. Give a prompt.")
    model.eval()
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    memory, tokens, ids = None, list(prompt), list(prompt)
    while len(tokens) < len(prompt) + count:
        result = model(Batch(ids_BQ=torch.tensor([ids], device=device)), memory)
        memory = result.memory
        logits = model.logits(result.output.hidden_BQD[0, -1, : model.config.width]).float().cpu() / temperature
        best = logits.topk(min(top_k, len(logits)))
        choice = torch.multinomial(best.values.softmax(dim=0), 1, generator=generator)
        tokens.append(int(best.indices[choice]))
        # Without memory the whole text is read again, as far as the positions go.
        limit = getattr(model.config.positions, "max_length", len(tokens))
        ids = tokens[-1:] if memory is not None else tokens[-limit:]
    return tokens[len(prompt) :]
