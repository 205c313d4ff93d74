"""An audit of somebody's engine: run unmodified, and every wait that is missing named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.core.options import users_function
from offcert.runtime.simulated.streams import Adversary, early, late
from offcert_lab.engines.findings import Finding, raised_at
from offcert_lab.engines.machine import Machine, Peaks
from offcert_lab.engines.memory import Access
from offcert_lab.engines.orders import Orders, comparable
from offcert_lab.engines.recorder import EngineRecorder
from offcert_lab.engines.shim import simulated

# Findings of which an order of their own is looked for. Arbitrary.
_MOST_SHOWN = 50


@dataclass(frozen=True, slots=True)
class EngineAudit:
    """The findings of an audit, and what the engine took."""

    findings: list[Finding]  # In the order in which the program comes to them.
    peaks: Peaks  # The most bytes.
    works: int  # Operators and copies of one run.
    streams: dict[str, str]  # Streams, and where the program has made them.
    runs: int  # Two if the program asked whether events had happened: it was told late, and early.
    orders: int  # Orders of the works that were carried out, beside those for single findings.
    different: int  # How many of them led to other values.
    # Values that are left out: the order as given does not lead to them again, because nobody wrote
    # that memory, or somebody did past PyTorch.
    unrepeated: int
    # The exception that ended the function, and the line that raised it; empty if none did. The
    # findings are those up to then.
    failed: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing was found, and the function came to its end."""
        return not (self.findings or self.different or self.failed)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "clean": self.clean,
            "failed": self.failed,
            "findings": [each.to_json() for each in self.findings],
            "peaks": asdict(self.peaks),
            "works": self.works,
            "streams": self.streams,
            "runs": self.runs,
            "orders": self.orders,
            "different_orders": self.different,
            "unrepeated_values": self.unrepeated,
        }

    def __str__(self) -> str:
        """Return it in lines for people."""
        lines = [f"{each.text()}\n" for each in self.findings]
        lines += [f"{self.failed}\n"] if self.failed else []
        lines += [f"{name} was made at {where}" for name, where in self.streams.items()]
        peaks = self.peaks
        lines += [
            f"{len(self.findings)} {'fault' if len(self.findings) == 1 else 'faults'} in "
            f"{self.works} operators and copies",
            f"{self.different} of {self.orders} orders led to other values",
            f"peaks: {peaks.device} bytes of the device ({peaks.device_late} if recorded streams "
            f"are late, {peaks.reserved} reserved), {peaks.pinned} pinned",
        ]
        return "\n".join(lines)


def audit_engine(function: Callable[[], Any] | str, *, orders: int = 8) -> EngineAudit:
    """Run somebody's offloading code on a simulated CUDA device, and look for missing waits.

    The code is not changed: ``torch.cuda`` and the methods of tensors that know of devices mean the
    simulated machine meanwhile. `offcert_lab.engines` says what it sees, and what it refuses.

    Parameters
    ----------
    function : callable or str
        Trains a step or two with the engine, and returns what has to be right. It makes its model
        and its tensors itself, since it is called a second time if the engine asks whether events
        have happened. ``"package.module:function"`` is imported where it is audited: so a module
        may take names from ``torch.cuda``, or make streams, when it is imported.
    orders : int
        Legal orders of the works that are carried out and compared.

    Returns
    -------
    EngineAudit

    Raises
    ------
    InputError
        If the number of orders is negative, or the function cannot be imported.
    offcert_lab.engines.machine.UnseenError
        If the engine uses what the simulation does not see: kernels of C++ and Triton, collectives,
        CUDA graphs, ``torch.compile``, another device.
    """
    if orders < 0:
        raise InputError(f"orders is {orders}: it counts orders, and is not negative")
    if isinstance(function, str):
        function = partial(_imported, function)
    first, asked = _run(function, late, orders)
    return _both(first, _run(function, early, orders)[0]) if asked else first


def _imported(name: str) -> Any:
    return users_function(name, "engine")()


def _run(function: Callable[[], Any], adversary: Adversary, count: int) -> tuple[EngineAudit, bool]:
    """Return the audit of one run, and whether the program asked if events had happened."""
    machine = Machine(adversary)
    recorder = EngineRecorder(machine)
    failed = ""
    kept: Any = None
    with simulated(recorder):
        # Kept until the contents have been looked at.
        try:
            kept = function()
        except InputError:
            raise
        except Exception as error:
            kept, failed = error, _said(error)
    if machine.refusals:
        raise machine.refusals[0]
    lives = recorder.living()
    contents = recorder.contents()
    recorder.ended = True
    del kept
    orders = Orders(machine, lives)
    checked = _Checked(orders, contents)
    different = sum(bool(checked.shown(orders.at_random(seed))) for seed in range(count))
    found = []
    for number, each in enumerate(machine.findings.values()):
        told = checked.tell(each.pairs) if number < _MOST_SHOWN else ""
        found.append(replace(each.finding, shown=told, times=each.times))
    streams = {name: str(where) for name, where in machine.made.items()}
    audit = EngineAudit(
        found,
        machine.whole_peaks,
        len(machine.works),
        streams,
        1,
        count,
        different,
        checked.unrepeated,
        failed,
    )
    return audit, machine.asked


def _said(error: Exception) -> str:
    where = raised_at(error)
    said = str(error).strip().splitlines()
    return f"{where}: the engine fails with {type(error).__name__}: {said[0] if said else ''}"


class _Checked:
    """Orders of a run, compared with the one in which the program handed all over."""

    def __init__(self, orders: Orders, contents: dict[int, torch.Tensor]) -> None:
        self.orders = orders
        self.given = orders.run(orders.as_given())
        self.among = comparable(orders, self.given, contents)
        known, repeated = self.given, self.among
        self.unrepeated = len(known.got) - len(repeated.got)
        self.unrepeated += len(known.bytes) - len(repeated.bytes)

    def shown(self, order: list[int]) -> list[str]:
        """Return the differences of an order in the values that a program sees."""
        values = self.orders.run(order)
        return list(self.orders.differences(self.given, values, self.among))

    def tell(self, pairs: list[tuple[Access, Access]]) -> str:
        """Return the harm that is done if the later one of two accesses comes first."""
        for first, second in pairs:
            if second.item == len(self.orders.works):
                # Memory was given back: no work.
                continue
            orders = self.orders.with_first(second.item), self.orders.with_last(first.item)
            for order in orders:
                if found := self.shown(order):
                    return f"if the second runs first, {found[0]}"
        return "no value that the program reads or returns depends on it in this run"


def _both(one: EngineAudit, other: EngineAudit) -> EngineAudit:
    """Return the findings and peaks of two runs together."""
    findings = {each.key: each for each in one.findings}
    for each in other.findings:
        findings.setdefault(each.key, each)
    return replace(
        one,
        findings=list(findings.values()),
        peaks=Peaks(*map(max, astuple(one.peaks), astuple(other.peaks))),
        runs=2,
        orders=one.orders + other.orders,
        different=one.different + other.different,
        unrepeated=one.unrepeated + other.unrepeated,
        failed=one.failed or other.failed,
    )
