"""Checkpoints: the whole training state of all seeds, by Orbax."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from gtrl.errors import RunError


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by their path: a file format that does not depend on the classes around the arrays."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def save(folder: Path, step: int, state: Any) -> None:
    """Write a checkpoint whole or not at all; one that is there already is kept."""
    path = (folder / str(step)).absolute()
    if path.exists():
        return
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, jax.tree.map(np.asarray, _named(state)))


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def restore(folder: Path, step: int, like: Any, part: str = "") -> Any:
    """The state at a step, in the shape of `like`; or only its field `part`, such as its networks."""
    names = {f".{part}{name}" if part else name: leaf for name, leaf in _named(like).items()}
    path = (folder / str(step)).absolute()
    if not path.exists():
        raise RunError(f"there is no checkpoint of step {step} in {folder}.")
    try:
        with ocp.PyTreeCheckpointer() as checkpointer:
            saved = checkpointer.restore(path)
        leaves = [_fitting(name, saved[name], leaf) for name, leaf in names.items()]
    except (ValueError, KeyError, OSError) as error:
        first = str(error).splitlines()[0]
        raise RunError(f"the checkpoint {path} does not fit this run or cannot be read ({first}).") from error
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _fitting(name: str, saved: Any, like: Any) -> jax.Array:
    if saved.shape != like.shape or saved.dtype != like.dtype:
        raise ValueError(f"{name} is {saved.dtype}{saved.shape}, not {like.dtype}{like.shape}")
    return jax.numpy.asarray(saved)
