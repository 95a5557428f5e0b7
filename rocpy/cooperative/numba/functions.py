# SPDX-License-Identifier: MIT
"""The Python functions of a kernel: which of them are compiled with it, for whatever target, and what it may return."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import types as python_types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from numba.core import inline_closurecall, interpreter, ir, types
from numba.core.bytecode import _FIXED_OFFSET
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import fixup_var_define_in_scope, get_definition, guard
from numba.core.postproc import PostProcessor
from numba.core.target_extension import current_target
from numba.core.untyped_passes import InlineClosureLikes, MakeFunctionToJitFunction, TranslateByteCode
from numba.extending import typeof_impl

from rocpy.cooperative.kernel import faults
from rocpy.cooperative.kernel.fingerprint import fingerprint_of, names_of
from rocpy.cooperative.kernel.kernel import Kernel
from rocpy.cooperative.kernel.mode import Mode, current_mode, mode_of
from rocpy.cooperative.numba import floats
from rocpy.cooperative.numba.types import NO_KEYWORD_ONLY, refuse

_WITH_KERNELS = "rocpy.cooperative.arrays"  # the one module of the package whose functions are users' kernels, too

# What makes the dispatcher of a function, by Numba's name of the target: of the function, the kernel's mode, and
# whether references to arrays are counted.
DISPATCHERS: dict[str, Callable[[Any, Mode, bool], Any]] = {}
_compiling: list[Any] = []  # functions whose callees are compiled; under Numba's lock


@typeof_impl.register(Kernel)
def _typeof_kernel(kernel: Any, _context: Any) -> types.Type | None:
    """Return the type of a kernel that another kernel names and calls as a function."""
    make = DISPATCHERS.get(current_target())
    return make and types.Dispatcher(make(kernel.function, current_mode() or mode_of(kernel), False))


class _Interpreter(interpreter.Interpreter):
    """Numba's, but for what that loses of calls and of ``:=``."""

    def op_CALL(self, inst: Any, func: Any, args: Any, kw_names: Any, res: Any) -> None:  # noqa: N802
        """Translate a call; Numba splits those in a `try`, and has then forgotten which arguments have names."""
        if kw_names is None:
            kw_names = self._names_before(inst.offset)
        super().op_CALL(inst, func, args, kw_names, res)

    def _names_before(self, offset: int) -> int | None:
        for earlier in range(offset - 2, -1, -2):
            inst = self.bytecode.table.get(earlier)  # none in the middle of one whose argument is extended
            if inst is not None and inst.opname not in ("CACHE", "PRECALL"):
                return int(inst.arg) if inst.opname == "KW_NAMES" else None
        return None

    def _remove_unused_temporaries(self) -> None:
        """Numba makes `t = f()` of `$1 = f(); t = $1`, as if $1 were not used again: that of `(t := f()) > 8` is."""
        for name in self.dfainfo.outgoing_phis.values():  # a use: of `(b := b) if c else d`, too, whose b is assigned
            self.assigner.get_assignment_source(name)
        assigned = [(each, each.target) for each in self.current_block.body if isinstance(each, ir.Assign)]
        super()._remove_unused_temporaries()
        temporaries = {id(each): target for each, target in assigned if each.target is not target}
        used = {each.name for statement in self.current_block.body for each in statement.list_vars()}
        used.update(self.dfainfo.outgoing_phis.values())
        body: list[Any] = []
        for each in self.current_block.body:
            body.append(each)
            temporary = temporaries.get(id(each))
            if temporary is not None and temporary.name in used:
                body.append(ir.Assign(each.target, temporary, each.loc))
                self.definitions[temporary.name].append(each.target)
        self.current_block.body = body


@register_pass(mutates_CFG=True, analysis_only=False)
class Translation(TranslateByteCode):
    """Translates a function as it is written."""

    _name = "rocpy_translation"

    def run_pass(self, state: Any) -> bool:
        """Translate the function."""
        state["func_ir"] = _Interpreter(state["func_id"]).interpret(state["bc"])
        return True


class _Inlining(inline_closurecall.InlineClosureCallPass):
    """Numba's, which reads no names of arguments and takes the first defaults for what a call lacks."""

    def _inline_closure(self, work_list: Any, block: Any, i: int, func_def: Any) -> bool:
        if not isinstance(func_def, ir.Expr) or func_def.op != "make_function":
            return False
        i += self._pass_all(block, i, func_def)
        defaults, func_def.defaults = func_def.defaults, None  # which Numba would add to those
        try:
            return bool(super()._inline_closure(work_list, block, i, func_def))
        finally:
            func_def.defaults = defaults

    def _pass_all(self, block: Any, i: int, function: Any) -> int:
        """Have a call pass each argument by position; return how many statements before it read the defaults."""
        call, code = block.body[i].value, function.code
        name = "a nested function" if code.co_name.startswith("<") else code.co_name
        if call.vararg is not None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            raise refuse(f"{name}: nested functions neither have nor are called with *args or **kwargs: write them out")
        _refuse_keyword_only(name, code)
        names = code.co_varnames[: code.co_argcount]
        defaults = get_definition(self.func_ir, function.defaults).items if function.defaults else ()
        kinds: list[Any] = [inspect.Parameter.POSITIONAL_ONLY] * code.co_posonlyargcount
        kinds += [inspect.Parameter.POSITIONAL_OR_KEYWORD] * (len(names) - len(kinds))
        values = [inspect.Parameter.empty] * (len(names) - len(defaults)) + list(range(len(defaults)))
        parameters = [inspect.Parameter(n, k, default=v) for n, k, v in zip(names, kinds, values, strict=True)]
        try:
            bound = inspect.Signature(parameters).bind(*call.args, **dict(call.kws))
        except TypeError as error:
            raise refuse(f"{name} of ({', '.join(names)}) is called with other arguments: {error}") from None
        bound.apply_defaults()
        reads: list[Any] = []
        arguments = []
        for each in bound.arguments.values():
            if isinstance(each, int):  # the number of a default, whose value is what it was at the definition
                value = guard(get_definition, self.func_ir, defaults[each])
                if not isinstance(value, (ir.Const, ir.Global, ir.FreeVar)):
                    value = ir.Expr.static_getitem(function.defaults, each, None, call.loc)
                target = block.scope.redefine("$default", call.loc)
                self.func_ir._definitions[target.name] = [value]
                reads.append(ir.Assign(value, target, call.loc))
                arguments.append(target)
            else:
                arguments.append(each)
        call.args, call.kws = arguments, ()
        block.body[i:i] = reads
        return len(reads)


@contextlib.contextmanager
def _translating_nested_functions() -> Iterator[None]:
    """Have Numba translate the functions that one defines as it is translated itself; under Numba's lock."""
    before = interpreter.Interpreter, inline_closurecall.InlineClosureCallPass
    interpreter.Interpreter, inline_closurecall.InlineClosureCallPass = _Interpreter, _Inlining
    try:
        yield
    finally:
        interpreter.Interpreter, inline_closurecall.InlineClosureCallPass = before


@register_pass(mutates_CFG=True, analysis_only=False)
class InlinedFunctions(InlineClosureLikes):
    """Puts functions that are defined in a kernel in line, where it calls them."""

    _name = "rocpy_inlined_functions"

    def run_pass(self, state: Any) -> bool:
        """Put the functions in line."""
        with _translating_nested_functions():
            _Inlining(state.func_ir, state.flags.auto_parallel, state.parfor_diagnostics.replaced_fns, typed=True).run()
        PostProcessor(state.func_ir).run()
        fixup_var_define_in_scope(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class NestedFunctions(MakeFunctionToJitFunction):
    """Compiles functions that are defined in a kernel as those that it calls: Numba would do so for Python, too."""

    _name = "rocpy_nested_functions"

    def run_pass(self, state: Any) -> bool:
        """Replace the functions."""
        statements = [each for block in state.func_ir.blocks.values() for each in block.body]
        nested = [each for each in statements if getattr(getattr(each, "value", None), "op", None) == "make_function"]
        changed = super().run_pass(state)
        make, mode = DISPATCHERS.get(current_target()), current_mode()
        for each in nested:
            if make and mode and isinstance(each.value, ir.Global):
                each.value.value = make(each.value.value.py_func, mode, bool(state.flags.nrt))
        return bool(changed)


@contextlib.contextmanager
def compiling(function: Any) -> Iterator[None]:
    """Refuse, until the function is compiled, that one which it calls calls it; refuse one that cannot be called."""
    code = function.__code__
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise refuse(f"{function.__qualname__} is a coroutine function, which kernels cannot call: use def")
    _refuse_keyword_only(function.__qualname__, code)
    if function in _compiling:
        raise refuse(f"{function.__qualname__} calls itself, which functions called from kernels cannot do: use a loop")
    _compiling.append(function)
    try:
        yield
    finally:
        _compiling.pop()


def _refuse_keyword_only(function: str, code: Any) -> None:
    if code.co_kwonlyargcount:
        name = code.co_varnames[code.co_argcount]
        raise refuse(f"{function} has a keyword-only parameter, {name}, {NO_KEYWORD_ONLY}")


def cached_by_contents(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes a dispatcher of a function once, and again when what the function names changed."""
    cached = functools.cache(lambda function, _fingerprint, *choices: make(function, *choices))
    return lambda function, *choices: cached(function, fingerprint_of(function), *choices)


def position_of(code: Any, offset: int, line: int) -> Any:
    """Return where a call of a line is in the source: what CPython compiles twice, as a loop's test, is one call.

    Parameters
    ----------
    code
        Of a function, which may define others that are compiled in its place.
    offset
        Of the call, as Numba counts; what is returned where the source is not known.
    line
        Of the call.
    """
    index = (offset - _FIXED_OFFSET) // 2
    codes = [code]
    for each in codes:
        codes += [constant for constant in each.co_consts if isinstance(constant, python_types.CodeType)]
        position = next(itertools.islice(each.co_positions(), index, None), None) if index >= 0 else None
        if position is not None and position[0] == line and None not in position:
            return position
    return offset


def callees(function: Any) -> list[Any]:
    """Return the Python functions that a function names, which are compiled for the same target."""
    names = names_of(function.__code__)
    values = [value for name, value in function.__globals__.items() if name in names]
    values += [value for cell in function.__closure__ or () for value in _contents(cell)]
    return [_plain(value) for value in values if _is_plain(value)]


def with_callees(function: Any, compiled: Mapping[Any, Any]) -> Any:
    """Return a copy of a function in which its `callees` are what they are compiled to."""
    names = names_of(function.__code__)
    world = dict(function.__globals__)
    for name in names:
        if _is_plain(world.get(name)):
            world[name] = compiled.get(_plain(world[name]), world[name])
    closure = function.__closure__
    if closure:
        closure = tuple(
            python_types.CellType(compiled.get(_plain(value), value))
            if _is_plain(value := next(_contents(cell), None))
            else cell
            for cell in closure
        )
    copy = python_types.FunctionType(function.__code__, world, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    copy.__doc__ = function.__doc__
    return copy


def _contents(cell: Any) -> Iterator[Any]:
    with contextlib.suppress(ValueError):  # not bound yet
        yield cell.cell_contents


def _is_plain(value: Any) -> bool:
    if isinstance(value, Kernel):
        return True
    module = getattr(value, "__module__", None) or ""
    return isinstance(value, python_types.FunctionType) and (
        module == _WITH_KERNELS or not module.startswith(("rocpy.", "numba.", "numpy."))
    )


def _plain(value: Any) -> Any:
    return value.function if isinstance(value, Kernel) else value


def returns_nothing(result: Any) -> None:
    """Refuse a compiled kernel that returns something."""
    returned = result.signature.return_type
    if isinstance(returned, types.Generator):
        raise refuse("a kernel cannot be a generator, but this has a yield: write results into an array")
    if returned is not types.none:
        raise refuse(f"a kernel returns nothing, but this returns {returned}: write results into an array")


def warn_of_float64(kernel: Any, arguments: tuple[types.Type, ...], metadata: dict[str, Any]) -> None:
    """Warn of a kernel for float32 that computes in float64, with the first line that does."""
    if floats.surprises(arguments):
        faults.warn_of_float64(kernel, metadata.get(floats.NOTES, []))
