"""Data collection with OGBench's protocols, for datasets that cannot be downloaded."""

from gtrl.data.collect.episode import Collector
from gtrl.data.collect.expert import Experts
from gtrl.tasks import OGBenchTask


def make_collector(task: OGBenchTask, experts: Experts) -> Collector:
    """Makes the collector of a task, which builds its own simulator."""
    if task.family == "antsoccer":
        from gtrl.data.collect.soccer import SoccerCollector

        return SoccerCollector(task, experts)
    if task.family.endswith("maze"):
        from gtrl.data.collect.maze import MazeCollector

        return MazeCollector(task, experts)
    from gtrl.data.collect.manipulation import PlayCollector

    return PlayCollector(task)
