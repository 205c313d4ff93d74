"""Hooks on the modules of a user's model: they tell the step under way, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.torch_private import COMPILER
from offcert.runtime.watch.events import Local, Threads
from offcert.runtime.watch.guard import RAISING, Guard
from offcert.runtime.watch.module_hooks import (
    EnterHook,
    LeaveHook,
    RootHook,
    StepKeeper,
    UncopiedHook,
    Unseen,
)
from offcert.runtime.watch.sharded import Parts, require_followable

# Wrappers whose replicas or shards are other modules than those that would be hooked.
_REFUSED = {
    "DataParallel": "it copies the model at every step; use DistributedDataParallel",
    "FullyShardedDataParallel": "it keeps its parameters in flat ones; use fully_shard (FSDP2)",
}


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module that DistributedDataParallel runs, or else the model itself.

    What is no module, or a wrapper under which plans cannot be followed, is an `InputError`.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be an nn.Module, not {type(model).__name__}")
    while isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module
    name = type(model).__name__
    if name in _REFUSED:
        raise InputError(f"{name} cannot be trained under a plan: {_REFUSED[name]}")
    require_followable(model)
    if is_compiled(model):
        raise InputError(
            f"{name} is compiled as a whole, and no plan can move what compiled code saves: "
            "compile modules inside of the model"
        )
    return model


def is_compiled(module: nn.Module) -> bool:
    """Whether `torch.compile` made the module; what it runs inside cannot be watched."""
    return hasattr(module, "_orig_mod") or _in_place(module)


def _in_place(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


def require_cpu(model: nn.Module) -> None:
    """Raise an `InputError` if a parameter is not on the CPU."""
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise InputError(f"the model must be on the CPU, but {name} is on {parameter.device}")


def require_no_graphs(root: nn.Module) -> None:
    """Raise an `InputError` if a module of a model was compiled to CUDA graphs.

    What they save lies in memory of their own, where nothing else can be put once it has left, and
    they read what comes back where it lay.
    """
    for path, module in root.named_modules():
        if hasattr(module, "_orig_mod") and _has_graphs(module):
            raise InputError(
                f"{path} is compiled to CUDA graphs, which keep the memory of what they save: "
                'compile it without mode="reduce-overhead" or "max-autotune", for which there is '
                '"max-autotune-no-cudagraphs"'
            )


def _has_graphs(compiled: Any) -> bool:
    backend = getattr(getattr(compiled, "dynamo_ctx", None), "callback", None)
    for _ in range(8):
        if getattr(backend, "_compiler_name", None) == "cudagraphs":
            return True
        if (getattr(backend, "config", None) or {}).get("triton.cudagraphs"):
            return True
        # Wrappers around what the compiler was asked for; older ones call it callable.
        asked = getattr(backend, "_torchdynamo_orig_backend", None)
        backend = asked or getattr(backend, "_torchdynamo_orig_callable", None)
    return False


def uncompiled() -> AbstractContextManager[Any]:
    """Return a context in which what `torch.compile` has made runs as it was before.

    The compiler passes by code that it first meets under a dispatch mode, and never comes back.
    """
    if COMPILER not in sys.modules:
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def watched_modules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield path and module of everything that can be hooked, the root first.

    What `torch.compile` has compiled is one module, and so is a script module; one that was
    compiled in place is an `InputError`.
    """
    seen: set[int] = set()
    stack: list[tuple[str, nn.Module]] = [("", root)]
    while stack:
        path, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        if _in_place(module):
            raise InputError(
                f"{path} was compiled in place, which hides when it is called: assign what "
                "torch.compile returns"
            )
        yield path, module
        if is_compiled(module) or isinstance(module, torch.jit.ScriptModule):
            continue
        children = [(f"{path}.{n}" if path else n, m) for n, m in module.named_children()]
        stack += reversed([c for c in children if not isinstance(c[1], torch.jit.ScriptModule)])


class Hooks:
    """Hooks on a model, a call of which begins a step; `attach` and `detach` them in pairs.

    `steps` is asked for the session; `parts` are as they were when they were last looked at.
    `compiled` are paths of modules that are hooked and compiled; `unseen` waits for the first call.
    """

    def __init__(self, root: nn.Module, steps: StepKeeper, guard: Guard = RAISING) -> None:
        self.root, self.steps, self.guard = root, steps, guard
        self.unseen: Unseen | None = None
        self.threads = Threads()
        self.compiled: set[str] = set()
        self.parts = Parts(root)
        self._handles: list[Any] = []
        self._root: RootHook | None = None
        self._root_handles: list[Any] = []
        self._modules: dict[str, nn.Module] = {}
        self._heard: tuple[frozenset[str], ...] = ()

    @property
    def local(self) -> Local:
        """The sessions of the calling thread."""
        return self.threads.local

    def attach(self, wanted: Callable[[str], bool] = lambda path: True) -> None:
        """Hook the root and the modules whose path is wanted."""
        self.look_again()
        modules = dict(watched_modules(self.root))
        self.compiled = {path for path, module in modules.items() if is_compiled(module)}
        self._root = root = RootHook(self, modules.pop(""))
        self._root_handles = self._hook(self.root, root.enter, root.leave)
        self._modules = modules
        paths = frozenset(filter(wanted, modules))
        self._heard = frozenset(), frozenset()
        self.listen(paths, paths)

    def listen(self, heard: Collection[str] | None, left: Collection[str] | None) -> None:
        """Hook other modules inside of the root from now on; None for all.

        The session is told of calls of those that are `heard`, and of the ends of those that are
        `left`.
        """
        asked = tuple(frozenset(self._modules if e is None else e) for e in (heard, left))
        if asked == self._heard:
            return
        self._heard = asked
        self._unhook(self._handles)
        for path, module in self._modules.items():
            enter = EnterHook(self, path) if path in asked[0] else None
            leave = LeaveHook(self, path) if path in asked[1] else None
            self._handles += self._hook(module, enter, leave)

    def _hook(
        self, module: nn.Module, enter: UncopiedHook | None, leave: UncopiedHook | None
    ) -> list[Any]:
        found = []
        if enter is not None:
            # What is gathered for a module, and freed after it, belongs to its call.
            first = bool(self.parts.sharded)
            found.append(module.register_forward_pre_hook(enter, with_kwargs=True, prepend=first))
        if leave is not None:
            found.append(module.register_forward_hook(leave, always_call=True))
        return found

    def look_again(self) -> None:
        """List the parts of the root anew: modules may have been replaced."""
        self.parts = Parts(self.root)

    def detach(self) -> None:
        """Remove every hook; a call of the root that is being made still ends as one of a step."""
        self._unhook(self._handles)
        if self._root is not None and self._root.goes_on():
            self._root.last = self._root_handles.pop()
        elif self._root is not None:
            self._root.forget()
        self._unhook(self._root_handles)
        self._modules, self._root = {}, None
        self.threads = Threads()

    @staticmethod
    def _unhook(handles: list[Any]) -> None:
        while handles:
            handles.pop().remove()
