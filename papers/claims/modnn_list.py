"""The means that the moDNN paper prints (Chen et al., TPDS 2019, §7), one by one."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from papers.claims.modnn_cases import RATE
from papers.claims.modnn_claims import (
    NumberClaim,
    Numbers,
    least,
    offloading_time,
    over_one,
    over_vdnn,
    slowdown,
    speed_up,
    technique,
    technique_time,
    transfers,
    vdnn_where_needed,
)
from papers.claims.modnn_rows import ModnnRows

_PRINTED = "The paper prints sub-batches for ResNet-34 only (§7.4)."
_SMALL = (
    "Only the last round's computing hides transfers and additions, and with our sub-batches that "
    f"is short. {_PRINTED}"
)
_KERNELS = "It measured kernels and does not list their times; ours are a stated model's."


def _best(size: str) -> tuple[str, Callable[[ModnnRows], Numbers]]:
    return "with the best sub-batches", speed_up(f"{size}, best")


NUMBERS = (
    NumberClaim(
        "modnn-least",
        "§7.1, Fig. 9",
        "The lower bound on memory is 59 times less than the ideal case.",
        "The bytes of the ideal case by those of Eq. 7. Certified: a schedule with so many bytes, "
        "and that there is none with a byte less, whatever the sub-batch and the algorithms.",
        Fraction(59),
        least(),
        why="What the paper leaves open about its networks was decided by four other numbers of "
        "Fig. 9, so it is no surprise.",
        beside=("by *live*, what is there at a time", least(size="live")),
    ),
    NumberClaim(
        "modnn-least-weights",
        "§7.1, Fig. 9",
        "If weights leave, too, it is 396 times less.",
        "The same with weights as tensors that may leave.",
        Fraction(396),
        least("_weights"),
        why="ResNet-152 governs the mean, and the paper lists no number of single networks.",
        beside=("by *live*", least("_weights", "live")),
    ),
    NumberClaim(
        "modnn-sub-batches",
        "§7.3, Fig. 13",
        "Sub-batches alone take 42 times less memory.",
        "The ideal case of the whole batch by that of single images. Nothing is scheduled; "
        "the number is exact.",
        Fraction(42),
        technique("sub_batches"),
    ),
    NumberClaim(
        "modnn-offloading",
        "§7.3, Fig. 13",
        "Offloading alone takes 4.1 times less memory.",
        "The ideal case by the least with which the whole batch and the fastest algorithms run; "
        "that is exact.",
        Fraction(41, 10),
        technique("offloading"),
        why="The paper equates it with what vDNN reaches, which keeps more than one layer needs. "
        "Deep networks, of which a task uses a small part, make our mean large.",
    ),
    NumberClaim(
        "modnn-algorithms",
        "§7.3, Fig. 13",
        "Choosing algorithms alone takes 15 % less memory.",
        "The ideal case by that with the algorithms of least workspace; exact.",
        Fraction(20, 17),
        technique("algorithms"),
        "less",
        why=f"{_KERNELS} Its workspaces were cuDNN's; ours are formulas, for at most 32 images at "
        "a time.",
    ),
    NumberClaim(
        "modnn-slow-down",
        "§7.2, Fig. 10",
        "At 12 GB moDNN is 3 % slower than the ideal case.",
        "Algorithm 1 with the sub-batch of Eq. 8. Certified: the best sub-batch, algorithms and "
        "schedule.",
        Fraction(103, 100),
        slowdown("modnn"),
        "more",
        larger=False,
    ),
    NumberClaim(
        "modnn-transfers",
        "§7.2, Fig. 11",
        "At 12 GB moDNN moves 378 times fewer bytes than vDNN.",
        "vDNN's bytes, with the whole batch, by Algorithm 1's: what leaves and returns, and the "
        "input and labels of the batch, which are loaded as all that is not there (line 6).",
        Fraction(378),
        transfers,
        why="A mean of ratios that is finite needs something that moDNN moves on every network; "
        "that can only be the input.",
    ),
    NumberClaim(
        "modnn-vdnn",
        "§7.2, Fig. 10",
        "At 12 GB vDNN is 31 % slower than the ideal case.",
        "vDNN with the whole batch, all layers offloaded, on networks for which it finds room. "
        "Certified: as above, on these.",
        Fraction(131, 100),
        slowdown("vdnn"),
        "more",
        larger=False,
        why="By the reading of vDNN that the number about vDNN+ decides: it offloads all layers, "
        "whether there is room or not. If ResNet-34, whose ideal case fits, offloaded nothing, it "
        "would be less.",
        beside=("if nothing leaves where all fits", vdnn_where_needed),
    ),
    NumberClaim(
        "modnn-over-vdnn-plus",
        "§7.2, Fig. 12",
        "moDNN is 1.26 times as fast as vDNN+, on average over memories.",
        "The time of vDNN+ by Algorithm 1's, over all networks and memories of the table. "
        "Certified: by the best choice.",
        Fraction(126, 100),
        over_vdnn,
        why="vDNN+ offloads all layers, whether there is room or not. If it took the best of its "
        "policies, nothing would leave most often, and both would do the same. It is this number "
        "that decides so, and it is confirmed by that choice.",
        fitted=True,
        beside=("with the best of its policies", lambda rows: over_vdnn(rows, other="dynamic")),
    ),
    NumberClaim(
        "modnn-sub-batches-time",
        "§7.3, Fig. 14",
        "Sub-batches alone, at least memory, are 3.74 times slower than the ideal case.",
        "Single images, nothing leaves; exact for the model's times.",
        Fraction(374, 100),
        technique_time("sub_batches"),
        larger=False,
        why=f"{_KERNELS} A roofline knows less of what makes small kernels slow.",
    ),
    NumberClaim(
        "modnn-offloading-time",
        "§7.3, Fig. 14",
        "Offloading alone is 28 % slower than the ideal case.",
        "Algorithm 1 with the whole batch and the fastest algorithms, in the least memory with "
        "which these run, as the figure is about the most that each technique saves alone. "
        "Certified: the best schedule for the same algorithms in the same memory.",
        Fraction(128, 100),
        offloading_time,
        "more",
        larger=False,
        why="What takes the time is defragmentation: all leaves and what the next task reads "
        "returns. The best schedule, without addresses, hides most of it behind computing.",
    ),
    NumberClaim(
        "modnn-algorithms-time",
        "§7.3, Fig. 14",
        "The algorithms of least workspace are 2.7 times slower than the fastest.",
        "The whole batch, nothing leaves; exact for the model's times.",
        Fraction(27, 10),
        technique_time("algorithms"),
        larger=False,
        why=_KERNELS,
    ),
    NumberClaim(
        "modnn-naive",
        "§7.5, Fig. 17",
        "Four GPUs with naive accumulation and memory for everything are 3.1 times as fast as one.",
        "Time of one GPU by the makespan. Certified: no schedule is shorter than its bound.",
        Fraction(31, 10),
        speed_up("ideal, naive"),
    ),
    NumberClaim(
        "modnn-host-12",
        "§7.5, Fig. 17",
        "With moDNN, 12 GB and one core they are 3.7 times as fast.",
        "As above, with the sub-batch of Eq. 8.",
        Fraction(37, 10),
        speed_up("12 GB"),
    ),
    NumberClaim(
        "modnn-naive-6",
        "§7.5, Fig. 18",
        "Naively at 6 GB they are 2.9 times as fast.",
        "As above.",
        Fraction(29, 10),
        speed_up("6 GB, naive"),
    ),
    NumberClaim(
        "modnn-host-6",
        "§7.5, Fig. 18",
        "With one core at 6 GB they are 3.4 times as fast.",
        "As above.",
        Fraction(34, 10),
        speed_up("6 GB"),
        why=f"{_SMALL} {RATE}",
        beside=_best("6 GB"),
    ),
    NumberClaim(
        "modnn-naive-3",
        "§7.5, Fig. 18",
        "Naively at 3 GB they are 2.6 times as fast.",
        "As above.",
        Fraction(26, 10),
        speed_up("3 GB, naive"),
    ),
    NumberClaim(
        "modnn-host-3",
        "§7.5, Fig. 18",
        "With one core at 3 GB they are 3.1 times as fast.",
        "As above.",
        Fraction(31, 10),
        speed_up("3 GB"),
        why=f"{_SMALL} {RATE}",
        beside=_best("3 GB"),
    ),
    NumberClaim(
        "modnn-host-3-20",
        "§7.5, Fig. 18",
        "With 20 cores at 3 GB they are 3.2 times as fast.",
        "As above; all cores together add 10 GB/s.",
        Fraction(32, 10),
        speed_up("3 GB, 20 cores"),
        why=_SMALL,
    ),
    NumberClaim(
        "modnn-over-one",
        "§7.5, Fig. 19",
        "Four GPUs of 3 GB are 3.1 times as fast as one of 12 GB, with one core.",
        "Time of moDNN on one GPU by the makespan; certified as above.",
        Fraction(31, 10),
        over_one("3 GB"),
        why=_SMALL,
    ),
    NumberClaim(
        "modnn-over-one-20",
        "§7.5, Fig. 19",
        "They are 3.3 times as fast with 20 cores.",
        "As above.",
        Fraction(33, 10),
        over_one("3 GB, 20 cores"),
        why=_SMALL,
    ),
)
