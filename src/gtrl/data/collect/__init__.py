"""Collectors: our own data where OGBench's cannot be downloaded, by OGBench's protocols."""

from gtrl.data.collect.episode import Collector
from gtrl.data.collect.expert import Experts
from gtrl.tasks import OGBenchTask


def make_collector(task: OGBenchTask, experts: Experts) -> Collector:
    """The collector of a task, with a simulator of its own."""
    if task.family == "antsoccer":
        from gtrl.data.collect.soccer import SoccerCollector

        return SoccerCollector(task, experts)
    if task.family.endswith("maze"):
        from gtrl.data.collect.maze import MazeCollector

        return MazeCollector(task, experts)
    from gtrl.data.collect.manipulation import PlayCollector

    return PlayCollector(task)
