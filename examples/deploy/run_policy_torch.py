"""Runs an exported policy in PyTorch, for example to fine-tune it or to compile it for another device.

    gtrl export RUN --out policy.onnx
    pip install onnx torch
    python examples/deploy/run_policy_torch.py policy.onnx

The model's nodes are few kinds of operators, so each is one line of PyTorch here. The weights become parameters.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch  # pyright: ignore[reportMissingImports]
from onnx import helper, numpy_helper

# An operator's function of its inputs and of its attributes.
OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "Add": lambda x, y: x + y,
    "Cast": lambda x, to: x.to(torch.float16 if to == onnx.TensorProto.FLOAT16 else torch.float32),
    "Clip": lambda x, low, high: torch.minimum(torch.maximum(x, low), high),
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Div": lambda x, y: x / y,
    "Gemm": lambda x, weight, bias: x @ weight + bias,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Mul": lambda x, y: x * y,
    "Pow": lambda x, y: x**y,
    "ReduceMean": lambda x, axes: x.mean(axes, keepdim=True),
    "ReduceSum": lambda x, axes: x.sum(tuple(axes.tolist()), keepdim=True),
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Sqrt": torch.sqrt,
    "Sub": lambda x, y: x - y,
    "Tanh": torch.tanh,
}


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


class Policy(torch.nn.Module):
    """An exported policy. `forward` takes observation, goal and, for a flow, noise: float32, (batch, size)."""

    def __init__(self, path: str) -> None:
        super().__init__()
        graph = onnx.load(path).graph
        self.inputs = [each.name for each in graph.input]
        self.sizes = [each.type.tensor_type.shape.dim[1].dim_value for each in graph.input]
        for constant in graph.initializer:
            tensor = torch.from_numpy(numpy_helper.to_array(constant).copy())
            if tensor.ndim == 2:  # a weight; biases, scaling and numbers stay as they are
                self.register_parameter(constant.name, torch.nn.Parameter(tensor))
            else:
                self.register_buffer(constant.name, tensor)
        self.nodes = [(node.op_type, list(node.input), node.output[0], attributes_of(node)) for node in graph.node]

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Returns the actions, (batch, action_dim)."""
        values = dict(zip(self.inputs, inputs, strict=True))
        values |= {**dict(self.named_parameters()), **dict(self.named_buffers())}
        for operator, names, output, attributes in self.nodes:
            values[output] = OPERATORS[operator](*(values[name] for name in names), **attributes)
        return values["action"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", help="an ONNX file of `gtrl export`")
    parser.add_argument("--inputs", help="an npz file with observation, goal and, for a flow, noise")
    parser.add_argument("--out", help="a file for the actions, .npy")
    arguments = parser.parse_args()
    policy = Policy(arguments.policy)
    given = np.load(arguments.inputs) if arguments.inputs else None
    arrays = [
        given[name] if given else np.zeros((1, size)) for name, size in zip(policy.inputs, policy.sizes, strict=True)
    ]
    actions = policy(*(torch.as_tensor(array, dtype=torch.float32) for array in arrays)).detach().numpy()
    print(actions)
    if arguments.out:
        np.save(arguments.out, actions)
