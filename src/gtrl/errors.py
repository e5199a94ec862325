"""What a user can mend: one readable sentence each, exit status 2 on the command line."""

import difflib
from collections.abc import Iterable


class GtrlError(Exception):
    """A mistake in the input; its text is one sentence that says what to do."""


class UnknownNameError(GtrlError):
    """A task, method or command that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
        listed = f"known are {', '.join(known)}." if known else "none is registered."
        hint = f"did you mean '{close[0]}'?" if close else listed
        super().__init__(f"unknown {kind} '{name}': {hint}")


class DataError(GtrlError):
    """A dataset file that is missing, broken, or not what the task expects."""


class DownloadError(DataError):
    """A dataset that could not be downloaded; says which server failed and how."""


class WorkerError(GtrlError):
    """A worker process that was killed."""


class EpisodeError(GtrlError):
    """An environment that raised: in which task, goal and episode, and what."""


class RunError(GtrlError):
    """A run directory or policy file that cannot be used as asked."""


class VideoError(GtrlError):
    """A film that cannot be made here: no OpenGL, or no encoder."""


class ConfigError(GtrlError):
    """A hyperparameter outside its range."""


class ProcessError(GtrlError):
    """A finite process, behaviour or log that is not one."""


class Interrupted(KeyboardInterrupt):
    """Work that a signal ended after all was saved; the text says how to resume."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
