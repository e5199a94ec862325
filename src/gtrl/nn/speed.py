"""What makes a training step fast, by name, so that each can be switched off and its gain measured.

`kernels`   bias, GELU and layer norm in one pass over memory each way (`gtrl.nn.kernels`)
`together`  GPU: networks that read the same rows go through their layers side by side, in one matrix product a layer
`flat`      GPU: parameters, moments and targets are one vector each inside the loop, and Adam one kernel
`graphs`    GPU: the loop is one CUDA graph, in which kernels that do not need each other run at the same time
`apart`     CPU: seeds in threads of their own, members of an ensemble one by one, for batched products are slow there

With none of them a step is what JAX makes of the formulas. docs/performance.md has what each of them brings.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

Optimisation = Literal["kernels", "together", "flat", "graphs", "apart"]
OPTIMISATIONS: tuple[Optimisation, ...] = get_args(Optimisation)
ON_CPU: tuple[Optimisation, ...] = ("kernels", "apart")
ON_GPU: tuple[Optimisation, ...] = ("kernels", "together", "flat", "graphs")
# XLA's options behind `graphs`. WHILE takes the loop itself into the graph: no step waits for the host.
GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}

INTERPRETED = False  # run the GPU kernels on any device, slowly, by Pallas's interpreter: for tests

_used: ContextVar[frozenset[str]] = ContextVar("used", default=frozenset())
_copies: ContextVar[int] = ContextVar("copies", default=1)


def best(platform: str) -> tuple[Optimisation, ...]:
    """The ones that pay on such a device."""
    return {"cpu": ON_CPU, "gpu": ON_GPU}.get(platform, ())


@contextmanager
def using(optimisations: Sequence[str], copies: int = 1) -> Iterator[None]:
    """Trace what is inside with these; `copies` of it, the seeds, run side by side."""
    tokens = _used.set(frozenset(optimisations)), _copies.set(copies)
    try:
        yield
    finally:
        _used.reset(tokens[0])
        _copies.reset(tokens[1])


def used(optimisation: Optimisation) -> bool:
    return optimisation in _used.get()


def copies() -> int:
    """How often what is traced runs side by side, which the code inside a `vmap` cannot see."""
    return _copies.get()
