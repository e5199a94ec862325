"""The parts of a policy file that an export writes: network, flow steps, scaling and where the policy came from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import __version__
from gtrl.errors import RunError
from gtrl.io import mlp_file
from gtrl.io.mlp_file import MLP, FormatError, Header
from gtrl.io.scaling import Scaling
from gtrl.runs.policy import FlowPolicy, GaussianPolicy, split_scaling

KINDS = {kind.name: kind for kind in (GaussianPolicy, FlowPolicy)}


@dataclass(frozen=True)
class PolicyParts:
    """A policy taken apart.

    Attributes:
        header: The header of its file.
        network: Maps (observation, goal), for a flow (observation, goal, x, t), to the action or velocity.
        flow_steps: Euler steps of a flow; 0 for a Gaussian policy.
        scaling: Between raw units and those of the network; None if they are the same.
    """

    header: Header
    network: MLP
    flow_steps: int
    scaling: Scaling | None

    @property
    def sizes(self) -> dict[str, int]:
        """The number of columns of each input, in order; `noise` only for a flow."""
        inputs = ("observation", "goal", "action")[: 3 if self.flow_steps else 2]
        return {"noise" if name == "action" else name: self.header[f"{name}_dim"] for name in inputs}

    @property
    def columns(self) -> dict[str, list[str]]:
        """The names of the columns of observation, goal and action, where they are known."""
        found = self.header.get("columns")
        found = found if isinstance(found, dict) else {}
        return {role: [str(name) for name in names] for role, names in found.items() if isinstance(names, list)}

    @property
    def origin(self) -> dict[str, Any]:
        """Where the policy came from, and the names of its columns where they are known."""
        names = {"method": "algorithm", "task": "task", "seed": "seed", "step": "step", "columns": "columns"}
        found = {key: self.header.get(name) for key, name in names.items()}
        return {key: value for key, value in found.items() if value is not None} | {"gtrl": __version__}


def read_parts(path: Path) -> PolicyParts:
    """Reads a policy file; raises `RunError` if it is not one, or of a kind that cannot be exported."""
    arrays, header = mlp_file.read(path, "a policy file", RunError)
    kind = header.get("kind")
    if kind not in tuple(KINDS):
        raise RunError(f"{path} holds a policy of kind {f'{kind!s:.60}'!r}; only {', '.join(KINDS)} can be exported.")
    try:
        scaling = split_scaling(arrays, header)
        policy = KINDS[kind](arrays, header)
    except FormatError as error:
        raise RunError(f"{path} is not a policy file: {error}.") from error
    return PolicyParts(header, policy.network, getattr(policy, "steps", 0), scaling)


def in_precision(array: np.ndarray | None, precision: str) -> np.ndarray:
    """Returns an array in float32 or float16; raises `RunError` if its values are too large for it."""
    with np.errstate(over="ignore"):
        converted = np.asarray(array).astype(precision)
    if not np.isfinite(converted).all():
        remedy = "; choose --precision float32" if precision == "float16" else ""
        raise RunError(f"the policy has numbers that are too large for {precision}{remedy}.")
    return converted
