"""Arguments that name a training step and a machine, and the objects that they name."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import add_optimiser as add_one_of
from offcert.cli.arguments import count, seed
from offcert.core.errors import InputError, MissingPackageError, require_torch, require_transformers
from offcert.core.messages import meant, show
from offcert.questions.schedule.device_memory import OPTIMISERS

if TYPE_CHECKING:
    from offcert.runtime.hardware import Hardware


# Names that the runtime knows, which would load torch; a test keeps both the same.
HARDWARE = (
    "v100-pcie",
    "v100-sxm2",
    "a100-40gb-pcie",
    "a100-80gb-sxm",
    "h100-sxm",
    "h100-pcie",
    "h200",
    "gh200",
    "b200",
    "mi300x",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "a10",
    "l4",
    "l40s",
    "t4",
    "k40",
)
# Behind a name: as quick as such cards are in training.
CALIBRATED = "-calibrated"
LOSSES = ("cross-entropy", "mean")
DTYPES = ("float32", "float64", "bfloat16", "float16")
# Short for three of them, as models from configurations are usually said to be of.
SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
# PyTorch's own kernels are FlashAttention-2 and a memory-efficient one; the last is no kernel.
ATTENTION = ("flash", "efficient", "flash-3", "math")


# The card where nobody names one.
HERE = "the CUDA device here, else the card that --device-memory suggests"


def add_hardware(parser: argparse._ActionsContainer, default: str) -> None:
    """Add the argument that names a hardware model; `default` says what is taken without it."""
    parser.add_argument(
        "--hardware",
        type=_hardware,
        metavar="NAME",
        help="whose roofline model says how long operations take: "
        f"{', '.join(HARDWARE)}, also as they are usually spelled; or a TOML file that describes "
        f"another (default: {default})",
    )


def add_peak(parser: argparse.ArgumentParser) -> None:
    """Add the argument that has the hardware model reach its peaks."""
    parser.add_argument(
        "--peak",
        action="store_true",
        help="let all operations reach the hardware's peak rates, whatever is known of what they "
        "reach",
    )
    parser.add_argument(
        "--attention",
        choices=ATTENTION,
        help="how attention is computed where the card can: by FlashAttention-2 or the "
        "memory-efficient kernel, as PyTorch has them, by FlashAttention-3, whose rate is known on "
        f"Hopper, or, with --hf, by products and a softmax (default: {ATTENTION[0]})",
    )


def add_optimiser(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says whose state is counted."""
    known = "that of the TrainingStep, if it has one; with --hf adamw"
    add_one_of(parser, OPTIMISERS, "whose state is counted", known)


def add_network(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a network."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="network of the zoo, or package.module:callable that returns a module or a "
        "TrainingStep; not with --hf",
    )
    parser.add_argument("--zoo", action=_Zoo, nargs=0, help="list the networks of the zoo, and end")
    parser.add_argument(
        "--input",
        metavar="SHAPE",
        help="shape with the batch size first, for example 32x3x224x224 (no default; a "
        "TrainingStep has none)",
    )
    parser.add_argument(
        "--loss",
        choices=LOSSES,
        help=f"of the output (default: {LOSSES[0]}; not for TrainingSteps)",
    )
    parser.add_argument(
        "--dtype",
        choices=(*DTYPES, *SHORT),
        metavar="TYPE",
        help=f"of parameters and inputs: {', '.join(DTYPES)}, or short {', '.join(SHORT)} "
        f"(default: {DTYPES[0]}, with --hf bf16; not for TrainingSteps)",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="keyword argument for what MODEL names, as JSON or text; may be repeated (default: "
        "none)",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of the initial weights")


def add_configured(parser: argparse.ArgumentParser, sizes: bool = True) -> None:
    """Add the arguments that name a model of transformers; its sizes only if asked for."""
    group = parser.add_argument_group("models of transformers, without weights, memory or network")
    group.add_argument(
        "--hf",
        metavar="CONFIG",
        help="configuration file of a model (config.json), a folder with one, the name of a public "
        "shape, such as llama-3.1-8b, or of a model in the local cache of the hub; instead of "
        "MODEL (no default)",
    )
    if sizes:
        group.add_argument(
            "--batch", type=count, metavar="N", help="sequences or images in a batch (default: 1)"
        )
        group.add_argument(
            "--sequence",
            type=count,
            metavar="N",
            help="tokens of a sequence (no default; images have none)",
        )
    group.add_argument(
        "--autocast",
        choices=("bf16", "fp16"),
        help="keep parameters in float32 and run the forward pass under autocast to this type "
        "(default: no autocast)",
    )
    group.add_argument(
        "--lora",
        type=count,
        metavar="RANK",
        help="train adapters of this rank on the linear layers, and nothing else (default: train "
        "everything)",
    )
    group.add_argument(
        "--bits",
        type=int,
        choices=(4, 8),
        help="pack the weights of linear layers, as bitsandbytes does, in 4 bits (QLoRA's) or 8; "
        "with --lora (default: as quantization_config of the configuration says)",
    )
    group.add_argument(
        "--tail-chunks",
        type=count,
        metavar="N",
        help="compute head and loss of a language model in N chunks of tokens: never all logits at "
        "once, gradients the same up to rounding, not bitwise (default: at once)",
    )


def _hardware(text: str) -> str:
    """Return the name of a hardware model, or of a file, which is read later."""
    from offcert.runtime.hardware.files import spelled

    name = text.removesuffix(CALIBRATED)
    if name in HARDWARE or name.endswith(".toml"):
        return text
    card = spelled(name)
    if card is not None:
        return card.name + text[len(name) :]
    known = ", ".join(HARDWARE)
    raise argparse.ArgumentTypeError(
        f"must be one of {known}, or a file that ends in .toml, not {show(text)}"
        f"{meant(text, HARDWARE)}"
    )


class _Zoo(argparse.Action):
    """Lists the models that `profile` knows and the shapes of their inputs, as ``--help`` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        try:
            require_torch("offcert profile")
        except MissingPackageError as error:
            parser.error(str(error))
        from offcert.runtime import zoo

        for name in zoo.names():
            print(f"{name:16}  --input {'x'.join(map(str, zoo.default_shape(name)))}")
        parser.exit()


def machine(options: argparse.Namespace) -> Hardware:
    """Return the hardware model that the options name."""
    from offcert.runtime.hardware import hardware

    kernel = options.attention if options.attention in ("flash-3", "efficient") else None
    return hardware(options.hardware, peak=options.peak, attention=kernel)


def ask_machine(options: argparse.Namespace) -> bool:
    """Ask on a terminal which card is meant; return whether there was an answer."""
    if options.json or options.quiet or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"Which card? {', '.join(HARDWARE)}, or a TOML file: ", end="", file=sys.stderr)
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    try:
        options.hardware = _hardware(answer) if answer else None
    except argparse.ArgumentTypeError as error:
        raise InputError(f"hardware {error}") from None
    return bool(answer)


def chosen_optimiser(options: argparse.Namespace) -> str | None:
    """Return the name of the optimiser whose state is counted; None for the step's own."""
    named: str | None = options.optimiser
    return named or ("adamw" if options.hf is not None else None)


def chosen_model(
    options: argparse.Namespace,
) -> tuple[str, dict[str, Any], str | None, dict[str, Any]]:
    """Return the arguments of `profile` for the network that the options name.

    Returns
    -------
    tuple
        The model, keyword arguments for what it names, a name for the problem (None: the default),
        and those of loss and data type that were given.
    """
    named = {name: getattr(options, name) for name in ("loss", "dtype")}
    if named["dtype"] is not None:
        named["dtype"] = SHORT.get(named["dtype"], named["dtype"])
    if options.hf is not None:
        model, given, label = _configured(options, named)
        return model, given, label, {}
    _require_no_configuration(options)
    named = {name: value for name, value in named.items() if value is not None}
    return options.model, _options(options.option), None, named


def _configured(
    options: argparse.Namespace, named: dict[str, Any]
) -> tuple[str, dict[str, Any], str]:
    """Return the maker of a configured model's step, its arguments, and a name."""
    from offcert.runtime.workloads.configured import read_config
    from offcert.runtime.workloads.workload import CONFIGURED

    require_transformers("offcert profile --hf")
    for other in ("model", "input", "loss"):
        if getattr(options, other) is not None:
            flag = "MODEL" if other == "model" else f"--{other}"
            raise InputError(f"{flag} and --hf exclude each other: a configuration names its own")
    if options.option:
        raise InputError("--option is for MODEL; what a configuration file says is changed there")
    if options.autocast is not None and named["dtype"] not in (None, "float32"):
        raise InputError(f"--autocast keeps parameters in float32, not in {named['dtype']}")
    given = {name: getattr(options, name, None) for name in _CONFIGURED}
    given["dtype"] = named["dtype"]
    given["attention"] = options.attention if options.attention in ("math", "efficient") else None
    given = {name: value for name, value in given.items() if value is not None}
    path = Path(options.hf)
    label = path.stem if path.suffix == ".json" else path.resolve().name if path.is_dir() else None
    label = label or options.hf
    sizes = [str(given.get("batch", 1))]
    sizes += [str(given["sequence"])] if "sequence" in given else []
    adapters = f" lora {options.lora}" if options.lora else ""
    adapters += f" in {options.bits} bits" if options.bits else ""
    adapters += f" tail in {options.tail_chunks}" if options.tail_chunks else ""
    return (
        CONFIGURED,
        {"config": read_config(options.hf)} | given,
        (f"{label} {'x'.join(sizes)}{adapters}"),
    )


_CONFIGURED = ("batch", "sequence", "autocast", "lora", "bits", "tail_chunks")


def _require_no_configuration(options: argparse.Namespace) -> None:
    if options.model is None:
        raise InputError("MODEL is missing: a network, or --hf with a configuration")
    for name in _CONFIGURED:
        if getattr(options, name, None) is not None:
            raise InputError(f"--{name.replace('_', '-')} goes with --hf")
    if options.attention == "math":
        raise InputError("--attention math goes with --hf; a program of one's own says so itself")


def _options(texts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier() or name in found:
            raise InputError(f"option must look like layers=4, once for each name, not {text!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
