"""Training on more data than fits into memory: shards are used in turn, with the next one loaded ahead."""

from concurrent.futures import Future, ThreadPoolExecutor

from gtrl.data.dataset import Data
from gtrl.data.load import load_shard
from gtrl.errors import DataError


class Rotation:
    """Selects the shard for each training step. It depends only on the step, so a resumed run uses the same shards.

    Two shards are in memory at a time: the current one and the next. `steps` is the number of steps on each shard.
    """

    def __init__(self, data: Data, steps: int) -> None:
        self.shards, self.task, self.spec, self.steps = data.shards, data.task, data.train.spec, steps
        self.scaling = data.scaling
        self.count = max(1, len(data.shards))
        self.current: tuple[int, Data] = (0, data)
        self.loader = ThreadPoolExecutor(1)
        self.next: tuple[int, Future[Data]] | None = None

    def next_switch(self, step: int) -> int | None:
        """Returns the next step at which the shard changes; None if there is only one shard."""
        return (step // self.steps + 1) * self.steps if self.count > 1 else None

    def at(self, step: int) -> Data:
        """Returns the shard for `step` and starts loading the next one."""
        shard = step // self.steps % self.count
        if shard != self.current[0]:
            future = self.next[1] if self.next and self.next[0] == shard else self._load(shard)
            self.next = None
            self.current = (shard, future.result())
        following = (shard + 1) % self.count
        if self.next is None and following != shard:
            self.next = (following, self._load(following))
        return self.current[1]

    def _load(self, shard: int) -> "Future[Data]":
        return self.loader.submit(self._read, shard)

    def _read(self, shard: int) -> Data:
        data = load_shard(self.shards[shard], self.task, self.scaling, self.shards[0].name)
        if data.train.spec != self.spec:
            raise DataError(f"{data.source}: its dimensions differ from those of {self.shards[0].name}.")
        return data

    def close(self) -> None:
        """Stops loading shards."""
        self.loader.shutdown(wait=False, cancel_futures=True)
