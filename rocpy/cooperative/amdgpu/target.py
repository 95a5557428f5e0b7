# SPDX-License-Identifier: MIT
"""AMD GPUs as a target of Numba's: the front end is Numba's own, the code a text of LLVM's, with no GPU and no ROCm."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import callconv, cgutils, types, typing
from numba.core.codegen import Codegen, CodeLibrary
from numba.core.cpu import CPUContext, CPUTargetOptions
from numba.core.descriptors import TargetDescriptor
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.runtime.context import NRTContext
from numba.core.target_extension import (
    GPU,
    JitDecorator,
    dispatcher_registry,
    jit_registry,
    target_override,
    target_registry,
)
from numba.np import arrayobj

from rocpy.cooperative.numba.llvm_types import TRIPLE
from rocpy.cooperative.numba.types import NO_MEMORY, refuse

NAME = "rocpy_amdgpu"
CONSTANT, GLOBAL = 4, 1  # address spaces


class AMDGPU(GPU):
    """The target, in Numba's family of them."""


target_registry[NAME] = AMDGPU


@functools.cache
def target_machine(arch: str, features: str = "") -> Any:
    """Return LLVM's target machine of an architecture, with features that are not its own."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=arch, features=features, opt=3)
    machine.set_asm_verbosity(True)
    return machine


class Library(CodeLibrary):
    """Modules as text, and the libraries that they call into."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.modules: list[str] = []
        self.linked: list[Library] = []

    def add_linking_library(self, library: Any) -> None:
        """Remember a library that this one calls into."""
        if not isinstance(library, Library):
            raise refuse(
                f"{library.name} was compiled for the CPU; name the Python function in place of its compiled form"
            )
        self.linked.append(library)

    def add_ir_module(self, ir_module: Any) -> None:
        """Add a module."""
        self.modules.append(str(ir_module))

    def finalize(self) -> None:
        """Nothing is linked before the whole kernel is."""
        self._finalized = True

    def get_function(self, name: str) -> Any:
        """Refuse: there is text only."""
        raise KeyError(name)

    def get_llvm_str(self) -> str:
        """Return the modules."""
        return "\n".join(self.modules)

    def get_asm_str(self) -> str:
        """Return nothing: assembly is made of whole kernels."""
        return ""

    def all_modules(self) -> list[str]:
        """Return the modules of this library and of those it calls into, each once."""
        libraries: dict[int, Library] = {}

        def visit(library: Library) -> None:
            if id(library) not in libraries:
                libraries[id(library)] = library
                for each in library.linked:
                    visit(each)

        visit(self)
        return [text for library in libraries.values() for text in library.modules]


class _Codegen(Codegen):
    _library_class = Library

    def __init__(self) -> None:
        # Layouts of types are the same for all architectures.
        self._target_data = target_machine("gfx942").target_data
        self._data_layout = str(self._target_data)

    def _create_empty_module(self, name: str) -> Any:
        module = ir.Module(cgutils.normalize_ir_text(name))
        module.triple = TRIPLE
        module.data_layout = self._data_layout
        return module

    def _add_module(self, _module: Any) -> None:
        pass


@dataclass(frozen=True, eq=False)
class _Entry:
    """Stands for a compiled function, where the CPU has its address."""

    name: str


class _CallConvention(callconv.MinimalCallConv):
    """Of functions on a GPU: an exception ends its thread, and its arguments are not reported."""

    def return_dynamic_user_exc(
        self, builder: Any, exc: Any, _arguments: Any, _types: Any, loc: Any = None, func_name: Any = None
    ) -> None:
        """Leave with an exception whose arguments only a launch knows."""
        self.return_user_exc(builder, exc, None, loc, func_name)


class _NoRuntime(NRTContext):
    """Numba's memory: arrays of kernels belong to others, so that nothing is counted; nothing can be allocated."""

    def incref(self, *_arguments: Any) -> None:
        pass

    def decref(self, *_arguments: Any) -> None:
        pass

    def _require_nrt(self) -> None:
        raise refuse(NO_MEMORY)


class _Context(CPUContext):
    """Lowering as for the CPU, but for calls, constants and what a CPU's process alone has."""

    def init(self) -> None:
        self.is32bit = False
        self._internal_codegen = _Codegen()

    def load_additional_registries(self) -> None:
        rtsys.initialize(cpu_target.target_context)  # Numba's runtime is compiled once, for the CPU
        super().load_additional_registries()

    @functools.cached_property
    def call_conv(self) -> Any:
        return _CallConvention(self)

    @functools.cached_property
    def nrt(self) -> Any:
        return _NoRuntime(self, enabled=True)

    def post_lowering(self, _module: Any, _library: Any) -> None:
        pass

    def get_executable(self, _library: Any, fndesc: Any, _env: Any) -> Any:
        return _Entry(fndesc.mangled_name)  # calls are found by it

    def make_constant_array(self, builder: Any, typ: Any, ary: Any) -> Any:
        flat = ary.flatten(order=typ.layout)
        data = cgutils.create_constant_array(ir.IntType(8), bytearray(flat.data))
        constant = ir.GlobalVariable(
            builder.module, data.type, builder.module.get_unique_name("rocpy_constant"), addrspace=CONSTANT
        )
        constant.linkage, constant.global_constant, constant.initializer = "internal", True, data
        constant.align = 16
        pointer = constant.bitcast(ir.PointerType(ir.IntType(8), CONSTANT))
        intp = self.get_value_type(types.intp)
        array = arrayobj.make_array(typ)(self, builder)
        arrayobj.populate_array(
            array,
            data=builder.bitcast(builder.addrspacecast(pointer, ir.PointerType(ir.IntType(8))), array.data.type),
            shape=cgutils.pack_array(builder, [intp(extent) for extent in ary.shape], intp),
            strides=cgutils.pack_array(builder, [intp(stride) for stride in ary.strides], intp),
            itemsize=intp(ary.dtype.itemsize),
            meminfo=None,
        )
        return array._getvalue()


class _Options(CPUTargetOptions):
    def finalize(self, flags: Any, options: Any) -> None:
        flags.nrt = True  # arrays may be returned
        flags.error_model = "numpy"
        flags.no_cpython_wrapper = True
        flags.no_cfunc_wrapper = True
        super().finalize(flags, options)
        flags.enable_pyobject = flags.enable_looplift = flags.enable_pyobject_looplift = False
        flags.boundscheck = False


class _Target(TargetDescriptor):
    options = _Options

    @functools.cached_property
    def typing_context(self) -> Any:
        """Types of what kernels name."""
        return typing.Context()

    @functools.cached_property
    def target_context(self) -> Any:
        """Code of what kernels name."""
        return _Context(self.typing_context, self._target_name)


target = _Target(NAME)


class AMDGPUDispatcher(Dispatcher):
    """A Python function, compiled for AMD GPUs."""

    targetdescr = target

    def compile(self, sig: Any) -> Any:
        """Compile for the types of a signature."""
        with target_override(NAME):
            return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        """Remember what was compiled; there is nothing to call."""
        self.overloads[tuple(cres.signature.args)] = cres


dispatcher_registry[AMDGPU] = AMDGPUDispatcher


class _Jit(JitDecorator):
    """What Numba makes functions with while it compiles for this target."""

    def __init__(self, **options: Any) -> None:
        supported = {name: value for name, value in options.items() if name in ("inline", "forceinline", "fastmath")}
        self._options = {"nopython": True, **supported}

    def __call__(self, function: Any) -> Any:
        return AMDGPUDispatcher(function, targetoptions=self._options)


jit_registry[AMDGPU] = _Jit
