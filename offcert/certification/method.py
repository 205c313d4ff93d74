"""`Method`: an algorithm that a search can run, and what is known of it beforehand.

Its options are written behind its name: ``dynprog:slots=2000:max_states=5000000`` is a method with
two. They are separated by colons, so that a list of methods can be separated by commas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from offcert.core.errors import InputError
from offcert.core.kernel_cache import NotCompiledError
from offcert.core.messages import meant, show
from offcert.core.platform import Link
from offcert.proofs.placement_certificate import PLACEMENT_CLAIMS, PLACEMENT_PROOFS
from offcert.proofs.proof import Claimable, ClaimKind, ProofKind, Provable
from offcert.proofs.registry import CLAIMS, PROOFS
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers

SEPARATOR = ":"
_AMONG = "+"
NONE = "none"

Value = int | str | tuple[int, ...] | tuple[str, ...] | None


@dataclass(frozen=True)
class Option:
    """Something that a method lets its caller choose."""

    name: str  # As it is written, and as the function of the method calls it
    summary: str  # The option in one line, with its unit
    # Returns the value that a text stands for, or None for ``"none"``. Raises `ValueError`, whose
    # message says what the text must be.
    read: Callable[[str], Value]
    default: str  # The value where none is given, as it would be written


def number(minimum: int, or_none: bool = False) -> Callable[[str], Value]:
    """Return a function that reads an integer of at least `minimum`, or perhaps ``"none"``."""

    def read(text: str) -> Value:
        if or_none and text == NONE:
            return None
        if not (text.isdecimal() and text.isascii() and len(text) <= 18 and int(text) >= minimum):
            alternative = f" or {NONE}" if or_none else ""
            raise ValueError(f"an integer of at least {minimum}{alternative}")
        return int(text)

    return read


def word(*words: str) -> Callable[[str], Value]:
    """Return a function that reads one of some words."""

    def read(text: str) -> Value:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return read


def any_word(text: str) -> Value:
    """Read a name that only the method itself can judge."""
    if not text:
        raise ValueError("a name")
    return text


def words(*allowed: str) -> Callable[[str], Value]:
    """Return a function that reads one or several of some words, with ``+`` between them."""

    def read(text: str) -> Value:
        parts = text.split(_AMONG)
        if not set(parts) <= set(allowed):
            raise ValueError(f"of {', '.join(allowed)}, with {_AMONG} between several")
        return tuple(each for each in allowed if each in parts)

    return read


def numbers(minimum: int) -> Callable[[str], Value]:
    """Return a function that reads integers with ``+`` between them, sorted and each once."""
    read_one = number(minimum)

    def read(text: str) -> Value:
        try:
            return tuple(sorted({int(str(read_one(part))) for part in text.split(_AMONG)}))
        except ValueError:
            said = f"integers of at least {minimum}, with {_AMONG} between several"
            raise ValueError(said) from None

    return read


# Options for which `solve` has arguments of its own, too.
SETTINGS = {
    option.name: option
    for option in (
        Option("grid", "ticks a cell of the time grid; none: the model chooses", number(1), NONE),
        Option("solver", "linear solver by its PuLP name, or scipy", any_word, "the model's"),
    )
}


def read_options(method: str, known: Iterable[Option], parts: Iterable[str]) -> Mapping[str, Value]:
    """Return the values of the options behind a method's name that are not the default.

    Each of `parts` is written ``"name=value"``; the result is in the order of `known`.
    """
    options = {option.name: option for option in known}
    given: dict[str, str] = {}
    for part in parts:
        name, equals, text = (piece.strip() for piece in part.partition("="))
        if name not in options:
            raise InputError(_unknown(method, name, options))
        if not equals:
            raise InputError(f"option {name} of method {method} needs a value, as in {name}=…")
        if name in given:
            raise InputError(f"option {name} of method {method} is given twice")
        given[name] = text
    values = {}
    for name, option in options.items():
        if name in given and given[name] != option.default:
            values[name] = _value(method, option, given[name])
    return {
        name: value for name, value in values.items() if written(value) != options[name].default
    }


def _unknown(method: str, name: str, options: Mapping[str, Option]) -> str:
    if not options:
        return f"method {method} has no options, so not {show(name)}"
    known = ", ".join(options)
    return f"method {method} has no option {show(name)}, but {known}{meant(name, options)}"


def _value(method: str, option: Option, text: str) -> Value:
    try:
        return option.read(text)
    except ValueError as error:
        raise InputError(
            f"option {option.name} of method {method} must be {error}, not {show(text)}"
        ) from None


def written(value: Value) -> str:
    """Return a value as `Option.read` reads it."""
    if value is None:
        return NONE
    if isinstance(value, tuple):
        return _AMONG.join(map(str, value))
    return str(value)


def written_options(values: Mapping[str, Value]) -> str:
    """Return options as they are written behind a method's name, with the colon before each."""
    return "".join(f"{SEPARATOR}{name}={written(value)}" for name, value in values.items())


@dataclass(frozen=True)
class Effort:
    """The time and threads that a step may spend, and its other settings."""

    seconds: float  # Time limit
    workers: int = 2  # Threads, for solvers that can use several
    seed: int = 0  # Seed of random choices
    grid: int | None = None  # Ticks a cell, for time-indexed models; None lets the model choose
    # Linear solver, by its PuLP name or ``"scipy"``; None is the model's default.
    solver: str | None = None
    # The options of the method itself, by name, where they are not as by default.
    options: Mapping[str, Value] = field(default_factory=dict)
    # Seconds below which the step is not begun once its kernels have been loaded.
    least: float = 0.0
    # Given a search, threads and a seed, runs the ladder that suits its problem: for steps that
    # search problems which are parts of theirs.
    climb: Callable[[Any, int, int], None] | None = None


# All bounds, whatever they are on; no two have the same name.
KINDS: dict[str, Provable | Claimable] = {
    **PROOFS,
    **CLAIMS,
    **PLACEMENT_PROOFS,
    **PLACEMENT_CLAIMS,
}


@dataclass(frozen=True)
class Method:
    """A method that a search can run: alone, if a user asks for it, or as a rung of a ladder."""

    # Given the search and what it may spend, adds answers or bounds to the search.
    run: Callable[[Any, Effort], None]
    summary: str = ""  # The method in one line
    # The bounds that are its own, by their names in the registries of proofs; none if it only finds
    # answers.
    bounds: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # Settings of `solve` or `place` that may change its answer
    # What runs before it where it runs alone, each with the part of the time that it may take: a
    # method that improves a schedule needs one.
    after: tuple[tuple[Method, float], ...] = ()
    # Functions that compile its kernels; they are called outside of the search's clock.
    warm: tuple[Callable[[], None], ...] = ()

    options: tuple[Option, ...] = ()
    # Whether what it finds are schedules that atomic transfers do not allow.
    relaxed_only: bool = False
    network: str = "any trace"  # For which networks it is
    # Kinds of recomputation in the problems that it is for.
    recompute: frozenset[Recompute] = frozenset({Recompute.NONE})
    minimise: frozenset[Minimise] = frozenset({Minimise.TIME})  # Objectives of these problems
    # Whether anything may leave the device in these problems.
    offload: frozenset[bool] = frozenset({True, False})
    # Whether it is for chains alone, of those problems in which something may run again.
    chains: bool = False
    finds: str = "a schedule"  # The kind of its answers, in words
    name: str = ""  # As the registry calls it; empty outside of one

    def step(self, search: Any, effort: Effort) -> None:
        """Run the method as a step of a search, after compiling its kernels, if there is time."""
        if self.warm and self._may_apply(search.problem):
            with search.untimed():
                self._warm_up()
            effort = replace(effort, seconds=min(effort.seconds, search.remaining))
            if effort.seconds < effort.least:
                return
        self.run(search, effort)

    def _warm_up(self) -> None:
        try:
            for act in self.warm:
                act()
        except NotCompiledError as error:
            error.acts = tuple(act.__name__ for act in self.warm)
            raise
        except Exception:
            # What is wrong comes out again when it runs, under the step's own name.
            pass

    @property
    def loads(self) -> bool:
        """Whether it has kernels that this process has not loaded yet, as far as is known."""
        known = [act.cache_info() for act in self.warm if hasattr(act, "cache_info")]
        return any(info.currsize == 0 for info in known)

    def alone(self, search: Any, effort: Effort) -> None:
        """Run the method by itself, after the methods that it builds on."""
        for method, share in self.after:
            method.step(search, replace(effort, seconds=share * effort.seconds, options={}))
            if share:
                effort = replace(effort, seconds=search.remaining)
        self.step(search, effort)

    def _may_apply(self, problem: Any) -> bool:
        """Return whether it may be of use for a problem; if not, its kernels are not compiled."""
        if self.chains and problem.checkpoint_chain is None:
            return False
        return Recompute.NONE in self.recompute or problem.recompute is not Recompute.NONE

    def __reduce_ex__(self, protocol: Any) -> Any:
        if _CALLED.get(self.name) is self:
            return _of_name, (self.name,)
        return super().__reduce_ex__(protocol)

    @property
    def takes(self) -> tuple[Option, ...]:
        """Options that may be written behind the name: its own, and those of `solve` it reads."""
        return self.options + tuple(SETTINGS[name] for name in self.reads if name in SETTINGS)

    @property
    def kinds(self) -> list[Provable | Claimable]:
        """The registries' rows of its bounds."""
        return [KINDS[name] for name in self.bounds]

    @property
    def heuristic(self) -> bool:
        """Whether it only finds answers, so that no bound is its own."""
        return not self.bounds

    @property
    def transfers(self) -> frozenset[Transfers]:
        """The kinds of transfers that it is for."""
        if self.relaxed_only:
            return frozenset(Transfers) - {Transfers.ATOMIC}
        kinds = [kind.transfers for kind in self.kinds if isinstance(kind, ProofKind | ClaimKind)]
        return frozenset().union(*kinds) if kinds else frozenset(Transfers)

    @property
    def links(self) -> frozenset[Link]:
        """The links that it is for."""
        kinds = [kind.links for kind in self.kinds if isinstance(kind, ProofKind)]
        return frozenset().union(*kinds) if kinds else frozenset(Link)

    @property
    def evidence(self) -> str:
        """The support of its bounds, in words."""
        if self.heuristic:
            return f"{self.finds}, no bound"
        claims = [kind for kind in self.kinds if isinstance(kind, Claimable)]
        solvers = sorted({solver for kind in claims for solver in kind.families})
        said = ["proved"] if len(claims) < len(self.kinds) else []
        said += [f"attested by {' or '.join(solvers)}"] if solvers else []
        return ", or ".join(said)

    def misfit(self, problem: Problem) -> str | None:
        """Return the requirement of this method that a problem does not meet, or None.

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


# All that have a name, so that they can be sent to other processes by it.
_CALLED: dict[str, Method] = {}


def called(rows: Mapping[str, Method]) -> dict[str, Method]:
    """Return methods with the names under which a registry has them; no two have the same."""
    named = {name: replace(method, name=name) for name, method in rows.items()}
    assert not named.keys() & _CALLED.keys()
    _CALLED.update(named)
    return named


def _of_name(name: str) -> Method:
    return _CALLED[name]


@dataclass(frozen=True)
class Choice:
    """A method by name, with options."""

    name: str  # Name of the method
    method: Method  # The method's row
    # Options that are not at their defaults, in the order in which the method declares them.
    options: Mapping[str, Value]

    @property
    def text(self) -> str:
        """The one way in which this choice is written: ``"dynprog:slots=2000"``."""
        return self.name + written_options(self.options)

    @property
    def settings(self) -> dict[str, Value]:
        """The options that are settings of `solve`."""
        return {name: value for name, value in self.options.items() if name in SETTINGS}

    @property
    def own(self) -> Choice:
        """The choice without the options that are settings of `solve`."""
        options = {n: value for n, value in self.options.items() if n not in SETTINGS}
        return Choice(self.name, self.method, options)
