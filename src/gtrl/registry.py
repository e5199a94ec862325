"""Registries that look up methods, tasks, callbacks and policy classes by name.

A name is looked up among the registered entries, then among the entry points of installed packages. `module:Name`
imports a module and uses its attribute. A module that defines entries is a plugin; a run records the plugins it needs.
"""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar

from gtrl.errors import USER_CODE_ERRORS, ConfigError, UnknownNameError

Entry = TypeVar("Entry")
_registries: "list[Registry[Any]]" = []


class Registry(Generic[Entry]):
    """Entries of one kind by name. Built-in ones may be given as references, `module:Name`, imported on first use."""

    def __init__(
        self, kind: str, group: str, accepts: Callable[[Any], bool], builtin: Mapping[str, "Entry | str"] | None = None
    ) -> None:
        """Creates a registry and adds it to those that `register` and `load_plugin` search.

        Args:
            kind: The word for an entry in messages, such as "task".
            group: The group of entry points in which other packages list their entries.
            accepts: Whether an object is an entry of this kind.
            builtin: The package's entries by name.
        """
        self.kind, self.group, self.accepts = kind, group, accepts
        self.entries: dict[str, Any] = dict(builtin or {})
        self.modules: dict[str, str] = {}  # the plugin that defines each entry that is not built in
        _registries.append(self)

    def add(self, entry: Entry, module: str) -> Entry:
        """Registers an entry under its `name`. `module` is the plugin whose import registers it again."""
        name = getattr(entry, "name", None)
        if not isinstance(name, str) or not name or ":" in name:
            raise ConfigError(f"the name of a {self.kind} is {name!r} and must be a non-empty text without a colon.")
        known = self._registered(name)
        if known is entry:
            return entry
        if known is not None and self.modules.get(name) != module:
            raise ConfigError(f"a {self.kind} named '{name}' is already registered; choose another name.")
        self.entries[name] = entry
        self.modules[name] = module
        return entry

    def find(self, name: str) -> Entry:
        """Returns the entry with this name, or the one that `module:Name` refers to.

        Raises:
            UnknownNameError: If no entry has this name.
            ConfigError: If a module cannot be imported or does not define an entry.
        """
        if ":" in name:
            return self._register_reference(name)
        if name not in self.entries:
            self._register_entry_points(name)
        if name not in self.entries:
            raise UnknownNameError(self.kind, name, self)
        return self._registered(name)

    def module_of(self, name: str) -> str | None:
        """Returns the plugin that defines an entry; None for a built-in one."""
        return self.modules.get(name)

    def __iter__(self) -> Iterator[str]:
        """Iterates over all names: the registered ones, then those of entry points."""
        installed = (point.name for point in importlib.metadata.entry_points(group=self.group))
        return iter(dict.fromkeys((*self.entries, *installed)))

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def items(self) -> list[tuple[str, Entry]]:
        """Returns (name, entry) of every entry, importing those that have not been used yet."""
        return [(name, self.find(name)) for name in self]

    def _registered(self, name: str) -> Any:
        """Returns the registered entry, importing a reference; None if there is none."""
        if isinstance(self.entries.get(name), str):
            self.entries[name] = resolve(self.entries[name])
        return self.entries.get(name)

    def _register_entry_points(self, name: str) -> None:
        """Registers the entries that installed packages offer under this name."""
        for point in importlib.metadata.entry_points(group=self.group, name=name):
            entry: Any = self._register_reference(f"{point.module}:{point.attr}")
            if entry.name != name:
                raise ConfigError(
                    f"the entry point '{name}' refers to {point.value}, whose name is '{entry.name}': "
                    "the two names must be the same."
                )

    def _register_reference(self, reference: str) -> Entry:
        """Registers and returns the entry that `module:Name` refers to."""
        entry = resolve(reference)
        if not self.accepts(entry):
            raise ConfigError(f"{reference} is not a {self.kind}.")
        return self.add(entry, reference.partition(":")[0])


def register(thing: Entry) -> Entry:
    """Registers a method, task, callback or policy class under its `name` and returns it.

    Can be used as a class decorator.
    """
    module = thing.__module__ if isinstance(thing, type) else sys._getframe(1).f_globals.get("__name__", "")
    for registry in _registries:
        if registry.accepts(thing):
            return registry.add(thing, module)
    raise ConfigError(f"{thing!r} is not a method, task, callback or policy class with a `name`.")


def load_plugin(module: str) -> ModuleType:
    """Imports a module and registers the entries that it defines."""
    found = import_module(module, f"the plugin '{module}'")
    for registry in _registries:
        for entry in vars(found).values():
            if _is_defined_in(module, entry) and registry.accepts(entry):
                registry.add(entry, module)
    return found


def load_plugins(modules: Iterable[str]) -> None:
    """Imports the plugins of a run."""
    for module in modules:
        if module != "__main__":  # entries defined in a script exist only while it runs
            load_plugin(module)


def _is_defined_in(module: str, entry: Any) -> bool:
    """Returns whether a module's attribute is defined there; classes and functions may be imported from elsewhere."""
    return not isinstance(entry, (type, FunctionType)) or entry.__module__ == module


def resolve(reference: str) -> Any:
    """Imports and returns the object that `module:name` refers to; the name may contain dots."""
    module, _, path = reference.partition(":")
    if not module or not path:
        raise ConfigError(f"'{reference}' is not a reference such as my_module:name.")
    found: Any = import_module(module, f"the module '{module}' of '{reference}'")
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"the module '{module}' has no '{path}'.")
        found = getattr(found, name)
    return found


def reference_of(thing: Any) -> str | None:
    """Returns `module:name` if `resolve` finds this object in any process; None for lambdas, closures and scripts'."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is thing else None


def import_module(module: str, what: str) -> ModuleType:
    """Imports a module; raises a `ConfigError` that names `what` if it cannot be imported."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = "run the command in its folder, or add that folder to PYTHONPATH"
        raise ConfigError(f"{what} cannot be imported: {error} ({hint}).") from error
    except USER_CODE_ERRORS as error:
        raise ConfigError(f"{what} cannot be imported: it raised {type(error).__name__}: {error}.") from error
