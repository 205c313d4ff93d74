"""The registry of questions: what is asked, as what documents answer it, and who deals with these.

A question is a row here. Everything that treats kinds of certificates differently asks for it:
reading, verification, commands, texts and pictures. Functions are named by strings, because finders
and verifiers may not meet, and because who verifies a schedule loads nothing of other questions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A kind of question, and everything that is particular to certificates which answer it.

    Attributes
    ----------
    name : str
        The object that is asked for, in words.
    format : str
        Name of the documents.
    version : int
        The one that is written and read.
    fields : tuple of str
        Of a document, between version and digest, in the order in which they are written; those
        that say nothing may be left out.
    problem : str
        Module and class below `offcert.questions`: what asks; empty if it has none of its own.
    answers : str
        Module and function below `offcert.questions`, the checker of answers: given a problem and
        an answer, it returns what is wrong with it. No search keeps, and no verification passes,
        what it faults. Empty if answers are made of those to other questions.
    reader, writer : str
        Modules and functions below `offcert.questions`: from the JSON value of a problem, and to
        it; empty if a document holds no problem by itself.
    certificate : str
        Module and class below `offcert.proofs`; its ``from_json`` reads a document.
    checker : str
        Module and function below `offcert.verify`. Given the verification so far, the document and
        an allowance, it adds what it finds.
    text : str
        Module and `offcert.report.findings.Text` below `offcert.report`: what commands say.
    command : str
        The command that searches; also what a certificate calls its method if no single one ran.
    picture : str
        Module and function below `offcert.report` that draws a certificate to a file; empty if
        there is no picture.
    snapshot : str
        Module and function below `offcert.report` that writes what a certificate has on the device
        as a memory snapshot; empty if there is none.
    placed : str
        Module and `Text` below `offcert.report` of what ``offcert place`` found for it; empty if
        nothing of it can be placed.
    ladder : str
        Module and function below `offcert.certify` that says which methods suit a problem, one
        after the other; empty if a single search decides that.
    placer, host : str
        Modules and functions below `offcert.certify`: who places what certificates hold on the
        device, and who says what they hold on the host; empty if nothing of them can be placed.
    measured : str
        Module and function below `offcert.campaign` that measures methods on problems; empty if
        nobody's own methods can be measured.
    conversion : str
        Advice for documents of versions before.
    """

    name: str
    format: str
    version: int
    fields: tuple[str, ...]
    certificate: str
    checker: str
    text: str
    command: str
    problem: str = ""
    answers: str = ""
    picture: str = ""
    snapshot: str = ""
    placed: str = ""
    reader: str = ""
    writer: str = ""
    ladder: str = ""
    placer: str = ""
    host: str = ""
    measured: str = ""
    conversion: str = ""


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
    certificate="certificate:Certificate",
    checker="schedules:check_schedule",
    text="text:SCHEDULE",
    command="certify",
    problem="schedule.problem:Problem",
    answers="schedule.check_fluid:schedule_faults",
    picture="gantt:save_gantt",
    snapshot="memory_viz:save_snapshot",
    placed="placement_text:OF_SCHEDULE",
    reader="schedule.files:problem_from_json",
    writer="schedule.files:problem_to_json",
    ladder="ladders.joint:rungs_for",
    placer="placing:place_schedule",
    host="host_problem:of_schedule",
    measured="benchmark:schedules_measured",
)
SPLIT = Question(
    name="sub-batches and algorithms of a step",
    format="offcert-step-certificate",
    version=2,
    fields=(
        *(*_PROBLEM, "split", "objective", "lower_bound", "gap", "split_bounds", "rounds"),
        *("bounds", "settings", "versions"),
    ),
    certificate="split_certificate:SplitCertificate",
    checker="split:check_split",
    text="split_text:SPLIT",
    command="choose",
    problem="split.problem:SplitProblem",
    placed="placement_text:OF_SPLIT",
    reader="split.problem:split_from_json",
    writer="split.problem:split_to_json",
    placer="placing:place_rounds",
    host="host_problem:of_rounds",
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
    certificate="devices_certificate:DevicesCertificate",
    checker="devices:check_devices_certificate",
    text="devices_text:DEVICES",
    command="devices",
    problem="devices.problem:DevicesProblem",
    answers="devices.schedule:check_devices",
    reader="devices.problem:devices_from_json",
    writer="devices.problem:devices_to_json",
    conversion='version 1 lacks "method" and "settings": certify its problem again',
)
PLACEMENT = Question(
    name="addresses",
    format="offcert-placement",
    version=1,
    fields=(*_PROBLEM, "objective", "lower_bound", "gap", "bounds", *_ORIGIN, "addresses"),
    certificate="placement_certificate:PlacementCertificate",
    checker="placement:check_placement",
    text="placement_text:PLACEMENT",
    command="place",
    problem="placement.problem:PlacementProblem",
    answers="placement.problem:placement_faults",
    picture="space:save_space",
    placed="placement_text:PLACEMENT",
    reader="placement.files:placement_problem_from_json",
    writer="placement.files:placement_problem_to_json",
    ladder="ladders.placement:rungs_for",
    placer="placing:place_again",
    measured="benchmark:placements_measured",
)
SELECTION = Question(
    name="what is stored of a chain or graph",
    format="offcert-selection-certificate",
    version=1,
    fields=("name", "model", "sizes", "edges", "stored", "objective", "lower_bound", "proof"),
    certificate="selection_certificate:SelectionCertificate",
    checker="selection:check_selection",
    text="selection_text:SELECTION",
    command="",
)

QUESTIONS: dict[str, Question] = {
    each.format: each for each in (SCHEDULE, SPLIT, DEVICES, PLACEMENT, SELECTION)
}
