"""`gtrl export`: a policy for robots, as an ONNX or a Python file."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_file


def export_command(
    run: Annotated[Positional[Path], arg(metavar="RUN")],
    *,
    format: Literal["onnx", "numpy"] = "onnx",
    precision: Literal["float32", "float16"] = "float32",
    seed: int | None = None,
    step: int | None = None,
    out: Path | None = None,
) -> None:
    """Export a policy to an ONNX file, or to one Python file that needs NumPy alone.

    The exported policy takes observations and goals in the units of the data, and returns actions in them.

    Args:
        run: A run directory or a policy file (.npz).
        format: onnx (needs the package onnx: pip install 'gtrl[onnx]'), or numpy, which writes a Python file.
        precision: Precision of the weights; the Python file computes in float32 with either.
        seed: The seed of the run; by default the first.
        step: The training step; by default the last one with policies.
        out: The file; by default policy.onnx or policy.py in the run directory, or next to the policy file.
    """
    from gtrl.exports.export import export

    if out:
        check_output_file(out)
    path = export(run, out, format=format, precision=precision, seed=seed, step=step)
    console.echo(f"written: {path} ({path.stat().st_size / 1e6:.2f} MB)")
