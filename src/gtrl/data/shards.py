"""Training on more data than fits into memory: one shard after another, the next one loading meanwhile."""

from concurrent.futures import Future, ThreadPoolExecutor

from gtrl.data.dataset import Data, load_shard
from gtrl.errors import DataError


class Rotation:
    """Which shard is read at which step. The step alone decides it, so a resumed run reads the same ones.

    Two shards are in memory at a time: the one that is read and the next.
    """

    def __init__(self, data: Data, steps: int) -> None:
        self.shards, self.task, self.spec, self.steps = data.shards, data.task, data.train.spec, steps
        self.count = max(1, len(data.shards))
        self.current: tuple[int, Data] = (0, data)
        self.loader = ThreadPoolExecutor(1)
        self.next: tuple[int, Future[Data]] | None = None

    def next_switch(self, step: int) -> int | None:
        """The step at which the shard that is read at `step` gives way to another; None where there is only one."""
        return (step // self.steps + 1) * self.steps if self.count > 1 else None

    def at(self, step: int) -> Data:
        """The shard to read from `step` on; begins to load the one after it."""
        shard = step // self.steps % self.count
        if shard != self.current[0]:
            waiting = self.next[1] if self.next and self.next[0] == shard else self._load(shard)
            self.next = None
            self.current = (shard, waiting.result())
        following = (shard + 1) % self.count
        if self.next is None and following != shard:
            self.next = (following, self._load(following))
        return self.current[1]

    def _load(self, shard: int) -> "Future[Data]":
        return self.loader.submit(self._read, shard)

    def _read(self, shard: int) -> Data:
        data = load_shard(self.shards[shard], self.task)
        if data.train.spec != self.spec:
            raise DataError(f"{data.source}: its dimensions differ from those of {self.shards[0].name}.")
        return data

    def close(self) -> None:
        self.loader.shutdown(wait=False, cancel_futures=True)
