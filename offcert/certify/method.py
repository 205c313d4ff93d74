"""`Method`: what ``offcert solve`` can run, and what is known of it without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offcert.certify.effort import Effort
from offcert.certify.option import SETTINGS, Option, Value, written_options
from offcert.certify.search import Search
from offcert.core.platform import Link
from offcert.core.problem import Minimise, Problem, Recompute, Transfers
from offcert.proofs.registry import CLAIMS, PROOFS, ClaimKind, ProofKind


@dataclass(frozen=True)
class Method:
    """A method that ``offcert solve`` can run.

    Attributes
    ----------
    run : callable
        Given the search and what it may spend, adds schedules or bounds to the search.
    summary : str
        What it is, in one line.
    bounds : tuple of str
        The bounds that are its own, by their names in `offcert.proofs.registry`; none if it only
        finds schedules.
    reads : tuple of str
        Which settings of `solve` may change what it finds.
    options : tuple of Option
        Its own options, which are written behind its name; see `offcert.certify.option`.
    relaxed_only : bool
        Whether what it finds are schedules that atomic transfers do not allow.
    network : str
        For which networks it is.
    recompute : frozenset of Recompute
        What may run again in the problems that it is for.
    minimise : frozenset of Minimise
        What is to be least in these problems.
    offload : frozenset of bool
        Whether anything may leave the device in these problems.
    chains : bool
        Whether it is for chains alone, of those problems in which something may run again.
    """

    run: Callable[[Search, Effort], None]
    summary: str
    bounds: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    relaxed_only: bool = False
    network: str = "any trace"
    recompute: frozenset[Recompute] = frozenset({Recompute.NONE})
    minimise: frozenset[Minimise] = frozenset({Minimise.TIME})
    offload: frozenset[bool] = frozenset({True, False})
    chains: bool = False

    @property
    def takes(self) -> tuple[Option, ...]:
        """What may be written behind its name: its options, and those of `solve` that it reads."""
        return self.options + tuple(SETTINGS[name] for name in self.reads if name in SETTINGS)

    @property
    def kinds(self) -> list[ProofKind | ClaimKind]:
        """What the registry knows of its bounds."""
        return [PROOFS.get(name) or CLAIMS[name] for name in self.bounds]

    @property
    def heuristic(self) -> bool:
        """Whether it only finds schedules, so that no bound is its own."""
        return not self.bounds

    @property
    def transfers(self) -> frozenset[Transfers]:
        """The kinds of transfers that it is for."""
        if self.relaxed_only:
            return frozenset(Transfers) - {Transfers.ATOMIC}
        kinds = [kind.transfers for kind in self.kinds]
        return frozenset().union(*kinds) if kinds else frozenset(Transfers)

    @property
    def links(self) -> frozenset[Link]:
        """The links that it is for."""
        kinds = [kind.links for kind in self.kinds if isinstance(kind, ProofKind)]
        return frozenset().union(*kinds) if kinds else frozenset(Link)

    @property
    def evidence(self) -> str:
        """What supports its bounds, in words."""
        if self.heuristic:
            return "a schedule, no bound"
        proved = any(isinstance(kind, ProofKind) for kind in self.kinds)
        solvers = sorted({solver for kind in self.kinds for solver in kind.families})
        said = ["proved"] if proved else []
        said += [f"attested by {' or '.join(solvers)}"] if solvers else []
        return ", or ".join(said)

    def misfit(self, problem: Problem) -> str | None:
        """Return what a problem would have to be for this method, which it is not; or None.

        As the end of a sentence: ``"needs atomic transfers, not fractional"``.
        """
        if problem.recompute not in self.recompute:
            kinds = " or ".join(str(kind) for kind in Recompute if kind in self.recompute)
            return f"is for recompute {kinds}, not {problem.recompute}"
        if problem.minimise not in self.minimise:
            (least,) = self.minimise
            return f"minimises {least}, not {problem.minimise}"
        if problem.offload not in self.offload:
            if problem.offload:
                return "moves nothing: it is for problems in which nothing may leave the device"
            return "is for problems in which tensors may leave the device"
        if self.chains and problem.checkpoint_chain is None:
            return "needs a chain, not a network"
        if problem.transfers not in self.transfers:
            kinds = " or ".join(kind for kind in Transfers if kind in self.transfers)
            return f"needs {kinds} transfers, not {problem.transfers}"
        return None


@dataclass(frozen=True)
class Choice:
    """A method by name, with options.

    Attributes
    ----------
    name : str
        Of the method.
    method : Method
        What is known of it.
    options : mapping of str to Value
        Those that are not as by default, in the order in which the method declares them.
    """

    name: str
    method: Method
    options: Mapping[str, Value]

    @property
    def text(self) -> str:
        """The one way in which this choice is written: ``"dynprog:slots=2000"``."""
        return self.name + written_options(self.options)

    @property
    def settings(self) -> dict[str, Value]:
        """Those options that are settings of `solve`."""
        return {name: value for name, value in self.options.items() if name in SETTINGS}

    @property
    def own(self) -> Choice:
        """The same without these."""
        options = {n: value for n, value in self.options.items() if n not in SETTINGS}
        return Choice(self.name, self.method, options)
