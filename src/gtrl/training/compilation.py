"""Compilation cache: the next run of the same kind starts at once, and a resumed one with its own programs.

For a GPU, XLA tries several ways to multiply matrices when it compiles and takes the fastest, which is not always the
same one: a program that is compiled anew may round otherwise. So a run on a GPU has its programs in its own directory,
where it finds them again when it goes on, and lends copies to others of its kind.
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

MIN_COMPILE_SECONDS = 0.5  # of a program that is worth keeping


def backend() -> str:
    return jax.default_backend()


def home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gtrl" / "programs"


def for_this_processor() -> Path:
    """Programs for a CPU are only good on one like it: homes are shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line for line in lines if line.startswith(("model name", "flags", "Features"))] or [platform.processor()]
    return home() / f"cpu-{_digest(found[0] + found[-1])}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def kind_of(config: dict[str, Any]) -> str:
    """The same for runs whose programs are, as far as `config.json` says."""
    parts = {key: config[key] for key in ("gtrl", "algorithm", "versions", "device", "devices")}
    parts["training"] = {
        key: config["training"][key] for key in ("batch_size", "learning_rate", "precision", "target_from", "fast")
    }
    parts["data"] = {key: value for key, value in config["data"].items() if isinstance(value, int)}
    return _digest(json.dumps([parts, len(config["seeds"])], sort_keys=True))


@contextmanager
def cached(run: Path, config: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """Keep what is compiled inside, unless JAX's cache was configured before (JAX_COMPILATION_CACHE_DIR) or is off.

    What it yields lends the run's programs to other runs; to be called once they are compiled. JAX's settings are as
    before afterwards.
    """
    if not jax.config.values["jax_enable_compilation_cache"] or jax.config.values["jax_compilation_cache_dir"]:
        yield lambda: None
    elif backend() == "cpu":
        with _cache_in(for_this_processor()):
            yield lambda: None
    else:
        own, shared = run / "programs", home() / backend() / kind_of(config)
        copy_new(shared, own)
        with _cache_in(own):
            yield lambda: copy_new(own, shared)


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
    compilation_cache.reset_cache()  # it does not look again by itself once something was compiled


def copy_new(source: Path, target: Path) -> None:
    """The files of a folder that the other does not have yet."""
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as file, atomic_write(copy) as written:
                shutil.copyfileobj(file, written)
