"""Compiled programs are kept on disk: the next run of the same kind starts at once, and a resumed one with its own.

For a GPU, XLA tries several ways to multiply matrices when it compiles and takes the fastest, which is not always the
same one: a program that is compiled anew may round otherwise. So a run on a GPU has its programs in its own directory,
where it finds them again when it goes on, and lends copies to others of its kind.
"""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from gtrl.io.atomic import atomic_write

WORTH_KEEPING = 0.5  # seconds of compilation
_chosen: list[str] = []  # the folders that were JAX's because we said so


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
    told = [line for line in lines if line.startswith(("model name", "flags", "Features"))] or [platform.processor()]
    return home() / f"cpu-{_digest(told[0] + told[-1])}"


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


def keep(run: Path, config: dict[str, Any]) -> Callable[[], None]:
    """Keep what is compiled from here on, unless JAX was told where (JAX_COMPILATION_CACHE_DIR) or told not to.

    What is returned lends the run's programs to others; to be called when they are compiled.
    """
    set_to = jax.config.values["jax_compilation_cache_dir"]
    if not jax.config.values["jax_enable_compilation_cache"] or (set_to is not None and set_to not in _chosen):
        return lambda: None
    if backend() == "cpu":
        _use(for_this_processor())
        return lambda: None
    own, shared = run / "programs", home() / backend() / kind_of(config)
    copy_new(shared, own)
    _use(own)
    return lambda: copy_new(own, shared)


def _use(folder: Path) -> None:
    if str(folder) not in _chosen:
        _chosen.append(str(folder))
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    compilation_cache.reset_cache()  # it does not look again by itself once something was compiled


def copy_new(source: Path, target: Path) -> None:
    """The files of a folder that the other does not have yet."""
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as file, atomic_write(copy) as written:
                shutil.copyfileobj(file, written)
