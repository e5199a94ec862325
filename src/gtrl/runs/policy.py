"""`policy.npz`: a trained policy as plain arrays, and the callable it becomes. NumPy only."""

import json
import math
import reprlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.io import mlp
from gtrl.errors import RunError
from gtrl.io.npz import read_npz, write_npz

FORMAT = 1
KINDS = ("gaussian", "flow")
NAMED = {"task": str, "algorithm": str, "seed": int, "step": int}  # in eval.csv
MOST_STEPS = 10_000  # of a flow that is read from a file: an action must not take forever
# Policies are always evaluated in blocks of so many rows: linear algebra libraries choose their kernels by
# shape, so only a fixed shape makes a row's bits independent of how many others stand beside it.
ROWS = 16


class Policy:
    """(observation, goal) to action, for one state or for a batch of them.

    A Gaussian policy gives its mean. A flow carries noise to an action: give the noise to decide the action, else it is
    drawn from the policy's own generator, which `seed` starts.
    """

    def __init__(self, layers: Sequence[mlp.Layer], header: dict[str, Any], seed: int = 0) -> None:
        self.layers = [mlp.Layer(*(None if a is None else a.astype(np.float32) for a in layer)) for layer in layers]
        self.header = header
        self.random = np.random.default_rng(seed)

    @property
    def noise_dim(self) -> int:
        """How many numbers of noise an action takes; 0 for a policy that is not random."""
        return self.header["action_dim"] if self.header["kind"] == "flow" else 0

    def __call__(self, observation: Any, goal: Any, noise: Any = None) -> np.ndarray:
        arrays = [self._checked("observation", observation), self._checked("goal", goal)]
        if self.noise_dim:
            shape = np.broadcast_shapes(*(array.shape[:-1] for array in arrays))
            drawn = self.random.standard_normal((*shape, self.noise_dim)) if noise is None else noise
            arrays.append(self._checked("noise", drawn))
        shape = np.broadcast_shapes(*(array.shape[:-1] for array in arrays))
        columns = [np.broadcast_to(array, (*shape, array.shape[-1])).reshape(-1, array.shape[-1]) for array in arrays]
        inputs = np.concatenate(columns, -1)
        count = len(inputs)
        padded = np.zeros((-(-count // ROWS) * ROWS, inputs.shape[-1]), np.float32)
        padded[:count] = inputs
        action = np.zeros((len(padded), self.header["action_dim"]), np.float32)
        for start in range(0, len(padded), ROWS):
            action[start : start + ROWS] = self._act(padded[start : start + ROWS])
        return np.clip(action[:count], -1, 1).reshape(*shape, self.header["action_dim"])

    def _checked(self, name: str, given: Any) -> np.ndarray:
        array = np.asarray(given, np.float32)
        expected = self.noise_dim if name == "noise" else self.header[f"{name}_dim"]
        if array.shape[-1:] != (expected,):
            raise RunError(f"this policy takes a {name} of {expected} numbers, not of shape {array.shape}.")
        return array

    def _act(self, rows: np.ndarray) -> np.ndarray:
        if not self.noise_dim:
            return mlp.forward(self.layers, rows, np)
        inputs, noise = np.split(rows, [rows.shape[-1] - self.noise_dim], -1)
        return mlp.flow(self.layers, inputs, noise, self.header["flow_steps"], np)


def save_policy(path: Path, actor: Any, header: dict[str, Any], dtype: str = "float32") -> None:
    """Write a policy whole or not at all."""
    layers, header = actor.layers, {**actor.header, **header}
    arrays = {
        f"{name}{depth}": np.asarray(array, dtype)
        for depth, layer in enumerate(layers)
        for name, array in layer._asdict().items()
        if array is not None
    }
    text = json.dumps({"format": FORMAT, "layers": len(layers), **header})
    write_npz(path, {"header": np.array(text), **arrays}, compress=False)


def load_policy(path: str | Path, seed: int = 0) -> Policy:
    """The policy in a file, as a callable (observation, goal) to action. Needs NumPy alone.

    `seed` starts the noise of a policy that acts at random (a flow).
    """
    path = Path(path).expanduser()
    arrays = read_npz(path, RunError)
    try:
        header = json.loads(str(arrays.pop("header")))
        found = header.get("format")
    except (KeyError, ValueError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is not a policy file: it has no readable header.") from error
    if found != FORMAT:
        raise RunError(f"{path} has policy format {found!r:.60}; this version reads format {FORMAT}.")
    if header.get("kind") not in KINDS:
        found = f"{header.get('kind')!s:.60}"
        raise RunError(f"{path} holds a policy of kind {found!r}; this version knows {' and '.join(KINDS)}.")
    if header["kind"] == "flow" and "flow_steps" not in header:
        raise RunError(f"{path} holds a flow, but does not say in how many steps to follow it (flow_steps).")
    problem = _header_problem(header, len(arrays)) or _array_problem(arrays, _shapes(header, arrays))
    if problem:
        raise RunError(f"{path} is not a policy file: {problem}.")
    names = mlp.Layer._fields
    layers = [mlp.Layer(*(arrays.get(f"{name}{depth}") for name in names)) for depth in range(header["layers"])]
    return Policy(layers, header, seed)


def _header_problem(header: dict[str, Any], arrays: int) -> str | None:
    """What keeps a header from being one of a network of so many arrays, if anything."""
    most = {"observation_dim": math.inf, "goal_dim": math.inf, "action_dim": math.inf, "layers": arrays}
    if header["kind"] == "flow":
        most["flow_steps"] = MOST_STEPS
    wrong = [
        name for name, limit in most.items() if type(header.get(name)) is not int or not 1 <= header[name] <= limit
    ]
    if header.get("task") is not None:  # it can be evaluated, under its name
        wrong += [name for name, kind in NAMED.items() if not isinstance(header.get(name), kind)]
    return f"its header has no possible {wrong[0]} ({reprlib.repr(header.get(wrong[0]))})" if wrong else None


def _shapes(header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """The shape each array must have, going by the header and, for hidden layers, by the biases."""
    inputs = header["observation_dim"] + header["goal_dim"]
    inputs += header["action_dim"] + 1 if header["kind"] == "flow" else 0
    hidden = [arrays[f"bias{k}"].size if f"bias{k}" in arrays else 0 for k in range(header["layers"] - 1)]
    shapes: dict[str, tuple[int, ...]] = {}
    for k, (before, after) in enumerate(pairwise([inputs, *hidden, header["action_dim"]])):
        shapes[f"weight{k}"] = (before, after)
        shapes |= {f"{name}{k}": (after,) for name in (("bias", "scale", "shift") if k < len(hidden) else ("bias",))}
    return shapes


def _array_problem(arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """What keeps arrays from being the network of these shapes, if anything."""
    for name in shapes:
        if name not in arrays:
            return f"it has no array '{name}'"
    for name, array in arrays.items():
        if name not in shapes:
            return f"its array {name[:60]!r} belongs to no layer"
        if array.shape != shapes[name] or not array.size:
            return f"'{name}' has the shape {array.shape}, which does not fit the others"
        with np.errstate(over="ignore"):
            finite = array.dtype.kind in "fiu" and np.isfinite(array.astype(np.float32)).all()
        if not finite:
            return f"'{name}' holds something else than finite numbers"
    return None
