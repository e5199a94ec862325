"""SIGINT and SIGTERM ask a run to save and end; a second SIGINT ends it at once."""

import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any

ASKING = (signal.SIGINT, signal.SIGTERM)
IN_NOTEBOOK = "ipykernel" in sys.modules
MESSAGE = "stopping, with a checkpoint; Ctrl-C once more stops at once, without"
log = logging.getLogger(__name__)


class Stop:
    """While it is entered, `asked` is the signal that asked for an end, once one has.

    Python calls a handler only between two of its own instructions, and a compilation is one of these for a minute. So
    a thread waits for the byte that the interpreter writes the moment a signal arrives.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None

    def __enter__(self) -> "Stop":
        self.before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return self  # signals are the main thread's, and whoever runs it decides
        self.here, there = socket.socketpair()
        there.setblocking(False)
        self.there = there
        self.wakeup = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        self.before = {number: signal.signal(number, self._heard) for number in ASKING}
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.before:
            return
        for number, handler in self.before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self.wakeup)
        self.there.close()  # ends the thread
        self.thread.join()
        self.here.close()

    def _listen(self) -> None:
        while number := self.here.recv(1):
            if number[0] not in ASKING:
                continue
            if self.asked and number[0] == signal.SIGINT and not IN_NOTEBOOK:
                if os.isatty(2):
                    os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor
                os._exit(128 + signal.SIGINT)
            if self.asked is None:
                self.asked = signal.Signals(number[0])
                threading.Thread(target=log.warning, args=(MESSAGE,), daemon=True).start()  # a full pipe may block it

    def _heard(self, number: int, _: FrameType | None) -> None:
        """In place of the default, which would raise or end the process. The thread does the rest.

        But a notebook must not end with the run: there the second one is an ordinary interruption.
        """
        if IN_NOTEBOOK and self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
