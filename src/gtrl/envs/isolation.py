"""Isolation of an environment's random numbers from those of the rest of the process."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def ignore_warnings() -> Iterator[None]:
    """Suppresses warnings, such as those that importing OGBench gives on machines without a display."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_global: Any = np.random  # untyped: the stubs lack get_bit_generator and set_bit_generator


def _keep_action_space(env: Any) -> None:
    """Gives an environment a fixed action space.

    OGBench's manipulation environments create a new action space, randomly seeded, at each access.
    """
    env_class = type(env)
    if isinstance(getattr(env_class, "action_space", None), property):
        with ignore_warnings():
            if env.action_space is not env.action_space:
                env.__class__ = type(env_class.__name__, (env_class,), {"action_space": env.action_space})


class IsolatedEnv:
    """An environment whose episodes depend only on their seed.

    OGBench draws random numbers from the global NumPy generator, `env.np_random` and `env.action_space`. All three
    are seeded at each reset. While the environment runs, its own generator replaces the global one, so that
    environments in the same process do not affect each other.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        _keep_action_space(env.unwrapped)
        self._generator = np.random.MT19937(0)

    @contextlib.contextmanager
    def own_random_state(self) -> Iterator[None]:
        """Replaces the global NumPy generator by the environment's own while the context is active."""
        previous = _global.get_bit_generator()
        _global.set_bit_generator(self._generator)
        try:
            yield
        finally:
            _global.set_bit_generator(previous)

    def reset(self, seed: np.random.SeedSequence, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Seeds all generators, then resets the environment."""
        global_seed, env_seed, action_seed = (int(word) for word in seed.generate_state(3))
        self._generator = np.random.MT19937(global_seed)
        self.env.unwrapped.action_space.seed(action_seed)
        with self.own_random_state():
            return self.env.reset(seed=env_seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step with the environment's own random numbers."""
        with self.own_random_state():
            return self.env.step(action)
