"""Compilation cache: later runs with the same programs start without compiling, and so do resumed runs.

For a GPU, XLA measures several algorithms for matrix products when it compiles and takes the fastest, which is not
always the same one. So a program that is compiled again may round differently. A run on a GPU therefore keeps its
compiled programs in its own directory, where it finds them when it is resumed, and shares copies with similar runs.
"""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from gtrl.io.atomic import atomic_write

MIN_COMPILE_SECONDS = 0.5  # programs that compile faster are not cached


def backend() -> str:
    """Returns the platform of the default device: "cpu", "gpu" or "tpu". A function, so that tests can replace it."""
    return jax.default_backend()


def cache_root() -> Path:
    """Returns the user's folder for compiled programs, which all runs share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gtrl" / "programs"


def cpu_cache() -> Path:
    """Returns the cache for this model of CPU; machines with different CPUs may share a home directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = [line for line in lines if line.startswith(("model name", "flags", "Features"))] or [platform.processor()]
    return cache_root() / f"cpu-{_digest(model[0] + model[-1])}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def program_key(config: dict[str, Any]) -> str:
    """Returns a digest of the parts of `config.json` that determine the compiled programs."""
    parts = {key: config[key] for key in ("gtrl", "algorithm", "versions", "device", "devices")}
    parts["training"] = {key: config["training"][key] for key in ("batch_size", "learning_rate", "precision", "fast")}
    parts["data"] = {key: value for key, value in config["data"].items() if isinstance(value, int)}
    return _digest(json.dumps([parts, len(config["seeds"])], sort_keys=True))


@contextmanager
def cached(run: Path, config: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """Caches the programs that are compiled in this context, and restores JAX's settings afterwards.

    Does nothing if JAX's cache was configured by the user (JAX_COMPILATION_CACHE_DIR) or is disabled. Yields a function
    that shares the run's programs with other runs, to be called after they have been compiled.
    """
    if not jax.config.values["jax_enable_compilation_cache"] or jax.config.values["jax_compilation_cache_dir"]:
        yield lambda: None
    elif backend() == "cpu":
        with _cache_in(cpu_cache()):
            yield lambda: None
    else:
        own, shared = run / "programs", cache_root() / backend() / program_key(config)
        copy_missing(shared, own)
        with _cache_in(own):
            yield lambda: copy_missing(own, shared)


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": MIN_COMPILE_SECONDS,
    }
    before = {name: jax.config.values[name] for name in settings}
    try:
        _configure(settings)
        yield
    finally:
        _configure(before)


def _configure(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # JAX reads the settings only once, at the first compilation


def copy_missing(source: Path, target: Path) -> None:
    """Copies the files of a folder that another folder does not have, with their subfolders."""
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as source_file, atomic_write(copy) as target_file:
                shutil.copyfileobj(source_file, target_file)
