"""A policy trained with gtrl, in one file that needs NumPy alone (Python 3.8 or later).

    from policy import Policy

    policy = Policy()
    action = policy(observation, goal)  # the action, in the units of the training data

`HEADER` says where the policy came from: method, task, seed, step, sizes and, where known, the order of the columns.
"""

from __future__ import annotations

import base64
import json

import numpy as np

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
    "silu": lambda x: 0.5 * x * (1 + np.tanh(0.5 * x)),
    "tanh": np.tanh,
}


class Policy:
    """A callable that returns the action for an observation and a goal, or the actions for a batch of them.

    Observations and goals are in the units of the training data. NaN and infinite values raise a `ValueError` unless
    `check_finite` is false. `seed` is that of the noise of a stochastic policy (a flow).
    """

    def __init__(self, check_finite: bool = True, seed: int = 0) -> None:
        self.check_finite = check_finite
        self.random = np.random.default_rng(seed)

    def __call__(self, observation, goal, noise=None) -> np.ndarray:
        """Returns the actions (..., action_dim) in float32; leading axes of the arguments are broadcast."""
        inputs = [self._scaled("observation", observation), self._scaled("goal", goal)]
        if HEADER["flow_steps"]:
            if noise is None:
                noise = self.random.standard_normal((*leading_axes(inputs), HEADER["action_dim"]))
            inputs.append(self._scaled("noise", noise))
        axes = leading_axes(inputs)
        inputs = [np.broadcast_to(each, (*axes, each.shape[-1])).astype(np.float32) for each in inputs]
        return self._raw(np.clip(self._act(*inputs), -1, 1))

    def _scaled(self, name: str, value) -> np.ndarray:
        """Returns an input as an array, scaled as in training."""
        array = np.asarray(value, np.float64)
        size = HEADER["action_dim" if name == "noise" else f"{name}_dim"]
        if array.shape[-1:] != (size,):
            article = "an" if name == "observation" else "a"
            raise ValueError(f"this policy takes {article} {name} of {size} numbers, not of shape {array.shape}.")
        if self.check_finite and not np.isfinite(array).all():
            raise ValueError(f"the {name} has NaN or infinite values; Policy(check_finite=False) accepts them.")
        if f"{name}_center" in ARRAYS:
            array = (array - ARRAYS[f"{name}_center"]) / ARRAYS[f"{name}_scale"]
            array = np.clip(array, -HEADER["limit"], HEADER["limit"])
        return array

    def _act(self, observation: np.ndarray, goal: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """Returns the network's action; for a flow, x at t = 1 after Euler steps from the noise x at t = 0."""
        if x is None:
            action = network(np.concatenate([observation, goal], -1))
            return np.tanh(action) if HEADER["output"] == "tanh" else action
        steps = HEADER["flow_steps"]
        for step in range(steps):
            t = np.full((*x.shape[:-1], 1), step / steps, np.float32)
            x = x + network(np.concatenate([observation, goal, x, t], -1)) / np.float32(steps)
        return x

    def _raw(self, action: np.ndarray) -> np.ndarray:
        """Returns an action within ±1 in the units of the training data, within its bounds."""
        if "action_center" not in ARRAYS:
            return action
        raw = ARRAYS["action_center"] + ARRAYS["action_scale"] * action
        return np.clip(raw, ARRAYS["action_low"], ARRAYS["action_high"]).astype(np.float32)


def leading_axes(arrays: list) -> tuple:
    """Returns the axes before the last, to which arrays are broadcast."""
    return np.broadcast(*(each[..., 0] for each in arrays)).shape


def network(x: np.ndarray) -> np.ndarray:
    """Maps inputs (..., in) to the outputs of the last layer (..., out)."""
    if "input_mean" in ARRAYS:
        x = (x - ARRAYS["input_mean"]) / ARRAYS["input_deviation"]
    for k in range(HEADER["layers"]):
        x = x @ ARRAYS[f"weight{k}"] + ARRAYS[f"bias{k}"]
        if k < HEADER["layers"] - 1:
            x = ACTIVATIONS[HEADER["activation"]](x)
        if f"scale{k}" in ARRAYS:
            x = layer_norm(x) * ARRAYS[f"scale{k}"] + ARRAYS[f"shift{k}"]
    return x


def layer_norm(x: np.ndarray) -> np.ndarray:
    """Standardises each row."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(HEADER["epsilon"]))


def array(dtype: str, shape: tuple, text: str) -> np.ndarray:
    """Decodes an array. Those in float16 become float32, in which the network computes."""
    values = np.frombuffer(base64.b64decode(text), dtype).reshape(shape)
    return values.astype(np.float64 if dtype == "<f8" else np.float32)


# --- the policy ---

HEADER = json.loads("{}")
ARRAYS = {}
