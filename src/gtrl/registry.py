"""Things found by name: methods, tasks, callbacks and kinds of policies; ours, an installed package's or a user's own.

A name is looked for among what was registered, then among the entry points of installed packages. `module:Name` imports
a module and takes what it calls so. A module that holds such things is a plugin: a run remembers which ones it needs.
"""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar

from gtrl.errors import ConfigError, UnknownNameError

Thing = TypeVar("Thing")
_registries: "list[Registry[Any]]" = []


class Registry(Generic[Thing]):
    """Things of one kind by name. Its own may be references, `module:Name`, which are imported when needed."""

    def __init__(
        self, kind: str, group: str, fits: Callable[[Any], bool], own: Mapping[str, "Thing | str"] | None = None
    ) -> None:
        """`kind` is the word for one in messages, `group` that of the entry points, `fits` says what is one."""
        self.kind, self.group, self.fits = kind, group, fits
        self.things: dict[str, Any] = dict(own or {})
        self.modules: dict[str, str] = {}  # of a thing that is not ours: the module that brings it
        _registries.append(self)

    def add(self, thing: Thing, module: str) -> Thing:
        """Register something under its own `name`; `module` is where importing it makes it known again."""
        name = thing.name  # pyright: ignore[reportAttributeAccessIssue]
        known = self.things.get(name)
        if known is not None and known is not thing and self.modules.get(name) != module:
            raise ConfigError(f"there is a {self.kind} '{name}' already; give yours another name.")
        self.things[name] = thing
        self.modules[name] = module
        return thing

    def find(self, name: str) -> Thing:
        if ":" in name:
            return self._referenced(name)
        if name not in self.things:
            for entry in importlib.metadata.entry_points(group=self.group, name=name):
                self._adopt(entry.value, entry.value.partition(":")[0], resolve(entry.value))
        if name not in self.things:
            raise UnknownNameError(self.kind, name, self)
        if isinstance(self.things[name], str):
            self.things[name] = resolve(self.things[name])
        return self.things[name]

    def module_of(self, name: str) -> str | None:
        """The plugin that brings what is called so; None where it is ours."""
        return self.modules.get(name)

    def __iter__(self) -> Iterator[str]:
        """All names, ours first."""
        others = (entry.name for entry in importlib.metadata.entry_points(group=self.group))
        return iter(dict.fromkeys((*self.things, *others)))

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def items(self) -> list[tuple[str, Thing]]:
        return [(name, self.find(name)) for name in self]

    def _referenced(self, reference: str) -> Thing:
        module = reference.partition(":")[0]
        thing = resolve(reference)
        self._adopt(reference, module, thing)
        return thing

    def _adopt(self, reference: str, module: str, thing: Any) -> None:
        if not self.fits(thing):
            raise ConfigError(f"{reference} is not a {self.kind}.")
        self.add(thing, module)


def load_plugin(module: str) -> ModuleType:
    """Import a module and register whatever it defines that has a registry."""
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"the module '{module}' cannot be imported: {error}.") from error
    for registry in _registries:
        for thing in vars(found).values():
            # An object has the module of its class; only a class's own says where it was defined.
            imported = isinstance(thing, type) and thing.__module__ != module
            if not imported and registry.fits(thing) and registry.things.get(thing.name) is not thing:
                registry.add(thing, module)
    return found


def resolve(reference: str) -> Any:
    """What `module:name` refers to."""
    module, _, path = reference.partition(":")
    if not module or not path:
        raise ConfigError(f"'{reference}' is not a reference such as my_module:name.")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"the module '{module}' of '{reference}' cannot be imported: {error}.") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"the module '{module}' has no '{path}'.")
        found = getattr(found, name)
    return found
