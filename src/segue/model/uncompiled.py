"""Functions that no compiler may look into, without loading one."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def uncompiled(function: Callable[P, T]) -> Callable[P, T]:
    """As `torch.compiler.disable`, put on only where a compiler is at work: it loads all of torch's compiler, which
    takes more than a second, and most commands compile nothing."""
    made: list[Callable[P, T]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not made:
            made.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return made[0](*args, **kwargs)

    return call
