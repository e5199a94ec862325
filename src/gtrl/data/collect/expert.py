"""Expert policies that walk or dribble, as plain array files: what ant, humanoid and soccer data is collected with.

Training one takes millions of simulator steps and is not part of this package; any actor that is a multilayer
perceptron can be written down in this layout (docs/formats.md):

- `weight<k>` (in, out) and `bias<k>` (out,) for each layer k = 0, 1, ...;
- `activation`, a text: relu, gelu, silu or tanh, after each layer but the last;
- `squash`, true where the action is the tanh of the output (SAC), false where it is the output;
- if the network has them: `scale<k>` and `shift<k>` of a layer norm after the activation; `input_mean` and
  `input_deviation`, with which inputs are standardised first.
"""

from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gtrl import mlp
from gtrl.errors import DataError
from gtrl.npz import read_npz
from gtrl.tasks import Task

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: mlp.gelu(x, np),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}
# What each expert is told: the state without what it must not depend on, then where to go.
_INPUTS = {
    ("antmaze", "walk"): 29,
    ("humanoidmaze", "walk"): 69,
    ("antsoccer", "walk"): 29,
    ("antsoccer", "dribble"): 42,
}


class Experts(NamedTuple):
    """Files of expert policies, where a task needs them."""

    walk: Path | None = None
    dribble: Path | None = None

    def check(self, task: Task) -> None:
        """Read the files this task needs and leave it to an error to say which is missing or wrong."""
        for role in roles_of(task):
            load_expert(getattr(self, role), task, role)


NO_EXPERTS = Experts()


def roles_of(task: Task) -> list[str]:
    """The experts a task's collector needs; none for point mazes and manipulation."""
    return [role for family, role in _INPUTS if family == task.family]


class Expert:
    """Input to mean action, within -1 to 1."""

    def __init__(self, path: Path) -> None:
        arrays = read_npz(path, DataError)
        depth = next(k for k in count() if f"weight{k}" not in arrays)
        names = mlp.Layer._fields
        self.layers = [mlp.Layer(*(arrays.get(f"{name}{k}") for name in names)) for k in range(depth)]
        missing = [name for name in ("activation", "squash") if name not in arrays]
        if not self.layers or missing or any(layer.bias is None for layer in self.layers):
            wanted = "weight<k> and bias<k> for each layer, activation and squash"
            raise DataError(f"{path} is not an expert policy: it must hold {wanted}.")
        activation = str(arrays["activation"])
        if activation not in ACTIVATIONS:
            raise DataError(f"{path} has the activation '{activation}'; known are {', '.join(ACTIVATIONS)}.")
        self.activation = ACTIVATIONS[activation]
        self.squash = bool(arrays["squash"])
        self.mean = arrays.get("input_mean", np.zeros(1))
        self.deviation = arrays.get("input_deviation", np.ones(1))
        self.widths = [self.layers[0].weight.shape[0], *(layer.weight.shape[-1] for layer in self.layers)]
        for k, (layer, shape) in enumerate(zip(self.layers, pairwise(self.widths), strict=True)):
            vectors = [part for part in layer[1:] if part is not None]
            if layer.weight.shape != shape or any(part.shape != shape[1:] for part in vectors):
                raise DataError(f"{path}: the shapes of layer {k} do not fit together.")

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        x = ((np.concatenate(inputs) - self.mean) / self.deviation)[None]
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(x @ layer.weight + layer.bias)
            if layer.scale is not None:
                x = mlp.layer_norm(x, layer.scale, layer.shift, np)
        x = (x @ last.weight + last.bias)[0]
        return np.tanh(x) if self.squash else np.clip(x, -1, 1)


def load_expert(path: Path | None, task: Task, role: str) -> Expert:
    """The expert in a file; a sentence where there is none or it does not fit the task."""
    flag = "--expert" if role == "walk" else "--dribble-expert"
    if path is None:
        raise DataError(
            f"collecting {task.name} needs an expert that can {role}: give {flag} FILE (docs/formats.md has the "
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
