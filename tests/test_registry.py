"""Lookup by name: registered objects, references `module:Name`, entry points and plugins."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gtrl
from gtrl import registry
from gtrl.algorithms import ALGORITHMS, find_algorithm
from gtrl.algorithms.gtrl import GTRL
from gtrl.errors import ConfigError, UnknownNameError
from gtrl.registry import Registry, load_plugin, resolve
from gtrl.tasks import REGISTERED, TASKS, find_task


class Tool:
    def __init__(self, name: Any) -> None:
        self.name = name


HAMMER, SAW = Tool("hammer"), Tool("saw")
Write = Callable[..., str]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Registry[Tool]:
    """The only registry, with one built-in entry by reference."""
    monkeypatch.setattr(registry, "_registries", [])
    return Registry("tool", "test.tools", lambda thing: isinstance(thing, Tool), {"hammer": f"{__name__}:HAMMER"})


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes an importable module and its distribution's entry points; returns the module's name."""
    written = []

    def write(name: str, text: str, **entry_points: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        if entry_points:
            folder = tmp_path / f"{name}-1.0.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            lines = [f"{key} = {value}" for key, value in entry_points.items()]
            (folder / "entry_points.txt").write_text("\n".join(["[test.tools]", *lines]) + "\n")
        written.append(name)
        importlib.invalidate_caches()
        return name

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name in written:
        sys.modules.pop(name, None)


PLUGIN = f"from {__name__} import Tool\nDRILL = Tool('drill')\nSAW = Tool('saw')\n"


# --- registering ---


def test_registered_things_are_found_by_their_name(tools: Registry[Tool]) -> None:
    assert list(tools) == ["hammer"]
    assert tools.find("hammer") is HAMMER
    assert tools.module_of("hammer") is None
    assert tools.add(SAW, "shed") is SAW
    assert tools.find("saw") is SAW
    assert tools.module_of("saw") == "shed"
    assert tools.items() == [("hammer", HAMMER), ("saw", SAW)]
    assert "saw" in tools
    assert "drill" not in tools


def test_unknown_names(tools: Registry[Tool]) -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown tool 'hamer': did you mean 'hammer'\?$"):
        tools.find("hamer")
    with pytest.raises(UnknownNameError, match=r"^unknown tool 'xyz': choose from hammer\.$"):
        tools.find("xyz")


def test_name_can_be_registered_once(tools: Registry[Tool]) -> None:
    tools.add(SAW, "shed")
    tools.add(SAW, "cellar")  # the same object from another module
    assert tools.module_of("saw") == "shed"
    for thing in (Tool("saw"), Tool("hammer")):
        with pytest.raises(
            ConfigError, match=rf"^a tool named '{thing.name}' is already registered; choose another name\.$"
        ):
            tools.add(thing, "cellar")
    assert tools.find("saw") is SAW
    newer = Tool("saw")
    tools.add(newer, "shed")  # its module was changed and imported again
    assert tools.find("saw") is newer


def test_built_in_can_be_registered_again(tools: Registry[Tool]) -> None:
    """Also before it was imported; it remains a built-in."""
    assert tools.add(HAMMER, "shed") is HAMMER
    assert tools.module_of("hammer") is None


@pytest.mark.parametrize("name", [None, "", 3, "a:b"])
def test_invalid_names_are_rejected(name: Any, tools: Registry[Tool]) -> None:
    with pytest.raises(
        ConfigError, match=rf"^the name of a tool is {name!r} and must be a non-empty text without a colon\.$"
    ):
        tools.add(Tool(name), "shed")


# --- module:Name ---


def test_reference_registers_its_object(tools: Registry[Tool], write: Write) -> None:
    module = write("tools_by_reference", PLUGIN)
    drill = tools.find(f"{module}:DRILL")
    assert drill is tools.find(f"{module}:DRILL") is tools.find("drill")
    assert tools.module_of("drill") == module
    assert "saw" not in tools


def test_reference_to_a_built_in(tools: Registry[Tool]) -> None:
    assert tools.find(f"{__name__}:HAMMER") is HAMMER
    assert tools.module_of("hammer") is None


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no_such_module:X", "the module 'no_such_module' of 'no_such_module:X' cannot be imported: No module named"),
        ("gtrl.nothing:X", "cannot be imported: No module named 'gtrl.nothing'"),
        ("gtrl.errors:Missing", "the module 'gtrl.errors' has no 'Missing'."),
        ("gtrl.errors:GtrlError.missing", "the module 'gtrl.errors' has no 'GtrlError.missing'."),
        ("gtrl.errors:GtrlError", "gtrl.errors:GtrlError is not a tool."),
        (":X", "':X' is not a reference such as my_module:name."),
        ("gtrl.errors:", "'gtrl.errors:' is not a reference such as my_module:name."),
        (".errors:X", "the module '.errors' of '.errors:X' cannot be imported: it raised TypeError: "),
    ],
)
def test_invalid_references_are_rejected(reference: str, message: str, tools: Registry[Tool]) -> None:
    with pytest.raises(ConfigError) as caught:
        tools.find(reference)
    assert message in str(caught.value)


def test_failing_module_is_named(tools: Registry[Tool], write: Write) -> None:
    for name, text, message in (
        ("tool_raises", "1 / 0\n", "it raised ZeroDivisionError: division by zero."),
        ("tool_typo", "def\n", "it raised SyntaxError: "),
        ("tool_needs", "import no_such_module\n", "No module named 'no_such_module'."),
    ):
        module = write(name, text)
        with pytest.raises(ConfigError, match=f"the module '{module}' of '{module}:X' cannot be imported: .*{message}"):
            tools.find(f"{module}:X")
        with pytest.raises(ConfigError, match=f"the plugin '{module}' cannot be imported: .*{message}"):
            load_plugin(module)


def test_resolve_follows_attributes() -> None:
    assert resolve("gtrl.algorithms.gtrl:GTRL.name") == "gtrl"
    assert resolve("os.path:join") is __import__("os").path.join


# --- entry points ---


def test_entry_points_of_an_installed_package(tools: Registry[Tool], write: Write) -> None:
    module = write("tools_installed", PLUGIN, drill="tools_installed:DRILL", saw="tools_installed:SAW")
    assert list(tools) == ["hammer", "drill", "saw"]
    assert module not in sys.modules  # listing names imports nothing
    assert "drill" in tools
    assert tools.find("drill").name == "drill"
    assert tools.module_of("drill") == module
    assert [name for name, _ in tools.items()] == ["hammer", "drill", "saw"]
    with pytest.raises(UnknownNameError, match="did you mean 'drill'"):
        tools.find("dril")


def test_entry_points_do_not_replace_built_ins(tools: Registry[Tool], write: Write) -> None:
    write("tools_greedy", f"from {__name__} import Tool\nX = Tool('hammer')\n", hammer="tools_greedy:X")
    assert tools.find("hammer") is HAMMER


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("tools_wrong:SAW", "the entry point 'drill' refers to tools_wrong:SAW, whose name is 'saw'"),
        ("tools_wrong:Tool", "tools_wrong:Tool is not a tool."),
        ("tools_wrong:MISSING", "the module 'tools_wrong' has no 'MISSING'."),
        ("tools_nowhere:X", "the module 'tools_nowhere' of 'tools_nowhere:X' cannot be imported"),
    ],
)
def test_invalid_entry_points_are_reported(target: str, message: str, tools: Registry[Tool], write: Write) -> None:
    write("tools_wrong", PLUGIN, drill=target)
    with pytest.raises(ConfigError) as caught:
        tools.find("drill")
    assert message in str(caught.value)


def test_name_claimed_by_two_packages(tools: Registry[Tool], write: Write) -> None:
    write("tools_first", PLUGIN, drill="tools_first:DRILL")
    write("tools_second", PLUGIN, drill="tools_second:DRILL")
    with pytest.raises(ConfigError, match="a tool named 'drill' is already registered"):
        tools.find("drill")


# --- plugins ---


def test_plugin_registers_its_definitions(tools: Registry[Tool], write: Write) -> None:
    module = write("tools_plugin", PLUGIN)
    found = load_plugin(module)
    assert (tools.find("drill"), tools.find("saw")) == (found.DRILL, found.SAW)
    assert tools.module_of("saw") == module
    assert load_plugin(module) is found


def test_plugin_defines_methods_and_tasks(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are its own where it defines them; a task is an object, so its class's module does not matter."""
    for each in (ALGORITHMS, REGISTERED):
        monkeypatch.setattr(each, "entries", dict(each.entries))
        monkeypatch.setattr(each, "modules", {})
    module = write(
        "plugin_of_both",
        "import gtrl\nfrom gtrl.algorithms.gtrl import GTRL\nfrom gtrl.tasks import TASKS\n"
        "class Custom(GTRL):\n    name = 'custom'\n"
        "TASK = gtrl.Task('my-task')\nSCENE = TASKS['scene-play']\n",
    )
    found = load_plugin(module)
    assert find_algorithm("custom") is found.Custom
    assert find_task("my-task") is found.TASK
    assert ALGORITHMS.modules == {"custom": module}
    assert REGISTERED.modules == {"my-task": module}
    assert find_algorithm("gtrl") is GTRL
    assert find_task("scene-play") is TASKS["scene-play"]


def test_built_ins_by_reference() -> None:
    assert find_algorithm("gtrl.algorithms.gtrl:GTRL") is GTRL
    assert ALGORITHMS.module_of("gtrl") is None
    with pytest.raises(ConfigError, match=r"^gtrl\.tasks:TASKS is not a task\.$"):
        find_task("gtrl.tasks:TASKS")
    with pytest.raises(ConfigError, match=r"^gtrl:Task is not a method\.$"):
        find_algorithm("gtrl:Task")
    assert gtrl.Task is not None
