"""How each environment gets randomness of its own."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def ignore_warnings() -> Iterator[None]:
    """Without what OGBench's imports and spaces warn of on every machine without a screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_global: Any = np.random  # its stubs do not know of the generator behind the global functions


def _keep_action_space(env: Any) -> None:
    """Manipulation environments make a fresh action space, seeded by chance, at each look; give them one to keep."""
    kind = type(env)
    if isinstance(getattr(kind, "action_space", None), property):
        with ignore_warnings():
            if env.action_space is not env.action_space:
                env.__class__ = type(kind.__name__, (kind,), {"action_space": env.action_space})


class IsolatedEnv:
    """An environment whose episodes depend on their seed alone.

    OGBench draws from three places: the global NumPy generator, `env.np_random` and `env.action_space`.
    All three are seeded at each reset, and the environment's own generator stands in for the global one
    while it runs, so that environments that share a process do not disturb each other.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        _keep_action_space(env.unwrapped)
        self._generator = np.random.MT19937(0)

    @contextlib.contextmanager
    def own_random_state(self) -> Iterator[None]:
        before = _global.get_bit_generator()
        _global.set_bit_generator(self._generator)
        try:
            yield
        finally:
            _global.set_bit_generator(before)

    def reset(self, seed: np.random.SeedSequence, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        for_global, for_env, for_actions = (int(word) for word in seed.generate_state(3))
        self._generator = np.random.MT19937(for_global)
        self.env.unwrapped.action_space.seed(for_actions)
        with self.own_random_state():
            return self.env.reset(seed=for_env, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        with self.own_random_state():
            return self.env.step(action)
