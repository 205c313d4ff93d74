"""Private names of PyTorch that offcert uses, in this one place; others import them from here.

Only `offcert.runtime.compiled`, which is made of the compiler's names, imports them itself. All of
them were seen in the versions of `offcert.runtime.torch_versions`, in each of which
`benchmarks/versions.py` runs the test that looks for them. What is asked of objects
(`tensor._version`, `storage._cdata`, the hooks of a module, what `fully_shard` remembers) stands
where it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

import torch
from torch import nn
from torch._guards import TracingContext as TracingContext
from torch._ops import OpOverload as OpOverload
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.nn.modules import module as torch_module
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm  # noqa: F401
from torch.nn.modules.batchnorm import _NormBase as RunningNorm  # noqa: F401
from torch.overrides import _get_current_function_mode_stack as function_modes  # noqa: F401
from torch.utils._device import DeviceContext as DeviceContext
from torch.utils._ordered_set import OrderedSet as OrderedSet
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_modes  # noqa: F401
from torch.utils._python_dispatch import _get_current_dispatch_mode as dispatch_mode  # noqa: F401
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack as dispatch_modes,  # noqa: F401
)
from torch.utils._python_dispatch import _pop_mode as pop_mode  # noqa: F401
from torch.utils._python_dispatch import _push_mode as push_mode  # noqa: F401
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils._pytree import tree_unflatten as tree_unflatten
from torch.utils.checkpoint import _StopRecomputationError as StopRecomputation  # noqa: F401

# How many hold a storage, whose address is given.
storage_users = torch._C._storage_Use_Count
has_storage = torch._C._has_storage
# The kernels of an operator, a line each.
dispatch_dump = torch._C._dispatch_dump
function_mode_count = torch._C._len_torch_function_stack
# The number of the backward pass that the thread runs, or -1.
backward_number = torch._C._current_graph_task_id
backward_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
# How many nodes of a graph the thread has made.
sequence_number = torch._C._autograd._get_sequence_nr
set_versions = torch._C._autograd._unsafe_set_version_counter
# Of the thread; the argument says whether those are meant that a tracer does not follow.
top_saved_hooks = torch._C._autograd._top_saved_tensors_default_hooks
pop_saved_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
push_saved_hooks = torch._C._autograd._push_saved_tensors_default_hooks
may_save_by_hooks = torch._C._autograd._saved_tensors_hooks_is_enabled  # type: ignore[attr-defined]
# The function transform that the thread is in, or None.
innermost_transform = torch._C._functorch.peek_interpreter_stack
queue_callback = torch.autograd.Variable._execution_engine.queue_callback
CALL_CODE = nn.Module._call_impl.__code__
GLOBAL_HOOKS = (
    torch_module._global_forward_hooks,
    torch_module._global_forward_pre_hooks,
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
)

# Modules of the compiler, which are looked up where they have been loaded.
COMPILER = "torch._dynamo"
COMPILER_COUNTS = "torch._dynamo.utils"
FRAMES = "torch._C._dynamo.eval_frame"
FRAMES_OF_PYTHON = "torch._dynamo.eval_frame"
FRAMES_COUNTED = "torch._dynamo.convert_frame"
FAKES_LOG = "torch._subclasses.fake_tensor"

# Settings that a kernel may follow: for people, and the core's getter and setter. One that is
# missing is neither compared nor put back.
FLAGS = {
    "flash attention": ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    "lean attention": ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    "attention by products": ("_get_math_sdp_enabled", "_set_sdp_use_math"),
    "cuDNN's attention": ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    "other attention": ("_get_overrideable_sdp_enabled", "_set_sdp_use_overrideable"),
    "sums of half precision in attention": (
        "_get_math_sdp_allow_fp16_bf16_reduction",
        "_set_math_sdp_allow_fp16_bf16_reduction",
    ),
    "oneDNN": ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    "oneDNN's order of sums": ("_get_mkldnn_deterministic", "_set_mkldnn_deterministic"),
    "cuDNN": ("_get_cudnn_enabled", "_set_cudnn_enabled"),
    "cuDNN's search for kernels": ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    "cuDNN's order of sums": ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
}


# Returns a context in which dispatch modes see no operators. It is entered dozens of times a step,
# so that no function of Python is called for it; and it is looked up each time, since the audit of
# engines puts another in its place.
undispatched: Callable[[], Any] = partial(methodcaller("_DisableTorchDispatch"), torch._C)


def aliases_tracked() -> Any:
    """Return a context in which views know what they are views of, also below autograd."""
    return torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False)


def is_fake() -> bool:
    """Whether the thread's tensors are fake ones."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def kept_uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that compiled code calls as it is."""
    apart: Callable[..., Any] = torch._dynamo.disable(function)
    return apart


def work_done() -> Any:
    """Return the result of a collective whose work is done."""
    from torch._C._distributed_c10d import FakeWork, Work

    return Work.boxed(FakeWork())


def store_of_all() -> Any:
    """Return the store that all processes of the default group share."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def of_core(name: str) -> Any:
    """Return the function of PyTorch's core that gets or sets something, or None."""
    return getattr(torch._C, name, None)
