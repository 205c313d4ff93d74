"""The registry of questions: the documents of each kind, and the functions that treat them.

A question is a row here. Everything that treats kinds of certificates differently asks for it:
reading, verification, commands, texts and pictures. Functions are loaded later, because finders and
verifiers may not meet, and because who verifies a schedule loads nothing of other questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcert.core.later import Later

if TYPE_CHECKING:
    import offcert.certification.ladders.joint
    import offcert.certification.placement_methods
    import offcert.certification.placing
    import offcert.proofs.certificate
    import offcert.proofs.devices_certificate
    import offcert.proofs.placement_certificate
    import offcert.proofs.split_certificate
    import offcert.questions.devices.problem
    import offcert.questions.devices.schedule
    import offcert.questions.placement.files
    import offcert.questions.placement.problem
    import offcert.questions.schedule.check_fluid
    import offcert.questions.schedule.files
    import offcert.questions.schedule.problem
    import offcert.questions.split.problem
    import offcert.report.findings
    import offcert.report.gantt
    import offcert.report.memory_viz
    import offcert.report.placement_text
    import offcert.report.question_texts
    import offcert.report.space
    import offcert.report.text
    import offcert.verification.devices
    import offcert.verification.placement
    import offcert.verification.schedules
    import offcert.verification.split


Function = Later[Callable[..., Any]]


@dataclass(frozen=True)
class Question:
    """A kind of question, and everything that is particular to certificates which answer it."""

    name: str  # The object that is asked for, in words.
    format: str  # Name of the documents.
    version: int  # The one that is written and read.
    # Of a document, between version and digest, in the order in which they are written; those that
    # say nothing may be left out.
    fields: tuple[str, ...]
    certificate: Later[type[Any]]  # Class of certificates; its ``from_json`` reads a document.
    # Verifier: given the verification so far, the document and an allowance, it adds what it finds.
    checker: Function
    text: Later[offcert.report.findings.Text]  # What commands say.
    # The command that searches; also what a certificate calls its method if no single one ran.
    command: str
    # Checker of answers: given a problem and an answer, it returns what is wrong with it. No search
    # keeps, and no verification passes, what it faults. None if answers are made of those to other
    # questions.
    answers: Later[Callable[..., list[str]]] | None = None
    picture: Function | None = None  # Draws a certificate to a file; None if there is no picture.
    # Writes what a certificate has on the device as a memory snapshot; None if there is none.
    snapshot: Function | None = None
    # Of what ``offcert place`` found for it; None if nothing of it can be placed.
    placed: Later[offcert.report.findings.Text] | None = None
    # From the JSON value of a problem, and to it; None if a document holds no problem by itself.
    reader: Function | None = None
    writer: Later[Callable[..., dict[str, Any]]] | None = None
    # Says which methods suit a problem, one after the other; None if a single search decides.
    ladder: Later[Callable[..., Iterable[Any]]] | None = None
    # Who places what certificates hold on the device, and who says what they hold on the host; None
    # if nothing of them can be placed.
    placer: Function | None = None
    host: Later[Callable[..., offcert.questions.placement.problem.PlacementProblem]] | None = None
    conversion: str = ""  # Advice for documents of versions before.

    def __reduce__(self) -> str:
        # Other processes are handed a row by its name: what it names cannot be pickled.
        return next(name for name, value in globals().items() if value is self)


_PROBLEM = ("problem", "problem_sha256", "status")
_ORIGIN = ("method", "settings", "versions")

SCHEDULE = Question(
    name="a schedule",
    format="offcert-certificate",
    version=1,
    fields=(
        *(*_PROBLEM, "objective", "lower_bound", "gap", "bounds", "schedule", "infeasibility"),
        *(*_ORIGIN, "execution", "placement", "robust"),
    ),
    certificate=Later(lambda: offcert.proofs.certificate.Certificate),
    checker=Later(lambda: offcert.verification.schedules.check_schedule),
    text=Later(lambda: offcert.report.text.SCHEDULE),
    command="certify",
    answers=Later(lambda: offcert.questions.schedule.check_fluid.schedule_faults),
    picture=Later(lambda: offcert.report.gantt.save_gantt),
    snapshot=Later(lambda: offcert.report.memory_viz.save_snapshot),
    placed=Later(lambda: offcert.report.placement_text.OF_SCHEDULE),
    reader=Later(lambda: offcert.questions.schedule.files.problem_from_json),
    writer=Later(lambda: offcert.questions.schedule.files.problem_to_json),
    ladder=Later(lambda: offcert.certification.ladders.joint.rungs_for),
    placer=Later(lambda: offcert.certification.placing.place_schedule),
    host=Later(lambda: offcert.certification.placing.host_of_schedule),
)
SPLIT = Question(
    name="sub-batches and algorithms of a step",
    format="offcert-step-certificate",
    version=2,
    fields=(
        *(*_PROBLEM, "split", "objective", "lower_bound", "gap", "split_bounds", "rounds"),
        *("bounds", "settings", "versions"),
    ),
    certificate=Later(lambda: offcert.proofs.split_certificate.SplitCertificate),
    checker=Later(lambda: offcert.verification.split.check_split),
    text=Later(lambda: offcert.report.question_texts.SPLIT),
    command="choose",
    placed=Later(lambda: offcert.report.placement_text.OF_SPLIT),
    reader=Later(lambda: offcert.questions.split.problem.split_from_json),
    writer=Later(lambda: offcert.questions.split.problem.split_to_json),
    placer=Later(lambda: offcert.certification.placing.place_rounds),
    host=Later(lambda: offcert.certification.placing.host_of_rounds),
    conversion='version 1 lacks "settings": certify its problem again',
)
DEVICES = Question(
    name="a schedule for several devices",
    format="offcert-devices-certificate",
    version=2,
    fields=(
        *(*_PROBLEM, "objective", "lower_bound", "gap", "alone", "bounds", "schedule", "found_by"),
        *_ORIGIN,
    ),
    certificate=Later(lambda: offcert.proofs.devices_certificate.DevicesCertificate),
    checker=Later(lambda: offcert.verification.devices.check_devices_certificate),
    text=Later(lambda: offcert.report.question_texts.DEVICES),
    command="devices",
    answers=Later(lambda: offcert.questions.devices.schedule.check_devices),
    reader=Later(lambda: offcert.questions.devices.problem.devices_from_json),
    writer=Later(lambda: offcert.questions.devices.problem.devices_to_json),
    conversion='version 1 lacks "method" and "settings": certify its problem again',
)
PLACEMENT = Question(
    name="addresses",
    format="offcert-placement",
    version=1,
    fields=(*_PROBLEM, "objective", "lower_bound", "gap", "bounds", *_ORIGIN, "addresses"),
    certificate=Later(lambda: offcert.proofs.placement_certificate.PlacementCertificate),
    checker=Later(lambda: offcert.verification.placement.check_placement),
    text=Later(lambda: offcert.report.placement_text.PLACEMENT),
    command="place",
    answers=Later(lambda: offcert.questions.placement.problem.placement_faults),
    picture=Later(lambda: offcert.report.space.save_space),
    placed=Later(lambda: offcert.report.placement_text.PLACEMENT),
    reader=Later(lambda: offcert.questions.placement.files.placement_problem_from_json),
    writer=Later(lambda: offcert.questions.placement.files.placement_problem_to_json),
    ladder=Later(lambda: offcert.certification.placement_methods.rungs_for),
    placer=Later(lambda: offcert.certification.placing.place_again),
)

QUESTIONS: dict[str, Question] = {
    each.format: each for each in (SCHEDULE, SPLIT, DEVICES, PLACEMENT)
}


def question_of(document: Any) -> Question:
    """Return the question that a JSON value answers, by its format; if unknown, a schedule's."""
    known = isinstance(document, dict) and isinstance(document.get("format"), str)
    return QUESTIONS.get(document["format"], SCHEDULE) if known else SCHEDULE
