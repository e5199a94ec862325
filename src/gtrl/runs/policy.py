"""`policy.npz`: a trained policy as plain arrays, and the callable it becomes. NumPy only.

The file is that of `gtrl.io.mlp_file`; its header also names the policy's kind, its dimensions and what trained it. A
kind of your own is a subclass of `Policy` with a `name`, found through the registry POLICIES: its module is loaded as a
plugin, or an installed package names it as an entry point of the group `gtrl.policies`.
"""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gtrl.errors import RunError, UnknownNameError
from gtrl.io import mlp, mlp_file
from gtrl.io.mlp_file import Exportable, FormatError, Header, positive_integer, reject_field
from gtrl.registry import Registry

DIMENSIONS = ("observation_dim", "goal_dim", "action_dim")
EVALUATED_AS = {"task": str, "algorithm": str, "seed": int, "step": int}  # what eval.csv says of a policy
MAX_FLOW_STEPS = 10_000  # of a flow that is read from a file: bounds the time of an action
# Policies are always evaluated in blocks of so many rows: linear algebra libraries choose their kernels by
# shape, so only a fixed shape makes a row's bits independent of how many others stand beside it.
ROWS = 16


class Policy(ABC):
    """(observation, goal) to action, for one state or for a batch of them.

    A policy with `noise_dim` acts at random: give the noise to decide the action, else it is drawn from the policy's
    own generator, which `seed` starts.
    """

    name: ClassVar[str]  # its kind, in the header of a file
    noise_dim: int = 0  # how many numbers of standard normal noise an action takes

    def __init__(self, arrays: Mapping[str, np.ndarray], header: Header, seed: int = 0) -> None:
        """Raises `FormatError` where arrays and header are not those of such a policy. Reads no arrays here."""
        del arrays
        for name in DIMENSIONS:
            positive_integer(header, name, math.inf)
        if header.get("task") is not None:  # it can be evaluated, under its name
            for name, kind in EVALUATED_AS.items():
                if not isinstance(header.get(name), kind):
                    reject_field(header, name)
        self.header = header
        self.random = np.random.default_rng(seed)

    @abstractmethod
    def act(self, observation: np.ndarray, goal: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The actions, which are clipped to [-1, 1], of ROWS rows: each argument is a float32 array (ROWS, numbers)."""

    def __call__(self, observation: Any, goal: Any, noise: Any = None) -> np.ndarray:
        given = [self._checked("observation", observation), self._checked("goal", goal)]
        if self.noise_dim:
            shape = np.broadcast_shapes(*(array.shape[:-1] for array in given))
            drawn = self.random.standard_normal((*shape, self.noise_dim)) if noise is None else noise
            given.append(self._checked("noise", drawn))
        else:
            given.append(np.zeros(0, np.float32))
        shape = np.broadcast_shapes(*(array.shape[:-1] for array in given))
        count = math.prod(shape)
        columns = [np.zeros((-(-count // ROWS) * ROWS, array.shape[-1]), np.float32) for array in given]
        for column, array in zip(columns, given, strict=True):
            column[:count] = np.broadcast_to(array, (*shape, array.shape[-1])).reshape(column[:count].shape)
        action = np.zeros((len(columns[0]), self.header["action_dim"]), np.float32)
        for start in range(0, count, ROWS):
            action[start : start + ROWS] = self._block(*(column[start : start + ROWS] for column in columns))
        return np.clip(action[:count], -1, 1).reshape(*shape, self.header["action_dim"])

    def _block(self, *columns: np.ndarray) -> np.ndarray:
        action, expected = self.act(*columns), (ROWS, self.header["action_dim"])
        if action.shape != expected:  # NumPy would broadcast it silently
            raise RunError(f"the policy '{self.name}' returned actions of shape {action.shape}, not {expected}.")
        return action

    def _checked(self, name: str, given: Any) -> np.ndarray:
        array = np.asarray(given, np.float32)
        expected = self.noise_dim if name == "noise" else self.header[f"{name}_dim"]
        if array.shape[-1:] != (expected,):
            raise RunError(f"this policy takes a {name} of {expected} numbers, not of shape {array.shape}.")
        return array


class GaussianPolicy(Policy):
    """The mean of a Gaussian: a network of (observation, goal)."""

    name = "gaussian"

    def __init__(self, arrays: Mapping[str, np.ndarray], header: Header, seed: int = 0) -> None:
        super().__init__(arrays, header, seed)
        inputs = header["observation_dim"] + header["goal_dim"]
        self.network = mlp_file.build(arrays, header, (inputs, header["action_dim"]))

    def act(self, observation: np.ndarray, goal: np.ndarray, noise: np.ndarray) -> np.ndarray:
        del noise
        return self.network(np.concatenate([observation, goal], -1))


class FlowPolicy(Policy):
    """A velocity field that carries noise to an action: a network of (observation, goal, x, t)."""

    name = "flow"

    def __init__(self, arrays: Mapping[str, np.ndarray], header: Header, seed: int = 0) -> None:
        super().__init__(arrays, header, seed)
        if "flow_steps" not in header:
            raise FormatError("it is a flow, but does not say in how many steps to follow it (flow_steps)")
        self.steps = positive_integer(header, "flow_steps", MAX_FLOW_STEPS)
        self.noise_dim = header["action_dim"]
        inputs = sum(header[name] for name in DIMENSIONS) + 1
        self.network = mlp_file.build(arrays, header, (inputs, self.noise_dim))
        if self.network.output != "clip":
            raise FormatError("it is a flow, whose action is clipped, but its header says otherwise (output)")

    def act(self, observation: np.ndarray, goal: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return mlp.integrate_flow(
            self.network.unbounded, np.concatenate([observation, goal], -1), noise, self.steps, np
        )


def _is_kind(thing: Any) -> bool:
    """Whether it is a subclass of `Policy` with a name of its own: one without may be a base of others."""
    return isinstance(thing, type) and issubclass(thing, Policy) and "name" in vars(thing)


POLICIES: Registry[type[Policy]] = Registry(
    "kind of policy", "gtrl.policies", _is_kind, {kind.name: kind for kind in (GaussianPolicy, FlowPolicy)}
)


def save_policy(path: Path, actor: Exportable, header: Mapping[str, Any]) -> None:
    """Write a policy atomically; `header` has its dimensions and what trained it."""
    arrays, exported = actor.export()
    mlp_file.write(path, arrays, {**exported, **header})


def load_policy(path: str | Path, seed: int = 0) -> Policy:
    """The policy in a file, as a callable (observation, goal) to action. Needs NumPy alone.

    `seed` starts the noise of a policy that acts at random (a flow).
    """
    path = Path(path).expanduser()
    arrays, header = mlp_file.read(path, "a policy file", RunError)
    kind = _kind_of(path, header.get("kind"))
    try:
        return kind(arrays, header, seed)
    except FormatError as error:
        raise RunError(f"{path} is not a policy file: {error}.") from error
    except (LookupError, TypeError, ValueError) as error:  # a user's own kind may not check what it reads
        raise RunError(f"{path} is not a policy file of kind '{kind.name}': {error!r:.100}.") from error


def _kind_of(path: Path, name: Any) -> type[Policy]:
    # A reference such as module:Name would be imported, and a file must not decide what is imported.
    if isinstance(name, str) and ":" not in name:
        with contextlib.suppress(UnknownNameError):
            return POLICIES.find(name)
    known = f"known are {', '.join(POLICIES)}, and more with their plugins"
    raise RunError(f"{path} holds a policy of kind {f'{name!s:.60}'!r}; {known}.")
