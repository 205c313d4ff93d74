"""Tables of forms: one line a field is reader and writer, and says what is wrong where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

import pytest

from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import (
    FLAG,
    TEXT,
    Absent,
    Integer,
    Integers,
    Member,
    Object,
    OrNull,
    Rational,
    Record,
    Table,
)
from offcert.core.list_forms import Each, InOrder


class Way(StrEnum):
    """Which way something goes."""

    OUT = "out"
    BACK = "back"


class Trip(NamedTuple):
    """A trip over the link."""

    kind: Way
    name: str
    size: int
    stops: tuple[int, ...]
    rate: Fraction
    limit: int | None
    late: bool = False
    notes: Mapping[str, int] = MappingProxyType({})


TRIP = Record(
    Trip,
    kind=Member(Way),
    name=TEXT,
    size=Integer(1),
    stops=Integers(),
    rate=Rational(),
    limit=OrNull(Integer(0), int),
    late=Absent(FLAG, default=False),
    notes=Absent(Table(integers=True), {}),
)
DOCUMENT = {
    "kind": "out",
    "name": "a",
    "size": 3,
    "stops": [-1, 4],
    "rate": "3/2",
    "limit": None,
}


def test_a_table_reads_and_writes_a_document():
    trip = TRIP.read(Fields(DOCUMENT))
    assert trip == Trip(Way.OUT, "a", 3, (-1, 4), Fraction(3, 2), None)
    assert list(TRIP.write(trip).items()) == list(DOCUMENT.items())
    # Fields that may be absent are written where they say more than their absence.
    late = trip._replace(late=True, notes={"x": 2})
    assert TRIP.write(late) == DOCUMENT | {"late": True, "notes": {"x": 2}}
    assert TRIP.read(Fields(TRIP.write(late))) == late


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": "up"}, 'trips[1].kind must be one of "out", "back", not "up"'),
        ({"size": 0}, "trips[1].size must be at least 1, not 0"),
        ({"stops": [0, "b"]}, "trips[1].stops[1] must be an integer, not 'b'"),
        ({"rate": "3/0"}, 'trips[1].rate must not have a denominator of 0, as "3/0" has'),
        ({"limit": "all"}, 'trips[1].limit must be an integer or null, not "all"'),
        ({"late": None}, "trips[1].late must be true or false, not null"),
        ({"notes": {"x": -1}}, "trips[1].notes.x must be at least 0, not -1"),
        ({"more": 1}, 'the field "trips[1].more" is not known'),
    ],
)
def test_what_is_wrong_is_said_with_its_place(changed, said):
    with pytest.raises(InputError) as found:
        TRIP.read_all(Fields({"trips": [DOCUMENT, DOCUMENT | changed]}), "trips")
    assert str(found.value) == said
    short = {name: value for name, value in DOCUMENT.items() if name != "size"}
    with pytest.raises(InputError, match=r'^the field "trip.size" is missing$'):
        TRIP.read_in(Fields({"trip": short}), "trip")


@dataclass(frozen=True)
class Stop:
    """A stop of a trip, which documents list by position."""

    name: str
    time: int
    rooms: tuple[int, ...]
    late: bool = False


STOPS = Each(InOrder(Stop, TEXT, Integer(0), Integers(1)))
ROUTE = Record(
    dict,
    stops=STOPS,
    pairs=Each(InOrder(tuple, OrNull(Integer(0), int), TEXT)),
    trips=Absent(Each(Object(TRIP)), (), always=True),
)


def test_lists_say_by_position_what_objects_say_by_name():
    document = {"stops": [["a", 3, [1, 2]], ["b", 0, []]], "pairs": [[None, "x"], [2, "y"]]}
    stops = (Stop("a", 3, (1, 2)), Stop("b", 0, ()))
    read = ROUTE.read(Fields(document))
    assert read == {"stops": stops, "pairs": ((None, "x"), (2, "y")), "trips": ()}
    assert STOPS.write(stops) == document["stops"]
    trips = ROUTE.read(Fields(document | {"trips": [DOCUMENT]}))["trips"]
    assert trips == (TRIP.read(Fields(DOCUMENT)),)


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("stops", ["a", -1, []], "stops[1][1] must be at least 0, not -1"),
        ("stops", ["a", True, []], "stops[1][1] must be an integer, not True"),
        ("stops", [5, 1, []], "stops[1][0] must be a string, not 5"),
        ("stops", ["a", 1, [1, 0]], "stops[1][2][1] must be at least 1, not 0"),
        ("stops", ["a", 1, 1], "stops[1][2] must be a list, not 1"),
        ("stops", ["a", 1], "stops[1] must have 3 entries, not 2"),
        ("stops", "abc", 'stops[1] must be a list, not "abc"'),
        ("pairs", [1.0, "x"], "pairs[1][0] must be an integer or null, not 1.0"),
        ("pairs", [1, None], "pairs[1][1] must be a string, not null"),
        ("trips", DOCUMENT | {"size": 0}, "trips[1].size must be at least 1, not 0"),
    ],
)
def test_what_is_wrong_in_a_list_is_said_with_its_place(name, row, said):
    right = {"stops": ["a", 1, []], "pairs": [0, ""], "trips": DOCUMENT}
    document = {each: [value] for each, value in right.items()}
    document[name] = [right[name], row]
    with pytest.raises(InputError) as found:
        ROUTE.read(Fields(document))
    assert str(found.value) == said
