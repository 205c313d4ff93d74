"""The claims of the offloading paper's evaluation (Beaumont, Eyraud-Dubois, Shilova 2020).

Words that are no numbers ("often", "significantly") are read as stated in ``test``; the reading is
ours, and generous where there was a choice. A limit counts if something has to leave there. A
method without a plan is compared nowhere; whether it has plans is a claim of its own.
"""

from __future__ import annotations

from fractions import Fraction

from papers.claims.claim import Claim
from papers.claims.judge import ALWAYS, OFTEN, USUALLY, Share
from papers.claims.predicates import (
    below_prop3,
    differs_with_seed,
    near,
    near_optimum,
    never_longer,
    no_plan_up_to,
    plans,
    same,
    within_seconds,
)
from papers.claims.shapes import (
    PAPERS,
    faster_in_larger_batches,
    larger_advantage_at_low_memory,
    mean_improvement,
    memory_grows_with,
    optimal_at_highest,
    peaks_at_balance,
    slower,
    steadier,
    training_takes_about,
    wider_range,
    worse_with_depth,
)

# The paper's own measure of a good schedule (§6.2).
GOOD = Fraction(6, 5)
ALMOST = Fraction(102, 100)
MUCH = Fraction(105, 100)
SLOTS = "dynprog:slots=2000"
# Parameters of torchvision's network.
_RESNET101 = 44_549_160


def percent(factor: Fraction) -> str:
    """Return how much a factor is more than one, for people."""
    return f"{float(100 * factor - 100):g} %"


_AGAINST_VDNN = [
    Claim(
        f"{method}-vdnn",
        "§6.2, Fig. 5–12",
        f"{method.upper()} is better than VDNN in all cases.",
        f"A limit: {method.upper()}'s makespan is at most VDNN's.",
        never_longer(method, "vdnn"),
        ALWAYS,
    )
    for method in PAPERS
] + [
    Claim(
        f"{method}-vdnn-low-memory",
        "§6.2, Fig. 5–12",
        f"VDNN falls behind {method.upper()} most where memory is low.",
        f"A problem: VDNN's makespan by {method.upper()}'s is larger on average up to 25 % memory "
        "than from 50 % on.",
        larger_advantage_at_low_memory(method, "vdnn"),
        USUALLY,
    )
    for method in PAPERS
]

_DYNPROG = [
    Claim(
        "dynprog-greedy",
        "§6.2, Fig. 5–12",
        "DYNPROG is better than GREEDY.",
        "A limit: DYNPROG's makespan is at most GREEDY's.",
        never_longer("dynprog", "greedy"),
        USUALLY,
    ),
    Claim(
        "dynprog-significant",
        "§6.2",
        "DYNPROG's advantage over GREEDY is significant.",
        f"A problem: GREEDY takes at least {percent(MUCH)} longer on average over limits.",
        mean_improvement(("dynprog",), "greedy", MUCH),
        OFTEN,
    ),
    Claim(
        "dynprog-greedy-close",
        "§6.2",
        "The difference between DYNPROG and GREEDY is small in many cases.",
        f"A limit: their makespans differ by at most {percent(ALMOST)}.",
        near("dynprog", "greedy", ALMOST),
        OFTEN,
    ),
    Claim(
        "dynprog-densenet",
        "§6.2, Fig. 9–11",
        "On DenseNets, DYNPROG is almost optimal throughout.",
        f"A limit of a DenseNet: DYNPROG is within {percent(ALMOST)} of the optimum.",
        near_optimum("dynprog", ALMOST, "densenet"),
        USUALLY,
    ),
    Claim(
        "dynprog-prop3",
        "§6.2, Fig. 5–12",
        "DYNPROG stays below 1.2 times the lower bound of Prop. 3.",
        "A limit: DYNPROG's makespan is below 1.2 times that bound.",
        below_prop3("dynprog", GOOD),
        ALWAYS,
    ),
    Claim(
        "dynprog-throughput",
        "§6.2, Fig. 13–19",
        "DYNPROG reaches at least 83 % of the highest possible throughput.",
        "A limit: DYNPROG's makespan is at most 1.2 times the certified optimum.",
        near_optimum("dynprog", GOOD),
        ALWAYS,
    ),
    Claim(
        "dynprog-plans",
        "§6.2, Fig. 5–12",
        "DYNPROG has a plan from the least memory on with which the network can run.",
        "A feasible limit: DYNPROG finds a plan.",
        plans("dynprog"),
        ALWAYS,
    ),
    Claim(
        "dynprog-time",
        "§5.3.2",
        "With 500 slots, DYNPROG's computing time is reasonable.",
        "A limit: DYNPROG takes at most a minute.",
        within_seconds("dynprog", 60.0),
        ALWAYS,
    ),
    Claim(
        "dynprog-slots",
        "§5.3.2",
        "500 slots are enough in practice.",
        f"A limit: with 2000 slots, the makespan differs by at most {percent(ALMOST)}.",
        near("dynprog", SLOTS, ALMOST),
        USUALLY,
    ),
    *(
        Claim(
            f"dynprog-depth-{family}",
            "§7, Fig. 6–11",
            f"DYNPROG does worse on deeper networks (here: {name}).",
            "The deepest network and a shallower one, of the same image size and batch: DYNPROG's "
            "makespan by the certified optimum is larger on the deeper one, on average over the "
            "limits at which it has plans for both.",
            worse_with_depth("dynprog", family),
            USUALLY,
        )
        for family, name in (("resnet", "ResNets"), ("densenet", "DenseNets"))
    ),
]

_GREEDY = [
    Claim(
        "greedy-good",
        "§7",
        "GREEDY, simple as it is, gives good results.",
        "A limit: GREEDY's makespan is at most 1.2 times the certified optimum.",
        near_optimum("greedy", GOOD),
        USUALLY,
    ),
    Claim(
        "greedy-plans",
        "§4.2, Fig. 5–12",
        "GREEDY has a plan from the least memory on with which the network can run.",
        "A feasible limit: GREEDY finds a plan.",
        plans("greedy"),
        ALWAYS,
    ),
    Claim(
        "significant-improvement",
        "Abstract, §7",
        "GREEDY and DYNPROG are much better than earlier methods in a wide variety of situations.",
        f"A problem: VDNN takes at least {percent(MUCH)} longer than the better of them, on "
        "average over limits.",
        mean_improvement(PAPERS, "vdnn", MUCH),
        USUALLY,
    ),
]

_TFLMS = [
    Claim(
        "tflms-high-memory",
        "§6.2, Fig. 5–12",
        "TFLMS, with the right parameters, is optimal where memory is highest.",
        "A problem: TFLMS attains the certified optimum at the highest limit below the peak.",
        optimal_at_highest("tflms"),
        ALWAYS,
    ),
    Claim(
        "tflms-low-memory",
        "§6.2, Fig. 5–12",
        "TFLMS cannot adapt to low memory.",
        "A limit up to 25 %: TFLMS finds no plan.",
        no_plan_up_to("tflms", 25),
        USUALLY,
    ),
    Claim(
        "tflms-range",
        "§6.2, Fig. 5–12",
        "DYNPROG has solutions over a much wider range of memory than TFLMS.",
        "A problem: DYNPROG has plans at twice as many limits or more.",
        wider_range("dynprog", "tflms", 2),
        USUALLY,
    ),
]

_AUTOSWAP = [
    Claim(
        "autoswap-greedy",
        "§6.2",
        "AUTOSWAP often produces what GREEDY produces.",
        "A limit: their makespans are equal.",
        same("autoswap", "greedy"),
        OFTEN,
    ),
    Claim(
        "autoswap-cost",
        "§6.2",
        "AUTOSWAP computes much longer than GREEDY.",
        "A problem: the median of its computing times over limits is at least ten times GREEDY's.",
        slower("autoswap", "greedy", 10),
        USUALLY,
    ),
    Claim(
        "autoswap-random",
        "§6.2",
        "AUTOSWAP depends on the randomness of its optimisation and is very inconsistent.",
        "A limit solved with several seeds: their makespans differ by more than 1 %.",
        differs_with_seed("autoswap", Fraction(101, 100)),
        Share(Fraction(1, 4), Fraction(1, 20)),
    ),
]

_SHAPES = [
    *(
        Claim(
            f"spike-{method}",
            "§6.2, Fig. 5",
            f"{method.upper()}'s ratio to the bound of Prop. 3 peaks where both terms of that "
            "bound are equal.",
            "A problem: the largest ratio is at most a step of limits away from there.",
            peaks_at_balance(method),
            USUALLY,
        )
        for method in ("greedy", "vdnn")
    ),
    Claim(
        "spike-difficult",
        "§6.2",
        "These cases are harder: it is the schedules that are worse there, not only the bound.",
        "A problem: GREEDY's ratio to the certified optimum, too, is largest at most a step away.",
        peaks_at_balance("greedy", to_optimum=True),
        USUALLY,
    ),
    *(
        Claim(
            f"dynprog-stable-{other}",
            "§6.2, Fig. 5–12",
            f"DYNPROG is much more stable than {other.upper()}.",
            "A problem: its ratio to the bound of Prop. 3 varies less over limits.",
            steadier("dynprog", other),
            USUALLY,
        )
        for other in ("vdnn", "autoswap")
    ),
]

_MEMORY = [
    Claim(
        "batch-efficiency",
        "§6.1",
        "Processing images in larger batches is more efficient.",
        "A network, image size and two batch sizes: without a memory limit, the larger batch "
        "computes more images a second.",
        faster_in_larger_batches(),
        ALWAYS,
    ),
    Claim(
        "memory-quadratic",
        "§1",
        "The memory for activations grows quadratically with the image's resolution.",
        "Two image sizes of a network and batch: the peak grows with a power within 5 % of 2.",
        memory_grows_with(2),
        USUALLY,
    ),
    Claim(
        "memory-resnet101",
        "§1",
        "Training ResNet-101 with images of 224 × 224 and batch 32 takes about 5 GB.",
        "A profile of it: the peak without offloading (activations, gradients of activations and "
        "workspaces), with the weights, their gradients and their momenta, is 5 GB by the rule for "
        "numbers.",
        training_takes_about("resnet101", 224, 32, 5 * 10**9, 5 * 10**8, _RESNET101),
        ALWAYS,
    ),
]

CLAIMS = (*_AGAINST_VDNN, *_DYNPROG, *_GREEDY, *_TFLMS, *_AUTOSWAP, *_SHAPES, *_MEMORY)
