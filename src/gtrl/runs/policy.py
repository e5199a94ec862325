"""Policy files: a trained policy as plain arrays, evaluated with NumPy alone.

The file format is that of `gtrl.io.mlp_file`. The header also has the policy's kind, its dimensions, and the method,
task and seed it was trained with. Where the training data was scaled, the file has the arrays of `gtrl.io.scaling` too,
and the policy takes and returns the units of that data.

A custom kind is a subclass of `Policy` with a `name`. It is found through the registry `POLICIES`, if its module is
loaded as a plugin or is an entry point of the group `gtrl.policies`.
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
from gtrl.io.scaling import SCALING_ARRAYS, Scaling
from gtrl.registry import Registry

DIMENSIONS = ("observation_dim", "goal_dim", "action_dim")
EVALUATION_FIELDS = {"task": str, "algorithm": str, "seed": int, "step": int}  # of the header, for `eval.csv`
MAX_FLOW_STEPS = 10_000  # Euler steps of a flow in a file; limits the time that an action can take
MAX_ROWS = 1024  # per call of `Policy.act`; limits the memory that a large batch takes


class Policy(ABC):
    """A policy: a callable that returns the action for an observation and a goal, or the actions for a batch of them.

    A policy with `noise_dim` > 0 is stochastic. A call with `noise` determines the action; otherwise the noise is drawn
    from the policy's own generator, which is seeded with `seed`.
    """

    name: ClassVar[str]  # the kind of policy, in the header of a file
    noise_dim: int = 0  # elements of standard normal noise that an action takes
    scaling: Scaling | None = None  # between the units of the caller and those of the network
    check_finite: bool = True  # raise a `RunError` for NaN and infinity in an observation or a goal

    def __init__(self, arrays: Mapping[str, np.ndarray], header: Header, seed: int = 0) -> None:
        """Subclasses read their arrays; this class only checks the header.

        Raises `FormatError` if arrays and header are not those of such a policy.
        """
        del arrays
        for name in DIMENSIONS:
            positive_integer(header, name, math.inf)
        if header.get("task") is not None:  # it can be evaluated on that task
            for name, kind in EVALUATION_FIELDS.items():
                if not isinstance(header.get(name), kind):
                    reject_field(header, name)
        self.header = header
        self.random = np.random.default_rng(seed)

    @abstractmethod
    def act(self, observation: np.ndarray, goal: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Returns the actions, (B, action_dim), for float32 arrays with B rows each, all in the network's units.

        The caller clips them to [-1, 1]. Results of an evaluation are independent of the number of workers only if
        the bits of a row do not depend on the other rows; `gtrl.io.mlp_file.MLP` guarantees that.
        """

    def __call__(self, observation: Any, goal: Any, noise: Any = None) -> np.ndarray:
        """Returns the actions, within their bounds; leading axes of the arguments are broadcast.

        Observations, goals and actions are in the units of the training data.
        """
        inputs = [self._input("observation", observation), self._input("goal", goal)]
        if self.noise_dim:
            shape = np.broadcast_shapes(*(array.shape[:-1] for array in inputs))
            drawn = self.random.standard_normal((*shape, self.noise_dim)) if noise is None else noise
            inputs.append(self._checked("noise", np.asarray(drawn, np.float32)))
        else:
            inputs.append(np.zeros(0, np.float32))
        shape = np.broadcast_shapes(*(array.shape[:-1] for array in inputs))
        count = math.prod(shape)
        rows = [np.broadcast_to(array, (*shape, array.shape[-1])).reshape(count, array.shape[-1]) for array in inputs]
        action = np.zeros((count, self.header["action_dim"]), np.float32)
        for start in range(0, count, MAX_ROWS):
            block = slice(start, start + MAX_ROWS)
            action[block] = self._act_on_block(*(np.asarray(array[block], np.float32) for array in rows))
        action = np.clip(action, -1, 1).reshape(*shape, self.header["action_dim"])
        return self.scaling.raw_action(action) if self.scaling else action

    def _act_on_block(self, *inputs: np.ndarray) -> np.ndarray:
        action, expected = self.act(*inputs), (len(inputs[0]), self.header["action_dim"])
        if action.shape != expected:  # NumPy would broadcast it silently
            raise RunError(f"the policy '{self.name}' returned actions of shape {action.shape}, not {expected}.")
        return action

    def _input(self, name: str, value: Any) -> np.ndarray:
        """Returns an observation or a goal in the network's units, in float32."""
        array = self._checked(name, np.asarray(value, np.float64 if self.scaling else np.float32))
        if self.check_finite and not np.isfinite(array).all():
            hint = "load the policy with check_finite=False to act all the same"
            raise RunError(f"the {name} holds NaN or infinity; {hint}.")
        return getattr(self.scaling, name)(array) if self.scaling else array

    def _checked(self, name: str, array: np.ndarray) -> np.ndarray:
        expected = self.noise_dim if name == "noise" else self.header[f"{name}_dim"]
        if array.shape[-1:] != (expected,):
            article = "an" if name == "observation" else "a"
            raise RunError(f"this policy takes {article} {name} of {expected} numbers, not of shape {array.shape}.")
        return array


class GaussianPolicy(Policy):
    """Acts with the mean of a Gaussian policy: a network of (observation, goal)."""

    name = "gaussian"

    def __init__(self, arrays: Mapping[str, np.ndarray], header: Header, seed: int = 0) -> None:
        super().__init__(arrays, header, seed)
        inputs = header["observation_dim"] + header["goal_dim"]
        self.network = mlp_file.build(arrays, header, (inputs, header["action_dim"]))

    def act(self, observation: np.ndarray, goal: np.ndarray, noise: np.ndarray) -> np.ndarray:
        del noise
        return self.network(np.concatenate([observation, goal], -1))


class FlowPolicy(Policy):
    """Integrates a velocity field from noise to an action: a network of (observation, goal, x, t)."""

    name = "flow"

    def __init__(self, arrays: Mapping[str, np.ndarray], header: Header, seed: int = 0) -> None:
        super().__init__(arrays, header, seed)
        if "flow_steps" not in header:
            raise FormatError("it is a flow, but its header has no number of Euler steps (flow_steps)")
        self.steps = positive_integer(header, "flow_steps", MAX_FLOW_STEPS)
        self.noise_dim = header["action_dim"]
        inputs = sum(header[name] for name in DIMENSIONS) + 1
        self.network = mlp_file.build(arrays, header, (inputs, self.noise_dim))
        if self.network.output != "clip":
            raise FormatError("it is a flow, whose actions are clipped, but its header has another output (output)")

    def act(self, observation: np.ndarray, goal: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return mlp.integrate_flow(
            self.network.unbounded, np.concatenate([observation, goal], -1), noise, self.steps, np
        )


def _is_kind(thing: Any) -> bool:
    """Whether it is a subclass of `Policy` with its own `name`; one without may be a base class of others."""
    return isinstance(thing, type) and issubclass(thing, Policy) and "name" in vars(thing)


POLICIES: Registry[type[Policy]] = Registry(
    "kind of policy", "gtrl.policies", _is_kind, {kind.name: kind for kind in (GaussianPolicy, FlowPolicy)}
)


def save_policy(path: Path, actor: Exportable, header: Mapping[str, Any], scaling: Scaling | None = None) -> None:
    """Writes a policy file atomically; `header` has the dimensions, and the method, task and seed of the training."""
    arrays, network_header = actor.export()
    mlp_file.write(path, arrays | (scaling.to_arrays() if scaling else {}), {**network_header, **header})


def load_policy(path: str | Path, seed: int = 0, *, check_finite: bool = True) -> Policy:
    """Returns the policy in a file: a callable from observation and goal to action. Needs NumPy only.

    Args:
        path: The file.
        seed: The seed of the noise of a stochastic policy (a flow).
        check_finite: Whether the policy raises a `RunError` for NaN and infinity in an observation or a goal.
    """
    path = Path(path).expanduser()
    arrays, header = mlp_file.read(path, "a policy file", RunError)
    kind = _kind_of(path, header.get("kind"))
    try:
        scaling = split_scaling(arrays, header)
        policy = kind(arrays, header, seed)
    except FormatError as error:
        raise RunError(f"{path} is not a policy file: {error}.") from error
    except (LookupError, TypeError, ValueError) as error:  # a custom kind may not check its arrays
        raise RunError(f"{path} is not a policy file of kind '{kind.name}': {error!r:.100}.") from error
    policy.scaling, policy.check_finite = scaling, check_finite
    return policy


def split_scaling(arrays: dict[str, np.ndarray], header: Header) -> Scaling | None:
    """Removes the arrays of the scaling from a policy's arrays and returns the scaling; None if there are none."""
    found = {name: arrays.pop(name) for name in SCALING_ARRAYS if name in arrays}
    if not found:
        return None
    try:
        scaling = Scaling.from_mapping(found)
    except ValueError as error:
        raise FormatError(f"its scaling is invalid: {error}") from error
    for name in DIMENSIONS:
        if len(found[name.replace("_dim", "_center")]) != header.get(name):
            raise FormatError(f"its scaling does not match its header's {name}")
    return scaling


def _kind_of(path: Path, name: Any) -> type[Policy]:
    # A reference such as module:Name is not accepted: a file must not decide which modules are imported.
    if isinstance(name, str) and ":" not in name:
        with contextlib.suppress(UnknownNameError):
            return POLICIES.find(name)
    known = f"known kinds are {', '.join(POLICIES)}; plugins may add others"
    raise RunError(f"{path} holds a policy of kind {f'{name!s:.60}'!r}; {known}.")
