"""The optimisations of a training step, by name, so that each can be switched off and its gain measured.

`kernels`   bias, GELU and layer norm in one pass over memory, forward and backward (`gtrl.nn.kernels`)
`together`  GPU: networks that read the same rows are evaluated with one batched matrix product per layer
`flat`      GPU: inside the loop, parameters are stored as products read them, and small arrays as one vector
`graphs`    GPU: the loop is one CUDA graph, in which independent kernels run concurrently
`apart`     CPU: seeds run in separate threads and ensemble members one by one, as batched products are slow on a CPU

Without any of them JAX compiles the plain formulas. docs/performance.md has the gain of each.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

Optimisation = Literal["kernels", "together", "flat", "graphs", "apart"]
OPTIMISATIONS: tuple[Optimisation, ...] = get_args(Optimisation)
ON_CPU: tuple[Optimisation, ...] = ("kernels", "apart")  # the defaults on a CPU
ON_GPU: tuple[Optimisation, ...] = ("kernels", "together", "flat", "graphs")  # the defaults on a GPU
# XLA's compiler options for `graphs`. WHILE makes the loop part of the graph: no step waits for the host. Without the
# last one, XLA makes one product of several with the same weight, for which it copies their inputs and outputs.
GRAPH_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_dot_merger_threshold_mb": "0",
}

COMPUTE_CAPABILITY: str | None = None  # of a GPU to compile for, such as "9.0"; by default this machine's
INTERPRETED = False  # for tests: run the GPU kernels on any device with Pallas's interpreter, which is slow

_enabled: ContextVar[frozenset[str]] = ContextVar("enabled", default=frozenset())
_copies: ContextVar[int] = ContextVar("copies", default=1)


def defaults_for(platform: str) -> tuple[Optimisation, ...]:
    """Returns the optimisations that save time on a platform, "cpu" or "gpu"; none for others."""
    return {"cpu": ON_CPU, "gpu": ON_GPU}.get(platform, ())


@contextmanager
def using(optimisations: Sequence[str], copies: int = 1) -> Iterator[None]:
    """Enables optimisations for what is traced inside; `copies` is the number of seeds that run side by side."""
    tokens = _enabled.set(frozenset(optimisations)), _copies.set(copies)
    try:
        yield
    finally:
        _enabled.reset(tokens[0])
        _copies.reset(tokens[1])


def is_enabled(optimisation: Optimisation) -> bool:
    """Whether the code that is being traced should use an optimisation; see `using`."""
    return optimisation in _enabled.get()


def copies() -> int:
    """Returns how many copies of the traced code run side by side, which code inside a `vmap` cannot see."""
    return _copies.get()
