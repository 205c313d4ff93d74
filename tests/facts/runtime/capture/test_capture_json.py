"""What a problem keeps of a capture, and what is refused when it is read back."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.capture import capture, read_capture
from offcert.runtime.capture.capture import number_places
from offcert.runtime.capture.step import TrainingStep


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)))
    step = TrainingStep(model, lambda model, x: model(x).square().mean(), torch.randn(4, 8))
    return capture(step)


def source_of(found):
    source = {"clock": "modules", "capture": found.to_json(), "uncounted": dict(found.uncounted)}
    return json.loads(json.dumps(source))


def test_a_capture_survives_json(found):
    # What is computed from what is in the problem itself.
    assert read_capture(source_of(found), found.trace) == replace(found, network=None)
    assert any(storage.tensor is not None for storage in found.storages)


def test_equal_storages_are_numbered():
    rows = [(0, 8, "int64", (1,), 5), (0, 8, "int64", (1,), None), (1, 8, "int64", (1,), 2)]
    rows += [(0, 8, "int64", (1,), 3), (0, 8, "float64", (1,), 4)]
    found = number_places(rows)
    assert [storage.place.ordinal for storage in found] == [0, 1, 0, 2, 0]
    assert [storage.tensor for storage in found] == [5, None, 2, 3, 4]
    assert len({storage.place for storage in found}) == 5


def drop(key):
    return lambda document: document["capture"].pop(key)


def put(key, value):
    return lambda document: document["capture"].__setitem__(key, value)


def first_evictable(document):
    return next(row for row in document["capture"]["saved"] if row[4] is not None)


CORRUPTIONS = {
    "no ticks": (drop("ticks"), r'"source.capture.ticks" is missing'),
    "no calls": (drop("calls"), r'"source.capture.calls" is missing'),
    "no tensors": (drop("tensors"), r'"source.capture.tensors" is missing'),
    "ticks of another kind": (put("ticks", 5), "capture.ticks must be a list, not 5"),
    "a short tick": (put("ticks", [["enter", ""]]), r"ticks\[0\] must have 5 entries, not 2"),
    "too few ticks": (lambda d: d["capture"]["ticks"].pop(), "ticks has .* entries for"),
    "saved by words": (
        put("saved", [["a", "b", "c", "d", "e"]]),
        r"saved\[0\]\[0\] must be an integer",
    ),
    "backward passes": (put("backward_passes", "two"), "backward_passes must be an integer"),
    "a clock that nobody knows": (
        lambda d: d.update(clock="sun"),
        'source.clock .* not "sun"',
    ),
    "a tensor that is none": (
        lambda d: first_evictable(d).__setitem__(4, 10**6),
        "names tensor 1000000",
    ),
    "a tensor that is a word": (
        lambda d: first_evictable(d).__setitem__(4, "x"),
        r"saved\[\d+\]\[4\] must be an integer or null, not \"x\"",
    ),
    "other sizes": (lambda d: first_evictable(d).__setitem__(1, 7), "bytes for tensor"),
    "the same event twice": (
        lambda d: d["capture"]["ticks"].__setitem__(1, d["capture"]["ticks"][0]),
        "begin with the same event",
    ),
    "an operation that is none": (
        lambda d: first_evictable(d).__setitem__(0, 10**6),
        "names operation 1000000",
    ),
    "another kind of tensors": (put("tensors", "imaginary"), "imaginary"),
    "no call": (put("calls", []), "calls is empty"),
    "a call that is none": (put("calls", [7]), r"calls\[0\]"),
    "not a mapping": (lambda d: d.update(capture=[1]), "capture must be a JSON object"),
    "less than no backward pass": (put("backward_passes", 0), "backward_passes"),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupted_captures_are_refused_in_one_sentence(found, name):
    corrupt, message = CORRUPTIONS[name]
    document = copy.deepcopy(source_of(found))
    corrupt(document)
    with pytest.raises(InputError, match=message) as refusal:
        read_capture(document, found.trace)
    assert "\n" not in str(refusal.value)
    assert "source." in str(refusal.value)


@pytest.mark.parametrize("source", [None, {}, {"clock": "stages", "model": "resnet18"}])
def test_problems_that_were_not_captured_say_what_to_do(found, source):
    with pytest.raises(InputError, match="profile the model with the clock modules"):
        read_capture(source, found.trace)
