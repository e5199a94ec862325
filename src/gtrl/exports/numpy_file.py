"""Writes a policy as one Python file: the code of `gtrl.exports.standalone`, followed by the policy's arrays."""

import base64
import json
from pathlib import Path

import numpy as np

from gtrl.exports import standalone
from gtrl.exports.parts import PolicyParts, in_precision
from gtrl.io.mlp import LAYER_NORM_EPSILON
from gtrl.io.scaling import LIMIT
from gtrl.runs.policy import DIMENSIONS

MARK = "# --- the policy ---\n"  # what follows it in the module is replaced
LINE_LENGTH = 120


def python_content(parts: PolicyParts, precision: str) -> bytes:
    """Returns the content of the Python file of a policy; `precision` is that of the stored weights."""
    code, mark, _ = Path(standalone.__file__).read_text(encoding="utf-8").partition(MARK)
    arrays, network = parts.network.export()
    header = {
        **parts.origin,
        **{name: parts.header[name] for name in DIMENSIONS},
        **network,
        "flow_steps": parts.flow_steps,
        "epsilon": LAYER_NORM_EPSILON,
        "limit": LIMIT,
    }
    stored = {
        name: array if name.startswith("input_") else in_precision(array, precision) for name, array in arrays.items()
    }
    if parts.scaling:
        low, high = parts.scaling.bounds
        stored |= {**parts.scaling.to_arrays(), "action_low": low, "action_high": high}
    # The header is not trusted. As a quoted JSON text it cannot become code.
    lines = [f"HEADER = json.loads({json.dumps(header)!a})", "ARRAYS = {"]
    lines += [f"    {name!r}: {_literal(array)}," for name, array in stored.items()]
    return (code + mark + "\n" + "\n".join([*lines, "}", ""])).encode()


def _literal(array: np.ndarray) -> str:
    """Returns the call that decodes an array."""
    little_endian = array.astype(array.dtype.newbyteorder("<"))
    text = base64.b64encode(little_endian.tobytes()).decode()
    text = "\n".join(text[start : start + LINE_LENGTH] for start in range(0, len(text), LINE_LENGTH))
    return f'array({little_endian.dtype.str!r}, {array.shape}, """\n{text}\n""")'
