"""A host that works as long as a test says."""

from collections.abc import Callable


class ScriptedHost:
    def __init__(self, call: int = 0) -> None:
        self.worked = 0
        self.call = call
        self.reads: Callable[[], None] | None = None

    def now(self) -> int:
        return self.worked

    def stop(self) -> None:
        pass

    def go_on(self, calls: int = 0) -> None:
        self.worked += calls * self.call
