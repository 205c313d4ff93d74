"""The parts of every command's parser, and the exit codes.

A command is a module of this folder with one function ``add(commands)``, listed in
`offcert.cli.command_line.COMMANDS`. It calls `add_command` (or `add_group`, for a command with
actions of its own), adds arguments to the parser that this returns, and gives the function to run:
``run(options) -> exit code``. A module imports at its top what is light, and all else inside `run`,
so that ``offcert --help`` answers at once and people who only solve and verify never load torch.

Every argument has a help text. Its default is added to it; where the default is nothing, the text
says what happens then.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from offcert.cli.interrupts import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from offcert.core.messages import cut, meant, plain

# Exit codes of documents that are refuted, of bad input, and of documents that are not verified. By
# definition: docs/commands.md.
EXIT_INVALID = 1
EXIT_INPUT = 2
EXIT_NOT_VERIFIED = 3

# Options of all commands, and how many others are named where none is like what was given. The
# second is arbitrary.
_EVERYWHERE, _FEW = ("help", "json", "verbose", "quiet", "version"), 6

Commands = Any  # argparse does not name the type that add_subparsers returns
Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """A parser that names an error in one line, as commands do, and what may have been meant."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # What begins so is a value, also if it goes on as no number does: -5%, -1GiB, -3:4.
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")

    def error(self, message: str) -> NoReturn:
        """Print the line and end with the exit code for bad input."""
        print(f"offcert: {plain(message)} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(EXIT_INPUT)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse arguments; an option that the command does not know is an error of the command."""
        words = sys.argv[1:] if args is None else list(args)
        if words and all(word.startswith("-") for word in words):
            # No command: that one is missing says less than which option is not there.
            for word in words:
                if not any(known.startswith(word) for known in self._option_string_actions):
                    self._refuse(word)
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command: Parser = getattr(options, "parser", self)
            command._refuse(unknown[0])
        return options

    def _refuse(self, word: str) -> NoReturn:
        """End because of a word that the command does not know, and say which it does."""
        word, name = word.partition("=")[0], self.prog.partition(" ")[2] or "offcert"
        if not word.startswith("-"):
            self.error(f"{name} takes no further argument {cut(word)}")
        from difflib import get_close_matches

        # Hyphens are no likeness.
        known = {each.lstrip("-"): each for each in self._option_string_actions}
        close = [known[each] for each in get_close_matches(word.lstrip("-"), known, n=2)]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        own = [
            action.option_strings[0]
            for action in self._actions
            if action.option_strings and action.dest not in _EVERYWHERE
        ]
        if not hint and 0 < len(own) <= _FEW:
            hint = f"; it has {', '.join(own)}"
        self.error(f"{name} has no option {cut(word)}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is not among the choices (argparse calls this), and suggest one."""
        if action.choices is not None and value not in action.choices:
            known = ", ".join(map(str, action.choices))
            hint = meant(str(value), map(str, action.choices))
            name = "" if action.option_strings else f"{action.metavar or action.dest} "
            raise argparse.ArgumentError(
                action if action.option_strings else None,
                f'{name}must be one of {known}, not "{cut(str(value))}"{hint}',
            )


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Adds defaults, except where there is nothing to say, and keeps the lines of examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def add_argument(self, action: argparse.Action) -> None:
        """Add an argument's help; argparse forgets that the names of commands are indented."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            longest = max(map(len, action.choices)) + self._current_indent + self._indent_increment
            self._action_max_length = max(self._action_max_length, longest)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        takes = bool(action.option_strings) and action.nargs != 0
        has = action.default is not None and action.default is not argparse.SUPPRESS
        if not (takes and has) or "default" in (action.help or ""):
            return action.help
        return f"{action.help} (default: %(default)s)"


def add_command(
    commands: Commands,
    name: str,
    summary: str,
    run: Run,
    *,
    examples: Sequence[str] = (),
    json: bool = True,
) -> argparse.ArgumentParser:
    """Add one command and return its parser.

    Parameters
    ----------
    commands : object
        The object that ``add_subparsers`` returned.
    name, summary : str
        As they stand in the list of commands.
    run : callable
        Takes the parsed options, prints the result with `offcert.cli.output.show`, returns the
        exit code.
    examples : sequence of str
        Command lines for the end of the help text.
    json : bool
        Whether the result can be printed as a JSON object.
    """
    parser = _added(commands, name, summary, examples)
    parser.set_defaults(run=run)
    if json:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="say on stderr what is being done; -vv: in detail",
    )
    loudness.add_argument(
        "-q", "--quiet", action="store_true", help="no progress and no warnings, only errors"
    )
    return parser


def add_group(
    commands: Commands, name: str, summary: str, metavar: str, *, examples: Sequence[str] = ()
) -> Commands:
    """Add a command with commands of its own, such as ``library list``; return what takes them."""
    parser = _added(commands, name, summary, examples)
    actions: Any = parser.add_subparsers(metavar=metavar, required=True)
    # For what may stand before the action.
    actions.container = parser
    return actions


def _added(
    commands: Commands, name: str, summary: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    title = "example:" if len(examples) == 1 else "examples:"
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary.replace("%", "%%"),
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="\n".join([title, *(f"  {line}" for line in examples)]) if examples else None,
        formatter_class=Help,
    )
    parser.set_defaults(parser=parser)
    return parser
