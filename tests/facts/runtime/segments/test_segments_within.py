"""What happens within operations when parts of a step run again: predicted to the byte."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.core.carried.record import NOTHING_WITHIN, WITHIN
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from support.networks.interrupted_networks import changed, doubled, network
from support.runtime.captured import mean_step
from support.runtime.joint_training import (
    again,
    carried_by,
    compare_joint,
    live,
    problem_of,
    segment,
)

CASES = {
    "what was begun waits": (((doubled,), (doubled,)), ["0", "1"]),
    "what dies in the midst": (
        ((changed, nn.Dropout(0.5)), (doubled,)),
        [segment("0", "0.act"), "1"],
    ),
    "kept": (((doubled,), (changed,)), [segment("0", "0.act"), segment("1", "1.first")]),
    "one in the other": (((doubled,), (changed,)), [segment("0", inner=[segment("0.act")]), "1"]),
}


@pytest.mark.parametrize("name", CASES)
def test_peaks_are_foreseen_where_operations_are_interrupted(name):
    blocks, segments = CASES[name]
    step, placed = mean_step(network(*blocks), 4, 6), again(*segments)
    joint = compare_joint(step, placed).require_followed()
    # Nothing of that is known from operations as a whole.
    _, captured = problem_of(mean_step(network(*blocks), 4, 6))
    blind = replace(captured, record=replace(captured.record, within=NOTHING_WITHIN))
    (bounds, ends), (low, before) = (
        live(carried_by(each, placed).execution.trace) for each in (captured, blind)
    )
    assert joint.carried.execution.trace == carried_by(captured, placed).execution.trace
    assert any(low[n] < bound for n, bound in enumerate(bounds)) or ends != before


def test_what_is_kept_where_nothing_runs_again_dies_with_the_segment():
    # No gradient goes through dropout alone.
    blocks = ((doubled, nn.Dropout(0.5)), (changed,))
    model = network(*blocks)
    placed = again(segment("0", "0.first"), "1")
    joint = compare_joint(mean_step(model, 4, 6), placed).require_followed()
    trace = joint.carried.execution.trace
    kept = next(each for each in trace.tensors if each.name == "x:0.first")
    # Somebody holds it all the time, up to what follows the activation, where the segment returns.
    assert kept.uses == (0, 1, 2)
    assert trace.operations[2].name == "F:after 0.act"


def test_what_is_saved_after_what_kept_it_is_gone_is_saved_anew():
    # The layer of the next block saves what the first has kept for nothing.
    model = network((torch.clone, nn.Dropout(0.5)), (doubled,))
    model[0].function = nn.Identity()
    joint = compare_joint(mean_step(model, 4, 6), again(segment("0", "0.act")))
    joint.require_followed()
    # Heard of twice: what is held for the segment cannot leave, what the layer saves can.
    heard = [row for row in joint.carried.saved if row[0] <= 2 and row[3] == (4, 6)]
    assert any(row[4] is not None for row in heard)
    assert any(row[4] is None for row in heard)


def test_documents_of_what_happens_within():
    _, captured = problem_of(mean_step(network((doubled,), (changed,)), 4, 6))
    within = captured.record.within
    assert within.makings
    assert within.asks
    document = WITHIN.write(within)
    assert WITHIN.read(Fields(document, "within")) == within
    wrong = {
        "within.asks[0] must have 7 entries, not 2": {"asks": [[1, 2]]},
        "within.asks[0] must not have less alive": {"asks": [[5, 1, 8, 8, 8, 7, []]]},
        "within.makings[0][1] must be at least 0, not -1": {"makings": [[0, -1, []]]},
    }
    for said, other in wrong.items():
        with pytest.raises(InputError, match=f"^{re.escape(said)}"):
            WITHIN.read(Fields({**document, **other}, "within"))
    with pytest.raises(InputError, match=r'"within.makings" is missing'):
        WITHIN.read(Fields({"asks": []}, "within"))
