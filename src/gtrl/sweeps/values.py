"""Values of fields from YAML and from the command line, converted to the types that the fields declare."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from gtrl.errors import ConfigError

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "null"}


def split_assignment(text: str, flag: str, form: str) -> tuple[str, str]:
    """Splits the value of a flag at its first `=`; `form` is what the flag takes, such as TASK=FILE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigError(f"{flag} is '{text}' and must be {form}.")
    return name, value


def parse_field(text: str) -> tuple[str, Any]:
    """Splits `NAME=VALUE` and reads the value as YAML: `lambda=0.5`, `hidden=[64, 64]`, `hindsight=false`."""
    name, value = split_assignment(text, "--field", "NAME=VALUE")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--field {name} is '{value}', which is not a valid value.") from error


def field_name(name: str, known: Mapping[str, Any]) -> str:
    """Returns the name of a field that may be written as its flag: `batch-size` for batch_size, `lambda` for lambda_.

    `known` are the fields by name.
    """
    plain = name.removeprefix("--").replace("-", "_")
    return f"{plain}_" if f"{plain}_" in known else plain


def convert_fields(fields: Mapping[str, Any], *kinds: type) -> dict[str, Any]:
    """Returns the fields by their names in the dataclasses `kinds`, with the declared types.

    Unknown names are kept, for the error message of the caller. Raises `ConfigError` for a value of another type.
    """
    hints: dict[str, Any] = {}
    for kind in kinds:
        own_fields = {field.name for field in dataclasses.fields(kind)}
        all_hints = get_type_hints(kind, include_extras=True)
        hints |= {name: hint for name, hint in all_hints.items() if name in own_fields}
    named = {field_name(str(name), hints): value for name, value in fields.items()}
    return {name: convert(name, value, hints.get(name, Any)) for name, value in named.items()}


def convert(name: str, value: Any, hint: Any) -> Any:
    """Returns a value as the type `hint`; lists become tuples, and `1e6`, a text in YAML, becomes a number."""
    try:
        return _converted(value, hint)
    except (TypeError, ValueError):
        raise ConfigError(f"{name.rstrip('_')} is {value!r} and must be {_in_words(hint)}.") from None


def _converted(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _converted(value, arguments[0])
    if origin in (Union, types.UnionType):
        return _first_converted(value, arguments)
    if origin is Literal:
        return arguments[arguments.index(value)]
    if origin is tuple:
        return _converted_items(value, arguments)
    if hint in (int, float):
        return _number(value, hint)
    if hint in (bool, str, type(None)) and not isinstance(value, hint):
        raise TypeError
    return value


def _first_converted(value: Any, hints: tuple[Any, ...]) -> Any:
    for hint in hints:
        try:
            return _converted(value, hint)
        except (TypeError, ValueError):
            continue
    raise TypeError


def _converted_items(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    if hints[1:] == (...,):
        return tuple(_converted(item, hints[0]) for item in value)
    return tuple(_converted(item, hint) for item, hint in zip(value, hints, strict=True))


def _number(value: Any, kind: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    number = float(value)
    if kind is int and not number.is_integer():
        raise ValueError
    return value if type(value) is kind else kind(number)


def _in_words(hint: Any) -> str:
    """A type as a message names it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _in_words(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(map(_in_words, arguments))
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        item = _in_words(arguments[0])
        return f"a list, each item {item}" if arguments[1:] == (...,) else f"a list of {len(arguments)} values"
    return WORDS.get(hint, "a valid value")
