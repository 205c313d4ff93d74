"""Figures that the selection and the re-forwarding paper print of networks, and torchvision's."""

from __future__ import annotations

# Of torchvision's networks.
PARAMETERS = {"vgg19": 143_667_240, "alexnet": 61_100_840}
# Checkpoints as the selection paper prints them, and what it measured with them (Tables 2 and 3).
PUBLISHED: dict[str, dict[str, tuple[int, ...]]] = {
    "vgg19": {
        "Algorithm 6": (0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 23, 24),
        "Algorithm 3": (0, 3, 6, 24),
        "√n": (0, 5, 10, 15, 20, 24),
        "plain": (0, 24),
    },
    "alexnet": {
        "Algorithm 6": (0, 2, 4, 6, 8, 12, 14, 15),
        "Algorithm 3": (0, 2, 4, 12, 15),
        "√n": (0, 4, 8, 12, 15),
        "plain": (0, 15),
    },
}
FIGURE_5 = (0, 3, 11, 24)
# Of the arbitrary-graph solver, beside those of Fig. 5.
FIGURE_7 = (0, 3, 6, 24)
PLAIN_ALEXNET = (0, 3, 4, 5, 9, 11, 12)
PEAKS = {
    ("vgg19", 128): {"Algorithm 6": 6444, "Algorithm 3": 6835, "√n": 8404, "plain": 11262},
    ("vgg19", 256): {"Algorithm 6": 11220, "Algorithm 3": 12004, "√n": 15139, "plain": 20850},
    ("vgg19", 320): {"Algorithm 6": 13609, "Algorithm 3": 14592, "√n": 18511},
    ("vgg19", 384): {"Algorithm 6": 15997, "Algorithm 3": 17177},
    ("vgg19", 400): {"Algorithm 6": 16594, "Algorithm 3": 17824},
    ("alexnet", 128): {"Algorithm 6": 1002, "Algorithm 3": 1003, "√n": 1106, "plain": 1174},
    ("alexnet", 4096): {"Algorithm 6": 9866, "Algorithm 3": 9866, "√n": 13182, "plain": 15275},
}
SECONDS = {
    ("vgg19", 128): {"Algorithm 6": 779, "Algorithm 3": 779, "√n": 780, "plain": 585},
    ("vgg19", 256): {"Algorithm 6": 1541, "Algorithm 3": 1540, "√n": 1541, "plain": 1158},
    ("alexnet", 4096): {"Algorithm 6": 1206, "Algorithm 3": 1206, "√n": 1216, "plain": 1058},
}
# "Time overhead" of the re-forwarding paper's Table 1, in percent.
OVERHEADS = {
    "alexnet": 40,
    "vgg11": 35,
    "vgg13": 31,
    "vgg16": 30,
    "vgg19": 29,
    "resnet18": 40,
    "resnet34": 36,
    "resnet50": 40,
    "resnet101": 37,
    "resnet152": 39,
    "densenet121": 42,
    "densenet161": 39,
    "densenet169": 43,
    "densenet201": 45,
    "inception_v3": 35,
}
# Of the selection paper's networks, what it says that its algorithm returned.
RETURNED = {
    "VGG-19, Table 2": ("vgg19", PUBLISHED["vgg19"]["Algorithm 6"]),
    "VGG-19, Fig. 5": ("vgg19", FIGURE_5),
    "AlexNet, Table 2": ("alexnet", PUBLISHED["alexnet"]["Algorithm 6"]),
    "plain AlexNet, Fig. 8": ("plain-alexnet", PLAIN_ALEXNET),
}
