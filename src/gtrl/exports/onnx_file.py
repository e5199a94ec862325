"""Writes a policy as an ONNX model: scaling, network and Euler steps, from the policy's arrays.

The operators are those of opset 13, which ONNX Runtime has known since 2021. Inputs, outputs, scaling and the
statistics of layer norms are float32. In a float16 model, weights and products are float16, except that the first layer
multiplies in float32, since its inputs may be large.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gtrl.data.columns import column_names
from gtrl.errors import RunError
from gtrl.exports.parts import PolicyParts, in_precision
from gtrl.io.mlp import LAYER_NORM_EPSILON, Layer
from gtrl.io.mlp_file import MLP
from gtrl.io.scaling import LIMIT, Scaling

OPSET, IR_VERSION = 13, 7  # those of onnx 1.8
MAX_FLOW_STEPS = 200  # each step of a flow repeats the nodes of the network
RESOLUTION = 1e-3  # of a column's scale: float32 must tell apart values of the column that differ by this
MAX_LISTED = 4  # columns in an error message


class Graph:
    """A graph under construction, whose network computes in `precision`. Values are referred to by name."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[Any, onnx.TensorProto] = {}  # by content: the steps of a flow share their weights

    def constant(self, values: Any) -> str:
        """Adds a constant with the type of `values`."""
        array = np.asarray(values)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, f"constant{len(self.constants)}")
        return self.constants[key].name

    def number(self, value: float) -> str:
        """Adds a constant in the precision of the network."""
        return self.constant(np.asarray(value, self.precision))

    def weights(self, array: np.ndarray | None) -> str:
        """Adds a constant array in the precision of the network."""
        return self.constant(in_precision(array, self.precision))

    def add(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """Adds a node and returns the name of its output. An input that is not a name is a constant."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = output or f"{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [output], name=output, **attributes))
        return output

    def widened(self, x: str) -> str:
        """Adds the conversion from the precision of the network to float32."""
        return x if self.precision == "float32" else self.add("Cast", x, to=onnx.TensorProto.FLOAT)

    def narrowed(self, x: str) -> str:
        """Adds the conversion from float32 to the precision of the network."""
        return x if self.precision == "float32" else self.add("Cast", x, to=onnx.TensorProto.FLOAT16)


# --- the network ---


def gelu(graph: Graph, x: str) -> str:
    """GELU in its tanh approximation, built from operators that older runtimes know.

    ONNX Runtime fuses exactly these nodes into one, as it does those of `layer_norm`; without the powers it would not.
    """
    inner = graph.add("Add", x, graph.add("Mul", graph.add("Pow", x, graph.number(3)), graph.number(0.044715)))
    curve = graph.add("Tanh", graph.add("Mul", inner, graph.number(0.7978845608028654)))
    return graph.add("Mul", graph.add("Mul", x, graph.number(0.5)), graph.add("Add", curve, graph.number(1)))


ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "relu": lambda graph, x: graph.add("Relu", x),
    "gelu": gelu,
    "silu": lambda graph, x: graph.add("Mul", x, graph.add("Sigmoid", x)),
    "tanh": lambda graph, x: graph.add("Tanh", x),
}


def first_linear(graph: Graph, x: str, layer: Layer) -> str:
    """The first layer, weight * x + bias, computed in float32."""
    weight, bias = (graph.widened(graph.weights(array)) for array in (layer.weight, layer.bias))
    return graph.narrowed(graph.add("Gemm", x, weight, bias))


def linear(graph: Graph, x: str, layer: Layer) -> str:
    """A later layer, weight * x + bias."""
    return graph.add("Gemm", x, graph.weights(layer.weight), graph.weights(layer.bias))


def layer_norm(graph: Graph, x: str, layer: Layer) -> str:
    """Layer norm over the columns, with statistics in float32."""
    x = graph.widened(x)
    centred = graph.add("Sub", x, graph.add("ReduceMean", x, axes=[-1]))
    variance = graph.add("ReduceMean", graph.add("Pow", centred, np.float32(2)), axes=[-1])
    deviation = graph.add("Sqrt", graph.add("Add", variance, np.float32(LAYER_NORM_EPSILON)))
    normalised = graph.narrowed(graph.add("Div", centred, deviation))
    return graph.add("Add", graph.add("Mul", normalised, graph.weights(layer.scale)), graph.weights(layer.shift))


def unbounded(graph: Graph, x: str, network: MLP) -> str:
    """The output of the last layer in float32, before it is bounded."""
    if network.input_mean is not None:
        x = graph.add("Div", graph.add("Sub", x, network.input_mean), network.input_deviation)
    x = first_linear(graph, x, network.layers[0])
    for before, layer in zip(network.layers, network.layers[1:], strict=False):
        x = ACTIVATIONS[network.activation](graph, x)
        if before.scale is not None:
            x = layer_norm(graph, x, before)
        x = linear(graph, x, layer)
    return graph.widened(x)


# --- the policy ---


def standardised(graph: Graph, name: str, center: np.ndarray, scale: np.ndarray) -> str:
    """(raw - center) / scale, clipped to ±LIMIT, without float64.

    The center is subtracted in two float32 parts. Near the center, raw - high is exact, so a column such as 101325 ± 50
    loses nothing.
    """
    high = in_precision(center, "float32")
    centred = graph.add("Sub", graph.add("Sub", name, high), np.float32(center - high))
    divided = graph.add("Div", centred, in_precision(scale, "float32"))
    return graph.add("Clip", divided, np.float32(-LIMIT), np.float32(LIMIT))


def in_raw_units(graph: Graph, x: str, scaling: Scaling) -> str:
    """Center + scale * x, for an action x within ±1; clipped, as rounding may exceed the bounds."""
    scaled = graph.add("Mul", x, in_precision(scaling.action_scale, "float32"))
    raw = graph.add("Add", scaled, in_precision(scaling.action_center, "float32"))
    low, high = (in_precision(bound, "float32") for bound in scaling.bounds)
    return graph.add("Min", graph.add("Max", raw, low), high)


def integrated(graph: Graph, inputs: str, zeros: str, parts: PolicyParts) -> str:
    """The flow from the noise at t = 0 to t = 1; `zeros` is a column of zeros."""
    x, steps = "noise", parts.flow_steps
    for step in range(steps):
        t = graph.add("Add", zeros, np.float32(step / steps))
        velocity = unbounded(graph, graph.add("Concat", inputs, x, t, axis=-1), parts.network)
        x = graph.add("Add", x, graph.add("Div", velocity, np.float32(steps)))
    return x


def bounded(graph: Graph, x: str, output: str) -> str:
    """The output of the last layer within ±1."""
    return graph.add("Tanh", x) if output == "tanh" else graph.add("Clip", x, np.float32(-1), np.float32(1))


def zero_if_finite(graph: Graph, names: Mapping[str, int]) -> str:
    """A column: 0 in each row whose inputs are all finite, NaN in the others, since 0 * NaN and 0 * inf are NaN."""
    products = graph.add("Mul", graph.add("Concat", *names, axis=-1), np.float32(0))
    return graph.add("ReduceSum", products, np.array([-1], np.int64))


def add_action(graph: Graph, parts: PolicyParts) -> None:
    """The whole policy, from the inputs to the output `action`."""
    zeros = zero_if_finite(graph, parts.sizes)
    observation, goal, scaling = "observation", "goal", parts.scaling
    if scaling:
        observation = standardised(graph, observation, scaling.observation_center, scaling.observation_scale)
        goal = standardised(graph, goal, scaling.goal_center, scaling.goal_scale)
    joined = graph.add("Concat", observation, goal, axis=-1)
    x = integrated(graph, joined, zeros, parts) if parts.flow_steps else unbounded(graph, joined, parts.network)
    x = bounded(graph, x, parts.network.output)
    if scaling:
        x = in_raw_units(graph, x, scaling)
    graph.add("Add", x, zeros, output="action")  # some runtimes clip NaN to a number; it must reach the action


def onnx_content(parts: PolicyParts, precision: str) -> bytes:
    """Returns the content of the ONNX file of a policy; `precision` is that of its weights and products."""
    if parts.flow_steps > MAX_FLOW_STEPS:
        raise RunError(
            f"the policy is a flow of {parts.flow_steps:,} steps, and an ONNX file holds at most {MAX_FLOW_STEPS}; "
            "export it with --format numpy."
        )
    _check_resolution(parts)
    graph = Graph(precision)
    add_action(graph, parts)
    inputs, output = [_rows(*each) for each in parts.sizes.items()], _rows("action", parts.header["action_dim"])
    body = helper.make_graph(graph.nodes, "policy", inputs, [output], list(graph.constants.values()))
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION, producer_name="gtrl")
    described = {**parts.origin, "precision": precision}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in described.items()}
    helper.set_model_props(model, texts)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _check_resolution(parts: PolicyParts) -> None:
    """Raises `RunError` if there are columns whose values the inputs, in float32, cannot tell apart well enough."""
    if parts.scaling is None:
        return
    coarse = []
    for role in ("observation", "goal"):
        center, scale = parts.scaling.of(role)
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.abs(center).astype(np.float32)
            resolved = np.spacing(rounded) <= RESOLUTION * scale
        exact = (scale == 1) & (rounded == np.abs(center))  # a constant column that float32 holds
        names = column_names(parts.columns, role, len(center))
        coarse += [
            f"{names[index]} ({center[index]:.10g} ± {scale[index]:.3g})"
            for index in np.flatnonzero(~resolved & ~exact)
        ]
    if coarse:
        raise RunError(
            f"an ONNX file takes float32, which is too coarse for {', '.join(coarse[:MAX_LISTED])}: export with "
            "--format numpy, or subtract an offset in the log."
        )


def _rows(name: str, size: int) -> onnx.ValueInfoProto:
    """Describes an input or output: float32, (batch, size)."""
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size])
