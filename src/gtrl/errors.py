"""Errors that the user can fix. The command line prints their message and exits with status 2."""

import difflib
from collections.abc import Iterable

USER_CODE_ERRORS = (Exception, SystemExit)  # what an environment or a plugin may raise; sys.exit() is a SystemExit


class GtrlError(Exception):
    """Base class of the package's errors. The message is one line that says what is wrong and what to do."""


class UnknownNameError(GtrlError):
    """A name that is not known. The message suggests a similar one or lists them all."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
        listed = f"choose from {', '.join(known)}." if known else "none is registered."
        hint = f"did you mean '{close[0]}'?" if close else listed
        super().__init__(f"unknown {kind} '{name}': {hint}")


class DataError(GtrlError):
    """A dataset or expert file that is missing, damaged, or does not fit the task."""


class DownloadError(DataError):
    """A failed download. The message names each server that was tried and how it failed."""


class WorkerError(GtrlError):
    """Worker processes that were killed, stopped responding, or were cancelled."""


class EpisodeError(GtrlError):
    """An environment that raised an error or breaks the conventions. The message names task, goal and episode."""


class RunError(GtrlError):
    """A run directory or policy file that is damaged, or cannot be used as requested."""


class VideoError(GtrlError):
    """A video that cannot be made on this machine: OpenGL or a video encoder is missing."""


class ConfigError(GtrlError):
    """An invalid setting, such as a hyperparameter outside its range."""


class MissingPackageError(ConfigError):
    """An optional package that is not installed. The message names the command that installs it."""


class ProcessError(GtrlError):
    """An invalid finite decision process, behaviour policy or log."""


class Interrupted(KeyboardInterrupt):
    """Raised when a signal stopped the work after its state was saved. The message says how to resume."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
