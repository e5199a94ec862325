"""`policy.npz`: a trained policy as plain arrays, and the callable it becomes. NumPy only."""

import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import mlp
from gtrl.errors import RunError

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
        blocks = [mlp.forward(self.layers, block, np) for block in padded.reshape(-1, ROWS, inputs.shape[-1])]
        action = np.clip(np.concatenate(blocks)[:count], -1, 1) if blocks else np.zeros((0, self.header["action_dim"]))
        return action.reshape(*shape, action.shape[-1])


def save_policy(path: Path, layers: Sequence[mlp.Layer], header: dict[str, Any], dtype: str = "float32") -> None:
    """Write a policy whole or not at all."""
    arrays = {
        f"{name}{depth}": np.asarray(array, dtype)
        for depth, layer in enumerate(layers)
        for name, array in layer._asdict().items()
        if array is not None
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        text = json.dumps({"format": FORMAT, "layers": len(layers), **header})
        np.savez(file, header=np.array(text), **arrays)  # pyright: ignore[reportArgumentType]
    os.replace(partial, path)


def load_policy(path: str | Path) -> Policy:
    """The policy in a file, as a callable (observation, goal) to action. Needs NumPy alone."""
    path = Path(path).expanduser()
    if not path.exists():
        raise RunError(f"there is no policy file {path}.")
    try:
        with np.load(path) as file:
            header = json.loads(str(file["header"]))
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(f"{path} is not a readable policy file ({error}).") from error
    if header.get("format") != FORMAT:
        raise RunError(f"{path} has policy format {header.get('format')}; this version reads format {FORMAT}.")
    names = mlp.Layer._fields
    layers = [mlp.Layer(*(arrays.get(f"{name}{depth}") for name in names)) for depth in range(header["layers"])]
    return Policy(layers, header)
