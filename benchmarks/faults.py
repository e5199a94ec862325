#!/usr/bin/env python3
"""Fault injection: interrupts and damages a training run, resumes it, and compares it with an undisturbed run.

    python benchmarks/faults.py                            # 200 faults of all kinds
    python benchmarks/faults.py --kinds kill --faults 20   # killed at 20 random moments
    python benchmarks/faults.py --kinds terminate --faults 20

A small GTRL run (two seeds, evaluated during training) suffers faults at random moments and is resumed after each.
After `--round` faults it is trained to its end. After every fault:

- every finished evaluation still exists and equals that of the undisturbed run,
- every planned checkpoint still exists (one that the fault damaged exists again at the end),
- the log is a prefix of the undisturbed run's log.

At the end the planned checkpoints, `metrics.jsonl`, `warnings.jsonl`, the policies and `eval.csv` are bit-identical.
The exit status is 1 if one of these conditions fails.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import console
from gtrl.data.collect.files import collect
from gtrl.runs.run import Run

TASK, METHOD = "pointmaze-mini-navigate", "gtrl"
# The command line with a fault injected into it.
INJECTED = """import sys
from gtrl import cli, workers
from gtrl.evaluation import rollout
{}
sys.exit(cli.main(sys.argv[1:]))"""
SHORT_PATIENCE = (
    "workers.FIRST_PATIENCE_SECONDS, workers.MIN_PATIENCE_SECONDS, workers.PATIENCE_FACTOR = 20.0, 5.0, 3.0"
)
RAISING = """
def raising_job(job):  # in a worker
    def stumble(self, action, step=rollout.RunningEpisode.step):
        if (self.episode.goal, self.episode.number, self.length) == (3, 1, 2): raise ValueError("an injected fault")
        return step(self, action)
    rollout.RunningEpisode.step = stumble
    return rollout.run_episodes(rollout.load_policy(job.policy), job)
rollout._run_job = raising_job
"""
SLOW_DISK = """
import time
from gtrl.runs import checkpoints
checkpoints.save = lambda *_: time.sleep(600)
"""


class FaultError(Exception):
    """A condition that does not hold after a fault."""


def check(condition: bool, message: str) -> None:
    """Raises a FaultError with this message unless the condition holds."""
    if not condition:
        raise FaultError(message)


class Campaign:
    """The run that suffers faults, the undisturbed run to compare it with, and one method per kind of fault."""

    def __init__(self, scratch: Path, steps: int, episodes: int, life: float, seed: int) -> None:
        self.scratch, self.steps, self.episodes, self.life = scratch, steps, episodes, life
        self.random = random.Random(seed)
        self.protocol = [steps // 5, 2 * steps // 5, steps]
        self.environment = os.environ | {
            "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "true",
            "JAX_COMPILATION_CACHE_DIR": str(scratch / "programs"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }  # fmt: skip
        self.data = collect(TASK, scratch / "data" / f"{TASK}-v0.npz", episodes=40, workers=2, show=False)
        self.other = collect(TASK, scratch / "other" / f"{TASK}-v0.npz", episodes=8, workers=1, seed=9, show=False)
        self.log = scratch / "stderr"
        self.whole = Run(scratch / "whole")
        self.finish(self.whole)
        self.rounds = 0
        self.renew()

    def renew(self) -> None:
        """Replaces the run by a new one that has not started."""
        self.run = Run(self.scratch / f"run-{self.rounds}")
        self.rounds += 1
        self.damaged: set[int] = set()

    # --- commands ---

    def command(self, run: Run, *flags: Any) -> list[str]:
        where = ["--task", TASK, "--data", self.data, "--out", run.path, "--steps", self.steps, "--checkpoints"]
        small = ["--hidden", 32, 32, "--batch-size", 64, "--seeds", 0, 1, "--log-every", self.steps // 40]
        often = ["--checkpoint-minutes", 0.008, "--keep", 3, "--resume"]
        during = ["--eval-during", "--eval-episodes", self.episodes, "--eval-workers", 1] if self.episodes else []
        return [str(part) for part in ("train", METHOD, *where, *self.protocol, *small, *often, *during, *flags)]

    def start(self, *arguments: Any, injected: str = "", limit: int = 0) -> subprocess.Popen:
        program = ["-c", INJECTED.format(injected)] if injected else ["-m", "gtrl"]

        def prepare() -> None:
            # A shell without job control starts background processes that ignore Ctrl-C, and children inherit that.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with self.log.open("w") as file:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", *program, *map(str, arguments)],
                env=self.environment, stdout=file, stderr=file, start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip

    def finish(self, run: Run) -> None:
        status = self.start(*self.command(run)).wait()
        check(status == 0, f"exit status {status}: {self.log.read_text()[-500:]}")

    def resumed(self) -> subprocess.Popen:
        """Resumes the run and returns its process at a random moment: mostly while it trains, sometimes before."""
        self.start_time = time.time()
        process = self.start(*self.command(self.run))
        if self.random.random() < 0.1:
            self.wait(process, self.random.uniform(0, 4))
            return process
        self.until(process, lambda: self.trains_since(self.start_time))
        self.wait(process, self.random.uniform(0, self.life))
        return process

    def trains_since(self, start_time: float) -> bool:
        """Whether the process that was started at this time has taken its first step."""
        timing = self.run.path / "timing.jsonl"
        lines = timing.read_text().splitlines(keepends=True) if timing.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return any("start_up_seconds" in row and row["time"] > start_time for row in rows)

    def wait(self, process: subprocess.Popen, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.005)

    def until(self, process: subprocess.Popen, condition: Callable[[], bool], seconds: float = 60) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None and not condition():
            time.sleep(0.005)
        return process.poll() is None

    def stop(self, process: subprocess.Popen) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def check_rejected(self, status: int, message: str) -> None:
        """Checks that a command failed with this one-line error."""
        output = self.log.read_text()
        check(status == 2, f"exit status {status} instead of 2: {output[-500:]}")
        check(message in output, f"the error is not '{message}': {output[-500:]}")
        check("Traceback" not in output, output[-1000:])

    # --- the state of the run ---

    def checkpoints(self, run: Run | None = None) -> list[int]:
        folder = (run or self.run).checkpoints
        return sorted(int(path.stem) for path in folder.glob("*.npz") if path.stem.isdigit())

    def newest(self) -> Path:
        """Returns the newest checkpoint; trains until there is one."""
        if not self.checkpoints():
            process = self.start(*self.command(self.run))
            self.until(process, lambda: len(self.checkpoints()) > 1)
            self.stop(process)
        return self.run.checkpoints / f"{self.checkpoints()[-1]}.npz"

    def with_policies(self) -> None:
        """Trains until the policies of the first planned checkpoint exist."""
        if not (self.run.path / "policies" / f"step-{self.protocol[0]}" / "seed-1.npz").exists():
            process = self.start(*self.command(self.run))
            self.until(process, lambda: self.protocol[0] in self.checkpoints())
            self.stop(process)

    def state(self) -> tuple[list[dict], set[int]]:
        return self.run.evaluations(), set(self.checkpoints()) & set(self.protocol)

    def check_intact(self, before: tuple[list[dict], set[int]]) -> None:
        """Checks the conditions that must hold after any fault."""
        rows, existing = self.state()
        truth = self.whole.evaluations()
        check(all(row in rows for row in before[0]), "a finished evaluation is lost")
        check(all(row in truth for row in rows), "an evaluation differs from the undisturbed run's")
        check(before[1] - self.damaged <= existing, "a planned checkpoint is lost")
        log = self.run.path / "metrics.jsonl"
        whole = (self.whole.path / "metrics.jsonl").read_text()
        check(whole.startswith(log.read_text().rpartition("\n")[0]) if log.exists() else True, "the log differs")

    def check_same(self) -> None:
        """Checks that the finished run is bit-identical to the undisturbed one."""
        for name in ("metrics.jsonl", "warnings.jsonl", *(["eval.csv"] if self.episodes else [])):
            found, expected = (Path(run.path, name).read_bytes() for run in (self.run, self.whole))
            check(found == expected, f"{name} differs")
        check(set(self.protocol) <= set(self.checkpoints()), "a planned checkpoint is lost")
        for step in self.protocol:
            paths = [Path("checkpoints", f"{step}.npz")]
            paths += [Path("policies", f"step-{step}", f"seed-{seed}.npz") for seed in (0, 1)]
            for path in paths:
                with np.load(self.run.path / path) as found, np.load(self.whole.path / path) as expected:
                    check(found.files == expected.files, f"{path} holds other arrays")
                    for key in found.files:
                        check(found[key].tobytes() == expected[key].tobytes(), f"{path}: {key} differs")
        check(not list(self.run.path.rglob("*.partial")), "half-written files are left")

    # --- faults ---

    def kill(self) -> None:
        process = self.resumed()
        process.kill()  # its workers notice it and exit
        process.wait()

    def kill_all(self) -> None:
        self.stop(self.resumed())

    def terminate(self, number: int = signal.SIGTERM) -> None:
        process = self.resumed()
        trained = self.trains_since(self.start_time)
        before = self.checkpoints()
        if process.poll() is None:
            os.kill(process.pid, number)
        status = process.wait()
        output = self.log.read_text()
        if not trained:  # there is nothing to save yet
            check(status in (0, 128 + number, -number), f"exit status {status}: {output[-500:]}")
            return
        check(status in (0, 128 + number), f"exit status {status}: {output[-500:]}")
        check("Traceback" not in output, output[-1000:])
        if status and before[-1:] != [self.steps]:
            check(self.checkpoints()[-1:] > before[-1:], "nothing was saved")

    def interrupt(self) -> None:
        self.terminate(signal.SIGINT)

    def interrupt_twice(self) -> None:
        """Sends a second Ctrl-C while the checkpoint of the first is still being written."""
        self.start_time = time.time()
        process = self.start(*self.command(self.run), injected=SLOW_DISK)
        if not self.until(process, lambda: self.trains_since(self.start_time)):
            return  # the run was already complete
        os.kill(process.pid, signal.SIGINT)
        self.wait(process, 1.5)
        check(process.poll() is None, "the first Ctrl-C did not wait for its checkpoint")
        os.kill(process.pid, signal.SIGINT)
        self.wait(process, 10)
        status = process.poll()
        self.stop(process)
        check(status == 128 + signal.SIGINT, f"a second Ctrl-C: exit status {status}")

    def damage(self) -> None:
        """Flips a random bit of the newest checkpoint."""
        path = self.newest()
        content = bytearray(path.read_bytes())
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        self.spoil(path, bytes(content))

    def truncate(self) -> None:
        path = self.newest()
        self.spoil(path, path.read_bytes()[: self.random.randrange(path.stat().st_size)])

    def spoil(self, path: Path, content: bytes) -> None:
        self.damaged.add(int(path.stem))
        path.write_bytes(content)
        host = re.sub(r"[^\w-]", "-", socket.gethostname())
        stale = path.with_name(f"{path.name}.{host}.99999.partial")
        stale.write_bytes(content[:1000])
        process = self.start(*self.command(self.run))
        begun = lambda: self.log.exists() and ("renamed to" in self.log.read_text() or not stale.exists())  # noqa: E731
        self.until(process, begun)
        self.wait(process, self.random.uniform(0, self.life))
        self.stop(process)

    def disk_full(self) -> None:
        """Limits the size of files, so that writing a checkpoint fails in the middle, as on a full disk."""
        size = self.newest().stat().st_size
        left = self.checkpoints()
        if left[-1] == self.steps:
            return
        status = self.start(*self.command(self.run), limit=size * 9 // 10).wait()
        self.check_rejected(status, "cannot be written")
        check(self.checkpoints() == left, "checkpoints changed though none could be written")

    def second_process(self) -> None:
        first = self.start(*self.command(self.run))
        if self.until(first, (self.run.path / "lock").exists):
            keep = self.log
            self.log = self.scratch / "stderr-2"
            status = self.start(*self.command(self.run)).wait()
            if first.poll() is None:
                self.check_rejected(status, "another process is training in")
            self.log = keep
        self.stop(first)

    def other_config(self) -> None:
        self.newest()
        self.check_rejected(
            self.start(*self.command(self.run, "--batch-size", 32)).wait(), "training.batch_size was 64"
        )

    def other_data(self) -> None:
        self.newest()
        self.check_rejected(self.start(*self.command(self.run, "--data", self.other)).wait(), "data.digest was")

    def broken_data(self) -> None:
        path = self.scratch / "broken" / self.data.name
        path.parent.mkdir(exist_ok=True)
        content = bytearray(self.data.read_bytes())
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        path.write_bytes(content[: self.random.randrange(1, len(content))])
        self.check_rejected(self.start(*self.command(self.run, "--data", path)).wait(), str(path))

    def move(self) -> None:
        self.newest()
        moved = self.run.path.with_name(f"{self.run.path.name}-moved")
        self.run = Run(self.run.path.rename(moved))
        self.kill()

    def copy(self) -> None:
        self.newest()
        copied = shutil.copytree(self.run.path, self.run.path.with_name(f"{self.run.path.name}-copied"))
        shutil.rmtree(self.run.path)
        self.run = Run(copied)
        self.kill()

    def workers_of(self, process: subprocess.Popen) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                command = (stat.parent / "cmdline").read_text()
            except OSError:
                continue
            if int(fields[1]) == process.pid and "loky.backend.popen_loky" in command and fields[0] != "Z":
                found.append(int(stat.parent.name))
        return found

    def lose_worker(self, number: int) -> None:
        """Ends or stops one worker during an evaluation, whose results must stay the same."""
        self.with_policies()
        command = ("evaluate", self.run.path, "--episodes", self.episodes, "--workers", 2, "--step", self.protocol[0])
        process = self.start(*command, injected=SHORT_PATIENCE)
        self.until(process, lambda: len(self.workers_of(process)) == 2)
        self.wait(process, self.random.uniform(0, 1.5))
        for worker in self.workers_of(process)[:1]:
            os.kill(worker, number)
        status = process.wait()
        check(status == 0, f"exit status {status}: {self.log.read_text()[-500:]}")
        truth = [row for row in self.whole.evaluations() if row["step"] == self.protocol[0]]
        check([row for row in self.run.evaluations() if row["step"] == self.protocol[0]] == truth, "the table differs")

    def worker_killed(self) -> None:
        self.lose_worker(signal.SIGKILL)

    def worker_hangs(self) -> None:
        self.lose_worker(signal.SIGSTOP)

    def evaluation_killed(self) -> None:
        self.with_policies()
        process = self.start("evaluate", self.run.path, "--episodes", self.episodes, "--step", self.protocol[0])
        self.wait(process, self.random.uniform(0.3, 4))
        self.stop(process)

    def environment_raises(self) -> None:
        self.with_policies()
        command = ("evaluate", self.run.path, "--episodes", self.episodes, "--step", self.protocol[0])
        said = f"{TASK}, task3, episode 1: the environment raised ValueError: an injected fault"
        self.check_rejected(self.start(*command, injected=RAISING).wait(), said)

    def not_finite(self) -> None:
        """Trains another run with a far too large learning rate; it must stop with an error that names the step."""
        run = Run(self.scratch / "not-finite")
        shutil.rmtree(run.path, ignore_errors=True)
        status = self.start(*self.command(run, "--learning-rate", 1e18, "--eval-episodes", 1)).wait()
        self.check_rejected(status, "finite")
        check((run.path / "stopped.json").exists(), "there is no report")


KINDS = [
    "kill", "kill_all", "terminate", "interrupt", "interrupt_twice", "damage", "truncate", "disk_full",
    "second_process", "other_config", "other_data", "broken_data", "move", "copy", "worker_killed", "worker_hangs",
    "evaluation_killed", "environment_raises", "not_finite",
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50_000, help="training steps of a run")
    parser.add_argument("--life", type=float, default=3.0, help="maximum seconds of training between two faults")
    parser.add_argument("--episodes", type=int, default=2, help="evaluation episodes per goal; 0: no evaluation")
    parser.add_argument("--round", type=int, default=20, help="faults per run")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    moments: list[int] = []  # the newest checkpoint after each fault
    order = random.Random(args.seed)
    kinds = [kind for _ in range(-(-args.faults // len(args.kinds))) for kind in args.kinds][: args.faults]
    order.shuffle(kinds)
    with tempfile.TemporaryDirectory() as folder, console.bar("faults", len(kinds), "faults") as bar:
        campaign = Campaign(Path(folder), args.steps, args.episodes, args.life, args.seed)
        kind = "undisturbed"
        try:
            for number, kind in enumerate(kinds, 1):
                before = campaign.state() if campaign.run.path.exists() else ([], set())
                getattr(campaign, kind)()
                campaign.check_intact(before)
                counts[kind] += 1
                reached = (campaign.checkpoints() or [0])[-1]
                moments.append(reached)
                bar(1, f"{kind}, at {reached:,}")
                if number % args.round == 0 or number == len(kinds):
                    kind = "the end"
                    campaign.finish(campaign.run)
                    campaign.check_same()
                    campaign.renew()
        except FaultError as error:
            print(f"failed after {sum(counts.values())} faults, at '{kind}': {error}")
            return 1
        runs = campaign.rounds - 1
    rows = [[kind.replace("_", " "), count] for kind, count in sorted(counts.items())]
    title = (
        f"{sum(counts.values())} faults in {runs} runs of {args.steps:,} steps; every run equals the undisturbed one"
    )
    print(f"newest checkpoints after the faults: {moments}")
    inside = sum(0 < moment < args.steps for moment in moments)
    if inside < len(moments) / 3:
        print(f"only {inside} of {len(moments)} faults happened during training: try other --steps")
        return 1
    console.print_table(console.table(title, ["fault", "count"], [*rows, ["all", sum(counts.values())]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
