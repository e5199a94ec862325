"""SIGINT and SIGTERM make a run save a checkpoint and end; a second SIGINT ends the process at once."""

import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
IN_NOTEBOOK = "ipykernel" in sys.modules
MESSAGE = "stopping after a checkpoint; press Ctrl-C again to stop at once, without one"
log = logging.getLogger(__name__)


class Stop:
    """A context in which SIGINT and SIGTERM are recorded: `received` is the first of them, None before it arrives.

    Python calls a signal handler only between two bytecode instructions, and a compilation is a single one that may
    take a minute. So a thread waits for the byte that the interpreter writes to a socket as soon as a signal arrives.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __enter__(self) -> "Stop":
        self.previous_handlers: dict[signal.Signals, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return self  # Python handles signals in the main thread only: they are left to its code
        self.receiver, self.sender = socket.socketpair()
        self.sender.setblocking(False)
        self.previous_wakeup_fd = signal.set_wakeup_fd(self.sender.fileno(), warn_on_full_buffer=False)
        self.previous_handlers = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.previous_handlers:
            return
        for number, handler in self.previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self.previous_wakeup_fd)
        self.sender.close()  # ends the thread
        self.thread.join()
        self.receiver.close()

    def _listen(self) -> None:
        while number := self.receiver.recv(1):
            if number[0] not in STOP_SIGNALS:
                continue
            if self.received and number[0] == signal.SIGINT and not IN_NOTEBOOK:
                if os.isatty(2):
                    os.write(2, b"\x1b[?25h")  # shows the cursor, which a progress bar hides
                os._exit(128 + signal.SIGINT)
            if self.received is None:
                self.received = signal.Signals(number[0])
                # In a thread, because a write to a full pipe blocks.
                threading.Thread(target=log.warning, args=(MESSAGE,), daemon=True).start()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """Replaces the default handler, which would raise or end the process; `_listen` does the work.

        In a notebook the second SIGINT raises `KeyboardInterrupt`, as the process must not end with the run.
        """
        if IN_NOTEBOOK and self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
