"""Checkpoints: the whole training state of all seeds, an npz file each.

A file is written atomically and has a checksum of every array: a flipped bit is noticed, not trained on. (Orbax
restores such numbers without a warning: docs/appendix/robustness-log.md.)
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
    """A checkpoint that cannot be read."""


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.npz") if path.stem.isdigit())


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by their path: a file format that does not depend on the classes around the arrays."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def save(folder: Path, step: int, state: Any) -> None:
    """Write a checkpoint atomically."""
    write_npz(checkpoint_path(folder, step), {name: _stored(leaf) for name, leaf in _named(state).items()}, False)


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored(leaf: Any) -> np.ndarray:
    """An array as npz files can hold it: random keys and types that NumPy does not know (bfloat16) as unsigned bits."""
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def restore(folder: Path, step: int, like: Any, part: str = "") -> Any:
    """The state at a step, in the shape of `like`; or only its field `part`, such as its networks."""
    names = {f".{part}{name}" if part else name: leaf for name, leaf in _named(like).items()}
    path = checkpoint_path(folder, step)
    if not path.exists():
        raise RunError(f"there is no checkpoint of step {step} in {folder}.")
    try:
        saved = read_npz(path, DamagedError)
    except DamagedError as error:
        if isinstance(error.__cause__, (OSError, MemoryError)):  # the machine's fault, not the file's
            raise RunError(str(error)) from error
        raise
    leaves = [_fitting(path, name, saved.get(name), leaf) for name, leaf in names.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _fitting(path: Path, name: str, saved: Any, like: Any) -> jax.Array:
    expected = jax.eval_shape(jax.random.key_data, like) if _is_key(like) else like
    native = np.dtype(expected.dtype).kind in "biufc"
    dtype = expected.dtype if native else np.dtype(f"u{expected.dtype.itemsize}")
    if saved is None or saved.shape != expected.shape or saved.dtype != dtype:
        found = "missing" if saved is None else f"{saved.dtype}{saved.shape}"
        raise RunError(f"the checkpoint {path} does not fit this run: {name} is {found}, not {like.dtype}{like.shape}.")
    array = jax.numpy.asarray(saved if native else saved.view(expected.dtype))
    return jax.random.wrap_key_data(array) if _is_key(like) else array


def newest(folder: Path, like: Any) -> tuple[int, Any]:
    """The step of the newest checkpoint that can be read, and its state; 0 and None where there is none.

    A damaged one is renamed, with a warning: training will come to its step again.
    """
    for step in reversed(steps(folder)):
        try:
            return step, restore(folder, step, like)
        except DamagedError as error:
            path = checkpoint_path(folder, step)
            os.replace(path, path.with_name(f"{path.name}.damaged"))
            log.warning("%s It is put aside as %s.damaged.", error, path.name)
    return 0, None


class Writer:
    """Writes checkpoints in the background, one at a time; keeps the newest few and those that are always kept."""

    def __init__(self, folder: Path, always_kept: Collection[int], newest: int) -> None:
        self.folder, self.always_kept, self.newest = folder, always_kept, newest
        self.thread = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def save(self, step: int, state: Any, then: Callable[[], None] | None = None) -> None:
        """Begin to write; `then` is called when it is on the disk. What went wrong with the one before is raised."""
        self.wait()
        self.writing = self.thread.submit(self._save, step, state, then)

    def _save(self, step: int, state: Any, then: Callable[[], None] | None) -> None:
        save(self.folder, step, state)
        passing = [step for step in steps(self.folder) if step not in self.always_kept]
        for old in passing[: -self.newest]:
            checkpoint_path(self.folder, old).unlink(missing_ok=True)
        if then:
            then()

    def wait(self) -> None:
        """Until it is on the disk; or why it is not."""
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
