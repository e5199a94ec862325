"""Shared fixtures: small dataset files and one small trained run per session. Sets up fast compilation."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from gtrl.registry import _registries as registries
from gtrl.runs.run import Run

MINI = "pointmaze-mini-navigate"
MAX_MEMORY_BYTES = 2 * 2**30  # of a worker; compiled programs are then cleared after each file

# Most programs here run for a few steps only, so XLA's optimisations would take longer than everything else.
# Set before JAX is imported, and in the environment, so that subprocesses compile quickly too.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# Compiled programs are shared by the workers, their subprocesses and tests that clear JAX's caches, until the end.
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit the environment of the main process
    cache = tempfile.mkdtemp(prefix="gtrl-tests-")
    atexit.register(shutil.rmtree, cache, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "true"
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Workers share the cores: a second thread of NumPy's linear algebra would mostly wait, in a busy loop. NumPy may be
# imported already, so this is for workers and subprocesses.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.pop("COLUMNS", None)  # the width of printed tables must not depend on the terminal
quick = "--xla_cpu_parallel_codegen_split_count=1"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 12):  # later ones end the process at a flag they do not know
    quick += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}"
gc.set_threshold(50_000, 20, 20)  # tracing allocates many small objects; few of them are garbage

# The slowest files run first, so that no worker is left with a slow one at the end.
LONGEST = (
    "survival",
    "speed",
    "sweep",
    "learned_fixed_points",
    "known_answers",
    "methods",
    "library",
    "training",
    "theory_summary",
    "manipulation",
    "own_everything",
    "interruption",
    "video",
    "page",
    "evaluation",
    "diagnostics",
    "base_install",
    "demo",
    "cli",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


def _optimized():
    """Enables XLA's optimisations: for tests with many steps, and for tests about bits of optimised programs."""
    import jax

    for disabled in (False, True):
        jax.clear_caches()  # programs compiled with the other setting must not be reused
        jax.config.update("jax_disable_most_optimizations", disabled)
        if not disabled:
            yield


optimized = pytest.fixture(_optimized)
optimized_file = pytest.fixture(_optimized, scope="module")


@pytest.fixture(scope="module", autouse=True)
def _forget_plugins():
    """Removes the methods and tasks that a test file registered."""
    before = [(registry, dict(registry.entries), dict(registry.modules)) for registry in registries]
    yield
    for registry, things, modules in before:
        registry.entries, registry.modules = things, modules


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
    """Clears compiled programs once a worker has grown large; those of all files need some gigabytes."""
    yield
    if "jax" in sys.modules and psutil.Process().memory_info().rss > MAX_MEMORY_BYTES:
        sys.modules["jax"].clear_caches()


def _in_process() -> Iterator[None]:
    """Runs collections and evaluations in the test's own process, since each worker process takes a second to start."""
    from gtrl.data.collect import files
    from gtrl.evaluation import rollout

    with pytest.MonkeyPatch.context() as patch:
        for module in (files, rollout):
            patch.setattr(module, "map_unordered", lambda function, jobs, *_, **__: enumerate(map(function, jobs)))
        yield


in_process = pytest.fixture(_in_process)
in_process_file = pytest.fixture(_in_process, scope="module")


@pytest.fixture
def few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws figures with fewer pixels, which takes less time."""
    from gtrl.report import style

    monkeypatch.setitem(style.RC, "savefig.dpi", 50)


@pytest.fixture
def no_shipped_experts(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the experts of the package."""
    from gtrl.data.collect import expert

    monkeypatch.setattr(expert, "SHIPPED", tmp_path_factory.mktemp("experts"))


@pytest.fixture(scope="session")
def mini_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve collected episodes of the demo's maze (and one for validation). Must not be modified."""
    from gtrl.data.collect.files import collect

    with contextmanager(_in_process)():
        return collect(MINI, tmp_path_factory.mktemp("data") / f"{MINI}-v0.npz", episodes=12, workers=1)


@pytest.fixture(scope="session")
def gtrl_run(mini_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """GTRL trained on `mini_file`: two seeds, twenty steps, checkpoints at 10 and 20. Copy it before modifying it."""
    import gtrl

    return gtrl.train(
        "gtrl", gtrl.load_dataset(mini_file, MINI), out=tmp_path_factory.mktemp("runs") / "gtrl", seeds=[0, 3],
        steps=20, batch_size=32, log_every=10, checkpoint_every=10, hidden=(8,), show=False,
    )  # fmt: skip


@pytest.fixture
def write_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes two valid point-maze episodes of 4 and 5 rows with the given changes; None leaves an array out."""

    def write(name: str = "data.npz", **changes: Any) -> Path:
        rng = np.random.default_rng(0)
        qpos = rng.normal(size=(9, 2)).astype(np.float32)
        arrays = {
            "observations": qpos,
            "actions": rng.uniform(-1, 1, (9, 2)).astype(np.float32),
            "terminals": np.isin(np.arange(9), [3, 8]),
            "qpos": qpos,
            "qvel": np.zeros_like(qpos),
        } | changes
        np.savez(tmp_path / name, **{key: value for key, value in arrays.items() if value is not None})
        return tmp_path / name

    return write
