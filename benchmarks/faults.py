#!/usr/bin/env python3
"""Does a run survive? Faults of every kind, one after the other, against a run that nothing ever happened to.

    python benchmarks/faults.py                            # 200 faults of all kinds
    python benchmarks/faults.py --kinds kill --faults 20   # killed at 20 random moments
    python benchmarks/faults.py --kinds terminate --faults 20

A small GTRL run (two seeds, evaluated while it trains) meets faults at random moments and is resumed after each, until
there have been so many; then it may end. After every fault: each evaluation that was finished is still there and the
same as the undisturbed run's, each protocol checkpoint that was there still is (or, where the fault was damage to that
very file, is there again at the end), and the log so far is the beginning of the undisturbed run's. At the end every
parameter, moment and target of the last checkpoint, `metrics.jsonl`, the policies and `eval.csv` are the same to the
last bit. The exit status is 1 if not.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
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
# In place of the command line, where a fault has to be planted in it.
PLANTED = """import sys
from gtrl import cli, workers
from gtrl.evaluation import rollout
{}
sys.exit(cli.main(sys.argv[1:]))"""
IMPATIENT = "workers.FIRST_PATIENCE_SECONDS, workers.MIN_PATIENCE_SECONDS, workers.PATIENCE_FACTOR = 20.0, 5.0, 3.0"
RAISING = """
def raising_job(job):  # in a worker
    def stumble(self, action, step=rollout.RunningEpisode.step):
        if (self.episode.goal, self.episode.number, self.length) == (3, 1, 2): raise ValueError("a planted fault")
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


class WrongError(Exception):
    """A run that a fault did harm to."""


def check(right: bool, told: str) -> None:
    if not right:
        raise WrongError(told)


class Campaign:
    """A run, the one it has to equal in the end, and what was done to it."""

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
        """A run that has not begun."""
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

    def start(self, *arguments: Any, planted: str = "", limit: int = 0) -> subprocess.Popen:
        program = ["-c", PLANTED.format(planted)] if planted else ["-m", "gtrl"]
        # A shell without job control has background processes ignore Ctrl-C, and they hand that down.
        prepare = lambda: (  # noqa: E731
            signal.signal(signal.SIGINT, signal.default_int_handler),
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)) if limit else None,
        )
        with self.log.open("w") as file:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", *program, *map(str, arguments)],
                env=self.environment, stdout=file, stderr=file, start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip

    def finish(self, run: Run) -> None:
        status = self.start(*self.command(run)).wait()
        check(status == 0, f"exit status {status}: {self.log.read_text()[-500:]}")

    def going(self) -> subprocess.Popen:
        """The run, gone on with to a random moment: now and then while it starts, else while it trains."""
        self.began = time.time()
        process = self.start(*self.command(self.run))
        if self.random.random() < 0.1:
            self.wait(process, self.random.uniform(0, 4))
            return process
        self.until(process, lambda: self.trains_since(self.began))
        self.wait(process, self.random.uniform(0, self.life))
        return process

    def trains_since(self, began: float) -> bool:
        """Whether a process that was started then has made its first step."""
        timing = self.run.path / "timing.jsonl"
        lines = timing.read_text().splitlines(keepends=True) if timing.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return any("start_up_seconds" in row and row["time"] > began for row in rows)

    def wait(self, process: subprocess.Popen, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.005)

    def until(self, process: subprocess.Popen, true: Callable[[], bool], seconds: float = 60) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None and not true():
            time.sleep(0.005)
        return process.poll() is None

    def stop(self, process: subprocess.Popen) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def refused(self, status: int, said: str) -> None:
        told = self.log.read_text()
        check(status == 2, f"exit status {status} where it should refuse: {told[-500:]}")
        check(said in told, f"it does not say '{said}': {told[-500:]}")
        check("Traceback" not in told, told[-1000:])

    # --- what is there ---

    def checkpoints(self, run: Run | None = None) -> list[int]:
        folder = (run or self.run).checkpoints
        return sorted(int(path.stem) for path in folder.glob("*.npz") if path.stem.isdigit())

    def newest(self) -> Path:
        """The newest checkpoint; trains to one where there is none."""
        if not self.checkpoints():
            process = self.start(*self.command(self.run))
            self.until(process, lambda: len(self.checkpoints()) > 1)
            self.stop(process)
        return self.run.checkpoints / f"{self.checkpoints()[-1]}.npz"

    def with_policies(self) -> None:
        """Trains until there is a policy."""
        if not (self.run.path / "policies" / f"step-{self.protocol[0]}" / "seed-1.npz").exists():
            process = self.start(*self.command(self.run))
            self.until(process, lambda: self.protocol[0] in self.checkpoints())
            self.stop(process)

    def state(self) -> tuple[list[dict], set[int]]:
        return self.run.evaluations(), set(self.checkpoints()) & set(self.protocol)

    def unharmed(self, before: tuple[list[dict], set[int]]) -> None:
        """What has to hold after any fault."""
        rows, kept = self.state()
        truth = self.whole.evaluations()
        check(all(row in rows for row in before[0]), "a finished evaluation is lost")
        check(all(row in truth for row in rows), "an evaluation differs from the undisturbed run's")
        check(before[1] - self.damaged <= kept, "a protocol checkpoint is lost")
        log = self.run.path / "metrics.jsonl"
        whole = (self.whole.path / "metrics.jsonl").read_text()
        check(whole.startswith(log.read_text().rpartition("\n")[0]) if log.exists() else True, "the log differs")

    def same(self) -> None:
        """That the run, now at its end, is the undisturbed one."""
        for name in ("metrics.jsonl", "warnings.jsonl", *(["eval.csv"] if self.episodes else [])):
            mine, other = (Path(run.path, name).read_bytes() for run in (self.run, self.whole))
            check(mine == other, f"{name} differs")
        check(set(self.protocol) <= set(self.checkpoints()), "a protocol checkpoint is lost")
        for step in self.protocol:
            paths = [Path("checkpoints", f"{step}.npz")]
            paths += [Path("policies", f"step-{step}", f"seed-{seed}.npz") for seed in (0, 1)]
            for path in paths:
                with np.load(self.run.path / path) as mine, np.load(self.whole.path / path) as other:
                    check(mine.files == other.files, f"{path} holds other arrays")
                    for key in mine.files:
                        check(mine[key].tobytes() == other[key].tobytes(), f"{path}: {key} differs")
        check(not list(self.run.path.rglob("*.partial")), "half-written files are left")

    # --- faults ---

    def kill(self) -> None:
        process = self.going()
        process.kill()  # its workers are orphans then, and end by themselves
        process.wait()

    def kill_all(self) -> None:
        self.stop(self.going())

    def terminate(self, number: int = signal.SIGTERM) -> None:
        process = self.going()
        trained = self.trains_since(self.began)
        before = self.checkpoints()
        if process.poll() is None:
            os.kill(process.pid, number)
        status = process.wait()
        told = self.log.read_text()
        if not trained:  # nothing is there yet that could be saved
            check(status in (0, 128 + number, -number), f"exit status {status}: {told[-500:]}")
            return
        check(status in (0, 128 + number), f"exit status {status}: {told[-500:]}")
        check("Traceback" not in told, told[-1000:])
        if status and before[-1:] != [self.steps]:
            check(self.checkpoints()[-1:] > before[-1:], "nothing was saved")

    def interrupt(self) -> None:
        self.terminate(signal.SIGINT)

    def interrupt_twice(self) -> None:
        """While the checkpoint that the first asks for takes forever."""
        self.began = time.time()
        process = self.start(*self.command(self.run), planted=SLOW_DISK)
        if not self.until(process, lambda: self.trains_since(self.began)):
            return  # there was nothing left to train
        os.kill(process.pid, signal.SIGINT)
        self.wait(process, 1.5)
        check(process.poll() is None, "the first Ctrl-C did not wait for its checkpoint")
        os.kill(process.pid, signal.SIGINT)
        self.wait(process, 10)
        status = process.poll()
        self.stop(process)
        check(status == 128 + signal.SIGINT, f"a second Ctrl-C: exit status {status}")

    def damage(self) -> None:
        """A bit falls over."""
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
        stale = path.with_name(f"{path.name}.99999.partial")
        stale.write_bytes(content[:1000])
        process = self.start(*self.command(self.run))
        begun = lambda: self.log.exists() and ("put aside" in self.log.read_text() or not stale.exists())  # noqa: E731
        self.until(process, begun)
        self.wait(process, self.random.uniform(0, self.life))
        self.stop(process)

    def disk_full(self) -> None:
        """Files cannot grow beyond a size: a checkpoint fails in the middle, as on a full disk."""
        size = self.newest().stat().st_size
        left = self.checkpoints()
        if left[-1] == self.steps:
            return
        status = self.start(*self.command(self.run), limit=size * 9 // 10).wait()
        self.refused(status, "cannot be written")
        check(self.checkpoints() == left, "checkpoints changed though none could be written")

    def second_process(self) -> None:
        first = self.start(*self.command(self.run))
        if self.until(first, (self.run.path / "lock").exists):
            keep = self.log
            self.log = self.scratch / "stderr-2"
            status = self.start(*self.command(self.run)).wait()
            if first.poll() is None:
                self.refused(status, "another process is training in")
            self.log = keep
        self.stop(first)

    def other_config(self) -> None:
        self.newest()
        self.refused(self.start(*self.command(self.run, "--batch-size", 32)).wait(), "training.batch_size was 64")

    def other_data(self) -> None:
        self.newest()
        self.refused(self.start(*self.command(self.run, "--data", self.other)).wait(), "data.digest was")

    def broken_data(self) -> None:
        path = self.scratch / "broken" / self.data.name
        path.parent.mkdir(exist_ok=True)
        content = bytearray(self.data.read_bytes())
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        path.write_bytes(content[: self.random.randrange(1, len(content))])
        self.refused(self.start(*self.command(self.run, "--data", path)).wait(), str(path))

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
        """One worker of an evaluation is lost halfway; the table must not show it."""
        self.with_policies()
        command = ("evaluate", self.run.path, "--episodes", self.episodes, "--workers", 2, "--step", self.protocol[0])
        process = self.start(*command, planted=IMPATIENT)
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
        said = f"{TASK}, task3, episode 1: the environment raised ValueError: a planted fault"
        self.refused(self.start(*command, planted=RAISING).wait(), said)

    def not_finite(self) -> None:
        """Another run, whose learning rate is far too large; it has to stop by itself and say where."""
        run = Run(self.scratch / "not-finite")
        shutil.rmtree(run.path, ignore_errors=True)
        status = self.start(*self.command(run, "--learning-rate", 1e18, "--eval-episodes", 1)).wait()
        self.refused(status, "was no finite number at step")
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
    parser.add_argument("--steps", type=int, default=50_000, help="of the run")
    parser.add_argument("--life", type=float, default=3.0, help="seconds that a run trains between two faults, at most")
    parser.add_argument("--episodes", type=int, default=2, help="of an evaluation, for each goal; 0: none")
    parser.add_argument("--round", type=int, default=20, help="faults that one run meets before it may end")
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
                campaign.unharmed(before)
                counts[kind] += 1
                reached = (campaign.checkpoints() or [0])[-1]
                moments.append(reached)
                bar(1, f"{kind}, at {reached:,}")
                if number % args.round == 0 or number == len(kinds):
                    kind = "the end"
                    campaign.finish(campaign.run)
                    campaign.same()
                    campaign.renew()
        except WrongError as error:
            print(f"wrong after {sum(counts.values())} faults, at '{kind}': {error}")
            return 1
        runs = campaign.rounds - 1
    rows = [[kind.replace("_", " "), count] for kind, count in sorted(counts.items())]
    title = (
        f"{sum(counts.values())} faults in {runs} runs of {args.steps:,} steps; every run ended as the undisturbed one"
    )
    print(f"newest checkpoints after the faults: {moments}")
    inside = sum(0 < moment < args.steps for moment in moments)
    if inside < len(moments) / 3:
        print(f"only {inside} of {len(moments)} faults came while a run was under way: try other --steps")
        return 1
    console.print_table(console.table(title, ["fault", "times"], [*rows, ["all", sum(counts.values())]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
