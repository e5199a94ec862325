#!/usr/bin/env python3
"""Check the documentation: README.md, CONTRIBUTING.md, CHANGELOG.md and docs/.

- Links to files and headings lead somewhere; images and files named in code spans exist.
- Python blocks run: those of a page in order, in one namespace, in a temporary folder.
  A `text` block below a Python block, with at most "Output:" between them, must be its output; `...` matches anything.
  A block without such output runs with fewer steps and episodes. A block below `<!-- not run: reason -->` is only
  compiled. `<!-- setup: code -->` runs code that readers do not see.
- Commands parse: `gtrl ...` by the real parser, without being run; `make X` is a target; `python x.py` is a file.

Prints `file:line: problem` for each problem; the exit status is 1 if there are any.

    python scripts/check_docs.py [--links-only] [FILE ...]
"""

import argparse
import contextlib
import functools
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
SHELL = {"", "bash", "console", "sh", "shell"}  # languages of blocks that hold commands
FOLDERS = "benchmarks|docs|examples|results|scripts|src|tests"
VALUES = {"METHOD": "gtrl", "TASK": "pointmaze-mini-navigate", "N": "1", "K": "1", "S": "1"}  # for placeholders
PAGE_SECONDS = 300  # limit for all blocks of a page

# Upper limits for arguments, so that examples written for real use run in seconds.
BUDGET = {
    "train": {"steps": 20, "batch_size": 32},
    "collect": {"episodes": 2, "workers": 1},
    "get_dataset": {"workers": 1},
    "evaluate": {"episodes": 1, "workers": 1},
}


class Problem(NamedTuple):
    """What is wrong, and where."""

    page: Path
    line: int
    message: str

    def __str__(self) -> str:
        page = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page
        return f"{page}:{self.line}: {self.message}"


class Block(NamedTuple):
    """A Python block: its code, the output shown below it, and whether it is run."""

    line: int
    code: str
    output: str | None
    run: bool


def tokens_of(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


def line_of(token: Token) -> int:
    return token.map[0] + 1 if token.map else 0


# --- links ---


def slugs_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    slugs: list[str] = []
    tokens = tokens_of(page)
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            text = "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            slugs.append(f"{slug}-{slugs.count(slug)}" if slug in slugs else slug)
    return set(slugs)


def link_problems(page: Path) -> Iterator[Problem]:
    """Links and images whose file or heading is missing."""
    for token in tokens_of(page):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if not isinstance(target, str) or re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = unquote(target).partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                yield Problem(page, line_of(token), f"{target}: there is no such file")
            elif anchor and file.suffix == ".md" and anchor not in slugs_of(file):
                yield Problem(page, line_of(token), f"{target}: there is no such heading")


# --- Python blocks ---


def blocks_of(page: Path) -> list[Block]:
    """The Python blocks of a page, hidden setup included."""
    blocks: list[Block] = []
    run = True
    below_code = False  # whether the last block was Python, with at most "Output:" since
    for token in tokens_of(page):
        if token.type == "html_block":
            if setup := re.match(r"<!-- setup:(.*?)-->", token.content, re.S):
                blocks.append(Block(line_of(token), setup[1].strip(), None, True))
            run = not re.match(r"<!-- not run: \S", token.content)
        elif token.type == "fence":
            if token.info == "python":
                blocks.append(Block(line_of(token) + 1, token.content, None, run))
            elif token.info == "text" and below_code:
                blocks[-1] = blocks[-1]._replace(output=token.content)
            below_code, run = token.info == "python", True
        elif token.type == "inline" and not re.match(r"(Output|Prints|It prints)\b.*:$", token.content):
            below_code, run = False, True
    return blocks


def run_blocks(page: Path) -> Iterator[Problem]:
    """Run the blocks of a page in this process and this folder, and parse its commands."""
    namespace: dict[str, Any] = vars(sys.modules["__main__"])  # as if it were a script
    for block in blocks_of(page):
        try:
            # Line numbers of the page, for tracebacks.
            code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        except SyntaxError as error:
            yield Problem(page, error.lineno or block.line, f"does not compile: {error.msg}")
            continue
        if not block.run:
            continue
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.nullcontext() if block.output else small_budget():
                exec(code, namespace)
        except BaseException as error:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(page)]
            yield Problem(page, (lines or [block.line])[-1] or block.line, f"raises {type(error).__name__}: {error}")
            break  # what follows needs it
        if block.output is not None and not matches(printed.getvalue(), block.output):
            yield Problem(page, block.line, f"prints {printed.getvalue()!r}, not {block.output!r}")
    yield from command_problems(page, namespace)


def matches(printed: str, shown: str) -> bool:
    """Whether an output is the one shown, where `...` stands for anything."""
    pattern = ".*?".join(re.escape(part) for part in re.split(r"\.\.\.", shown.strip()))
    return re.fullmatch(pattern, printed.strip(), re.S) is not None


@contextlib.contextmanager
def small_budget() -> Iterator[None]:
    """Let gtrl's functions do less than they are asked to."""
    import gtrl

    def limited(function: Any, limits: dict[str, int]) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            return function(
                *args, **named | {name: min(named.get(name) or most, most) for name, most in limits.items()}
            )

        return call

    whole = {name: getattr(gtrl, name) for name in BUDGET}
    for name, limits in BUDGET.items():
        setattr(gtrl, name, limited(whole[name], limits))
    try:
        yield
    finally:
        for name, function in whole.items():
            setattr(gtrl, name, function)


# --- commands ---


def commands_of(page: Path) -> Iterator[tuple[int, str, list[str]]]:
    """The commands of a page, with the forms that may be tried: lines of shell blocks, and code spans in the text."""
    for token in tokens_of(page):
        if token.type == "fence" and token.info in SHELL:
            for offset, line in enumerate(joined_lines(token.content)):
                command = line.removeprefix("$ ")
                yield line_of(token) + 1 + offset, command, [command]
        for child in token.children or ():
            if child.type == "code_inline":  # may be a command's name, or end in a flag without its value
                named = re.fullmatch(r"gtrl(?: [a-z]+)+", child.content)
                forms = [f"{child.content} --help"] if named else [child.content, f"{child.content} 1"]
                yield line_of(token), child.content, forms


def joined_lines(text: str) -> list[str]:
    """The lines of a text. A line that continues the one before becomes part of it, and empty."""
    lines = text.splitlines()
    for number in reversed(range(1, len(lines))):
        if lines[number - 1].endswith("\\"):
            lines[number - 1] = f"{lines[number - 1][:-1].rstrip()} {lines[number].lstrip()}"
            lines[number] = ""
    return lines


def words_of(command: str) -> list[str]:
    """The words of a command without comments, brackets of optional parts and placeholders."""
    command = re.split(r"\s{2,}|\s#", command)[0]
    words = shlex.split(command.replace("[", " ").replace("]", " ").replace("…", "..."))
    words = [word.removesuffix("...") for word in words if word not in ("...", "|", "flags")]
    return [VALUES.get(word, word) for word in words]


def command_problems(page: Path, namespace: dict[str, Any]) -> Iterator[Problem]:
    """Commands that would not work. `namespace` may define methods that commands name as `module:Class`."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for line, command, forms in commands_of(page):
        problem = None
        if command.startswith("gtrl "):
            problems = [gtrl_problem(words_of(form)[1:], namespace) for form in forms]
            problem = problems[0] if all(problems) else None
        elif made := re.match(r"make ([a-z]\S*)", command):
            problem = None if made[1] in targets else f"there is no target {made[1]}"
        elif script := re.match(rf"(?:\S*python3? )?((?:{FOLDERS})/[\w./-]*)(?:\s|$)", command):
            problem = None if (ROOT / script[1]).exists() else "there is no such file"
        if problem:
            yield Problem(page, line, f"`{command}`: {problem}")


def gtrl_problem(words: list[str], namespace: dict[str, Any]) -> str | None:
    """What the command line would say to this command, if anything."""
    from gtrl import cli
    from gtrl.cli.expert import parse_flags
    from gtrl.errors import GtrlError
    from gtrl.experts.settings import check_skill

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            if words[:1] == ["train"] and "--help" not in words:
                parse_training(words[1:], namespace)
            elif words[:2] == ["expert", "train"] and len(words) > 2 and "--help" not in words:
                parse_flags(check_skill(words[2]), words[3:])
            else:
                cli.dispatch("gtrl", not_run(cli.COMMANDS), words)
    except GtrlError as error:
        return str(error)
    except SystemExit as end:
        return " ".join(said.getvalue().split())[:300] if end.code else None
    return None


def not_run(commands: dict[str, Any]) -> dict[str, Any]:
    """The same commands, which parse their arguments and do nothing."""
    return {
        name: not_run(command) if isinstance(command, dict) else functools.wraps(command)(lambda *_, **__: 0)
        for name, command in commands.items()
    }


def parse_training(words: list[str], namespace: dict[str, Any]) -> None:
    """`gtrl train`, whose flags depend on the method."""
    from gtrl.cli import train

    method, flags = (words[0], words[1:]) if words and not words[0].startswith("-") else ("gtrl", words)
    if ":" in method:  # a class of the user's: the page's, where it has it
        method = getattr(namespace.get(method.rpartition(":")[2]), "name", "gtrl")
    early = train.parse_early_flags(flags)
    if early.task and ":" in early.task:
        early.task = None
    train.parse_flags(train.defaults_for(method, early, None), flags)


# --- all pages ---


def check(pages: Sequence[Path], links_only: bool = False) -> list[Problem]:
    """All problems of these pages. The blocks of each page run in a process of their own."""
    problems = [problem for page in pages for problem in link_problems(page)]
    if not links_only:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(check_in_process, [page for page in pages if blocks_of(page)])
            problems += [problem for page in pages if not blocks_of(page) for problem in command_problems(page, {})]
            problems += [problem for each in found for problem in each]
    return sorted(problems)


def check_in_process(page: Path) -> list[Problem]:
    """Run the blocks of a page in a temporary folder, and parse its commands."""
    # Programs run for a few steps only, so compiling them fast matters more than making them fast.
    quick = {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false",
        "MPLBACKEND": "agg",
    }
    program = "import sys; sys.path.append(sys.argv[1]); import check_docs; check_docs.print_problems(sys.argv[2])"
    command = [sys.executable, "-c", program, str(ROOT / "scripts"), str(page)]
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"cwd": folder, "env": os.environ | quick, "capture_output": True, "text": True}
        try:
            done = subprocess.run(command, timeout=PAGE_SECONDS, check=False, **how)
        except subprocess.TimeoutExpired:
            return [Problem(page, 0, f"its blocks take longer than {PAGE_SECONDS} s")]
    if done.returncode:
        return [Problem(page, 0, f"the check failed: {done.stderr[-2000:]}")]
    return [Problem(page, line, message) for line, message in json.loads(done.stdout.splitlines()[-1])]


def print_problems(page: str) -> None:
    """Print the problems of a page as one line of JSON, below anything that its blocks print."""
    print("\n" + json.dumps([(problem.line, problem.message) for problem in run_blocks(Path(page))]))


def default_pages() -> list[Path]:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*pages, *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--links-only", action="store_true", help="check links and images only")
    args = parser.parse_args()
    pages = [page.resolve() for page in args.pages] or default_pages()
    problems = check(pages, args.links_only)
    for problem in problems:
        print(problem)
    print(f"{len(pages)} pages checked, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
