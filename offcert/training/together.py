"""One search for all processes of a sharded training: who comes first searches, all follow.

Searches end when they end, and times differ from process to process: on their own, processes would
come to different plans. Through the store where the processes have met, the first one that asks for
a plan says that it searches, and leaves there what it finds; the others look there, for a problem
that is theirs but for its times. Nobody waits for a collective, so none can wait for ever.
"""

from __future__ import annotations

import itertools
import json
import zlib
from datetime import timedelta
from typing import Any

from torch import distributed as dist
from torch import nn

from offcert.certification.kept_plans import asked
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError, PlanError
from offcert.runtime.torch_private import store_of_all
from offcert.runtime.watch.sharded import is_sharded
from offcert.training.search import EndedSearch, Order, Search, SearchOutcome, begin

# Searches that may take longer than they were given, and seconds for a process that comes later:
# after that one is not waited for any more. Arbitrary.
_TIMES, _MORE = 4, 300

# The trainings of this process so far: every process begins the same ones in the same order.
_NUMBERS = itertools.count()


class Alone:
    """Searches of a process that follows plans of its own."""

    # Whether plans that are kept may be followed without asking the others.
    alone = True

    def begin(self, order: Order, *, apart: bool) -> Search:
        """Begin a search in a process of its own, or carry it out."""
        return begin(order, apart=apart)


class Together:
    """Searches that all processes of a training share, by the store where they have met."""

    alone = False

    def __init__(self, store: Any, training: int) -> None:
        self._store = store
        self._prefix = f"offcert/{training}"

    def begin(self, order: Order, *, apart: bool) -> Search:
        """Begin a search, or look for what another process finds.

        That may be nothing that can be followed, or no answer, which is an `InputError`.
        """
        key = f"{self._prefix}/{digest_of(order)}"
        if self._store.add(f"{key}/asked", 1) == 1:
            mine = _Mine(self._store, key)
            return mine.begin(order, apart=apart)
        theirs = _Theirs(self._store, key)
        return theirs if apart else theirs.waited(order.seconds * _TIMES + _MORE)


def searches_for(model: nn.Module) -> Alone | Together:
    """Return who searches for the plans of a model."""
    if not dist.is_available() or not dist.is_initialized() or not is_sharded(model):
        return Alone()
    store = store_of_all()
    return Together(store, next(_NUMBERS))


def digest_of(order: Order) -> str:
    """Return a digest of the plan asked for, but for times: each process has measured its own."""
    problems = {
        name: None if problem is None else asked(problem, times=False)
        for name, problem in (("problem", order.problem), ("plain", order.plain))
    }
    effort = {"room": order.room, "streams": order.streams, "seconds": order.seconds}
    return canonical_digest(problems | effort)


class _Mine(Search):
    """A search of this process, whose outcome the others are told; they follow nothing before."""

    def __init__(self, store: Any, key: str) -> None:
        self._store, self._key = store, key
        self._search = Search()

    def begin(self, order: Order, *, apart: bool) -> Search:
        try:
            self._search = begin(order, apart=apart)
            if not apart:
                self.poll()
        except (InputError, PlanError) as error:
            self._tell({"error": str(error)})
            raise
        return self if apart else self._search

    def poll(self) -> SearchOutcome | None:
        """Return the outcome of the search once the other processes have been told, or None."""
        try:
            found = self._search.poll()
        except (InputError, PlanError) as error:
            self._tell({"error": str(error)})
            raise
        if found is not None:
            self._tell(found.to_json())
        return found

    def close(self) -> None:
        """End the search, and forget it."""
        self._search.close()

    def _tell(self, document: dict[str, Any]) -> None:
        self._store.set(self._key, zlib.compress(json.dumps(document).encode(), 1))


class _Theirs(Search):
    """A search of another process."""

    def __init__(self, store: Any, key: str) -> None:
        self._store, self._key = store, key

    def poll(self) -> SearchOutcome | None:
        """Return the outcome that the searching process has told, or None as long as it has not."""
        if not self._store.check([self._key]):
            return None
        document = json.loads(zlib.decompress(self._store.get(self._key)))
        if "error" in document:
            raise InputError(f"the process that searches for all has failed: {document['error']}")
        return SearchOutcome.from_json(document)

    def waited(self, seconds: float) -> EndedSearch:
        """Return the searching process's outcome as a search that has ended; wait for it."""
        try:
            self._store.wait([self._key], timedelta(seconds=seconds))
        except RuntimeError as error:
            raise InputError(
                f"the process that searches for a plan for all has not answered in {seconds:g} s"
            ) from error
        found = self.poll()
        assert found is not None
        return EndedSearch(found)
