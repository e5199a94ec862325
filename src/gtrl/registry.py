"""Methods, tasks, callbacks and kinds of policies by name: the package's own, an installed package's or a user's.

A name is looked up among what was registered, then among the entry points of installed packages. `module:Name` imports
a module and takes its attribute. A module that defines such things is a plugin: a run records which ones it needs.
"""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar

from gtrl.errors import ConfigError, UnknownNameError

Thing = TypeVar("Thing")
_registries: "list[Registry[Any]]" = []


class Registry(Generic[Thing]):
    """Things of one kind by name. The package's own may be references, `module:Name`, imported when needed."""

    def __init__(
        self, kind: str, group: str, fits: Callable[[Any], bool], own: Mapping[str, "Thing | str"] | None = None
    ) -> None:
        """`kind` is the word for one in messages, `group` that of the entry points, `fits` recognises one."""
        self.kind, self.group, self.fits = kind, group, fits
        self.entries: dict[str, Any] = dict(own or {})
        self.modules: dict[str, str] = {}  # the plugin that defines a thing, for those that are not the package's own
        _registries.append(self)

    def add(self, thing: Thing, module: str) -> Thing:
        """Register something under its own `name`; importing `module` registers it again."""
        name = getattr(thing, "name", None)
        if not isinstance(name, str) or not name or ":" in name:
            raise ConfigError(f"a {self.kind} needs a name without a colon, and not {name!r}.")
        known = self._own(name)
        if known is thing:
            return thing
        if known is not None and self.modules.get(name) != module:
            raise ConfigError(f"there is a {self.kind} '{name}' already; give yours another name.")
        self.entries[name] = thing
        self.modules[name] = module
        return thing

    def find(self, name: str) -> Thing:
        """What is registered under a name, or stands at `module:Name`."""
        if ":" in name:
            return self._adopt(name)
        if name not in self.entries:
            self._adopt_entry_points(name)
        if name not in self.entries:
            raise UnknownNameError(self.kind, name, self)
        return self._own(name)

    def module_of(self, name: str) -> str | None:
        """The plugin that defines what is registered under a name; None for the package's own."""
        return self.modules.get(name)

    def __iter__(self) -> Iterator[str]:
        """All names, the package's own first."""
        others = (entry.name for entry in importlib.metadata.entry_points(group=self.group))
        return iter(dict.fromkeys((*self.entries, *others)))

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def items(self) -> list[tuple[str, Thing]]:
        return [(name, self.find(name)) for name in self]

    def _own(self, name: str) -> Any:
        """What is registered under a name, imported if it was a reference so far; None where nothing is."""
        if isinstance(self.entries.get(name), str):
            self.entries[name] = resolve(self.entries[name])
        return self.entries.get(name)

    def _adopt_entry_points(self, name: str) -> None:
        for entry in importlib.metadata.entry_points(group=self.group, name=name):
            thing: Any = self._adopt(f"{entry.module}:{entry.attr}")
            if thing.name != name:
                raise ConfigError(
                    f"the entry point '{name}' refers to {entry.value}, whose name is '{thing.name}': "
                    "an entry point is called like what it refers to."
                )

    def _adopt(self, reference: str) -> Thing:
        """Register what `module:Name` refers to."""
        thing = resolve(reference)
        if not self.fits(thing):
            raise ConfigError(f"{reference} is not a {self.kind}.")
        return self.add(thing, reference.partition(":")[0])


def register(thing: Thing) -> Thing:
    """Make a method, a task, a callback or a kind of policy known by its `name`; also as a decorator of a class."""
    module = thing.__module__ if isinstance(thing, type) else sys._getframe(1).f_globals.get("__name__", "")
    for registry in _registries:
        if registry.fits(thing):
            return registry.add(thing, module)
    raise ConfigError(f"{thing!r} is neither a method, a task, a callback nor a policy with a name of its own.")


def load_plugin(module: str) -> ModuleType:
    """Import a module and register what it defines."""
    found = _import(module, f"the plugin '{module}'")
    for registry in _registries:
        for thing in vars(found).values():
            if _is_defined_in(module, thing) and registry.fits(thing):
                registry.add(thing, module)
    return found


def load_plugins(modules: Iterable[str]) -> None:
    """Import the plugins of a run; what a script defines itself is known only while it runs."""
    for module in modules:
        if module != "__main__":
            load_plugin(module)


def _is_defined_in(module: str, thing: Any) -> bool:
    """Whether a module's attribute is its own; classes and functions may be imported from elsewhere."""
    return not isinstance(thing, (type, FunctionType)) or thing.__module__ == module


def resolve(reference: str) -> Any:
    """What `module:name` refers to."""
    module, _, path = reference.partition(":")
    if not module or not path:
        raise ConfigError(f"'{reference}' is not a reference such as my_module:name.")
    found: Any = _import(module, f"the module '{module}' of '{reference}'")
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"the module '{module}' has no '{path}'.")
        found = getattr(found, name)
    return found


def _import(module: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = "run the command where it is, or add that folder to PYTHONPATH"
        raise ConfigError(f"{what} cannot be imported: {error} ({hint}).") from error
    except Exception as error:  # anything may happen in a module that is not ours
        raise ConfigError(f"{what} cannot be imported: it raised {type(error).__name__}: {error}.") from error
