"""What a table is said to be."""

from fractions import Fraction

from papers.claims.facts import facts_of
from papers.claims.theory import Experiment
from support.problems.campaign_tables import rows, table


def test_the_sentence_counts_what_there_is() -> None:
    facts = facts_of(
        table(
            rows("a", 120, certify=90, greedy=99, network="resnet18"),
            rows("a", 140, certify=90, greedy="FAILED"),
            rows("b", 140, greedy=99, network="resnet50", image=500, batch=16),
        )
    )
    assert (facts.rows, facts.failed, facts.problems, facts.limits) == (5, 1, 2, 3)
    assert facts.networks == ("resnet18", "resnet50")
    assert facts.sentence().startswith(
        "5 cells, of which 1 failed: 2 problems at 3 memory limits in all (resnet18, resnet50; "
        "images of 224, 500 pixels a side, batches of 8, 16), methods certify, greedy, "
        "offcert 0.1.0, `certify` at 2 limits, with seed 0. Table and experiments have the digest `"
    )


def test_the_sentence_says_how_many_stages_a_network_has() -> None:
    made = table(rows("a", 120, greedy=99, network="densenet121"), rows("b", 140, greedy=99))
    facts = facts_of(made, stages={"densenet121": 74})
    assert "(densenet121 of 74 stages, resnet18; images" in facts.sentence()
    facts = facts_of(made, stages={"densenet121": 74, "densenet121 by blocks": 20})
    assert "(densenet121 of 74 stages, by blocks 20, resnet18; images" in facts.sentence()


def test_the_digest_knows_every_value_and_no_order() -> None:
    first, second = rows("a", 120, certify=90, greedy=99), rows("b", 120, greedy=99)
    digest = facts_of(table(first, second)).digest
    assert facts_of(table(second, first)).digest == digest
    assert facts_of(table(first)).digest != digest
    assert facts_of(table(first, rows("b", 120, greedy=98))).digest != digest
    experiment = Experiment("lemma-3", "i", Fraction(3), 2, 2)
    assert facts_of(table(first, second), [experiment]).digest != digest
