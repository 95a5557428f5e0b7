# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Products with a tile program of the caller's: what the program reads and writes beside the result, planned and kept as other products."""

import sys

from libc.stdlib cimport free, malloc
from libcpp.memory cimport shared_ptr

from abi cimport hipStream_t

from rocpy cimport _core
from rocpy cimport _operand
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport check_copies, check_same_device, describe, describe_scales, dtype_code, info, must_be_staged, parse_all, parse_one, problem_of, read_factors
from rocpy.blaslt.operands._cpu_arrays cimport stages_arrays
from rocpy.blaslt.engine.build cimport build, copied_names
from rocpy.blaslt.engine.launch cimport (
    CachedCall, CallKind, Completion, Launch, MatmulFactors, Operands, PlanKey, PlanKind, PlanSettings, StreamContext, algorithms_of, borrow_context,
    execute, resolve_device_and_stream, plan_cache, refuse_capture, release_context, synchronize_stream,
)
from rocpy.blaslt.engine.program cimport TileProgram, operand_type
from rocpy.blaslt.model.packed cimport Packed
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments
from rocpy.blaslt.engine._scales cimport Scales, read_scales
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.model.problem import OperandInfo
from rocpy.blaslt.model.shapes import dense_strides
from rocpy.errors import InvalidProblemError

# Algorithms that are asked for where one is to be found by its place.
cdef int _LISTED = 64
cdef list _ACTIVE = _options.ACTIVE
cdef object _DEFAULT = _options.DEFAULT
# The position of its first input in a key, behind those of the product's operands.
cdef int _FIRST_INPUT = 6
cdef tuple _INPUT_NAMES = tuple([f"inputs[{i}]" for i in range(24)])


cdef dict _BOOLEAN = {}  # by dtype: a dtype's name is slow to ask for


cdef bint is_boolean(object array) except -1:
    """Whether an array of any framework has the type of truth values, which is none of a product's."""
    cdef Operand seen
    if _operand.parse_plainly(array, &seen):
        return False
    cdef object dtype = getattr(array, "dtype", None)
    cdef object answer
    try:
        answer = _BOOLEAN.get(dtype)
    except TypeError:  # of a framework whose dtypes have no hash
        return str(dtype).endswith("bool")
    if answer is None:
        answer = _BOOLEAN[dtype] = str(dtype).endswith("bool")
    return answer


cdef class Call:
    """One call: the operands as they were given and parsed, and what plans and launches them."""

    cdef TileProgram program
    cdef Operands *operands  # of one piece with what follows
    cdef Operand *extra  # inputs, then outputs
    cdef MatmulFactors factors
    cdef Scales scales
    cdef ProductCall arguments  # as the caller made it
    cdef object options
    cdef tuple arrays  # a, b, c and bias as they are multiplied
    cdef tuple inputs
    cdef tuple held
    cdef int device
    cdef Completion completion
    cdef hipStream_t stream
    cdef StreamUse use
    cdef object owner  # a, or the bytes that it is packed in: whose framework makes results
    # What another call is to be made instead for: operands in CPU memory, and a bias for each row.
    cdef bint staged, row_bias

    def __dealloc__(self):
        free(self.operands)

    cdef parse(self):
        """Read what was given."""
        cdef TileProgram program = self.program
        cdef ProductCall arguments = self.arguments
        cdef tuple inputs = <tuple>arguments.inputs
        cdef ScaleArguments scales = arguments.scales
        cdef object a = arguments.a, b = arguments.b, c = arguments.c, bias = arguments.bias
        _core.ensure()
        if arguments.options is _DEFAULT or (arguments.options is None and not _ACTIVE):
            self.options = _DEFAULT
        else:
            self.options = _options.resolve_options(arguments.options)
        if len(inputs) != program.inputs:
            raise InvalidProblemError(f"inputs: {len(inputs)} arrays; the tile program reads {program.inputs}")
        if isinstance(b, WeightOperand):
            b = (<WeightOperand>b).read()  # owned by this call
        self.row_bias = isinstance(b, WeightOperand) and bias is not None and _copies.unpacked(b, bias) is not b
        if scales is not None:
            a, b = _blocks.prepare(a, b, scales, self.options)
        self.staged = stages_arrays() and must_be_staged(a, (b, c, bias))
        if self.staged or self.row_bias:
            return
        self.owner = (<Packed>a).memory if type(a) is Packed else a
        self.arrays = (a, b, c, bias)
        self.operands = <Operands *>malloc(sizeof(Operands) + (len(inputs) + len(program.outputs)) * sizeof(Operand))
        if self.operands == NULL:
            raise MemoryError("no memory for the operands of a tile program")
        self.extra = <Operand *>(self.operands + 1)
        owners = parse_all(self.operands, a, b, c, bias, None, None)
        self.inputs = inputs
        input_owners = self.parse_inputs()
        self.held = None if owners is None and input_owners is None else (owners, input_owners)
        read_factors(&self.factors, arguments.alpha, arguments.beta, c, self.operands.a.type)
        self.completion = resolve_device_and_stream(&self.operands.a, arguments.stream, &self.device, &self.stream, &self.use)
        if scales is not None:
            self.scales = read_scales(scales, &self.operands.a, &self.operands.b, self.device, self.options.reproducible == "batch")
        self.check_memory()
        self.row_bias = self.operands.bias.ndim > 1 and self.problem().column_bias

    cdef int check_memory(self) except -1:
        """Refuse what was copied as it was read, where a graph would hold the copy or the options forbid it."""
        cdef ProductCall arguments = self.arguments
        cdef Py_ssize_t i
        check_copies((arguments.a, arguments.b, arguments.c, arguments.bias, None), self.operands, self.scales, self.completion, self.options)
        for i in range(len(self.inputs)):
            if self.extra[i].copied:
                refuse_capture(self.completion, f"a copy of {_INPUT_NAMES[i]} is read", "pass an aligned array in native byte order")
                if self.options.copies == "error":
                    raise _refusals.conversion_refused(_INPUT_NAMES[i], info(&self.extra[i]).text)
        return 0

    cdef list parse_inputs(self):
        """Read the program's inputs; returns what must be kept alive beside them."""
        cdef Py_ssize_t i
        cdef list owners = None
        for i in range(len(self.inputs)):
            x = self.inputs[i]
            if _operand.parse_plainly(x, &self.extra[i]):
                check_same_device(&self.operands.a, &self.extra[i], _INPUT_NAMES[i])
                continue
            if owners is None:
                owners = []
            if is_boolean(x):
                x = seen_as(x, "uint8")
                self.inputs = (*self.inputs[:i], x, *self.inputs[i + 1:])
            owners.append(parse_one(x, _INPUT_NAMES[i], &self.extra[i], &self.operands.a))
        return owners

    cdef Call with_row_bias(self):
        """Return the same call with a bias for each row as an input."""
        return call_of(biased(self.program), self.arguments.replaced(bias=None, inputs=(*self.arguments.inputs, self.arguments.bias)))

    cdef Call on_device(self):
        """Return the same call with copies of its operands on the device."""
        cdef ProductCall arguments = self.arguments
        cdef ScaleArguments scales = _staging.upload_scales(arguments.scales)
        blocks = _blocks.have_blocks(scales)
        a, b = arguments.a, arguments.b
        if scales is not None:
            a, b = _blocks.prepare(a, b, scales, self.options)
        copied = {name: _staging.upload(x, name, blocks=blocks) for name, x in (("a", a), ("b", b), ("c", arguments.c), ("bias", arguments.bias))}
        inputs = [_staging._moved(seen_as(x, "uint8") if is_boolean(x) else x, _INPUT_NAMES[i], None) for i, x in enumerate(arguments.inputs)]
        return call_of(self.program, arguments.replaced(inputs=tuple(inputs), scales=scales, **copied))

    cdef Call with_dense(self, tuple names):
        """Return the same call with copies of those operands that the library cannot read."""
        a, b, c, bias = self.dense(names)
        return call_of(self.program, self.arguments.replaced(a=a, b=b, c=c, bias=bias))

    cdef fill_key(self, PlanKey *key, int requested):
        cdef PlanSettings settings
        cdef int i
        settings.kind, settings.dtype = PlanKind.program, dtype_code(self.arguments.dtype)
        if self.arguments.compute is not None:
            settings.compute = _settings.compute_code(self.arguments.compute)
        settings.packed, settings.scaled, settings.listed = self.operands.packed, self.scales is not None, requested > 1
        key.begin(settings)
        key.add(self.program.cached.id)
        key.add(self.device)
        key.add(0 if self.options is _DEFAULT else _options.key_word(self.options))
        for name in self.program.outputs:
            key.add(operand_type(name))
        describe(key, self.operands)
        for i in range(self.program.inputs):
            key.add_operand(_FIRST_INPUT + i, self.extra[i])
        if self.scales is not None:
            describe_scales(key, self.scales)

    cdef object problem(self):
        return problem_of(self.operands, "default" if self.operands.bias.ndim < 0 else "bias", self.arguments.dtype, self.arguments.compute, None, self.scales)

    cdef shared_ptr[CachedCall] plan(self, int requested) except *:
        cdef StreamContext *context = NULL
        cdef shared_ptr[CachedCall] call
        cdef int i
        problem = self.problem()
        if self.program.pairs and problem.n % 2:
            raise InvalidProblemError(f"{problem}: a tile program of pairs combines two columns into one, so N must be even")
        shape = result_of(problem, self.program.pairs)
        auxiliaries = [input_of(info(&self.extra[i]), problem, shape, i) for i in range(self.program.inputs)]
        auxiliaries += [output_of(shape, name) for name in self.program.outputs]
        with nogil:
            status = borrow_context(self.device, self.stream, &context)
        _core.check(status)
        try:
            call = build(problem, self.options, context, self.operands.packed, requested, self.program, tuple(auxiliaries))
        finally:
            release_context(context)
        return call

    cdef tuple dense(self, tuple names):
        """Return a, b, c and bias with those of some names copied."""
        a, b, c, bias = self.arrays
        problem = self.problem()
        if self.options.copies == "error":
            raise _refusals.copy_refused(names[0], "of a tile program")
        refuse_capture(self.completion, f"{names[0]} must be copied", _refusals.readable_form(names[0]))
        if self.completion != Completion.WAIT:
            synchronize_stream(self.stream, self.operands.a.device_type, self.operands.a.device_id)
        operands = dict(a=a, b=b, c=c, bias=bias)
        for name in names:
            operands[name] = _copies.contiguous(operands[name], problem.result_shape if name == "c" else None)
        if self.completion != Completion.WAIT:
            synchronize_stream(self.stream, self.operands.a.device_type, self.operands.a.device_id)
        return tuple(operands.values())

    cdef tuple run(self, CachedCall *call, size_t rank):
        cdef void *pointers[24]
        cdef int i, axis
        cdef int count = self.program.inputs
        cdef list outputs = None
        cdef tuple names = self.program.outputs
        cdef tuple held = self.held
        cdef Operand *to
        cdef Launch launch
        for i in range(count):
            pointers[i] = self.extra[i].data
        if names:
            outputs = []
            held = (held, outputs)
        for i in range(len(names)):
            name = names[i]
            to = &self.extra[count + i]
            to.type = operand_type(name)
            to.device_type, to.device_id = self.operands.a.device_type, self.operands.a.device_id
            to.ndim = call.result_ndim
            for axis in range(to.ndim):
                to.shape[axis] = call.result_shape[axis]
            array = _operand.allocate(self.owner, self.operands.a.provider, to)
            outputs.append(seen_as(array, "bool") if name == "bool" else array)
            pointers[count + i] = to.data
        if self.completion >= Completion.KEEP_ALIVE:
            held = (held, pinned_memories((*self.arrays, *self.inputs, *(outputs or ()))))
        launch.call, launch.operands, launch.factors = call, self.operands, &self.factors
        launch.out = NULL
        launch.program, launch.algorithm = pointers, rank
        launch.device, launch.stream, launch.completion = self.device, self.stream, self.completion
        result = execute(&launch, self.owner, None, held, self.scales)
        return (result,) if outputs is None else (result, *outputs)

    cdef tuple product(self, int rank):
        """Run the call, or the one that must be made instead."""
        cdef PlanKey key
        cdef shared_ptr[CachedCall] call
        cdef int requested = _LISTED if rank else 1
        if self.staged:
            with _staging.on_device_of(self.arguments.stream):
                return self.staged_product(rank)
        if self.row_bias:
            return self.with_row_bias().product(rank)
        self.fill_key(&key, requested)
        if key.fits():
            call = plan_cache().find(key)
        if call.get() == NULL:
            call = self.plan(requested)
            if key.fits():
                plan_cache().insert(key, call)
        if call.get().kind == CallKind.copy:
            return self.with_dense(copied_names(call.get())).product(rank)
        if not 0 <= rank < max(1, len(algorithms_of(call.get(), -1)) if rank else 1):
            raise InvalidProblemError(f"rank={rank}: the platform has fewer algorithms for this tile program")
        return self.run(call.get(), rank)

    cdef tuple staged_product(self, int rank):
        """Run the call on copies of its operands on the device, and bring its results back."""
        cdef ScaleArguments scales = self.arguments.scales
        a = self.arguments.a
        _staging.check_allowed(self.options)
        if scales is not None:
            a = _blocks.prepare(a, self.arguments.b, scales, self.options)[0]
        like = getattr(a, "memory", a)
        results = self.on_device().product(rank)
        downloaded = [_staging.download(x, like, self.arguments.stream) for x in results]
        downloaded[1:] = [seen_as(x, "bool") if name == "bool" else x for x, name in zip(downloaded[1:], self.program.outputs)]
        return tuple(downloaded)

    cdef list algorithms(self, int requested):
        """Return the algorithms of the call, or of the one that must be made instead."""
        cdef shared_ptr[CachedCall] call
        if self.staged:
            return self.on_device().algorithms(requested)
        if self.row_bias:
            return self.with_row_bias().algorithms(requested)
        call = self.plan(requested)
        if call.get().kind == CallKind.copy:
            return self.with_dense(copied_names(call.get())).algorithms(requested)
        return algorithms_of(call.get(), self.device)


cdef object seen_as(object array, str name):
    """Return an array of bytes as one of another type of bytes; a Buffer knows bytes alone."""
    if not hasattr(array, "view"):
        return array
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    return array.view(getattr(module, name, name) if hasattr(module, "Tensor") else name)


cdef tuple result_of(object problem, bint pairs):
    """Return the result's shape with all of numpy's promoted axes, half as wide where two columns make one."""
    return (*problem.batch_shape, problem.m, problem.n // 2 if pairs else problem.n)


cdef object input_of(object operand, object problem, tuple shape, int which):
    """Return an input as an array of the result's whole shape, in which what is repeated has stride 0."""
    extents, strides = list(operand.shape), list(operand.strides)
    # Axes that the result lacks because an operand is a vector, the input lacks too.
    if len(problem.b.shape) == 1:
        extents.append(1)
        strides.append(0)
    if len(problem.a.shape) == 1:
        axis = max(0, len(extents) - 1)
        extents.insert(axis, 1)
        strides.insert(axis, 0)
    missing = len(shape) - len(extents)
    extents = [1] * missing + extents
    strides = [0] * missing + strides
    if missing < 0 or any(e not in (1, wanted) for e, wanted in zip(extents, shape)):
        raise InvalidProblemError(
            f"inputs[{which}]: shape {operand.shape}; it must broadcast to the result's, {problem.result_shape[:-1]} + ({shape[-1]},)"
        )
    return OperandInfo(shape, repeatable(extents, strides), operand.dtype)


cdef object output_of(tuple shape, str dtype):
    return OperandInfo(shape, repeatable(shape, dense_strides(shape)), dtype)


cdef tuple repeatable(object extents, object strides):
    """Return strides, 0 along axes of one element, which may be repeated."""
    return tuple([0 if extent == 1 else stride for extent, stride in zip(extents, strides)])


cdef TileProgram biased(TileProgram program):
    """Return a program that begins by adding its last input, one more than it had, to the product."""
    cdef int unused = 0
    for one in program.instructions:
        for register in one[1:2 if one[0] == "CONSTANT" else None]:
            if isinstance(register, int) and register >= unused:
                unused = register + 1
    cdef list code = [("INPUT", unused, program.inputs)]
    for one in program.instructions:
        code.append(one)
        if one[0] in ("VALUE", "PARTNER"):
            code.append(("ADD", one[1], one[1], unused))
    return TileProgram(code, program.result, program.inputs + 1, program.outputs, pairs=program.pairs)


cdef Call call_of(TileProgram program, ProductCall arguments):
    cdef Call call = Call.__new__(Call)
    call.program, call.arguments = program, arguments
    call.parse()
    return call


cdef tuple run_program(TileProgram program, ProductCall call, int rank):
    return call_of(program, call).product(rank)


cdef list algorithms_of_program(TileProgram program, ProductCall call, int requested):
    return call_of(program, call).algorithms(requested)


def product(a, b, c=None, *, TileProgram program not None, inputs=(), alpha=1.0, beta=None, bias=None, dtype=None, compute=None, scales=None, options=None, stream=None,
            rank=0):
    """Return ``program(alpha * a @ b + beta * c + bias)`` and the program's other outputs, in one pass.

    Parameters
    ----------
    a, b, c, alpha, beta, bias, dtype, compute, options, stream
        As in :func:`rocpy.matmul`.
    program
        A :class:`TileProgram`.
    inputs
        What it reads: arrays that broadcast to the result.
    scales
        A :class:`rocpy.blaslt.model.scale_arguments.ScaleArguments`, or ``None``.
    rank
        Which of :func:`algorithms` runs it.

    Returns
    -------
    tuple
        The result, then the outputs.

    Raises
    ------
    UnsupportedError
        If the platform runs no such program.
    InvalidProblemError
        If shapes or types do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.blaslt.engine.program import TileProgram
    >>> from rocpy.blaslt.custom.tile import product
    >>> twice = TileProgram([("VALUE", 0), ("ADD", 0, 0, 0)], result=0)
    >>> product(np.eye(2, dtype=np.float32), np.full((2, 2), 3, np.float32), program=twice)[0].tolist()
    [[6.0, 6.0], [6.0, 6.0]]
    """
    return run_program(program, ProductCall(
        a, b, c, inputs=tuple(inputs), alpha=alpha, beta=beta, bias=bias, dtype=dtype, compute=compute, scales=scales, options=options,
        stream=stream), rank)


def algorithms(a, b, c=None, *, TileProgram program not None, inputs=(), bias=None, dtype=None, compute=None, scales=None, options=None, requested=16):
    """Return the algorithms that run a product with a tile program, best first; parameters as of :func:`product`.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.blaslt.engine.program import TileProgram
    >>> from rocpy.blaslt.custom.tile import algorithms
    >>> twice = TileProgram([("VALUE", 0), ("ADD", 0, 0, 0)], result=0)
    >>> algorithms(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), program=twice)[0].lowering
    'fused'
    """
    return algorithms_of_program(program, ProductCall(
        a, b, c, inputs=tuple(inputs), bias=bias, dtype=dtype, compute=compute, scales=scales, options=options), requested)
