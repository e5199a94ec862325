"""Command-line flags from typed arguments, parsed by tyro.

Integers may be written as 1e5. The error for an unknown flag lists the known ones.
"""

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from gtrl.errors import ConfigError

_registry = ConstructorRegistry()


def whole_number(text: str) -> int:
    """Parses an integer such as `100000`, `100_000` or `1e5`; raises a ValueError for anything else."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"{text} is not a whole number")
    return int(number)


@_registry.primitive_rule
def _integer_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda args: whole_number(args[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def flag_name(field: str) -> str:
    """Returns the flag of a field: `--batch-size` for `batch_size`, `--lambda` for `lambda_`."""
    return "--" + field.strip("_").replace("_", "-")


def parse(
    target: Callable[..., Any], args: Sequence[str], prog: str, description: str, fields: Iterable[str], **options: Any
) -> Any:
    """Calls `target` with the parsed arguments and returns its result.

    `fields` are the names that have flags; an unknown flag is reported with them. `options` are passed to `tyro.cli`.
    """
    options |= {"prog": prog, "description": description}
    result, unknown = tyro.cli(target, args=list(args), registry=_registry, return_unknown_args=True, **options)
    if unknown:
        raise _unknown_argument(unknown[0], prog, [flag_name(field) for field in fields])
    return result


def call(command: Callable[..., int | None], args: Sequence[str], prog: str) -> int:
    """Runs a command, a function whose keyword-only arguments are its flags, and returns its exit status."""

    @functools.wraps(command)
    def bind(*values: Any, **named: Any) -> Callable[[], int | None]:
        return functools.partial(command, *values, **named)  # `parse` must reject unknown flags before it is called

    parameters = inspect.signature(command).parameters.values()
    fields = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    description = (inspect.getdoc(command) or "").partition("\n\nArgs:")[0]
    return parse(bind, args, prog, description, fields)() or 0


def _unknown_argument(argument: str, prog: str, flags: Sequence[str]) -> ConfigError:
    name = argument.partition("=")[0]
    close = difflib.get_close_matches(name, flags, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return ConfigError(f"unknown argument '{name}'{hint}; the flags of '{prog}' are {', '.join(flags)}.")
