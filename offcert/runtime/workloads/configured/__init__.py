"""Training steps of models of `transformers`, made from their configurations alone."""

from offcert.runtime.workloads.configured.shapes import SHAPES, Shape
from offcert.runtime.workloads.configured.step import training_step
from offcert.runtime.workloads.workload import CONFIGURED

__all__ = ["CONFIGURED", "SHAPES", "Shape", "training_step"]
