"""The file format of multilayer perceptrons, used for policies and experts.

A file is an npz with `header`, a JSON text, and plain arrays (docs/formats.md):

- the header has `format`, `layers`, `activation` and `output`, and any further fields;
- `weight<k>` (in, out) and `bias<k>` (out,) for each layer k = 0, 1, ...;
- optional: `scale<k>` and `shift<k>` (out,) of a layer norm after the activation of a hidden layer, and `input_mean`
  and `input_deviation` (in,), with which inputs are standardised.

Arrays may have any floating-point type; the network computes in float32. Files are not trusted: damaged or malicious
ones are rejected with a one-line error.
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

FORMAT = 1  # version of the file format
Arrays = dict[str, np.ndarray]
Header = dict[str, Any]
# Functions that bound the output of the last layer.
OUTPUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "clip": lambda x: np.clip(x, -1, 1),
    "tanh": np.tanh,
}


class FormatError(ValueError):
    """Invalid content of a file. The message completes "FILE is not a policy file: "."""


class Exportable(Protocol):
    """Something that can be written to a file, such as the actor that `algorithm.policy(nets)` returns.

    An actor is exported with the weights of one seed, as NumPy arrays.
    """

    def export(self) -> tuple[Arrays, Header]:
        """Returns the arrays and the header to write; the header of an actor has its `kind`."""
        ...


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron in NumPy with outputs in [-1, 1].

    Attributes:
        layers: The weights, hidden layers first.
        activation: A key of `mlp.ACTIVATIONS`.
        output: A key of `OUTPUTS`, which bounds the output.
        input_mean: Subtracted from the input, if given.
        input_deviation: The input is divided by it, if given.
    """

    layers: Sequence[mlp.Layer]
    activation: str = "gelu"
    output: str = "clip"
    input_mean: np.ndarray | None = None
    input_deviation: np.ndarray | None = None

    @property
    def widths(self) -> list[int]:
        """The widths of the input, of each hidden layer and of the output."""
        return [len(self.layers[0].weight), *(len(layer.bias) for layer in self.layers)]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Maps inputs (B, in) to bounded outputs (B, out)."""
        return OUTPUTS[self.output](self.unbounded(rows))

    def unbounded(self, rows: np.ndarray) -> np.ndarray:
        """Maps inputs (B, in) to the output of the last layer (B, out), before it is bounded.

        The bits of a row do not depend on the other rows.
        """
        rows = np.asarray(rows, np.float32)
        if self.input_mean is not None:
            rows = (rows - self.input_mean) / self.input_deviation
        # One vector-matrix product for each row: in a product of all rows, the order in which a linear algebra library
        # adds depends on the number of rows and, on some processors, on a row's place among them.
        return mlp.forward(self.layers, rows[:, None], np, self.activation)[:, 0]

    def export(self) -> tuple[Arrays, Header]:
        """Returns the arrays, in float32, and the header that `write` takes."""
        arrays = {f"{name}{k}": array for k, layer in enumerate(self.layers) for name, array in layer._asdict().items()}
        arrays |= {"input_mean": self.input_mean, "input_deviation": self.input_deviation}
        header = {"layers": len(self.layers), "activation": self.activation, "output": self.output}
        return {name: np.asarray(array, np.float32) for name, array in arrays.items() if array is not None}, header


def write(path: str | Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Writes arrays and header to a file atomically."""
    path = Path(path).expanduser()
    text = json.dumps({"format": FORMAT, **header})
    write_npz(path, {"header": np.array(text), **arrays}, compress=False)


def read(path: Path, what: str, error: type[GtrlError]) -> tuple[Arrays, Header]:
    """Reads the arrays and the header of a file, without checking that they are a network.

    `what` names the kind of file in messages, such as "a policy file"; `error` is raised if the file is not readable.
    """
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
    """Builds the network from a file's arrays and header.

    Raises `FormatError` if they are not a network, or if `ends`, its (input, output) width, is given and differs.
    """
    depth = positive_integer(header, "layers", len(arrays))
    activation, output = _choice(header, "activation", mlp.ACTIVATIONS), _choice(header, "output", OUTPUTS)
    for name in (f"{name}{k}" for k in range(depth) for name in ("weight", "bias")):
        if name not in arrays:
            raise FormatError(f"it has no array '{name}'")
    shapes = _shapes(arrays, depth, ends)
    checked = {name: _checked_array(name, array, shapes) for name, array in arrays.items()}
    for one, other in (("input_mean", "input_deviation"), *((f"scale{k}", f"shift{k}") for k in range(depth))):
        if (one in arrays) != (other in arrays):
            raise FormatError(f"'{one}' and '{other}' must be given together")
    if "input_deviation" in checked and (checked["input_deviation"] <= 0).any():
        raise FormatError("'input_deviation' has values that are not positive")
    layers = [mlp.Layer(*(checked.get(f"{name}{k}") for name in mlp.Layer._fields)) for k in range(depth)]
    return MLP(layers, activation, output, checked.get("input_mean"), checked.get("input_deviation"))


def positive_integer(header: Mapping[str, Any], name: str, limit: float) -> int:
    """Returns a header's field; raises `FormatError` unless it is an integer from 1 to `limit`."""
    found = header.get(name)
    if type(found) is not int or not 1 <= found <= limit:  # a bool is an int
        reject_field(header, name)
    return found


def reject_field(header: Mapping[str, Any], name: str) -> NoReturn:
    """Raises a `FormatError` that names a header's field and its value."""
    raise FormatError(f"the field '{name}' of its header is invalid ({reprlib.repr(header.get(name))})")


def _choice(header: Mapping[str, Any], name: str, known: Mapping[str, Any]) -> str:
    found = header.get(name, getattr(MLP, name))
    if not isinstance(found, str) or found not in known:
        raise FormatError(f"its {name} is {reprlib.repr(found)}, which is not one of {', '.join(known)}")
    return found


def _shapes(arrays: Mapping[str, np.ndarray], depth: int, ends: tuple[int, int] | None) -> dict[str, tuple[int, ...]]:
    """Returns the shape that each array must have, given the input width and the sizes of the biases."""
    widths = [len(arrays["weight0"]) if arrays["weight0"].ndim else 0, *(arrays[f"bias{k}"].size for k in range(depth))]
    if ends:
        widths[0], widths[-1] = ends
    shapes: dict[str, tuple[int, ...]] = {"input_mean": (widths[0],), "input_deviation": (widths[0],)}
    for k, (before, after) in enumerate(pairwise(widths)):
        vectors = ("bias", "scale", "shift") if k < depth - 1 else ("bias",)
        shapes |= {f"weight{k}": (before, after), **{f"{name}{k}": (after,) for name in vectors}}
    return shapes


def _checked_array(name: str, array: np.ndarray, shapes: Mapping[str, tuple[int, ...]]) -> np.ndarray:
    """Returns an array in float32; raises `FormatError` if its shape or its values are invalid."""
    if name not in shapes:
        raise FormatError(f"its array {name[:60]!r} belongs to no layer")
    if array.shape != shapes[name] or not array.size:
        raise FormatError(f"'{name}' has the shape {array.shape}, which does not match the other arrays")
    if array.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if np.isfinite(array).all():
            return array
    raise FormatError(f"'{name}' holds non-finite or non-numeric values")
