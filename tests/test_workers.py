"""How many worker processes there are."""

import os
import subprocess
import sys

import pytest

from gtrl.workers import default_workers


def in_a_process(before: str = "", **environment: str) -> int:
    program = f"import os\n{before}\nfrom gtrl.workers import default_workers\nprint(default_workers())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_limits_the_workers() -> None:
    assert 1 <= default_workers() <= len(os.sched_getaffinity(0))
    first = min(os.sched_getaffinity(0))
    assert in_a_process(f"os.sched_setaffinity(0, {{{first}}})") == 1


def test_environment_variable_limits_the_workers() -> None:
    assert in_a_process(LOKY_MAX_CPU_COUNT="1") == 1
    assert in_a_process(LOKY_MAX_CPU_COUNT="10000") == default_workers()
