"""scripts/check_docs.py finds what is wrong on a page, and nothing on a good one."""

import importlib.util
from pathlib import Path
from typing import Any

PAGE = """\
# A page

![A picture](missing.png) [A file](missing.md) [A heading](#b-page) [Good](#a-page)

`gtrl train gtrl --no-such-flag`, `gtrl evaluate --seed`, `gtrl data get`, `make tests`, `tests/finite.py`, `src/no.py`

```console
$ gtrl train METHOD --task TASK [--steps 2e6]   # comment
$ gtrl evaluate RUN... \\
    --no-such-flag
$ gtrl tusks
$ gtrl bench --seeds many
$ make test
$ python benchmarks/nothing.py
```

```python
print(1 + 1)
```

Output:

```text
3
```

<!-- not run: it has no end -->

```python
while True:
    pass
```

<!-- not run: it is wrong -->

```python
while True
```

```python
value = 3


def fail():
    return undefined
```

```python
fail()
```

```python
print("not reached")
```
"""

GOOD = """\
# Good

<!-- setup:
start = 1
-->

```python
import gtrl

print(start + 1, gtrl.Task("own").name, id(start))
```

```text
2 own ...
```

[A page](page.md#a-page), `gtrl train gtrl --task pointmaze-mini-navigate`
"""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("check_docs", Path(__file__).parents[1] / "scripts/check_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_problems_are_found(tmp_path: Path) -> None:
    page, good = tmp_path / "page.md", tmp_path / "good.md"
    page.write_text(PAGE)
    good.write_text(GOOD)
    problems = load().check([page, good])
    lines = PAGE.splitlines()
    found = [(problem.page.name, lines[problem.line - 1], problem.message) for problem in problems]
    expected = [
        ("missing.png", "missing.png: there is no such file"),
        ("missing.png", "missing.md: there is no such file"),
        ("missing.png", "#b-page: there is no such heading"),
        ("no-such-flag`, ", "unknown argument '--no-such-flag'"),
        ("no-such-flag`, ", "there is no target tests"),
        ("no-such-flag`, ", "`src/no.py`: there is no such file"),
        ("gtrl evaluate RUN", "unknown argument '--no-such-flag'"),
        ("gtrl tusks", "tusks"),
        ("--seeds many", "many"),
        ("nothing.py", "there is no such file"),
        ("print(1 + 1)", "prints '2\\n', not '3\\n'"),
        ("while True", "does not compile: expected ':'"),
        ("return undefined", "raises NameError: name 'undefined' is not defined"),
    ]
    assert len(found) == len(expected), found
    for line, message in expected:
        assert any(name == "page.md" and line in text and message in said for name, text, said in found), (line, found)
