"""`checkpoint_policies`: a certificate as policies of PyTorch's own selective checkpointing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from offcert.core.errors import InputError
from offcert.core.units import Units, format_size
from offcert.runtime.segments.attach import replaced
from offcert.runtime.segments.keeper import storage_number
from offcert.runtime.segments.placed import PlacedProgram, PlacedSegment
from offcert.runtime.segments.resolve import resolve
from offcert.runtime.segments.settings import generator_of
from offcert.runtime.torch_private import RunningNorm, TracingContext, tree_leaves
from offcert.runtime.watch.guard import OffloadWarning, RecomputeError
from offcert.runtime.watch.operators import changed_in_place, strided_tensors, tensors_of
from offcert.runtime.watch.saved_hooks import dtype_name

_BYTES = Units("ns", "B")
# The data type and the number of dimensions of each result that an operator makes.
Made = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class CheckpointRegion:
    """A call of a module, or of children of an `nn.Sequential`, under a checkpoint with a policy.

    For each operator in it that makes a tensor, in order, `makers` has data types and numbers of
    dimensions; results of those of the numbers `kept` stay, and all others run again.
    """

    segment: PlacedSegment
    makers: tuple[Made, ...]
    kept: frozenset[int]

    @property
    def path(self) -> str:
        """Path of the module, or of the container."""
        return self.segment.path

    @property
    def children(self) -> tuple[str, str] | None:
        """Names of the first and the last child, if it is a run of them."""
        return self.segment.children

    def policy_fn(self) -> Callable[..., CheckpointPolicy]:
        """Return a policy for one call: it counts the operators of the call."""
        return _Policy(self)

    @property
    def context_fn(self) -> Callable[[], Any]:
        """Makes the contexts of one call, as `torch.utils.checkpoint.checkpoint` asks for them.

        Inside of `torch.compile`, which calls other operators, it raises an `InputError`.
        """
        return partial(_contexts, self)


def _contexts(
    region: CheckpointRegion,
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    if TracingContext.try_get() is not None:
        raise InputError(
            f"{region.segment} is compiled, and a policy of a certificate knows the operators of "
            "the program only: call torch.compile(model, backend=offcert.backend(certificate))"
        )
    caching, cached = create_selective_checkpoint_contexts(
        region.policy_fn(), allow_cache_entry_mutation=True
    )
    return _settling(caching), _unchanged(region.segment, caching, cached)


@contextmanager
def _settling(caching: Any) -> Iterator[None]:
    """Keep results during a call; what the call itself has changed in place counts as it is now.

    The policy has seen those changes: they are kept, too.
    """
    with caching:
        yield
    for each in _stored(caching):
        each.version = each.val._version


@contextmanager
def _unchanged(segment: PlacedSegment, caching: Any, cached: Any) -> Iterator[None]:
    """Hand results out, unless something has changed them since the call has ended."""
    if any(each.version != each.val._version for each in _stored(caching)):
        raise RecomputeError(
            f"a result that {segment} keeps was changed in place after its call, so that gradients "
            "would be wrong"
        )
    with cached:
        yield


def _stored(caching: Any) -> Iterator[Any]:
    """Yield PyTorch's records of the tensors that are kept."""
    for entries in caching.storage.values():
        for each in tree_leaves(list(entries.values() if isinstance(entries, dict) else entries)):
            if isinstance(getattr(each, "val", None), torch.Tensor):
                yield each


class _Policy:
    """Decides about the operators of one call of a region, in their order."""

    def __init__(self, region: CheckpointRegion) -> None:
        self._region, self._number = region, 0
        # Addresses of storages that the call has made; of those that stay, and whether something
        # that runs again has read them.
        self._own: set[int] = set()
        self._kept: dict[int, bool] = {}
        self._strays = False
        # The operator that drew random numbers and is kept, and states of generators since.
        self._drew: str | None = None
        self._states = {torch.device("cpu"): generator_of(torch.device("cpu"))}
        # Earlier versions of PyTorch ask once more when the call runs again.
        self._answers: list[CheckpointPolicy] = []
        self._again = 0

    def __call__(self, ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        """Return whether the results of an operator stay."""
        if ctx.is_recompute:
            self._again += 1
            return self._answers[self._again - 1]
        saves = self._saves(op, args, kwargs, ctx.op_output)
        answer = CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.MUST_RECOMPUTE
        self._answers.append(answer)
        return answer

    def _saves(self, op: Any, args: Any, kwargs: Any, out: Any) -> bool:
        given = {storage_number(tensor) for tensor in tensors_of((args, kwargs))}
        changed = {storage_number(each) for each in changed_in_place(op, args, kwargs)}
        results = strided_tensors(out)
        made = {storage_number(each) for each in results} - given
        for device in {each.device for each in results} - set(self._states):
            self._states[device] = generator_of(device)
        if not made and not changed:
            # A view costs nothing.
            return False
        saves = self._wanted(op, [each for each in results if storage_number(each) in made])
        if changed:
            saves = self._changes(op, changed)
        self._own |= made
        if saves:
            self._kept |= dict.fromkeys(made, False)
        else:
            self._kept |= dict.fromkeys(given & set(self._kept), True)
            for each in made:
                self._kept.pop(each, None)
        if torch.Tag.nondeterministic_seeded in op.tags:
            self._require_random_numbers(op, saves, results)
        return saves

    def _wanted(self, op: Any, made: list[torch.Tensor]) -> bool:
        """Count an operator that makes something; return whether that stays."""
        if not made:
            return False
        number, self._number = self._number, self._number + 1
        looks = tuple((dtype_name(each.dtype), each.dim()) for each in made)
        if self._region.makers[number : number + 1] != (looks,):
            self._stray(op, number)
        return not self._strays and number in self._region.kept

    def _changes(self, op: Any, changed: set[int]) -> bool:
        """Return whether a change in place is kept, as what it changes is."""
        if not changed <= self._own:
            raise InputError(
                f"{self._region.segment} cannot run again under PyTorch's checkpointing: {op} "
                "changes what was there before, and would do so twice; offcert.offload puts it back"
            )
        kept = changed & set(self._kept)
        if kept and (kept != changed or any(self._kept[each] for each in kept)):
            raise InputError(
                f"{self._region.segment} keeps a result that {op} changes in place after others "
                "have read it, which no policy can say; offcert.offload can"
            )
        return bool(kept)

    def _require_random_numbers(self, op: Any, saves: bool, results: list[torch.Tensor]) -> None:
        """Refuse random numbers that would be others: those before them are not drawn again."""
        for device in {each.device for each in results}:
            before, self._states[device] = self._states[device], generator_of(device)
            if torch.equal(before, self._states[device]):
                continue
            if not saves and self._drew is not None:
                raise InputError(
                    f"{self._region.segment} keeps what {self._drew} draws, so that {op} would "
                    "draw other random numbers when it runs again, which no policy can say; "
                    "offcert.offload can"
                )
            if saves:
                self._drew = str(op)

    def _stray(self, op: Any, number: int) -> None:
        """Say once that the call is not as it was captured: from here on all runs again."""
        if not self._strays:
            warnings.warn(
                f"{self._region.segment} does not compute as captured: operator {number} of "
                f"{len(self._region.makers)} is {op}; what follows runs again, and the peak may be "
                "another",
                OffloadWarning,
                stacklevel=2,
            )
        self._strays = True


@dataclass(frozen=True)
class Policies:
    """A plan that PyTorch's checkpointing carries out by itself; see `checkpoint_policies`.

    Attributes
    ----------
    regions : tuple of Region
        In the order in which the forward pass enters them; one may lie in another.
    time, planned : int
        Ticks of the step under these policies (predicted; nothing is moved), and in the
        certificate.
    peak, limit : int
        Bytes at most, of what the trace counts (predicted), and the certificate's limit on that.
    changes : tuple of str
        Decisions of the certificate that no policy can say, and what is done instead.
    """

    name: str
    regions: tuple[CheckpointRegion, ...]
    time: int
    planned: int
    peak: int
    limit: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        peak, limit = (format_size(each, _BYTES) for each in (self.peak, self.limit))
        longer = f"{self.time / (self.planned or 1):.3f} times the step of the certificate"
        lines = [f"{self.name}: {len(self.regions)} checkpoints, peak {peak} of {limit}, {longer}"]
        return "\n".join([*lines, *(f"  {each}" for each in self.changes)])

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[nn.Module]:
        """Let calls of a model's modules run under `torch.utils.checkpoint.checkpoint` meanwhile.

        If the model lacks a module, or one cannot run again (compiled, sharded or script modules,
        and such as change statistics in each forward pass), an `InputError` is raised.
        """
        self._require(model)
        modules = dict(model.named_modules())
        rows: dict[str, list[CheckpointRegion]] = {}
        for region in self.regions:
            if region.children is not None:
                rows.setdefault(region.path, []).append(region)
        with ExitStack() as stack:
            for path, found in rows.items():
                run = partial(_row, modules[path], found)
                stack.callback(replaced(modules[path], "forward", run))
            # A call of a container lies around the runs of its children.
            for region in self.regions:
                if region.children is None:
                    module = modules[region.path]
                    run = partial(_call, module.forward, region)
                    stack.callback(replaced(module, "forward", run))
            yield model

    def _require(self, model: nn.Module) -> None:
        for proof in resolve(model, PlacedProgram(each.segment for each in self.regions)).proofs:
            for path in proof.paths:
                for name, module in model.get_submodule(path).named_modules(prefix=path):
                    if isinstance(module, RunningNorm) and module.track_running_stats:
                        raise InputError(
                            f"{proof.name} cannot run again under PyTorch's checkpointing: {name} "
                            "would count its statistics twice; offcert.offload puts them back"
                        )


def _children(container: nn.Module, region: CheckpointRegion) -> list[tuple[str, nn.Module]]:
    assert region.children is not None
    rows = list(container.named_children())
    names = [name for name, _ in rows]
    first, last = map(names.index, region.children)
    return rows[first : last + 1]


def _call(run: Callable[..., Any], region: CheckpointRegion, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(run, *args, use_reentrant=False, context_fn=region.context_fn, **kwargs)


def _row(container: nn.Module, regions: Sequence[CheckpointRegion], value: Any) -> Any:
    """Run the children of an `nn.Sequential`, those of each region under a checkpoint."""
    inside = {name: region for region in regions for name, _ in _children(container, region)}
    done: set[str] = set()
    for name, child in container.named_children():
        region = inside.get(name)
        if region is None:
            value = child(value)
        elif region.children is not None and region.children[0] not in done:
            done.add(region.children[0])
            value = _call(
                nn.Sequential(*dict(_children(container, region)).values()), region, value
            )
    return value
