"""The command-line interface: `gtrl COMMAND ...`.

There is one module per command, with a function whose typed arguments are the command's flags. JAX is imported only by
the commands that need it.
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
from gtrl.cli.convert import convert_command
from gtrl.cli.data import check_command, collect_command, get_command
from gtrl.cli.demo import demo_command
from gtrl.cli.diagnose import diagnose_command
from gtrl.cli.evaluate import evaluate_command
from gtrl.cli.expert import expert_measure_command, expert_train_command
from gtrl.cli.export import export_command
from gtrl.cli.flags import call
from gtrl.cli.report import report_command
from gtrl.cli.results import add_command, index_command
from gtrl.cli.results import check_command as check_results_command
from gtrl.cli.sweep import sweep_command
from gtrl.cli.tasks import tasks_command
from gtrl.cli.theory import theory_command
from gtrl.cli.train import train_command
from gtrl.cli.watch import watch_command
from gtrl.errors import GtrlError, UnknownNameError

Command = Callable[..., int | None]
COMMANDS: dict[str, Command | dict[str, Command]] = {
    "demo": demo_command,
    "tasks": tasks_command,
    "algorithms": algorithms_command,
    "data": {"get": get_command, "collect": collect_command, "check": check_command, "convert": convert_command},
    "expert": {"train": expert_train_command, "measure": expert_measure_command},
    "train": train_command,
    "evaluate": evaluate_command,
    "sweep": sweep_command,
    "watch": watch_command,
    "diagnose": diagnose_command,
    "report": report_command,
    "export": export_command,
    "results": {"add": add_command, "index": index_command, "check": check_results_command},
    "theory": theory_command,
    "bench": bench_command,
}


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    0: success; 1: a check of `gtrl theory` fails, or a sweep has unfinished runs; 2: an error in the input, reported in
    one line; 128 + n: ended by signal n.
    """
    _replace_unencodable_characters()
    _make_local_modules_importable()
    try:
        with console.log_to_console():
            status = _run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except BrokenPipeError as error:
        if not _discard_closed_streams():  # the broken pipe is another one, such as a worker's
            console.warn(str(error))
            return 2
        return 128 + signal.SIGPIPE
    return status


def _run(args: Sequence[str]) -> int:
    """Runs a command; turns errors of the user and interruptions into a message and an exit status."""
    try:
        return dispatch("gtrl", COMMANDS, args)
    except BrokenPipeError:
        raise
    except GtrlError as error:
        console.warn(str(error))
        return 2
    except OSError as error:
        has_file = error.strerror and error.filename
        console.warn(f"{error.filename}: {error.strerror}." if has_file else str(error))
        return 2
    except KeyboardInterrupt as stop:
        console.warn(f"interrupted; {stop}" if str(stop) else "interrupted")
        return 128 + getattr(stop, "signal", signal.SIGINT)
    except SystemExit as error:  # raised by tyro after a help text or an invalid value
        return error.code if isinstance(error.code, int) else int(error.code is not None)


def dispatch(prog: str, commands: dict[str, Any], args: Sequence[str]) -> int:
    """Runs the command that the first argument names and returns its exit status."""
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
    if command in (train_command, expert_train_command):  # their flags depend on the first argument
        return command(args[1:]) or 0
    return call(command, args[1:], f"{prog} {args[0]}")


def usage(prog: str, commands: dict[str, Any]) -> str:
    """Returns the help text of a group of commands: one line per command, from its docstring."""
    lines = [f"usage: {prog} COMMAND ...", ""]
    for name, command in commands.items():
        if isinstance(command, dict):
            summary = f"Subcommands: {', '.join(command)}."
        else:
            summary = (command.__doc__ or "").strip().splitlines()[0]
        lines.append(f"  {name:<12}{summary}")
    return "\n".join([*lines, "", f"Run '{prog} COMMAND --help' for the options of a command."])


def _replace_unencodable_characters() -> None:
    """Prints `?` for γ in an ASCII locale, where Python would raise an error by default."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


def _make_local_modules_importable() -> None:
    """Adds the working directory to the import path, for plugins such as `my_module:MyMethod`."""
    with contextlib.suppress(FileNotFoundError):  # the directory was removed
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)


def _discard_closed_streams() -> bool:
    """Returns whether stdout or stderr is a closed pipe.

    Redirects such a stream to /dev/null, so that the interpreter can flush it at exit (see "Note on SIGPIPE" in the
    documentation of Python's `signal`).
    """
    closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed_pipe(stream)]
    for stream in closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return bool(closed)


def _is_closed_pipe(stream: TextIO) -> bool:
    poll = select.poll()
    try:
        poll.register(stream, 0)  # errors are reported without being requested
    except OSError:  # an in-memory stream, which has no file descriptor
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
