# SPDX-License-Identifier: MIT
"""What Numba compiles functions of kernels into on the CPU: code that is put in line in a kernel's entry, never run."""

from __future__ import annotations

import functools
from typing import Any

from numba import _dynfunc
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import BaseNativeLowering

from rocpy.cooperative.numba.lowering import CheckedLower, SiteLower

# What loaded code knows of Python, by its name there; as long as the process, as the code.
ENVIRONMENTS: dict[str, Any] = {}


class KernelLibrary(CPUCodeLibrary):
    """The code of a function.

    Numba's own library optimizes it and makes machine code of it. This is optimized with the entry that it becomes a
    part of, and only then made machine code.
    """

    counts_references = False  # Numba's own passes prune the counting

    def finalize(self) -> None:
        """Link what the function calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        if self.counts_references:
            self._optimize_final_module()
        self._final_module.verify()
        self._finalized = True


class _CPULowering(BaseNativeLowering):
    """Lowering into such a library."""

    def run_pass(self, state: Any) -> bool:
        """Lower the function."""
        context = state.targetctx  # of this function alone
        state.library = KernelLibrary(context.codegen(), state.func_id.func_qualname)
        state.library.counts_references = bool(state.flags.nrt)
        state.library.enable_object_caching()
        context.get_executable = functools.partial(_executable, context)
        return bool(super().run_pass(state))


def _executable(context: Any, library: Any, description: Any, environment: Any) -> Any:
    """Return what Numba knows a compiled function by: it has no address, and is not called."""
    name = description.qualname.rpartition(".")[2]
    return _dynfunc.make_function(description.lookup_module(), name, description.qualname, 0, environment, (library,))


@register_pass(mutates_CFG=True, analysis_only=False)
class SiteLowering(_CPULowering):
    """Lowering for ordinary launches."""

    _name = "rocpy_site_lowering"

    @property
    def lowering_class(self) -> Any:
        """What lowers."""
        return SiteLower


@register_pass(mutates_CFG=True, analysis_only=False)
class CheckedLowering(_CPULowering):
    """Lowering for debug mode."""

    _name = "rocpy_checked_lowering"

    @property
    def lowering_class(self) -> Any:
        """What lowers."""
        return CheckedLower
