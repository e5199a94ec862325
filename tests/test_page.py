"""The page of a report, in a real browser: Debian's Chromium, driven by Playwright."""

import json
import math
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from synthetic_runs import config, write_run

from gtrl.envs.maze import Maze
from gtrl.errors import ConfigError, RunError
from gtrl.report import page as page_module
from gtrl.report.cells import find_cells
from gtrl.report.page import json_for_html, require_plotly, write_page
from gtrl.report.page_data import page_data
from gtrl.report.page_maps import PATHS_PER_GOAL
from gtrl.report.paper import paper_score
from gtrl.runs.run import Run

TELEPORT, STANDARD, OWN = "pointmaze-teleport-navigate", "antmaze-large-navigate", "own-maze"
SEEDS = (3, 5)
UNIT, OFFSET, PER_CELL = 4.0, 4.0, 2
GAMMA = 0.99  # the default on TELEPORT
# Neither symmetric nor square, so that a transposed or mirrored map differs. Row 0 is the lowest.
LAYOUT = ("######", "#..#.#", "##...#", "######")


# --- runs with known numbers ---


def maze() -> Maze:
    free = np.array([[letter == "." for letter in row] for row in LAYOUT])
    start, goal = np.array([[0.0, 0.0]], np.float32), np.array([[12.0, 0.0]], np.float32)
    return Maze(free, UNIT, OFFSET, entrances=goal - 4 + [[0, 4]], exits=start, starts=start, goals=goal)


def write_maps(folder: Path, **changes: Any) -> dict[str, np.ndarray]:
    """Random values, arrows to the left for the first seed, and more episodes than the page draws."""
    plan, rng = maze(), np.random.default_rng(0)
    grid = plan.grid(PER_CELL)
    points, goals = grid.points[grid.free].astype(np.float32), plan.xy(plan.cells).astype(np.float32)
    episodes = PATHS_PER_GOAL + 2
    index = [(SEEDS[0], 1, episode, episode % 2, 3 * episode, 3) for episode in range(episodes)]
    arrays = {
        "step": np.array(1_000_000),
        "seeds": np.array(SEEDS),
        **plan.arrays,
        "points": points,
        "point_size": np.array(UNIT / PER_CELL),
        "goal_points": goals,
        "values": rng.integers(0, 256, (len(SEEDS), len(goals), len(points))).astype(np.uint8),
        "arrow_points": goals,
        "arrows": np.tile(np.array([-127, 0], np.int8), (len(SEEDS), len(goals), len(goals), 1)),
        "paths": np.tile(np.array([[0, 0], [4, 0], [4, 4]], np.float16), (episodes, 1)),
        "path_index": np.array(index, np.int64),
        **changes,
    }
    np.savez(folder / "maps.npz", **arrays)
    return arrays


DIAGNOSTICS = {
    "step": 1_000_000,
    "task": TELEPORT,
    "method": "gtrl",
    "seeds": list(SEEDS),
    "sections": [
        {
            "name": "luck-gap",
            "title": "Luck gap",
            "explanation": "How much a value exceeds the mean over exits.",
            "columns": ["goal", "gap", "episodes"],
            "rows": [["task1", -0.123456, 12000], ["task2", None, 3]],
            "finding": "The gap is small.",
        }
    ],
}


def write_runs(root: Path) -> None:
    """Six runs: scores differ, so that each order of the table is known; one was not evaluated."""
    steps = {step: (step - 600_000) // 20_000 for step in (800_000, 900_000, 1_000_000)}  # 10, 15, 20 more successes

    def scored(first: int, second: int) -> dict[tuple[int, int], list[int]]:
        return {
            (seed, step): [base + more] * 5 for seed, base in ((3, first), (5, second)) for step, more in steps.items()
        }

    write_run(root / TELEPORT / "gtrl", TELEPORT, "gtrl", scored(10, 14), gamma=GAMMA)
    write_run(root / TELEPORT / "trl", TELEPORT, "trl", scored(0, 2), gamma=GAMMA)
    write_run(root / STANDARD / "gtrl", STANDARD, "gtrl", scored(20, 24))
    write_run(root / STANDARD / "crl", STANDARD, "crl", {(0, 500_000): [1, 2, 3, 4, 5]}, episodes=10, steps=500_000)
    write_run(root / OWN / "gtrl", OWN, "gtrl", {(0, 1000): [5, 5]}, goal_names=("goal1", "goal2"), steps=100_000)
    write_run(root / OWN / "trl", OWN, "trl", {}).save_config(config(OWN, "trl", [0]))
    (root / TELEPORT / "gtrl" / "diagnostics.json").write_text(json.dumps(DIAGNOSTICS))


class Opened(NamedTuple):
    """A page in the browser, and what it did besides showing itself."""

    page: Page
    problems: list[str]  # messages in the console, errors of scripts, requests to anything but the file


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("Chromium is needed to test the page: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@contextmanager
def opened(browser: Browser, file: Path, **options: Any) -> Iterator[Opened]:
    options = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"} | options
    context = browser.new_context(**options)
    context.set_default_timeout(10_000)
    problems: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if request.url == file.as_uri() else problems.append(request.url))
    page.goto(file.as_uri())
    yield Opened(page, problems)
    context.close()


def until(page: Page, condition: str) -> None:
    """Waits until an expression is true. Playwright's own function for it is refused by the page's policy."""
    for _ in range(200):
        if page.evaluate(f"Boolean({condition})"):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"not within 10 s: {condition}")


class Report(NamedTuple):
    """The runs, the file of their page, and the arrays of the map."""

    root: Path
    file: Path
    maps: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    root = tmp_path_factory.mktemp("report")
    write_runs(root / "runs")
    arrays = write_maps(root / "runs" / TELEPORT / "gtrl")
    write_maps(root / "runs" / TELEPORT / "trl", values=255 - arrays["values"])
    write_page(root / "index.html", find_cells([root / "runs"]))
    return Report(root, root / "index.html", arrays)


@pytest.fixture(scope="module")
def _shared(browser: Browser, report: Report) -> Iterator[Opened]:
    with opened(browser, report.file) as found:
        yield found
        assert found.problems == []  # after all that the tests did


@pytest.fixture
def page(_shared: Opened) -> Page:
    """The page as it is after loading; most tests share it, since loading takes a second."""
    _shared.page.click("#filter-reset")
    _shared.page.click("#curve-reset")
    return _shared.page


# --- loading ---


def test_loads_without_errors_and_requests(browser: Browser, report: Report) -> None:
    with opened(browser, report.file) as (page, problems):
        for section in page.locator("section").all():
            section.scroll_into_view_if_needed()
        page.wait_for_selector("#goal-0 .main-svg")
        assert page.title() == "GTRL report"
        assert problems == []


def test_the_browser_would_refuse_a_connection_and_a_foreign_script(browser: Browser, report: Report) -> None:
    with opened(browser, report.file) as (page, problems):
        assert page.evaluate("fetch('https://example.org').then(() => 'sent', () => 'refused')") == "refused"
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.foreign = 1';"
            " document.body.append(s); document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=foreign=1>') }"
        )
        page.wait_for_timeout(100)
        assert page.evaluate("window.foreign") is None
        assert not any(problem.startswith("https") for problem in problems)


def test_same_runs_give_the_same_bytes(report: Report, tmp_path: Path) -> None:
    write_page(tmp_path / "again.html", find_cells([report.root / "runs"]))
    assert (tmp_path / "again.html").read_bytes() == report.file.read_bytes()


def test_header_says_how_complete_the_report_is(page: Page) -> None:
    # CRL has one seed and half the steps, the own maze too, TRL there was not evaluated; two seeds are below four.
    assert page.inner_text("#summary") == (
        "6 runs of 3 methods on 3 tasks; 0 measured by the paper's full protocol, 6 with less."
    )
    assert page.locator("#tiles > div").all_inner_texts() == [
        "Teleport\n1 of 4 tasks\n2 runs, 0 complete",
        "Stitch\n0 of 5 tasks\n0 runs, 0 complete",
        "Standard\n1 of 10 tasks\n2 runs, 0 complete",
        "Other\n1 task\n2 runs, 0 complete",
    ]


def test_report_without_runs_shows_the_papers_numbers(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "index.html", [])
    with opened(browser, tmp_path / "index.html") as (page, problems):
        assert "no runs" in page.inner_text("#summary")
        assert "pointmaze-teleport-navigate" in page.inner_text("#tables")
        assert page.locator("#maps").is_hidden()
        assert page.locator("#diagnostics").is_hidden()
        assert open_tables(page) == ["Teleport and stitch tasks: success in %"]
        assert problems == []


# --- tables ---


def column(page: Page, number: int, table: str = "#results-table") -> list[str]:
    """The texts of a column of the rows that are shown."""
    rows = page.locator(f"{table} tbody tr:visible")
    return [row[number] for row in rows.evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.innerText))")]


TASK, METHOD, OURS, PAPER, DIFFERENCE = range(5)
# Successes of 50 in percent, averaged over goals and the last three checkpoints. GTRL, first seed: (20, 25, 30) / 50.
SCORES = {
    (TELEPORT, "GTRL"): "54.0 ± 5.7",  # 50 and 58; their deviation is √32
    (TELEPORT, "TRL"): "32.0 ± 2.8",  # 30 and 34
    (STANDARD, "GTRL"): "74.0 ± 5.7",  # 70 and 78
    (STANDARD, "CRL"): "30.0",  # (1 + ... + 5) / 50
    (OWN, "GTRL"): "10.0",
    (OWN, "TRL"): "–",
}


def test_results_are_those_of_the_runs_beside_the_papers(page: Page) -> None:
    keys = list(zip(column(page, TASK), column(page, METHOD), strict=True))
    assert dict(zip(keys, column(page, OURS), strict=True)) == SCORES
    paper = dict(zip(keys, column(page, PAPER), strict=True))
    difference = dict(zip(keys, column(page, DIFFERENCE), strict=True))
    assert (paper[TELEPORT, "GTRL"], difference[TELEPORT, "GTRL"]) == ("37 ± 7", "+17.0")
    assert (paper[STANDARD, "GTRL"], difference[STANDARD, "GTRL"]) == ("87 ± 1", "−13.0")
    assert (paper[OWN, "GTRL"], difference[OWN, "GTRL"]) == ("–", "–")  # missing, not zero
    rows = page.locator("#results-table tbody tr")
    crl = rows.filter(has_text="CRL").inner_text().split("\t")
    own = rows.filter(has_text="not evaluated").inner_text().split("\t")
    assert crl[5:] == ["1", "500,000", "10", "below: 500,000 steps, 1 seed, 10 episodes per goal", "Standard"]
    assert own[5:9] == ["–", "–", "–", "below: not evaluated"]


def test_sorting_by_click_and_by_key(page: Page) -> None:
    numbers = [54.0, 32.0, 74.0, 30.0, 10.0]

    def shown() -> list[float]:
        texts = column(page, OURS)
        assert texts[-1] == "–"  # missing numbers stay last in both directions
        return [float(text.split()[0]) for text in texts[:-1]]

    head = page.locator("#results-table th").nth(OURS)
    head.locator("button").click()
    assert shown() == sorted(numbers, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").press("Enter")
    assert shown() == sorted(numbers)
    assert head.get_attribute("aria-sort") == "ascending"
    page.locator("#results-table th").nth(TASK).locator("button").press(" ")
    assert column(page, TASK) == sorted(column(page, TASK))
    assert head.get_attribute("aria-sort") == "none"


def test_all_tables_are_there_with_best_and_second_best(page: Page) -> None:
    titles = page.locator("#tables summary").all_inner_texts()
    assert [title for title in titles if "Teleport and stitch" in title or "Standard deterministic" in title]
    assert "Averages by group of tasks" in titles
    assert "What was measured" in titles
    rows = page.locator("#tables details").first.locator("tbody tr")
    ours = rows.filter(has_text=TELEPORT).nth(1)
    assert ours.locator(".best").all_inner_texts() == ["54.0 ± 5.7"]
    assert ours.locator(".second").all_inner_texts() == ["32.0 ± 2.8"]
    assert page.locator(".best").first.evaluate("e => getComputedStyle(e).fontWeight") == "700"
    assert "underline" in page.locator(".second").first.evaluate("e => getComputedStyle(e).textDecorationLine")
    assert ours.locator("sup").first.get_attribute("title") == "2 seeds"


def open_tables(page: Page) -> list[str]:
    return page.locator("#tables details[open] > summary").all_inner_texts()


def test_a_table_with_our_numbers_is_open(browser: Browser, page: Page, tmp_path: Path) -> None:
    """The paper's table, unless only tasks were measured that are not in it."""
    assert open_tables(page) == ["Teleport and stitch tasks: success in %"]
    write_run(tmp_path / "own", OWN, "gtrl", {(0, 10): [1]}, goal_names=("goal1",))
    (tmp_path / "paper").mkdir()
    write_run(tmp_path / "paper" / "run", TELEPORT, "gtrl", {}).save_config(config(TELEPORT, "gtrl", [0]))
    write_page(tmp_path / "index.html", find_cells([tmp_path / "own", tmp_path / "paper"]))
    with opened(browser, tmp_path / "index.html") as (other, problems):
        assert open_tables(other) == ["Tasks that are not in the paper: success in %"]
        assert problems == []


def test_averages_stay_below_when_a_table_is_sorted(page: Page) -> None:
    table = page.locator("#tables details").first
    table.locator("th button").nth(3).click()
    is_average = table.locator("tbody tr").evaluate_all("rows => rows.map(r => r.classList.contains('average'))")
    assert is_average == sorted(is_average)
    assert any(is_average)


# --- filters ---


def shown_curves(page: Page) -> dict[str, list[str]]:
    """The methods in each visible chart of curves, by task."""
    page.locator("#curve-plots").scroll_into_view_if_needed()
    plots = "[...document.querySelectorAll('#curve-plots .card:not([hidden]) .plot')]"
    until(page, f"{plots}.every(p => p.querySelector('.main-svg'))")
    cards = page.locator("#curve-plots .card:visible").evaluate_all(
        "cards => cards.map(c => [c.querySelector('h3').innerText,"
        " c.querySelector('.plot').data.filter(t => t.mode === 'lines+markers').map(t => t.name)])"
    )
    return dict(cards)


def test_filters_change_table_and_curves(page: Page) -> None:
    assert shown_curves(page) == {TELEPORT: ["TRL", "GTRL"], STANDARD: ["CRL", "GTRL"], OWN: ["GTRL"]}
    page.uncheck("#filter-methods input[value=GTRL]")
    assert sorted(column(page, METHOD)) == ["CRL", "TRL", "TRL"]
    assert shown_curves(page) == {TELEPORT: ["TRL"], STANDARD: ["CRL"]}
    assert page.inner_text("#filter-count") == "3 of 6 runs shown."
    page.select_option("#filter-group", "Standard")
    assert column(page, TASK) == [STANDARD]
    assert page.locator("#filter-task option").all_inner_texts() == ["all tasks", STANDARD]
    assert page.locator("#goal-plots .card:visible h3").all_inner_texts() == [STANDARD]
    assert page.locator("#runs-list details:visible summary").all_inner_texts()[0].startswith(f"CRL on {STANDARD}")
    page.click("#filter-reset")
    page.select_option("#filter-task", OWN)
    assert column(page, TASK) == [OWN, OWN]
    page.click("#filter-reset")
    page.fill("#filter-text", "NOT evaluated")
    assert column(page, METHOD) == ["TRL"]
    page.fill("#filter-text", "nothing has this name")
    assert column(page, METHOD) == []
    assert page.locator("#results-table").get_by_text("No run matches the filters.").is_visible()
    page.click("#filter-reset")
    assert len(column(page, METHOD)) == 6


def test_filter_with_the_keyboard(page: Page) -> None:
    page.focus("#filter-methods input[value=TRL]")
    page.keyboard.press(" ")
    assert "TRL" not in column(page, METHOD)
    page.keyboard.press(" ")
    assert "TRL" in column(page, METHOD)


# --- charts ---


def test_curves_have_the_measured_numbers(page: Page) -> None:
    shown_curves(page)
    lower, upper, line = page.evaluate(
        "document.getElementById('curve-0').data.filter(t => t.name === 'GTRL').map(t => [t.x, t.y])"
    )
    steps = [800_000, 900_000, 1_000_000]
    means, spread = np.array([44.0, 54.0, 64.0]), np.std([40, 48], ddof=1)  # (20, 24), (25, 29), (30, 34) of 50
    assert line[0] == steps
    np.testing.assert_allclose(line[1], means)
    np.testing.assert_allclose(lower[1], means - spread)
    np.testing.assert_allclose(upper[1], means + spread)
    papers = page.evaluate("document.getElementById('curve-0').layout.shapes.map(s => [s.name, s.y0, s.line.dash])")
    assert papers == [["TRL", 26, "dot"], ["GTRL", 37, "dot"]]
    page.select_option("#curve-axis", "minutes")
    minutes = page.evaluate("document.getElementById('curve-0').data[2].x")
    # The first log is 10 s after the start; later ones come 1 s per 1000 steps after it.
    np.testing.assert_allclose(minutes, [(10 + step / 1000) / 60 for step in steps])
    page.select_option("#curve-axis", "steps")


def test_curves_zoom_by_range_and_by_drag(page: Page) -> None:
    shown_curves(page)
    range_of = "document.getElementById('curve-0').layout.xaxis.range"
    whole = page.evaluate(range_of)
    page.fill("#curve-from", "850000")
    page.fill("#curve-to", "950000")
    page.press("#curve-to", "Enter")
    assert page.evaluate(range_of) == [850_000, 950_000]
    page.click("#curve-reset")
    assert page.evaluate(range_of) == whole
    page.locator("#curve-0").scroll_into_view_if_needed()
    box = page.locator("#curve-0 .nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + box["height"] - 20, steps=4)
    page.mouse.up()
    until(page, f"{range_of}[0] > 100000")
    width = whole[1] - whole[0]
    zoomed = page.evaluate(range_of)
    np.testing.assert_allclose(zoomed, [whole[0] + 0.25 * width, whole[0] + 0.75 * width], atol=0.01 * width)
    page.uncheck("#filter-methods input[value=TRL]")
    assert shown_curves(page)[TELEPORT] == ["GTRL"]
    assert page.evaluate(range_of) == zoomed  # a filter keeps it
    page.click("#curve-reset")
    assert page.evaluate(range_of) == whole


def test_success_by_goal_beside_the_papers(page: Page) -> None:
    page.locator("#goal-1").scroll_into_view_if_needed()
    page.wait_for_selector("#goal-1 .main-svg")
    crl, gtrl = page.evaluate("document.getElementById('goal-1').data.map(t => t.y)")
    assert crl == [10, 20, 30, 40, 50]
    np.testing.assert_allclose(gtrl, [74] * 5)
    paper = page.evaluate("document.getElementById('goal-1').layout.shapes.map(s => [(s.x0 + s.x1) / 2, s.y0])")
    # Two bars in 80 % of the room of each goal: their middles are 0.2 to the left and to the right of it.
    scores = [[paper_score(STANDARD, method, f"task{goal}") for goal in range(1, 6)] for method in ("crl", "gtrl")]
    expected = [(goal + shift, score.mean) for shift, row in zip((-0.2, 0.2), scores, strict=True)
                for goal, score in enumerate(row) if score]  # fmt: skip
    np.testing.assert_allclose(paper, expected)
    bars = page.locator("#goal-1 .bars .point > path").evaluate_all("bars => bars.map(b => getComputedStyle(b).fill)")
    assert [fill.split("#")[0] for fill in bars] == ['url("'] * 5 + ["rgb(27, 79, 138)"] * 5  # CRL has a pattern
    parts = page.locator("#goal-1 pattern *").evaluate_all("parts => parts.map(p => getComputedStyle(p).fill)")
    assert "rgb(125, 133, 140)" in parts  # on its own colour


def test_charts_out_of_view_are_not_drawn(browser: Browser, tmp_path: Path) -> None:
    for task in range(30):
        for method in ("gtrl", "trl"):
            write_run(tmp_path / f"task{task:02}" / method, f"task{task:02}", method, {(0, 10): [1]}, goal_names=("g",))
    write_page(tmp_path / "index.html", find_cells([tmp_path]))
    with opened(browser, tmp_path / "index.html") as (page, problems):
        assert page.locator("#results-table tbody tr").count() == 60
        assert page.locator(".js-plotly-plot").count() < 15
        page.locator("#curve-29").scroll_into_view_if_needed()
        page.wait_for_selector("#curve-29 .main-svg")
        assert problems == []


# --- maze ---


def decoded(report: Report, seed: int | None, cell: tuple[int, int], xy: tuple[float, float]) -> float:
    """The value of a position for a goal, from the file's bytes; the mean over seeds without a seed."""
    plan, arrays = maze(), report.maps
    (point,) = np.flatnonzero(np.abs(arrays["points"] - np.array(xy)).max(1) < UNIT / PER_CELL / 2)
    values = (arrays["values"][:, plan.cells.index(cell), point] / 255.0) ** 2
    return float(values.mean() if seed is None else values[SEEDS.index(seed)])


class Map:
    """The canvas of the maze, in positions of the maze."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.canvas = page.locator("#maze-canvas")
        self.canvas.scroll_into_view_if_needed()

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Where a position lies on the canvas, as a fraction from the left and from the top: y points up."""
        rows, columns = len(LAYOUT), len(LAYOUT[0])
        return (x + OFFSET) / UNIT / (columns - 1), 1 - (y + OFFSET) / UNIT / (rows - 1)

    def place(self, x: float, y: float) -> dict[str, Any]:
        box = self.canvas.bounding_box()
        assert box
        across, down = self.pixel(x, y)
        return {"position": {"x": across * box["width"], "y": down * box["height"]}}

    def colour(self, x: float, y: float) -> np.ndarray:
        across, down = self.pixel(x, y)
        read = "(c, [u, v]) => [...c.getContext('2d').getImageData(u * c.width, v * c.height, 1, 1).data].slice(0, 3)"
        return np.array(self.canvas.evaluate(read, [across, down]))

    def picture(self) -> str:
        return self.canvas.evaluate("c => c.toDataURL()")

    @property
    def goal(self) -> str | None:
        return self.canvas.get_attribute("data-goal")

    @property
    def pointer(self) -> str:
        return self.page.inner_text("#maze-pointer")


@pytest.fixture
def explorer(page: Page) -> Map:
    page.select_option("#maze-run", label=f"GTRL on {TELEPORT}")
    page.select_option("#maze-seed", "mean")
    page.select_option("#maze-colour", "value")
    page.check("#maze-paths")
    page.uncheck("#maze-arrows")
    found = Map(page)
    page.select_option("#maze-goal", "1")
    return found


def steps_of(value: float) -> str:
    return f"{np.log(value) / np.log(GAMMA):,.0f}"


def test_clicking_a_cell_shows_the_values_for_it(explorer: Map, report: Report) -> None:
    page = explorer.page
    assert explorer.goal == "1,4"  # the first evaluation goal
    before = explorer.picture()
    explorer.canvas.click(**explorer.place(4, 0))  # row 1, column 2
    assert explorer.goal == "1,2"
    assert "Goal: row 1, column 2." in page.inner_text("#maze-status")
    assert explorer.picture() != before
    for seed in (None, *SEEDS):
        page.select_option("#maze-seed", "mean" if seed is None else str(seed))
        for xy in ((1.0, 1.0), (-1.0, -1.0), (11.0, 5.0), (13.0, -1.0)):
            explorer.canvas.hover(**explorer.place(*xy))
            value = decoded(report, seed, (1, 2), xy)
            assert f"value {value:.3f} (about {steps_of(value)} steps)." in explorer.pointer, (seed, xy)
    explorer.canvas.click(**explorer.place(8, 0))  # a wall
    assert explorer.goal == "1,2"


def test_other_run_has_other_values(explorer: Map, report: Report) -> None:
    explorer.page.select_option("#maze-run", label=f"TRL on {TELEPORT}")
    explorer.page.select_option("#maze-seed", str(SEEDS[0]))
    explorer.canvas.hover(**explorer.place(1.0, 1.0))
    value = (1 - np.sqrt(decoded(report, SEEDS[0], (1, 4), (1.0, 1.0)))) ** 2  # its bytes are 255 minus those of GTRL
    assert f"value {value:.3f} " in explorer.pointer
    assert explorer.goal == "1,4"


def test_brighter_is_higher_at_the_right_place(explorer: Map, report: Report) -> None:
    """The lightness of the colours has the order of the values, for each position of the map."""
    explorer.page.uncheck("#maze-paths")
    explorer.page.select_option("#maze-seed", str(SEEDS[1]))
    explorer.canvas.click(**explorer.place(4, 4))
    # Corners of squares that no mark covers.
    away = [(x + dx, y + dy) for x, y in report.maps["points"].tolist() for dx in (-0.8, 0.8) for dy in (-0.8, 0.8)]
    away = [(x, y) for x, y in away if min(abs(x - round(x / 4) * 4), abs(y - round(y / 4) * 4)) > 1.5]
    values = [decoded(report, SEEDS[1], (2, 2), xy) for xy in away]
    lightness = [explorer.colour(*xy) @ [0.2126, 0.7152, 0.0722] for xy in away]
    order = np.argsort(values, kind="stable")
    steps = np.diff(np.array(lightness)[order])
    assert (steps >= -1).all()  # rounding of a colour's channels
    assert max(lightness) - min(lightness) > 100
    explorer.page.select_option("#maze-colour", "steps")
    assert explorer.page.inner_text(".scale-labels").endswith("0 steps")


def test_rollouts_and_arrows_can_be_switched(explorer: Map) -> None:
    page = explorer.page
    assert "5 of 10 drawn episodes reached it; 12 were recorded." in page.inner_text("#maze-status")
    with_paths = explorer.picture()
    page.uncheck("#maze-paths")
    without = explorer.picture()
    assert with_paths != without
    page.check("#maze-arrows")
    assert explorer.picture() != without
    page.uncheck("#maze-arrows")
    assert explorer.picture() == without
    page.select_option("#maze-seed", str(SEEDS[1]))  # without episodes
    assert "No episodes were recorded" in page.inner_text("#maze-status")


def test_maze_with_the_keyboard(explorer: Map, report: Report) -> None:
    page = explorer.page
    page.focus("#maze-arrows")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "maze-canvas"
    assert explorer.canvas.evaluate("c => getComputedStyle(c).outlineStyle") == "solid"
    page.keyboard.press("ArrowLeft")  # across the wall at column 3
    assert explorer.goal == "1,2"
    page.keyboard.press("ArrowUp")
    assert explorer.goal == "2,2"
    page.keyboard.press("ArrowUp")  # there is nothing above
    assert explorer.goal == "2,2"
    seen = []
    for _ in maze().cells:
        page.keyboard.press("PageDown")
        seen.append(explorer.goal)
    assert sorted(seen) == [f"{row},{col}" for row, col in maze().cells]
    assert explorer.goal == "2,2"
    explorer.canvas.evaluate("c => c.scrollIntoView({block: 'center'})")
    explorer.canvas.hover(**explorer.place(5.0, 5.0))
    page.keyboard.press("Shift+ArrowRight")
    value = decoded(report, None, (2, 2), (7.0, 5.0))
    assert f"value {value:.3f} " in explorer.pointer
    assert page.get_attribute("#maze-pointer", "aria-live") == "polite"  # a screen reader says it
    assert "row 2, column 2" in page.inner_text("#maze-status")


# --- diagnostics and runs ---


def test_diagnostics_are_shown_with_explanation_and_finding(page: Page) -> None:
    section = page.locator("#diagnostics details")
    assert section.count() == 1
    text = section.inner_text()
    assert "Luck gap" in text
    assert "How much a value exceeds the mean over exits." in text
    assert "The gap is small." in text
    assert column(page, 0, "#diagnostics") == ["task1", "task2"]
    assert column(page, 1, "#diagnostics") == ["−0.1235", "–"]
    assert column(page, 2, "#diagnostics") == ["12,000", "3"]


def test_link_of_a_result_opens_its_config_and_metrics(page: Page, report: Report) -> None:
    page.locator("#results-table a").filter(has_text="CRL").press("Enter")
    run = page.locator("#runs details[open]")
    assert run.count() == 1
    config = json.loads(run.locator("pre").inner_text())
    assert config == Run(report.root / "runs" / STANDARD / "crl").config
    run.locator(".plot").scroll_into_view_if_needed()
    page.wait_for_selector("#runs .main-svg")
    assert run.locator("select option").all_inner_texts() == ["critic_loss"]
    traces = run.locator(".plot").evaluate("p => p.data.map(t => [t.name, t.x, t.y])")
    assert traces == [["seed 0", [100_000 * k for k in range(1, 6)], [0.1] * 5]]


# --- themes, small screens, keyboard ---


def test_dark_mode_by_system_and_by_button(browser: Browser, report: Report) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    letters = "document.getElementById('curve-0').layout.font.color"
    with opened(browser, report.file, color_scheme="dark") as (page, problems):
        shown_curves(page)
        dark, dark_letters = page.evaluate(background), page.evaluate(letters)
        until(page, "document.getElementById('maze-canvas').dataset.goal")
        map_dark = page.locator("#maze-canvas").evaluate("c => c.toDataURL()")
        page.emulate_media(color_scheme="light")
        until(page, f"{background} === 'rgb(255, 255, 255)'")
        until(page, f"{letters} !== {json.dumps(dark_letters)}")
        assert sum(map(int, re.findall(r"\d+", dark))) < 120
        assert page.locator("#maze-canvas").evaluate("c => c.toDataURL()") != map_dark
        page.click("#theme")
        assert page.inner_text("#theme") == "Theme: light"
        page.click("#theme")
        assert page.inner_text("#theme") == "Theme: dark"
        assert page.evaluate(background) == dark
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(background) == "rgb(255, 255, 255)"
        assert page.evaluate(letters) != dark_letters
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(background) == dark
        page.reload()
        assert page.evaluate(background) == dark  # the choice is kept
        assert problems == []


def luminance(colour: str) -> float:
    channels = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {'])
def test_text_has_enough_contrast(theme: str) -> None:
    block = page_module._asset("style.css").split(theme)[1].split("}")[0]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for text in ("ink", "muted", "link", "mark", "good"):
        for ground in ("background", "surface"):
            dark, light = sorted(luminance(colours[name]) for name in (text, ground))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)  # of WCAG, for text of normal size


def test_narrow_screen_does_not_scroll_sideways(browser: Browser, report: Report) -> None:
    options = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    with opened(browser, report.file, **options) as (page, problems):
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        for plot in page.locator(".plot:visible").all():
            plot.scroll_into_view_if_needed()
        page.wait_for_selector("#runs .main-svg")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("window.innerWidth") == 360
        found = Map(page)
        found.canvas.tap(**found.place(4, 0))
        assert found.goal == "1,2"
        assert problems == []


def test_keyboard_reaches_the_results_first_and_everything_has_a_name(page: Page) -> None:
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('select, input')].filter(e => !e.labels.length).map(e => e.id)"
    )
    assert unnamed == []
    assert page.locator(".scroll:not([aria-label]), canvas:not([aria-label])").count() == 0
    assert page.locator("html").get_attribute("lang") == "en"


# --- text from runs ---

HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<a href='javascript:window.hacked=1'>x</a>",
    "../../etc/passwd",
    r"\input{x} $a_b$ & 100% #1 {} ~ ^",
    "&lt;b&gt; %{x} <b>bold</b>",
    "line\u2028separator\u2029 \ud800 $style ${data}",
)


def test_json_in_a_page_has_no_characters_that_html_knows() -> None:
    text = json_for_html({"a": HOSTILE})
    assert not set(text) & set("<>&\u2028\u2029")
    assert text.isascii()
    assert tuple(json.loads(text)["a"]) == HOSTILE


def test_hostile_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    tag, image, both = HOSTILE[0], HOSTILE[2], " ".join(HOSTILE)
    task = image  # a folder's name cannot have a slash
    goals = ("<img src=y onerror=window.hacked=1>", "<b>%{x}</b> $a_b$")
    folder = tmp_path / "runs" / image / f"gtrl-{image}"
    write_run(folder, task, "gtrl", {(0, 1000): [3, 4], (1, 1000): [1, 2]}, goal_names=goals, note=both, steps=100_000)
    other = tmp_path / "runs" / "<svg onload=window.hacked=1>"
    write_run(other, task, tag, {(0, 1000): [1, 1]}, goal_names=goals, steps=100_000)
    metrics = [{"step": step, "seed": 0, image: 1.0, "<b>loss</b>": 2.0} for step in (1, 2)]
    (other / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    section = {"name": tag, "title": both, "explanation": both, "columns": [both, image], "finding": both}
    text = json.dumps(DIAGNOSTICS | {"task": task, "sections": [section | {"rows": [[both, tag]]}]})
    (folder / "diagnostics.json").write_text(text)
    write_maps(folder)
    write_page(tmp_path / "index.html", find_cells([tmp_path / "runs"]))
    with opened(browser, tmp_path / "index.html") as (page, problems):
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        for plot in page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
        page.wait_for_selector("#runs .main-svg")
        hover_all(page)
        shown = page.locator("main").evaluate("e => e.textContent")
        method = tag.upper()
        for expected in (task, method, f"GTRL-{image}", *goals, image, "<b>loss</b>", str(other), both):
            assert expected.replace("\ud800", "") in shown.replace("\ud800", ""), expected
        configs = [json.loads(each)["algorithm"].get("note") for each in page.locator("pre").all_text_contents()]
        assert set(configs) == {None, both}
        assert page.locator("#diagnostics td").all_text_contents() == [both, tag]
        assert page.locator(".xtick text").filter(has_text="onerror").first.text_content() == goals[0]
        assert page.evaluate("document.querySelectorAll('main img, main b, svg a, svg image, main script').length") == 0
        assert page.evaluate("window.hacked") is None
        assert problems == []


def hover_all(page: Page) -> None:
    """Shows the label of a point in each chart, which Plotly makes from text with some HTML."""
    for plot in page.locator(".plot:has(.nsewdrag)").all():
        plot.evaluate("p => Plotly.Fx.hover(p, [{curveNumber: p.data.length - 1, pointNumber: 0}])")


# --- errors ---


def test_without_plotly_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'gtrl[report]'")):
        write_page(tmp_path / "index.html", [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["plotly", "plotly.offline"])
def test_plotly_is_required_before_any_work(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_plotly()
    for name in [each for each in sys.modules if each.split(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'gtrl\[report\]'.*--no-page") as error:
        require_plotly()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"values": np.zeros((2, 4, 4), np.uint8)}, "'values' is"),
        ({"values": np.zeros((2, 6, 24))}, "of another type"),
        ({"points": np.full((24, 2), np.nan, np.float32)}, "not finite"),
        ({"path_index": np.array([[3, 1, 0, 1, 0, 999]])}, "outside the paths"),
        ({"point_size": np.array(0.0)}, "not positive"),
        ({"seeds": np.array(3)}, "unsized"),
        ({"seeds": np.array(["3", "5"])}, "'seeds' is"),
        ({"seeds": np.array([3.0, np.nan])}, "'seeds' is"),
        ({"free": np.array([["yes", "no"]])}, "'free' is not"),
        ({"free": np.array(True)}, "'free' is not"),
        ({"step": np.array(1e300)}, "'step' is"),
        ({"entrances": np.array(1.0)}, "unsized"),
        ({"path_index": np.full((1, 6), 0.5)}, "'path_index' is"),
        ({"path_index": np.array([[3, 1, 0, 1, 2**63 - 1, 1]])}, "outside the paths"),
    ],
)
def test_damaged_map_is_named(changes: dict[str, np.ndarray], problem: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", OWN, "gtrl", {(0, 10): [1]}, goal_names=("goal1",))
    write_maps(run.path, **changes)
    with pytest.raises(RunError, match=rf"maps\.npz is damaged.*{problem}"):
        write_page(tmp_path / "index.html", find_cells([run.path]))


def changed_section(**changes: Any) -> str:
    """`diagnostics.json` with changes to its section."""
    return json.dumps(DIAGNOSTICS | {"sections": [DIAGNOSTICS["sections"][0] | changes]})


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        "[" * 100_000,
        *(json.dumps(DIAGNOSTICS | {"step": step}) for step in (math.inf, math.nan, 10**400, -1, "1", None, True, 1.5)),
        *(json.dumps(DIAGNOSTICS | {"sections": sections}) for sections in ([{}], [None], {"a": 1}, None, 3)),
        *(changed_section(**{key: 3}) for key in ("title", "explanation", "finding", "columns", "rows")),
        changed_section(columns=[1, 2, 3]),
        changed_section(columns="abc"),
        changed_section(rows=[3]),
        changed_section(rows=["abc"]),
        changed_section(rows=[["task1", {}, 1]]),
    ],
)
def test_damaged_diagnostics_are_named(text: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", OWN, "gtrl", {(0, 10): [1]}, goal_names=("goal1",))
    (run.path / "diagnostics.json").write_text(text)
    with pytest.raises(RunError, match=r"diagnostics\.json is damaged"):
        write_page(tmp_path / "index.html", find_cells([run.path]))


def test_numbers_of_diagnostics_that_are_not_finite_are_missing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", OWN, "gtrl", {(0, 10): [1]}, goal_names=("goal1",))
    (run.path / "diagnostics.json").write_text(changed_section(rows=[[math.inf, 10**400, -(10**300)]]))
    (found,) = page_data(find_cells([run.path]))["runs"]
    cells = found["diagnostics"]["sections"][0]["rows"][0]["cells"]
    assert [cell["text"] for cell in cells] == ["–", "–", "−1e+300"]


def test_metrics_that_no_chart_can_show_are_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", OWN, "gtrl", {(0, 10): [1]}, goal_names=("goal1",))
    values = (0.5, 10**400, math.inf, math.nan, sys.float_info.max, "text", [1], None, True, -2)
    rows = [{"step": step, "seed": 0, "loss": value} for step, value in enumerate(values)]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_page(tmp_path / "index.html", find_cells([run.path]))
    (found,) = page_data(find_cells([run.path]))["runs"]
    assert found["metrics"]["steps"] == [list(range(10))]
    assert found["metrics"]["series"] == {"loss": [[0.5, *[None] * 8, -2]]}


@pytest.mark.parametrize(
    ("file", "row"),
    [
        *(("metrics.jsonl", {"step": step, "seed": 0, "loss": 1.0}) for step in (10**400, math.inf, None, "1")),
        *(("metrics.jsonl", {"step": 1, "seed": seed, "loss": 1.0}) for seed in (10**400, math.inf, None)),
        ("metrics.jsonl", {"loss": 1.0}),
        *(("timing.jsonl", {"step": 2000, "time": time}) for time in (math.inf, math.nan, 10**400, "now", None)),
        *(("timing.jsonl", {"step": step, "time": 2000.0}) for step in (math.inf, 10**400, "1")),
        *(
            ("timing.jsonl", {"step": 2000, "time": 2000.0, "start_up_seconds": seconds})
            for seconds in (-math.inf, math.nan, 10**400, "long", None)
        ),
        ("timing.jsonl", {}),
    ],
)
def test_damaged_rows_are_named_or_left_out(file: str, row: dict[str, Any], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", OWN, "gtrl", {(0, 100_000): [1]}, goal_names=("goal1",))
    lines = (run.path / file).read_text().splitlines()
    (run.path / file).write_text("\n".join([lines[0], json.dumps(row), *lines[1:]]) + "\n")
    content, problem = None, ""
    try:
        content = page_data(find_cells([run.path]))
    except RunError as error:
        problem = str(error)
    if content is None:
        assert f"{file} is damaged" in problem
        assert "\n" not in problem
    else:
        assert json_for_html(content)  # which refuses NaN and infinity
        assert content["runs"][0]["metrics"]["seeds"] == [0]
