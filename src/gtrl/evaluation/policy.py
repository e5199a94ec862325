"""`policy.npz`: a trained policy as plain arrays, and the callable it becomes. NumPy only."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import mlp
from gtrl.errors import RunError
from gtrl.npz import read_npz, write_npz

FORMAT = 1
# Policies are always evaluated in blocks of so many rows: linear algebra libraries choose their kernels by
# shape, so only a fixed shape makes a row's bits independent of how many others stand beside it.
ROWS = 16


class Policy:
    """(observation, goal) to action, for one state or for a batch of them."""

    def __init__(self, layers: Sequence[mlp.Layer], header: dict[str, Any]) -> None:
        self.layers = [mlp.Layer(*(None if a is None else a.astype(np.float32) for a in layer)) for layer in layers]
        self.header = header

    def __call__(self, observation: Any, goal: Any) -> np.ndarray:
        observation, goal = np.asarray(observation, np.float32), np.asarray(goal, np.float32)
        for name, array in (("observation", observation), ("goal", goal)):
            expected = self.header[f"{name}_dim"]
            if array.shape[-1:] != (expected,):
                raise RunError(f"this policy takes a {name} of {expected} numbers, not of shape {array.shape}.")
        shape = np.broadcast_shapes(observation.shape[:-1], goal.shape[:-1])
        columns = [np.broadcast_to(a, (*shape, a.shape[-1])).reshape(-1, a.shape[-1]) for a in (observation, goal)]
        inputs = np.concatenate(columns, -1)
        count = len(inputs)
        padded = np.zeros((-(-count // ROWS) * ROWS, inputs.shape[-1]), np.float32)
        padded[:count] = inputs
        action = np.zeros((len(padded), self.header["action_dim"]), np.float32)
        for start in range(0, len(padded), ROWS):
            action[start : start + ROWS] = mlp.forward(self.layers, padded[start : start + ROWS], np)
        return np.clip(action[:count], -1, 1).reshape(*shape, self.header["action_dim"])


def save_policy(path: Path, layers: Sequence[mlp.Layer], header: dict[str, Any], dtype: str = "float32") -> None:
    """Write a policy whole or not at all."""
    arrays = {
        f"{name}{depth}": np.asarray(array, dtype)
        for depth, layer in enumerate(layers)
        for name, array in layer._asdict().items()
        if array is not None
    }
    text = json.dumps({"format": FORMAT, "layers": len(layers), **header})
    write_npz(path, {"header": np.array(text), **arrays}, compress=False)


def load_policy(path: str | Path) -> Policy:
    """The policy in a file, as a callable (observation, goal) to action. Needs NumPy alone."""
    path = Path(path).expanduser()
    arrays = read_npz(path, RunError)
    try:
        header = json.loads(str(arrays["header"]))
    except (KeyError, ValueError) as error:
        raise RunError(f"{path} is not a policy file: it has no readable header.") from error
    if header.get("format") != FORMAT:
        raise RunError(f"{path} has policy format {header.get('format')}; this version reads format {FORMAT}.")
    names = mlp.Layer._fields
    layers = [mlp.Layer(*(arrays.get(f"{name}{depth}") for name in names)) for depth in range(header["layers"])]
    return Policy(layers, header)
