"""Functions excluded from compilation, without importing the compiler."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def uncompiled(function: Callable[P, T]) -> Callable[P, T]:
    """Apply `torch.compiler.disable`, but only while compiling: it imports all of torch's compiler, which takes more
    than a second, and most commands compile nothing."""
    made: list[Callable[P, T]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not made:
            made.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return made[0](*args, **kwargs)

    return call
