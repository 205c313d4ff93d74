"""Certificates of selections: against brute force, forged, and as the page about them says."""

import json
import random
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from offcert.core.errors import InputError
from papers.checkpoint_chains.memory_models import MEMORY_MODELS
from papers.checkpoint_graphs.exhaustive import exhaustive_selection, recomputes_closed_sets
from papers.checkpoint_graphs.packing import packing_bound
from papers.checkpoint_graphs.random_graphs import random_checkpoint_graph, shortcut_path
from papers.claims.selection_certificate import (
    CHAIN_MODELS,
    SelectionCertificate,
)
from papers.claims.selection_check import verify_selection
from support.docs.docs_pages import READING, ROOT, fields, json_blocks
from support.seeds import by_seeds


def chain_certificate(model: str, seed: int) -> SelectionCertificate:
    """Return a certificate with the optimum of a random chain, found among all subsets."""
    rng = random.Random(f"{model} {seed}")
    sizes = tuple(rng.randint(0, rng.choice((1, 9))) for _ in range(rng.randint(2, 9)))
    last = len(sizes) - 1
    found = [
        (MEMORY_MODELS[model](sizes, (0, *chosen, last)), (0, *chosen, last))
        for count in range(last)
        for chosen in combinations(range(1, last), count)
    ]
    best, stored = min(found)
    return SelectionCertificate(f"chain {seed}", model, sizes, None, stored, best, best)


def graph_certificate(seed: int, closed: bool = False) -> SelectionCertificate:
    graph = random_checkpoint_graph(seed, 4 + seed % 6)
    best = exhaustive_selection(graph, recomputes_closed_sets if closed else None)
    model = "closed-components" if closed else "components"
    values = graph.sizes, graph.edges, best.stored, best.objective, best.objective
    return SelectionCertificate(f"graph {seed}", model, *values)


def faults(certificate: SelectionCertificate) -> list[str]:
    return verify_selection(json.loads(json.dumps(certificate.to_json()))).faults


@pytest.mark.parametrize("model", CHAIN_MODELS)
@by_seeds(0, 60, 30)
def test_what_is_least_on_chains_is_what_all_subsets_say(seeds: range, model: str) -> None:
    for seed in seeds:
        certificate = chain_certificate(model, seed)
        assert faults(certificate) == []
        above = certificate.lower_bound + 1
        wrong = faults(replace(certificate, objective=above, lower_bound=above))
        assert any("what is stored takes" in fault for fault in wrong)


@pytest.mark.parametrize("model", CHAIN_MODELS)
@by_seeds(0, 60, 60)
def test_a_bound_above_the_least_of_a_chain_is_refused(seeds: range, model: str) -> None:
    refused = 0
    for seed in seeds:
        certificate = chain_certificate(model, seed)
        everything = tuple(range(len(certificate.sizes)))
        value = MEMORY_MODELS[model](certificate.sizes, everything)
        worse = replace(certificate, stored=everything, objective=value)
        assert faults(worse) == []
        if value > certificate.lower_bound:
            refused += 1
            (fault,) = faults(replace(worse, lower_bound=certificate.lower_bound + 1))
            assert "is not established" in fault
    assert refused > 20


@pytest.mark.parametrize(("model", "most"), [("static", 64), ("dynamic", 400)])
def test_a_chain_that_is_too_long_is_not_verified(model: str, most: int) -> None:
    sizes = (1,) * (most + 1)
    stored = (0, most)
    value = MEMORY_MODELS[model](sizes, stored)
    made = SelectionCertificate("long", model, sizes, None, stored, value, 1)
    verification = verify_selection(json.loads(json.dumps(made.to_json())))
    assert (verification.faults, verification.valid) == ([], False)
    assert verification.unverified == [
        f"lower_bound: the least of more than {most} data is not computed"
    ]


@pytest.mark.parametrize("closed", [False, True])
@by_seeds(0, 40, 20)
def test_what_is_least_on_graphs_is_what_all_selections_say(seeds: range, closed: bool) -> None:
    for seed in seeds:
        certificate = graph_certificate(seed, closed)
        assert faults(certificate) == []
        everything = tuple(range(1, len(certificate.sizes) - 1))
        value = sum(certificate.sizes)
        worse = replace(certificate, stored=everything, objective=value)
        if value > certificate.objective:
            (fault,) = faults(replace(worse, lower_bound=certificate.objective + 1))
            assert "is not established" in fault


def test_a_component_that_is_no_closed_set_is_refused() -> None:
    certificate = graph_certificate(0)
    broken = next(
        replace(each, model="closed-components")
        for each in map(graph_certificate, range(40))
        if not recomputes_closed_sets(each.graph, each.graph.select(each.stored))
    )
    assert any("more than one vertex" in fault for fault in faults(broken))
    assert faults(certificate) == []


def test_a_bound_on_a_larger_graph_needs_a_proof_about_it() -> None:
    graph = shortcut_path(18)
    best = graph.select((4, 9, 14))
    values = graph.sizes, graph.edges, best.stored, best.objective
    bare = SelectionCertificate("path", "components", *values, lower_bound=1)
    assert faults(bare) == []
    (fault,) = faults(replace(bare, lower_bound=2))
    assert "is not established, only 1" in fault
    proof = packing_bound(graph, best)
    proved = replace(bare, lower_bound=7, proof=proof)
    assert faults(proved) == []
    (fault,) = faults(replace(bare, lower_bound=7, proof=replace(proof, value=6)))
    assert "the proof is about 6 bytes" in fault
    shorter = replace(proof, limits=proof.limits[:-1])
    assert any("not covered" in fault for fault in faults(replace(proved, proof=shorter)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "greedy"}, "model must be one of"),
        ({"model": "static"}, 'edges must be null for "static"'),
        ({"edges": None}, 'edges must be a list for "components"'),
        ({"edges": [[0, 1, 2]]}, "must have 2 entries"),
        ({"edges": [[0, 1]]}, "must lie between the source"),
        ({"sizes": [-1]}, "sizes"),
        ({"extra": 1}, '"extra" is not known'),
    ],
)
def test_what_is_no_certificate_is_refused_in_one_sentence(
    change: dict[str, Any], said: str
) -> None:
    document = graph_certificate(3).to_json() | change
    with pytest.raises(InputError, match=said):
        SelectionCertificate.from_json(document)


@pytest.mark.parametrize("stored", [(0, 4), (2, 1), (1, 1), (9,)])
def test_stored_vertices_have_to_be_inner_ones(stored: tuple[int, ...]) -> None:
    (fault,) = faults(replace(graph_certificate(3), stored=stored))
    assert "must hold inner vertices" in fault


def test_a_document_that_was_changed_is_refused() -> None:
    document = graph_certificate(3).to_json()
    document["name"] = "another"
    assert any("digest" in fault for fault in verify_selection(document).faults)


def test_the_page_says_all_of_it() -> None:
    source = (ROOT / "papers" / "claims" / "selection_certificate.py").read_text()
    assert set(READING.findall(source)) <= fields("selection")
    (block,) = json_blocks("selection")
    assert verify_selection(json.loads(block)).valid
    changed = verify_selection(json.loads(block.replace('"objective": 2', '"objective": 1')))
    assert not changed.valid
    assert "objective: what is stored takes 2 bytes, not 1" in changed.faults


def test_who_checks_a_selection_uses_nothing_that_finds_one() -> None:
    for name in ("selection_certificate", "selection_check"):
        source = (ROOT / "papers" / "claims" / f"{name}.py").read_text()
        used = re.findall(r"^ *(?:from|import) ((?:offcert|papers)[.\w]*)", source, re.MULTILINE)
        allowed = ("offcert.core", "offcert.questions", "offcert.verification", "papers.claims.sel")
        assert used
        assert all(module.startswith(allowed) for module in used), used
