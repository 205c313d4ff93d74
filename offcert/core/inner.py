"""How kernels are compiled that only kernels call.

Numba makes machine code of every kernel, then optimises the same kernel again as a part of each of
its callers. The machine code of one that nobody calls by itself is never run, so it is not made:
what is kept is the code before that, for callers to take in.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _InnerLibrary(JITCodeLibrary):
    """Code that is taken into callers' code and never run by itself."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    """Numba's own, into such a library."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        # Callers find code by what would be called; this stands for it.
        key = _Uncallable()
        state.cr = state.cr._replace(cfunc=key)
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        return True


class _Uncallable:
    """Where the machine code of an inner kernel would be."""


class InnerCompiler(CompilerBase):
    """Numba's compiler, without machine code at its end."""

    def define_pipelines(self) -> list[Any]:
        """Return Numba's passes with the lowering replaced."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state, "inner")
        passes.passes = [
            (_InnerLowering if kind is NativeLowering else kind, text)
            for kind, text in passes.passes
        ]
        passes._finalized = False
        passes.finalize()
        return [passes]
