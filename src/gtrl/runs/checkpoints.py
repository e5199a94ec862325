"""Checkpoints: one npz file per checkpoint, with the complete training state of all seeds.

A file is written atomically and has a checksum of every array, so that damage is detected. (Orbax restores damaged
arrays without a warning: docs/appendix/robustness-log.md.)
"""

import logging
import os
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtrl.errors import RunError
from gtrl.io.npz import read_npz, write_npz
from gtrl.runs.run import checkpoint_path

log = logging.getLogger(__name__)


class DamagedError(RunError):
    """A checkpoint that cannot be read because its file is damaged."""


def steps(folder: Path) -> list[int]:
    """Returns the steps that have a checkpoint, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.npz") if path.stem.isdigit())


def _leaves_by_path(tree: Any) -> dict[str, Any]:
    """The leaves by their path in the tree: the file format does not depend on the classes of the tree."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def save(folder: Path, step: int, state: Any) -> None:
    """Writes a checkpoint atomically."""
    arrays = {name: _as_stored(leaf) for name, leaf in _leaves_by_path(state).items()}
    write_npz(checkpoint_path(folder, step), arrays, False)


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_stored(leaf: Any) -> np.ndarray:
    """The leaf as npz files can store it: random keys, and types that NumPy lacks (bfloat16), as unsigned integers."""
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def restore(folder: Path, step: int, like: Any, part: str = "") -> Any:
    """Returns the state at a step, with the structure and shapes of `like`.

    With `part`, returns only that field of the state, such as "nets". Raises `DamagedError` if the file is damaged.
    """
    names = {f".{part}{name}" if part else name: leaf for name, leaf in _leaves_by_path(like).items()}
    path = checkpoint_path(folder, step)
    if not path.exists():
        raise RunError(f"there is no checkpoint of step {step} in {folder}.")
    try:
        saved = read_npz(path, DamagedError)
    except DamagedError as error:
        if isinstance(error.__cause__, (OSError, MemoryError)):  # a failure of the machine: the file may be intact
            raise RunError(str(error)) from error
        raise
    leaves = [_restored(path, name, saved.get(name), leaf) for name, leaf in names.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _restored(path: Path, name: str, saved: Any, like: Any) -> jax.Array:
    """The inverse of `_as_stored`; checks shape and type against `like`."""
    expected = jax.eval_shape(jax.random.key_data, like) if _is_key(like) else like
    native = np.dtype(expected.dtype).kind in "biufc"
    dtype = expected.dtype if native else np.dtype(f"u{expected.dtype.itemsize}")
    if saved is None or saved.shape != expected.shape or saved.dtype != dtype:
        actual = "missing" if saved is None else f"{saved.dtype}{saved.shape}"
        required = f"{like.dtype}{like.shape}"
        raise RunError(f"the checkpoint {path} does not fit this run: {name} is {actual}, not {required}.")
    array = jax.numpy.asarray(saved if native else saved.view(expected.dtype))
    return jax.random.wrap_key_data(array) if _is_key(like) else array


def newest(folder: Path, like: Any) -> tuple[int, Any]:
    """Returns the step and the state of the newest checkpoint that can be read; 0 and None if there is none.

    Damaged checkpoints are renamed, with a warning: training will write them again.
    """
    for step in reversed(steps(folder)):
        try:
            return step, restore(folder, step, like)
        except DamagedError as error:
            path = checkpoint_path(folder, step)
            os.replace(path, path.with_name(f"{path.name}.damaged"))
            log.warning("%s It has been renamed to %s.damaged.", error, path.name)
    return 0, None


class Writer:
    """Writes checkpoints in a background thread, one at a time, and removes old ones."""

    def __init__(self, folder: Path, always_kept: Collection[int], newest: int) -> None:
        """Checkpoints at the steps `always_kept` are never removed; of the others the `newest` ones are kept."""
        self.folder, self.always_kept, self.newest = folder, always_kept, newest
        self.thread = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def save(self, step: int, state: Any, then: Callable[[], None] | None = None) -> None:
        """Starts to write a checkpoint; calls `then` in the thread once it is on the disk.

        Waits for the previous checkpoint first, and raises its error if it failed.
        """
        self.wait()
        self.writing = self.thread.submit(self._save, step, state, then)

    def _save(self, step: int, state: Any, then: Callable[[], None] | None) -> None:
        save(self.folder, step, state)
        removable = [step for step in steps(self.folder) if step not in self.always_kept]
        for old in removable[: -self.newest]:
            checkpoint_path(self.folder, old).unlink(missing_ok=True)
        if then:
            then()

    def wait(self) -> None:
        """Waits until the checkpoint is on the disk; raises its error if it failed."""
        if self.writing:
            writing, self.writing = self.writing, None
            writing.result()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.thread.shutdown(wait=True)
