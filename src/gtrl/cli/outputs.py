"""Checks, before a command starts its work, that its output can be written. They create nothing."""

import tempfile
from pathlib import Path

from gtrl.errors import ConfigError


def check_output_folder(path: Path, flag: str = "--out") -> Path:
    """Returns the expanded path if the folder is writable or can be created; raises a ConfigError otherwise."""
    path = path.expanduser()
    try:
        existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not existing.is_dir():
            reason = "it is a file" if existing == path else f"{existing} is a file"
            raise ConfigError(f"{path} cannot be a folder: {reason}; choose another {flag}.")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"nothing can be written to {path} ({reason}); choose another {flag}.") from error
    return path


def check_output_file(path: Path, flag: str = "--out") -> Path:
    """Returns the expanded path if the file can be written; raises a ConfigError otherwise."""
    path = path.expanduser()
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, not a file; choose another {flag}.")
    check_output_folder(path.parent, flag)
    return path
