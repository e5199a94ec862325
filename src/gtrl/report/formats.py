"""Writes a table as Markdown, LaTeX (booktabs) or CSV. Words from runs are escaped, so they stay text."""

import csv
import io
import string
from collections.abc import Callable, Iterable
from itertools import product

from gtrl.report.result_tables import Entry, Row, Table

MISSING = "–"
_MARKDOWN_SPECIALS = "\\`*_{}[]<>|#~!&$"
_LATEX_SPECIALS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "[": "{[}", "*": "{*}",  # both are arguments after a line break
    '"': r"\textquotedbl{}", "–": "--", "±": r"$\pm$", "√": r"$\surd$", "Σ": r"$\Sigma$",
    "σ": r"$\sigma$", "²": r"$^2$", "κ": r"$\kappa$", "γ": r"$\gamma$", "×": r"$\times$",
}  # fmt: skip


def escape_markdown(text: str) -> str:
    """Returns a text that Markdown shows as it is, on one line."""
    return "".join(f"\\{letter}" if letter in _MARKDOWN_SPECIALS else letter for letter in " ".join(text.split()))


def escape_latex(text: str) -> str:
    """Returns a text that LaTeX shows as it is, on one line."""
    return "".join(_LATEX_SPECIALS.get(letter, letter) for letter in " ".join(text.split()))


def _letters(table: Table) -> dict[str, str]:
    """A letter for each note of the table: a to z, then aa, ab and so on."""
    notes = [entry.note for row in table.rows for entry in row.entries if isinstance(entry, Entry) and entry.note]
    names = ["".join(letters) for length in (1, 2) for letters in product(string.ascii_lowercase, repeat=length)]
    return dict(zip(dict.fromkeys(notes), names, strict=False))


def number(entry: Entry, plus_minus: str = "±") -> str:
    """Returns `mean ± deviation`, `mean [low, high]` or a dash; deviations have as many decimals as the mean."""
    if entry.mean is None:
        return MISSING
    text = f"{entry.mean:.{entry.digits}f}"
    if entry.interval is not None:
        low, high = entry.interval
        return f"{text} [{low:.{entry.digits}f}, {high:.{entry.digits}f}]"
    return text if entry.deviation is None else f"{text} {plus_minus} {entry.deviation:.{entry.digits}f}"


# --- Markdown ---


def to_markdown(table: Table) -> str:
    """Returns the table in Markdown, with its title and notes; the best of a row is bold, the second underlined."""
    letters = _letters(table)
    header = [*table.labels, *table.columns]
    lines = [f"**{escape_markdown(table.title)}**", "", _line(map(escape_markdown, header))]
    lines.append(_line(["---"] * len(table.labels) + ["---:"] * len(table.columns)))
    lines += [_line(_cells(row, escape_markdown, lambda entry: _markdown(entry, letters))) for row in table.rows]
    notes = [f"{letter}: {escape_markdown(note)}" for note, letter in letters.items()]
    remarks = [*map(escape_markdown, table.remarks), *notes]
    if remarks:
        lines += ["", "  \n".join(remarks)]
    return "\n".join(lines) + "\n"


def _cells(row: Row, escape: Callable[[str], str], show: Callable[[Entry], str]) -> list[str]:
    return [
        *map(escape, row.labels),
        *(show(each) if isinstance(each, Entry) else escape(each) for each in row.entries),
    ]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(entry: Entry, letters: dict[str, str]) -> str:
    text = number(entry).replace("[", "\\[").replace("]", "\\]")
    styled = {1: f"**{text}**", 2: f"<ins>{text}</ins>"}.get(entry.rank, text)
    return f"{styled} ({letters[entry.note]})" if entry.note and entry.mean is not None else styled


# --- LaTeX ---


def to_latex(table: Table) -> str:
    """Returns the table in LaTeX; it needs the package booktabs. Best in bold, second best underlined."""
    letters = _letters(table)
    lines = [
        "% needs \\usepackage{booktabs}, \\usepackage{graphicx} and \\usepackage[T1]{fontenc}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{{'l' * len(table.labels)}{'r' * len(table.columns)}}}",
        r"\toprule",
        _latex_line([escape_latex(title) for title in (*table.labels, *table.columns)]),
        r"\midrule",
    ]
    previous: Row | None = None
    for row in table.rows:
        if previous and previous.is_average != row.is_average:
            lines.append(r"\midrule")
        lines.append(_latex_line(_cells(row, escape_latex, lambda entry: _latex(entry, letters))))
        previous = row
    lines += [r"\bottomrule", r"\end{tabular}}"]
    notes = [rf"\textsuperscript{{{letter}}} {escape_latex(note)}." for note, letter in letters.items()]
    if remarks := [*map(escape_latex, table.remarks), *notes]:
        lines += ["", r"\smallskip\footnotesize " + " ".join(remarks)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex(entry: Entry, letters: dict[str, str]) -> str:
    text = number(entry, r"$\pm$").replace(MISSING, "--")
    text = {1: rf"\textbf{{{text}}}", 2: rf"\underline{{{text}}}"}.get(entry.rank, text)
    return rf"{text}\textsuperscript{{{letters[entry.note]}}}" if entry.note and entry.mean is not None else text


# --- CSV ---


def to_csv(table: Table) -> str:
    """Returns the table as CSV, one line per entry with a number or a text; missing entries have no line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.labels, "column", "value", "deviation", "low", "high", "note"])
    for row in table.rows:
        for column, entry in zip(table.columns, row.entries, strict=True):
            if isinstance(entry, str):
                writer.writerow([*row.labels, column, entry, "", "", "", ""])
            elif entry.mean is not None:
                interval = entry.interval or ("", "")
                deviation = "" if entry.deviation is None else entry.deviation
                writer.writerow([*row.labels, column, entry.mean, deviation, *interval, entry.note])
    return text.getvalue()
