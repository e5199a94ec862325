"""The file format of multilayer perceptrons, which policies and experts share: its reader, writer and checks.

A file is an npz with `header`, a JSON text, and plain arrays (docs/formats.md):

- the header has `format`, `layers`, `activation` and `output`, and whatever else describes the network;
- `weight<k>` (in, out) and `bias<k>` (out,) for each layer k = 0, 1, ...;
- optional: `scale<k>` and `shift<k>` (out,) of a layer norm after the activation of a hidden layer, and `input_mean`
  and `input_deviation` (in,), with which inputs are standardised.

Arrays may have any floating-point type; the network computes in float32. A file may come from anywhere: whatever is
wrong with one is reported as a sentence.
"""

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from gtrl.errors import GtrlError
from gtrl.io import mlp
from gtrl.io.npz import read_npz, write_npz

FORMAT = 1
Arrays = dict[str, np.ndarray]
Header = dict[str, Any]
# What becomes of the last layer's output.
OUTPUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "clip": lambda x: np.clip(x, -1, 1),
    "tanh": np.tanh,
}


class FormatError(ValueError):
    """What is wrong with the content of a file, as a clause that can follow "FILE is not a policy file: "."""


class Exportable(Protocol):
    """Something that can be written to a file, such as an actor: what `algorithm.policy(nets)` returns."""

    def export(self) -> tuple[Arrays, Header]:
        """Arrays and a header; an actor, which is that of one seed with NumPy leaves, names its `kind` there."""
        ...


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron with outputs within -1 to 1."""

    layers: Sequence[mlp.Layer]
    activation: str = "gelu"
    output: str = "clip"
    input_mean: np.ndarray | None = None
    input_deviation: np.ndarray | None = None

    @property
    def widths(self) -> list[int]:
        """Of the input, of each hidden layer and of the output."""
        return [len(self.layers[0].weight), *(len(layer.bias) for layer in self.layers)]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """(B, in) to (B, out)."""
        return OUTPUTS[self.output](self.unbounded(rows))

    def unbounded(self, rows: np.ndarray) -> np.ndarray:
        """The last layer's output, before it is bounded."""
        rows = np.asarray(rows, np.float32)
        if self.input_mean is not None:
            rows = (rows - self.input_mean) / self.input_deviation
        return mlp.forward(self.layers, rows, np, self.activation)

    def export(self) -> tuple[Arrays, Header]:
        """What `write` puts into a file."""
        arrays = {f"{name}{k}": array for k, layer in enumerate(self.layers) for name, array in layer._asdict().items()}
        arrays |= {"input_mean": self.input_mean, "input_deviation": self.input_deviation}
        header = {"layers": len(self.layers), "activation": self.activation, "output": self.output}
        return {name: np.asarray(array, np.float32) for name, array in arrays.items() if array is not None}, header


def write(path: str | Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Write a file atomically."""
    path = Path(path).expanduser()
    text = json.dumps({"format": FORMAT, **header})
    write_npz(path, {"header": np.array(text), **arrays}, compress=False)


def read(path: Path, what: str, error: type[GtrlError]) -> tuple[Arrays, Header]:
    """The arrays of a file and its header; `what` names the kind of file in messages: "a policy file"."""
    arrays = read_npz(path, error)
    try:
        header = json.loads(str(arrays.pop("header")))
        found = header.get("format")
    except (KeyError, ValueError, AttributeError, RecursionError) as cause:
        raise error(f"{path} is not {what}: it has no readable header.") from cause
    if found != FORMAT:
        raise error(f"{path} has file format {found!r:.60}; this version reads format {FORMAT}.")
    return arrays, header


def build(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any], ends: tuple[int, int] | None = None) -> MLP:
    """The network in a file's arrays, with `ends` inputs and outputs where given; a FormatError where it is not one."""
    depth = positive_integer(header, "layers", len(arrays))
    activation, output = _choice(header, "activation", mlp.ACTIVATIONS), _choice(header, "output", OUTPUTS)
    for name in (f"{name}{k}" for k in range(depth) for name in ("weight", "bias")):
        if name not in arrays:
            raise FormatError(f"it has no array '{name}'")
    shapes = _shapes(arrays, depth, ends)
    single = {name: _checked(name, array, shapes) for name, array in arrays.items()}
    for one, other in (("input_mean", "input_deviation"), *((f"scale{k}", f"shift{k}") for k in range(depth))):
        if (one in arrays) != (other in arrays):
            raise FormatError(f"'{one}' and '{other}' belong together")
    if "input_deviation" in single and (single["input_deviation"] <= 0).any():
        raise FormatError("'input_deviation' is not positive throughout")
    layers = [mlp.Layer(*(single.get(f"{name}{k}") for name in mlp.Layer._fields)) for k in range(depth)]
    return MLP(layers, activation, output, single.get("input_mean"), single.get("input_deviation"))


def positive_integer(header: Mapping[str, Any], name: str, limit: float) -> int:
    """A field of a header that must be a whole number from 1 to a limit."""
    found = header.get(name)
    if type(found) is not int or not 1 <= found <= limit:  # true is an int, too
        reject_field(header, name)
    return found


def reject_field(header: Mapping[str, Any], name: str) -> NoReturn:
    """Reject a field of a header."""
    raise FormatError(f"its header has no possible {name} ({reprlib.repr(header.get(name))})")


def _choice(header: Mapping[str, Any], name: str, known: Mapping[str, Any]) -> str:
    found = header.get(name, getattr(MLP, name))
    if not isinstance(found, str) or found not in known:
        raise FormatError(f"its {name} is {reprlib.repr(found)}, and known are {', '.join(known)}")
    return found


def _shapes(arrays: Mapping[str, np.ndarray], depth: int, ends: tuple[int, int] | None) -> dict[str, tuple[int, ...]]:
    """The shape each array must have, going by those of the biases and the input's width."""
    widths = [len(arrays["weight0"]) if arrays["weight0"].ndim else 0, *(arrays[f"bias{k}"].size for k in range(depth))]
    if ends:
        widths[0], widths[-1] = ends
    shapes: dict[str, tuple[int, ...]] = {"input_mean": (widths[0],), "input_deviation": (widths[0],)}
    for k, (before, after) in enumerate(pairwise(widths)):
        vectors = ("bias", "scale", "shift") if k < depth - 1 else ("bias",)
        shapes |= {f"weight{k}": (before, after), **{f"{name}{k}": (after,) for name in vectors}}
    return shapes


def _checked(name: str, array: np.ndarray, shapes: Mapping[str, tuple[int, ...]]) -> np.ndarray:
    """An array in float32."""
    if name not in shapes:
        raise FormatError(f"its array {name[:60]!r} belongs to no layer")
    if array.shape != shapes[name] or not array.size:
        raise FormatError(f"'{name}' has the shape {array.shape}, which does not fit the others")
    if array.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if np.isfinite(array).all():
            return array
    raise FormatError(f"'{name}' holds something else than finite numbers")
