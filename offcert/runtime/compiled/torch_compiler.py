"""Private names of PyTorch's compiler, which takes a second to load."""

from torch._functorch import config as aot_config  # noqa: F401
from torch._functorch import partitioners as partitioners
from torch._functorch._aot_autograd.descriptors import GradAOTOutput as GradAOTOutput
from torch._functorch._aot_autograd.descriptors import (
    SavedForBackwardsAOTOutput as SavedForBackwardsAOTOutput,
)
from torch._functorch.partitioners import _extract_fwd_bwd_modules as divided_by  # noqa: F401
from torch._functorch.partitioners import _size_of as bytes_of_node  # noqa: F401
from torch._inductor.custom_graph_pass import CustomKnapsackSolver as CustomKnapsackSolver
from torch._inductor.custom_graph_pass import CustomPartitionerFn as CustomPartitionerFn
