"""`Option`: what a method lets its caller choose, as it is written behind the method's name.

``dynprog:slots=2000:max_states=5000000`` is a method with two options. They are separated by
colons, so that a list of methods can be separated by commas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.messages import meant, show

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
