"""Exports a policy of a run to a file that runs without gtrl."""

import logging
from pathlib import Path

from gtrl.errors import ConfigError, RunError, UnknownNameError
from gtrl.exports.numpy_file import python_content
from gtrl.exports.parts import PolicyParts, read_parts
from gtrl.io.atomic import atomic_write
from gtrl.runs.run import Run

SUFFIXES = {"onnx": ".onnx", "numpy": ".py"}  # of the files of each format
PRECISIONS = ("float32", "float16")

log = logging.getLogger(__name__)


def export(
    source: str | Path | Run,
    path: str | Path | None = None,
    *,
    format: str = "onnx",
    precision: str = "float32",
    seed: int | None = None,
    step: int | None = None,
) -> Path:
    """Writes a policy as an ONNX file, or as one Python file that needs NumPy alone.

    The exported policy takes raw observations and goals and returns raw actions, as `gtrl.load_policy`'s does.

    Args:
        source: A run or its directory, or a policy file (.npz).
        path: The file to write; by default `policy.onnx` or `policy.py` next to the policy file or in the run.
        format: `onnx`, or `numpy` for a Python file.
        precision: Of the weights, `float32` or `float16`. A Python file always computes in float32.
        seed: Which seed of a run; by default the first.
        step: Which training step of a run; by default the last one with policies.

    Returns:
        The file.

    Raises:
        RunError: If there is no such policy, or it cannot be exported.
        ConfigError: If an argument is invalid, or the package onnx is missing.
    """
    for what, value, known in (("format", format, SUFFIXES), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise UnknownNameError(what, str(value), known)
    policy, folder = _find(source, seed, step)
    path = Path(path).expanduser() if path else folder / f"policy{SUFFIXES[format]}"
    if path.suffix != SUFFIXES[format]:
        raise ConfigError(f"a file of format {format} must be called *{SUFFIXES[format]}, not {path.name}.")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, not a file; choose another name.")
    content = _content(read_parts(policy), format, precision)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content)
    return path


def _find(source: str | Path | Run, seed: int | None, step: int | None) -> tuple[Path, Path]:
    """Returns the policy file, and the folder in which its export is written by default."""
    if isinstance(source, str | Path) and str(source).endswith(".npz"):
        if (seed, step) != (None, None):
            raise ConfigError(f"{source} is a single policy: seed and step choose one of the policies of a run.")
        policy = Path(source).expanduser()
        return policy, policy.parent
    run = Run.open(source)
    if seed is None:
        seed = run.seeds[0]
        if len(run.seeds) > 1:
            log.info("exporting seed %d of the seeds %s", seed, ", ".join(map(str, run.seeds)))
    elif seed not in run.seeds:
        raise RunError(f"{run.path} has no seed {seed}; it has {', '.join(map(str, run.seeds))}.")
    if step is not None and step not in run.policy_steps:
        raise RunError(f"{run.path} has no policies at step {step}; it has {', '.join(map(str, run.policy_steps))}.")
    return run.policy_path(seed, step), run.path


def _content(parts: PolicyParts, format: str, precision: str) -> bytes:
    if format == "numpy":
        return python_content(parts, precision)
    try:
        from gtrl.exports.onnx_file import onnx_content
    except ImportError as error:
        raise ConfigError(f'an ONNX file needs the package onnx ({error}): pip install "gtrl[onnx]".') from error
    return onnx_content(parts, precision)
