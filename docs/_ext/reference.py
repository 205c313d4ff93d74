"""Fills in what the program itself knows: modules of a room, exported names, kinds of bounds.

A page has a comment where it belongs, such as ``<!-- modules of offcert.core -->``, so that no list
has to be kept by hand.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.domains.python import PyXRefRole

_DOCS = Path(__file__).parents[1]
_MODULES = re.compile(r"<!-- modules of ([\w.]+) -->")
_NAMES = re.compile(r"<!-- names of (\w+) -->")
_IMPORT = re.compile(r"^ *from (offcert\w*(?:\.\w+)+) import", re.MULTILINE)
# Importing one of these does something.
_ACTING = ("__main__", "preload", "preload_search")


def modules(package: str) -> list[str]:
    """Return a package and its public modules by name, each package before what is in it."""
    found = [package]
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        parts = module.name.split(".")
        if parts[-1] not in _ACTING and not any(part.startswith("_") for part in parts):
            found.append(module.name)
    return found


@cache
def imported() -> frozenset[str]:
    """Return the modules of ours from which code on the pages imports."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(_DOCS.rglob("*.md")))
    return frozenset(name for text in texts for name in _IMPORT.findall(text))


def inner(module: str) -> bool:
    """Whether a module is named, but not shown in full: no program is told to import of it."""
    is_room = module.count(".") == 1 and module.startswith("offcert.")
    return not (is_room or module in imported() or module in homes("offcert").values())


@cache
def homes(package: str) -> dict[str, str]:
    """Return in which module each name that a package exports is defined."""
    # What type checkers are told is where a name is defined; a room may stand for its function.
    return {
        alias.name: node.module or ""
        for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(package))))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def room(package: str) -> str:
    """Return the reference of a package, as Markdown."""
    found = modules(package)
    shown = [name for name in found if not inner(name)]
    text = "\n".join(
        f"## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n" for name in shown
    )
    hidden = [f"| `{name}` | {_summary(name)} |" for name in found if inner(name)]
    if not hidden:
        return text
    table = "\n".join(hidden)
    return f"{text}\n## Other modules\n\n| module | what is in it |\n| --- | --- |\n{table}\n"


def _summary(module: str) -> str:
    # Without importing it: what it needs need not be installed.
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return _first_sentence(text or "")


def _first_sentence(value: Any) -> str:
    said = value if isinstance(value, str) else inspect.getdoc(value) or ""
    text = said.split("\n\n")[0].replace("\n", " ")
    return text.replace("``", "`").replace("|", "\\|")


def names(package: str) -> str:
    """Return the names that a package exports by role: what each is, and where it is defined."""
    exported = importlib.import_module(package)
    homes_of = homes(package)
    written = []
    for role, rooms in _ROLES.items():
        found = [name for name in exported.__all__ if homes_of[name].split(".")[1] in rooms]
        rows = [_row(name, homes_of[name]) for name in sorted(found, key=str.lower)]
        written.append("\n".join([f"## {role}\n", "| name | what it is |", "| --- | --- |", *rows]))
    missing = {homes_of[name].split(".")[1] for name in exported.__all__}.difference(
        *_ROLES.values()
    )
    if missing:
        raise ValueError(f"the reference says of no role that it is in {', '.join(missing)}")
    return "\n\n".join(written) + "\n"


# What the names that a package exports are for, by the rooms that they are defined in.
_ROLES = {
    "Capture and train": ("runtime", "training"),
    "Search": ("certification", "campaign"),
    "Verify": ("verification",),
    "Problems and plans": ("questions", "instances"),
    "Certificates": ("proofs",),
    "Parts of a step and of a machine": ("core",),
}


def _row(name: str, home: str) -> str:
    value = getattr(importlib.import_module(home), name)
    role = "class" if inspect.isclass(value) else "func"
    return f"| {{py:{role}}}`{name} <{home}.{name}>` | {_first_sentence(value)} |"


def kinds_of_bounds() -> str:
    """Return what the registry of bounds says, as Markdown."""
    from offcert.proofs.registry import CLAIMS, PROOFS

    rows = [
        "### Kinds that are proved\n",
        "| `method` | what the bound says | transfers | link | `details` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for proved in PROOFS.values():
        rows.append(
            f"| [`{proved.method}`](../theory/{proved.page}.md) | {proved.summary} "
            f"| {_some(proved.transfers)} | {_some(proved.links)} | {_proof(proved.proof)} |"
        )
    rows += [
        "\n### Kinds that a solver claims\n",
        "| `method` | what the bound says | transfers | solvers |",
        "| --- | --- | --- | --- |",
    ]
    for claimed in CLAIMS.values():
        rows.append(
            f"| [`{claimed.method}`](../theory/{claimed.page}.md) | {claimed.summary} "
            f"| {_some(claimed.transfers)} | {', '.join(claimed.families)} |"
        )
    rows.append("\n### What proofs hold\n")
    proofs = {kind.proof: None for kind in PROOFS.values() if kind.proof.record().forms}
    for proof in list(proofs):
        for nested in [proof, *_nested(proof)]:
            proofs.setdefault(nested)
    return "\n".join([*rows, *map(_fields_of_proof, list(proofs))]) + "\n"


def kinds_of_bounds_on_pools() -> str:
    """Return what the registry of bounds on pools says, as Markdown."""
    from offcert.proofs.placement_certificate import PLACEMENT_CLAIMS, PLACEMENT_PROOFS

    rows = [
        "### Kinds of bounds on pools\n",
        "| `method` | what the bound says | evidence | `details` |",
        "| --- | --- | --- | --- |",
    ]
    for proved in PLACEMENT_PROOFS.values():
        rows.append(
            f"| [`{proved.method}`](../theory/{proved.page}.md) | {proved.summary} | proved "
            f"| {_proof(proved.proof)} |"
        )
    for claimed in PLACEMENT_CLAIMS.values():
        rows.append(
            f"| [`{claimed.method}`](../theory/{claimed.page}.md) | {claimed.summary} "
            f"| claimed by {' or '.join(claimed.families)} | statistics |"
        )
    proofs = {kind.proof: None for kind in PLACEMENT_PROOFS.values() if kind.proof.record().forms}
    for proof in list(proofs):
        for nested in [proof, *_nested(proof)]:
            proofs.setdefault(nested)
    return "\n".join([*rows, "", *map(_fields_of_proof, list(proofs))]) + "\n"


def _some(values: Any) -> str:
    """Return the members of an enumeration that are in a set; "any" if all are."""
    every = type(next(iter(values)))
    chosen = [str(value) for value in every if value in values]
    return "any" if len(chosen) == len(every) else ", ".join(chosen)


def _proof(proof: Any) -> str:
    return f"[{proof.__name__}](#{proof.__name__.lower()})" if proof.record().forms else "none"


def _nested(proof: Any) -> list[Any]:
    """Return the dataclasses of the objects in a proof's fields."""
    from offcert.core.forms import Object

    # Those that may be absent are within another form.
    forms = [getattr(form, "form", form) for form in proof.record().forms.values()]
    return [form.record.kind for form in forms if isinstance(form, Object)]


def _fields_of_proof(proof: Any) -> str:
    meanings = meanings_of(proof)
    rows = [
        f"#### {proof.__name__}\n",
        f"{_first_sentence(proof)}\n",
        "| field | type | meaning |",
        "| --- | --- | --- |",
    ]
    for name, form in proof.record().forms.items():
        rows.append(f"| `{name}` | {form.rule} | {meanings[name]} |")
    return "\n".join(rows) + "\n"


def meanings_of(kind: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass and of its bases say of their attributes."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = re.split(r"Attributes\n-+\n", inspect.getdoc(base) or "")
        for head, text in re.findall(r"^(\w.*?) : .*\n((?:    .*\n?)+)", section[-1], re.MULTILINE):
            meaning = " ".join(text.split()).replace("``", "`")
            found |= dict.fromkeys(head.split(", "), meaning)
    return found


def settings() -> str:
    """Return the fields of a certificate's settings, as Markdown."""
    from dataclasses import fields

    from offcert.proofs.any_certificate import Notes, Settings

    rows = ["| field | type | meaning |", "| --- | --- | --- |"]
    for kind in (Settings, Notes):
        meanings = meanings_of(kind)
        for each in fields(kind):
            written = _WRITTEN[str(each.type).removesuffix(" | None")]
            rows.append(f"| `{each.name}` | {written} | {meanings[each.name]} |")
    return "\n".join(rows) + "\n"


# How the types of settings are written in documents.
_WRITTEN = {
    "float": "number",
    "int": "integer",
    "str": "text",
    "bool": "`true`",
    "Mapping[str, str]": "object of texts",
    "Mapping[str, int]": "object of integers",
}


def commands() -> str:
    """Return the help text of every command, as Markdown."""
    import argparse

    from offcert.cli.command_line import parser

    def sections(command: argparse.ArgumentParser) -> Iterator[str]:
        groups = [each for each in command._actions if isinstance(each.choices, dict)]
        if not groups:
            yield f"### `{command.prog}`\n\n```text\n{command.format_help()}```\n"
        for group in groups:
            for name in group.choices or ():
                yield from sections(group.choices[name])

    return "\n".join(sections(parser()))


def fill(app: Any, document: str, source: list[str]) -> None:
    """Replace the comments of a page by what they stand for."""
    text = _MODULES.sub(lambda match: room(match[1]), source[0])
    text = _NAMES.sub(lambda match: names(match[1]), text)
    for comment, write in _TABLES.items():
        if comment in text:
            text = text.replace(comment, write())
    source[0] = text


_TABLES = {
    "<!-- commands -->": commands,
    "<!-- kinds of bounds -->": kinds_of_bounds,
    "<!-- kinds of bounds on pools -->": kinds_of_bounds_on_pools,
    "<!-- settings -->": settings,
}


def backquoted(name: str, rawtext: str, text: str, *rest: Any, **more: Any) -> Any:
    """Read `text` in a docstring: a link for a full name of ours, code for anything else.

    Sphinx could look for shorter names too, but then `shape` links to whatever has a shape.
    """
    if text.startswith("offcert."):
        return PyXRefRole()("py:obj", rawtext, text, *rest, **more)
    return [nodes.literal(rawtext, text)], []


def plain_headings(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Make the headings in a module's docstring bold lines: modules share a page and headings."""
    if what == "module":
        for number in range(1, len(lines)):
            if lines[number - 1].strip() and re.fullmatch(r"[-=]{3,}", lines[number].strip()):
                lines[number - 1] = f"**{lines[number - 1].strip()}**"
                lines[number] = ""


def missing(app: Any, environment: Any, node: Any, content: Any) -> Any:
    """Leave a name of ours that is not shown as it is; one that does not exist is an error."""
    return content if _exists(node["reftarget"]) else None


# Types of other packages are named hundreds of times, and each time their modules are looked for.
@cache
def _exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_role("backquoted", backquoted)
    # Before the extension that reads sections.
    app.connect("autodoc-process-docstring", plain_headings, priority=100)
    app.connect("missing-reference", missing)
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
