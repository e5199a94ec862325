"""The command line: `gtrl COMMAND ...`.

One module for each command, with a function whose typed arguments are its flags. JAX is loaded when one needs it.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from gtrl import console
from gtrl.cli.algorithms import algorithms_command
from gtrl.cli.bench import bench_command
from gtrl.cli.data import check_command, collect_command, get_command
from gtrl.cli.demo import demo_command
from gtrl.cli.evaluate import evaluate_command
from gtrl.cli.flags import call
from gtrl.cli.tasks import tasks_command
from gtrl.cli.theory import theory_command
from gtrl.cli.train import train_command
from gtrl.errors import GtrlError, UnknownNameError

Command = Callable[..., int | None]
COMMANDS: dict[str, Command | dict[str, Command]] = {
    "demo": demo_command,
    "tasks": tasks_command,
    "algorithms": algorithms_command,
    "data": {"get": get_command, "collect": collect_command, "check": check_command},
    "train": train_command,
    "evaluate": evaluate_command,
    "theory": theory_command,
    "bench": bench_command,
}


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    0: done; 1: a check fails; 2: something the user can correct, in one sentence; 128 + n: ended by signal n.
    """
    _replace_what_cannot_be_encoded()
    _find_local_modules()
    try:
        with console.log_to_console():
            status = _run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except BrokenPipeError as error:
        if not _discard_closed_streams():  # another pipe, such as a worker's
            console.warn(str(error))
            return 2
        return 128 + signal.SIGPIPE
    return status


def _run(args: Sequence[str]) -> int:
    try:
        return dispatch("gtrl", COMMANDS, args)
    except BrokenPipeError:
        raise
    except GtrlError as error:
        console.warn(str(error))
        return 2
    except OSError as error:
        named = error.strerror and error.filename
        console.warn(f"{error.filename}: {error.strerror}." if named else str(error))
        return 2
    except KeyboardInterrupt as stop:
        console.warn(f"interrupted; {stop}" if str(stop) else "interrupted")
        return 128 + getattr(stop, "signal", signal.SIGINT)
    except SystemExit as end:  # how tyro ends after a help text or a wrong value
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def dispatch(prog: str, commands: dict[str, Any], args: Sequence[str]) -> int:
    """Run the command that the first argument names."""
    if not args or args[0] in ("-h", "--help"):
        print(usage(prog, commands))
        return 0
    if args[0] == "--version":
        from gtrl import __version__

        print(__version__)
        return 0
    if args[0] not in commands:
        raise UnknownNameError("command", args[0], commands)
    command = commands[args[0]]
    if isinstance(command, dict):
        return dispatch(f"{prog} {args[0]}", command, args[1:])
    if command is train_command:  # its flags depend on the method
        return command(args[1:]) or 0
    return call(command, args[1:], f"{prog} {args[0]}")


def usage(prog: str, commands: dict[str, Any]) -> str:
    lines = [f"usage: {prog} COMMAND ...", ""]
    for name, command in commands.items():
        inner = ", ".join(command) if isinstance(command, dict) else (command.__doc__ or "").strip().splitlines()[0]
        lines.append(f"  {name:<12}{inner}")
    return "\n".join([*lines, "", f"'{prog} COMMAND --help' tells more."])


def _replace_what_cannot_be_encoded() -> None:
    """An ASCII locale shows `?` for γ, where Python would raise."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


def _find_local_modules() -> None:
    """`my_module:MyMethod` may be in the current directory, where the console script does not look by itself."""
    with contextlib.suppress(FileNotFoundError):  # the directory was removed
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)


def _discard_closed_streams() -> bool:
    """Whether stdout or stderr is a closed pipe; what is left to be written goes nowhere (Python, note on SIGPIPE)."""
    closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed_pipe(stream)]
    for stream in closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return bool(closed)


def _is_closed_pipe(stream: TextIO) -> bool:
    poll = select.poll()
    try:
        poll.register(stream, 0)  # errors are reported in any case
    except OSError:  # in memory
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
