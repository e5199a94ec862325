"""Compiled programs are kept on disk: the next run with the same shapes starts at once."""

import hashlib
import os
import platform
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

WORTH_KEEPING = 0.5  # seconds of compilation


def folder() -> Path:
    """Programs for a CPU are only good on one like it: homes are shared by machines that differ."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gtrl" / "programs"
    if jax.default_backend() != "cpu":
        return home / jax.default_backend()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith(("model name", "flags", "Features"))] or [platform.processor()]
    return home / f"cpu-{hashlib.sha256(told[0].encode() + told[-1].encode()).hexdigest()[:12]}"


def keep() -> None:
    """Keep compiled programs, unless JAX was told where to (JAX_COMPILATION_CACHE_DIR) or not to."""
    settings = jax.config.values
    if settings["jax_compilation_cache_dir"] is None and settings["jax_enable_compilation_cache"]:
        jax.config.update("jax_compilation_cache_dir", str(folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
        compilation_cache.reset_cache()  # it does not look again by itself once something was compiled
