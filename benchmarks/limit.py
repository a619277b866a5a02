"""Number of multiply-adds that the definition of a step needs: divided by the matrix-product peak, a lower bound of its
time.

Only products are counted: weights with states, W_r R once per layer (not once per row), q k^T, q r for the distances
that each query needs, p v, and the softmax of the predicted tokens. Masked keys of a causal model are not needed; those
that a permutation hides are counted, because nothing regular is left out there. With two streams, a loss reads nothing
of the last layer's content stream but its keys and values, so the rest of it is not counted. A backward pass is two
products for each product of the forward pass.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Step:
    """The sizes of one step; all heads together have the width of the model."""

    rows: int
    length: int
    layers: int
    width: int
    inner_width: int
    memory: int = 0
    """Number of positions before the segment."""
    predicted: int = 0
    """Number of positions per row with a query stream."""
    scored: int = 0
    """Number of positions per row with a softmax over the vocabulary."""
    vocabulary: int = 0
    causal: bool = False

    def forward(self) -> float:
        """Return the multiply-adds of a forward pass."""
        square, keys = self.width**2, self.memory + self.length
        query_and_out, widen_and_narrow = 2 * square, 2 * self.width * self.inner_width
        keys_and_values = self.rows * keys * 2 * square
        position_keys = (keys if self.causal else keys + self.length) * square
        softmax = self.rows * self.scored * self.width * self.vocabulary
        return (
            self._queries() * (query_and_out + widen_and_narrow)
            + self.layers * (keys_and_values + position_keys)
            + self.attention()
            + softmax
        )

    def training(self) -> float:
        """Return the multiply-adds of a forward and a backward pass."""
        return 3 * self.forward()

    def attention(self) -> float:
        """Return the multiply-adds of a forward pass without weights: q k^T, q r and p v."""
        seen = self.memory + ((self.length + 1) / 2 if self.causal else self.length)  # by a query, on average
        return self._queries() * 3 * seen * self.width

    def _queries(self) -> int:
        """Return the number of queries over all layers, rows and streams."""
        content_layers = self.layers - 1 if self.predicted else self.layers
        return self.rows * (content_layers * self.length + self.layers * self.predicted)
