"""Jobs that end their worker once. Workers import this module: it does without JAX, which takes seconds to import."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from gtrl.evaluation import rollout


def die_once(job: tuple[str, str, int]) -> int:
    """Kills its process, or hangs, the first time it gets job 3."""
    folder, how, number = job
    mark = Path(folder) / "happened"
    if number == 3 and not mark.exists():
        mark.touch()
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    return number * number


def run_and_die_once(job: Any) -> Any:
    """Kills its process before the first job of an evaluation."""
    mark = Path(job.policy).parents[3] / "happened"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return rollout.run_episodes(rollout.load_policy(job.policy), job)
