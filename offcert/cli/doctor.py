"""The command `doctor`: which batch fits into a device, how fast it trains; and the versions."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from offcert._version import __version__
from offcert.cli.arguments import counts, counts_or_auto, size
from offcert.cli.chosen import (
    HERE,
    add_configured,
    add_hardware,
    add_network,
    add_optimiser,
    add_peak,
    ask_machine,
    chosen_model,
    chosen_optimiser,
    machine,
)
from offcert.cli.output import native_output_to_stderr, require_folder, show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress
from offcert.cli.searching import add_effort, progress_line, search_settings
from offcert.core.documents import write_json
from offcert.core.errors import InputError, require_torch
from offcert.core.units import Units, format_time
from offcert.questions.schedule.device_memory import require_optimiser_counted

if TYPE_CHECKING:
    from offcert.certification.diagnosis import Diagnosis
    from offcert.certification.search import SearchProgress
    from offcert.runtime.hardware.choice import Chosen


_EXAMPLES = (
    "offcert doctor --hf llama-3.2-1b --sequence 4096 --batch auto --hardware rtx-4090",
    "offcert doctor resnet50 --input 32x3x224x224 --batch 32,64,128,256 --device-memory 16GiB "
    "--optimiser adamw --hardware rtx-4090 -o sizes/",
    "offcert doctor my.package:make_step --batch 8,16 --sequence 2048,4096 --device-memory 80GiB",
)
_SETTINGS = ("time_limit", "workers")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "say at which sizes a training step fits into a device, and how fast it is there"
    parser = add_command(commands, "doctor", summary, _run, examples=_EXAMPLES)
    add_network(parser)
    add_configured(parser, sizes=False)
    for name, what, reads in (
        ("batch", "batch sizes", counts_or_auto),
        ("sequence", "lengths of sequences", counts),
    ):
        auto = " auto finds the largest that fits;" if name == "batch" else ""
        parser.add_argument(
            f"--{name}",
            dest=f"{name}es" if name == "batch" else f"{name}s",
            type=reads,
            default=[],
            metavar="N,N,...",
            help=f"{what} to try:{auto} the {'first' if name == 'batch' else 'second'} size of "
            f"--input, or the keyword {name} of what MODEL names (default: the step's own)",
        )
    parser.add_argument(
        "--device-memory",
        type=size,
        metavar="SIZE",
        help="memory of the whole device, such as 24GiB, with parameters, gradients, buffers, "
        "batch and the optimiser's state (default: the card's, less an allowance for the context "
        "of CUDA and one for fragmentation)",
    )
    parser.add_argument(
        "--host-memory",
        type=size,
        metavar="SIZE",
        help="memory of the host that may be pinned for copies: plans that need more are said to "
        "be short of it (default: not limited)",
    )
    parser.add_argument(
        "--pageable-memory",
        type=size,
        metavar="SIZE",
        help="memory of the host that is not pinned, for copies that have no room in --host-memory "
        "and those of save_on_cpu (default: none for plans, not limited for save_on_cpu)",
    )
    parser.add_argument(
        "--recompute",
        choices=("any", "none"),
        default="any",
        help="whether modules may run again in the backward pass",
    )
    add_hardware(parser, f"{HERE}, else a terminal is asked")
    add_peak(parser)
    add_optimiser(parser)
    add_effort(parser, *_SETTINGS)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="folder for the certificate of each size, which train takes, and doctor.json, the "
        "answer; report makes a page of the folder (default: none is kept)",
    )
    parser.add_argument(
        "--versions",
        action=ShowVersions,
        help="print the versions of offcert and of what it uses, for a report of a fault, and end",
    )
    parser.set_defaults(prepare=_prepare)


def _prepare(options: argparse.Namespace) -> None:
    if options.optimiser is None and options.model is not None and ":" not in options.model:
        # Networks of the zoo bring none; it takes seconds to load what would say so.

        require_optimiser_counted({})
    if options.output is not None:
        require_folder(options, "certificates of sizes")


def _chosen(options: argparse.Namespace) -> Chosen:
    """Return the card and its memory; on a terminal, ask which one where it is not clear."""
    from offcert.runtime.hardware.choice import choose

    named = None if options.hardware is None else machine(options)
    try:
        return choose(named, options.device_memory)
    except InputError:
        if not ask_machine(options):
            raise
    return choose(machine(options), options.device_memory)


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.interrupts import terminating_interrupts
    from offcert.report.doctor import describe_doctor, doctor_summary

    require_torch("offcert doctor")
    from offcert.training.doctor import doctor

    model, given, _, named = chosen_model(options)
    chosen = _chosen(options)
    options.hardware = chosen.card
    units = Units("ns", "B")
    title = options.model or options.hf

    kept: list[Diagnosis] = []

    def keep(diagnosis: Diagnosis) -> None:
        if diagnosis.certificate is not None and options.output is not None:
            sizes = [f"{name}-{size}" for name, size in diagnosis.asked.items()]
            file = f"{'-'.join(sizes) or 'step'}.json"
            diagnosis.certificate.write(Path(options.output) / file)
            kept.append(diagnosis)

    def said(news: SearchProgress) -> str:
        return progress_line(news, lambda ticks: format_time(ticks, units))

    with (
        native_output_to_stderr(),
        redirect_stdout(sys.stderr),
        terminating_interrupts(),
        progress(options, said, f"profiling {title}") as tell,
    ):
        found = doctor(
            model,
            options.input,
            device_memory=f"{chosen.memory}B",
            host_memory=options.host_memory,
            pageable_memory=options.pageable_memory,
            batch=options.batches,
            sequence=options.sequences,
            optimiser=chosen_optimiser(options),
            hardware=machine(options),
            options=given,
            seed=options.seed,
            recompute=options.recompute == "any",
            progress=tell,
            found=keep,
            **named,
            **search_settings(options, *_SETTINGS),
        )
    if not found:
        # An interrupt came before there was anything to say.
        raise KeyboardInterrupt
    found = replace(found, title=title, notes=(*chosen.notes, *_notes(options)))
    document, text = doctor_summary(found), describe_doctor(found)
    if kept:
        write_json(Path(options.output) / "doctor.json", document)
        document["written"] = options.output
        text += f"\nwrote {options.output}"
    elif options.output is not None:
        text += f"\nnothing is in {options.output}: there is no certificate to keep"
    show(options, document, text)
    return 0


def _notes(options: argparse.Namespace) -> list[str]:
    """Return a sentence about types that nobody has asked for."""
    if options.hf is None or options.autocast or options.dtype:
        return []
    return [
        "parameters, gradients and the optimiser's state are bfloat16; those of a Trainer with "
        "bf16=True are float32: --autocast bf16"
    ]


_PACKAGES = (
    "offcert-lab",
    "numpy",
    "numba",
    "scipy",
    "ortools",
    "pulp",
    "torch",
    "transformers",
    "accelerate",
)


class ShowVersions(argparse.Action):
    """An option that prints the versions and ends, as ``--version`` does."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *parsed: Any, **option: Any) -> NoReturn:
        """Print a line for each, and end."""
        print("\n".join(f"{name} {found}" for name, found in versions().items()))
        parser.exit()


def versions() -> dict[str, str]:
    """Return the versions of this program, of Python, of the system and of what is used."""
    return {
        "offcert": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    } | {name: _installed(name) for name in _PACKAGES}


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"
