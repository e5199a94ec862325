"""What makes a training step fast, by name, so that each can be switched off and its gain measured.

`kernels`   bias, GELU and layer norm in one pass over memory each way, the last layer included (gtrl.kernels; GPU only)
`together`  networks that read the same rows go through their layers side by side, in one matrix product a layer
`flat`      parameters, moments and targets are one vector each inside the loop: one Adam kernel instead of one a leaf

With none of them a step is what JAX makes of the formulas. docs/performance.md has what each of them brings.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

Optimisation = Literal["kernels", "together", "flat"]
OPTIMISATIONS: tuple[Optimisation, ...] = get_args(Optimisation)
ON_CPU: tuple[Optimisation, ...] = ()

_used: ContextVar[frozenset[str]] = ContextVar("used", default=frozenset())


def best(platform: str) -> tuple[Optimisation, ...]:
    """The ones that pay on such a device."""
    return ON_CPU if platform == "cpu" else OPTIMISATIONS


@contextmanager
def using(optimisations: Sequence[str]) -> Iterator[None]:
    """Trace what is inside with these."""
    token = _used.set(frozenset(optimisations))
    try:
        yield
    finally:
        _used.reset(token)


def used(optimisation: Optimisation) -> bool:
    return optimisation in _used.get()
