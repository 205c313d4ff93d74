"""The reference says of every room what it uses, as the arrows between rooms have it."""

import re

from test_architecture import ALLOWED

from support.docs.docs_pages import DOCS


def test_the_reference_has_every_room_and_says_what_it_uses() -> None:
    text = (DOCS / "api" / "index.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| .* \| (.*) \|$", text, re.MULTILINE)
    said: dict[str, set[str]] = {}
    for room, uses in rows:
        above, _, but = uses.removeprefix("all above").partition(" but ")
        named = set(above.split(", ")) - {"", "nothing of ours"}
        said[room] = named if uses == above else set(said) - {but}
    assert said == {room: uses for room, uses in ALLOWED.items() if room != "cli"}
    for room in said:
        assert f"<!-- modules of offcert.{room} -->" in (DOCS / "api" / f"{room}.md").read_text()
