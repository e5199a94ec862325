"""Expert policies that walk or dribble, as plain array files: what ant, humanoid and soccer data is collected with.

Training one takes millions of simulator steps and is not part of this package; any actor that is a multilayer
perceptron can be written down in this layout (docs/formats.md):

- `weight<k>` (in, out) and `bias<k>` (out,) for each layer k = 0, 1, ...;
- `activation`, a text: relu, gelu, silu or tanh, after each layer but the last;
- `squash`, true where the action is the tanh of the output (SAC), false where it is the output;
- if the network has them: `scale<k>` and `shift<k>` of a layer norm after the activation; `input_mean` and
  `input_deviation`, with which inputs are standardised first.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gtrl.errors import ConfigError, DataError
from gtrl.io import mlp
from gtrl.io.npz import read_npz
from gtrl.tasks import OGBenchTask

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: mlp.gelu(x, np),
    "silu": lambda x: 0.5 * x * (1 + np.tanh(0.5 * x)),  # x times the logistic function of x, without overflow
    "tanh": np.tanh,
}
# What each expert is told: the state without what it must not depend on, then where to go.
_INPUTS = {
    ("antmaze", "walk"): 29,
    ("humanoidmaze", "walk"): 69,
    ("antsoccer", "walk"): 29,
    ("antsoccer", "dribble"): 42,
}


FLAGS = {"walk": "--expert", "dribble": "--dribble-expert"}


class Experts(NamedTuple):
    """Files of expert policies, where a task needs them."""

    walk: Path | None = None
    dribble: Path | None = None

    def check(self, task: OGBenchTask) -> None:
        """Read the files this task needs; an error says which is missing, wrong or not needed."""
        for role, path in self._asdict().items():
            if role in roles_of(task):
                load_expert(path, task, role)
            elif path is not None:
                raise ConfigError(f"collecting {task.name} takes no expert that can {role}.")


NO_EXPERTS = Experts()


def roles_of(task: OGBenchTask) -> list[str]:
    """The experts a task's collector needs; none for point mazes and manipulation."""
    return [role for family, role in _INPUTS if family == task.family]


class Expert:
    """Input to mean action, within -1 to 1."""

    def __init__(self, path: Path) -> None:
        arrays = read_npz(path, DataError)
        problem = _problem(arrays)
        if problem:
            raise DataError(f"{path} is not an expert policy: {problem}.")
        names = mlp.Layer._fields
        self.layers = [mlp.Layer(*(arrays.get(f"{name}{k}") for name in names)) for k in range(_depth(arrays))]
        self.widths = [len(self.layers[0].weight), *(len(layer.bias) for layer in self.layers)]
        self.activation = ACTIVATIONS[str(arrays["activation"])]
        self.squash = bool(arrays["squash"])
        self.mean = arrays.get("input_mean", np.zeros(1))
        self.deviation = arrays.get("input_deviation", np.ones(1))

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        x = ((np.concatenate(inputs) - self.mean) / self.deviation)[None]
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(x @ layer.weight + layer.bias)
            if layer.scale is not None:
                x = mlp.layer_norm(x, layer.scale, layer.shift, np)
        x = (x @ last.weight + last.bias)[0]
        return np.tanh(x) if self.squash else np.clip(x, -1, 1)


def _depth(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(re.fullmatch(r"weight\d+", name) is not None for name in arrays)


def _problem(arrays: Mapping[str, np.ndarray]) -> str | None:
    """What keeps arrays from being an expert, if anything."""
    depth = _depth(arrays)
    needed = [f"{name}{k}" for k in range(depth) for name in ("weight", "bias")] or ["weight0"]
    for name in (*needed, "activation", "squash"):
        if name not in arrays:
            return f"it has no array '{name}'"
    if str(arrays["activation"]) not in ACTIVATIONS:
        return f"its activation is '{arrays['activation']}', and known are {', '.join(ACTIVATIONS)}"
    if arrays["squash"].shape != () or arrays["squash"].dtype != bool:
        return "'squash' is not a single true or false"
    shapes = _shapes(arrays, depth)
    for name, array in arrays.items():
        if name in ("activation", "squash"):
            continue
        if name not in shapes:
            return f"its array '{name}' belongs to no layer"
        if array.shape != shapes[name]:
            return f"'{name}' has the shape {array.shape}, which does not fit the others"
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            return f"'{name}' holds something else than finite numbers"
    for one, other in (("input_mean", "input_deviation"), *((f"scale{k}", f"shift{k}") for k in range(depth))):
        if (one in arrays) != (other in arrays):
            return f"'{one}' and '{other}' belong together"
    if np.any(arrays.get("input_deviation", np.ones(1)) <= 0):
        return "'input_deviation' is not positive throughout"
    return None


def _shapes(arrays: Mapping[str, np.ndarray], depth: int) -> dict[str, tuple[int, ...]]:
    """The shape each array must have, going by those of the biases and the input's width."""
    outputs = [arrays[f"bias{k}"].size for k in range(depth)]
    width = len(arrays["weight0"]) if arrays["weight0"].ndim else 0
    shapes: dict[str, tuple[int, ...]] = {"input_mean": (width,), "input_deviation": (width,)}
    for k, (before, after) in enumerate(pairwise([width, *outputs])):
        shapes[f"weight{k}"] = (before, after)
        shapes |= {f"{name}{k}": (after,) for name in ("bias", "scale", "shift") if name == "bias" or k < depth - 1}
    return shapes


def load_expert(path: Path | None, task: OGBenchTask, role: str) -> Expert:
    """The expert in a file; a sentence where there is none or it does not fit the task."""
    if path is None:
        raise DataError(
            f"collecting {task.name} needs an expert that can {role}: give {FLAGS[role]} FILE (docs/formats.md has the "
            f"layout), or get the public dataset with 'gtrl data get {task.name}', from a mirror with --mirror URL."
        )
    expert = Expert(path)
    expected = (_INPUTS[task.family, role], task.action_dim)
    found = (expert.widths[0], expert.widths[-1])
    if found != expected:
        raise DataError(
            f"{path} maps {found[0]} numbers to {found[1]}, but an expert that can {role} in {task.name} "
            f"maps {expected[0]} to {expected[1]}."
        )
    return expert
