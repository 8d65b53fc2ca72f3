"""Threads for synchronous callables.

They are daemon threads: a call that never returns must not keep the process from ending, as the
threads of `concurrent.futures` would. There are as many as synchronous jobs have started and not
stopped: no more than the permits of the lanes, and the jobs that wait for other jobs.
"""

import threading
from collections import deque
from collections.abc import Callable

IDLE_SECONDS = 10.0


class ThreadCache:
    """Runs calls in threads, and keeps a thread for a while after its call for the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[_Worker] = deque()

    def start(self, call: Callable[[], None]) -> None:
        """Run `call` in a thread; it must not raise. Returns at once.

        Raises `RuntimeError` when the system gives no more threads.
        """
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            worker = _Worker(self)
            worker.give(call)
            worker.thread.start()
        else:
            worker.give(call)

    def put_back(self, worker: "_Worker") -> None:
        """Keep an idle worker."""
        with self._lock:
            self._idle.append(worker)

    def take_out(self, worker: "_Worker") -> bool:
        """Let an idle worker go. False when it has just been given a call."""
        with self._lock:
            try:
                self._idle.remove(worker)
            except ValueError:
                return False
            return True


class _Worker:
    def __init__(self, cache: ThreadCache) -> None:
        self._cache = cache
        self._call: Callable[[], None] | None = None
        self._given = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._work, name="agentq job", daemon=True)

    def give(self, call: Callable[[], None]) -> None:
        self._call = call
        self._given.release()

    def _work(self) -> None:
        while True:
            if not self._given.acquire(timeout=IDLE_SECONDS):
                if self._cache.take_out(self):
                    return
                self._given.acquire()
            call, self._call = self._call, None
            assert call is not None
            call()
            del call
            self._cache.put_back(self)
