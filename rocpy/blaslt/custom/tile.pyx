# SPDX-License-Identifier: MIT
"""Products with a tile program of the caller's: what the program reads and writes beside the result, planned and kept as other products."""

import sys

from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr

from abi cimport hipStream_t

from rocpy cimport _core
from rocpy cimport _operand
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport Operands, describe, describe_scales, dtype_code, info, must_be_staged, parse_all, parse_one, problem_of, read_factors
from rocpy.blaslt.engine.build cimport build
from rocpy.blaslt.engine.launch cimport (
    CachedCall, MatmulFactors, PlanKey, StreamContext, after_hold, after_wait, algorithms_of, borrow_context, execute, place_of,
    plan_cache, release_context, settle,
)
from rocpy.blaslt.engine.program cimport TileProgram, operand_type
from rocpy.blaslt.model.packed cimport Packed
from rocpy.blaslt.engine._scales cimport Scales, read_scales
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.model.problem import OperandInfo, dense_strides
from rocpy.errors import InvalidProblemError

# Algorithms that are asked for where one is to be found by its place.
cdef int _LISTED = 64


cdef dict _BOOLEAN = {}  # by dtype: a dtype's name is slow to ask for


cdef bint is_boolean(object array) except -1:
    """Whether an array of any framework has the type of truth values."""
    cdef object dtype = getattr(array, "dtype", None)
    cdef object found
    try:
        found = _BOOLEAN.get(dtype)
    except TypeError:  # of a framework whose dtypes have no hash
        return str(dtype).endswith("bool")
    if found is None:
        found = _BOOLEAN[dtype] = str(dtype).endswith("bool")
    return found


cdef class Call:
    """One call: the operands as they were parsed, and what plans and launches them."""

    cdef TileProgram program
    cdef Operands operands
    cdef Operand extra[24]  # inputs, then outputs
    cdef MatmulFactors factors
    cdef Scales scales
    cdef object options
    cdef object dtype
    cdef object compute
    cdef tuple held
    cdef int device, after
    cdef hipStream_t stream
    cdef StreamUse use
    cdef tuple arrays  # a, b, c, bias
    cdef tuple inputs
    cdef object owner  # a, or the bytes that it is packed in: whose framework makes results
    # What another call is to be made instead for: operands in CPU memory, and a bias for each row.
    cdef bint staged, row_bias

    def __cinit__(self, TileProgram program not None, object a, object b, object c, object bias, tuple inputs, object alpha, object beta,
                  object dtype, object compute, tuple given, object options, object stream):
        cdef int i
        _core.ensure()
        self.program = program
        self.options = _options.resolve_options(options)
        self.dtype, self.compute = dtype, compute
        if len(inputs) != program.inputs:
            raise InvalidProblemError(f"inputs: {len(inputs)} arrays; the tile program reads {program.inputs}")
        if isinstance(b, WeightOperand):
            b = (<WeightOperand>b).read()  # owned by this call
        self.row_bias = isinstance(b, WeightOperand) and bias is not None and _copies.unpacked(b, bias) is not b
        if given is not None:
            a, b = _blocks.prepare(a, b, given[0], given[1], self.options)
        self.staged = _staging.has_own_memory() and must_be_staged(a, (b, c, bias))
        if self.staged or self.row_bias:
            return
        self.owner = (<Packed>a).memory if type(a) is Packed else a
        self.arrays = (a, b, c, bias)
        kept = parse_all(&self.operands, a, b, c, bias, None, None)
        inputs = tuple([seen_as(x, "uint8") if is_boolean(x) else x for x in inputs])
        parsed = [parse_one(x, f"inputs[{i}]", &self.extra[i], &self.operands.a) for i, x in enumerate(inputs)]
        self.inputs = inputs
        self.held = (kept, parsed)
        read_factors(&self.factors, alpha, beta, c, self.operands.a.type)
        self.after = place_of(&self.operands.a, stream, &self.device, &self.stream, &self.use)
        if given is not None:
            self.scales = read_scales(given, &self.operands.a, &self.operands.b, self.device)
        self.row_bias = self.operands.bias.ndim > 1 and self.problem().column_bias

    cdef fill_key(self, PlanKey *key, int requested):
        cdef int64_t word
        cdef int i, axis
        # No epilogue's number: bit 30 tells such keys from all others.
        word = <int64_t>1 << 30 | (<int64_t>(dtype_code(self.dtype) & 0xffff) << 8) | <int64_t>(requested > 1)
        if self.compute is not None:
            word |= <int64_t>(1 + _settings.compute_code(self.compute)) << 24
        word |= <int64_t>self.operands.packed << 28 | <int64_t>(self.scales is not None) << 29
        key.size = 0
        key.add(word)
        key.add(self.program.kept.id)
        key.add(self.device)
        key.add(hash(self.options))
        for name in self.program.outputs:
            key.add(operand_type(name))
        describe(key, &self.operands)
        for i in range(self.program.inputs):
            key.add((<int64_t>self.extra[i].type << 8) | self.extra[i].ndim)
            for axis in range(self.extra[i].ndim):
                key.add(self.extra[i].shape[axis])
                key.add(self.extra[i].strides[axis])
        if self.scales is not None:
            describe_scales(key, self.scales)

    cdef object problem(self):
        return problem_of(&self.operands, "default" if self.operands.bias.ndim < 0 else "bias", self.dtype, self.compute, None, self.scales)

    cdef shared_ptr[CachedCall] plan(self, int requested) except *:
        cdef StreamContext *context = NULL
        cdef shared_ptr[CachedCall] call
        cdef int i
        problem = self.problem()
        if self.program.pairs and problem.n % 2:
            raise InvalidProblemError(f"{problem}: a tile program of pairs makes one column out of two, and N is odd")
        shape = result_of(problem, self.program.pairs)
        beside = [beside_of(info(&self.extra[i]), problem, shape, i) for i in range(self.program.inputs)]
        beside += [beside_of(OperandInfo(shape, dense_strides(shape), name), problem, shape, -1) for name in self.program.outputs]
        with nogil:
            status = borrow_context(self.device, self.stream, &context)
        _core.check(status)
        try:
            call = build(problem, self.options, context, self.operands.packed, requested, self.program, tuple(beside))
        finally:
            release_context(context)
        return call

    cdef tuple dense(self, int copies):
        """Return a, b, c and bias with those copied that the library cannot take as they lie."""
        a, b, c, bias = self.arrays
        problem = self.problem()
        if self.options.copies == "error":
            name = next(name for name, bit in _settings.COPY_BITS.items() if copies >> bit & 1)
            raise _refusals.copy_refused(name, "of a tile program")
        if self.after != after_wait:
            settle(self.stream)
        made = dict(a=a, b=b, c=c, bias=bias)
        for name in made:
            if copies >> _settings.COPY_BITS[name] & 1:
                made[name] = _copies.contiguous(made[name], problem.result_shape if name == "c" else None)
        if self.after != after_wait:
            settle(self.stream)
        return tuple(made.values())

    cdef tuple run(self, CachedCall *call, size_t rank):
        cdef void *pointers[24]
        cdef int i, place
        cdef int count = self.program.inputs
        cdef list outputs = []
        cdef Operand *to
        cdef Operand absent
        absent.ndim = -1
        for i in range(count):
            pointers[i] = self.extra[i].data
        for i, name in enumerate(self.program.outputs):
            to = &self.extra[count + i]
            to.type = operand_type(name)
            to.device_type, to.device_id = self.operands.a.device_type, self.operands.a.device_id
            to.ndim = call.result_ndim
            for place in range(to.ndim):
                to.shape[place] = call.result_shape[place]
            made = _operand.allocate(self.owner, self.operands.a.provider, to)
            outputs.append(seen_as(made, "bool") if name == "bool" else made)
            pointers[count + i] = to.data
        held = (self.held, outputs)
        if self.after >= after_hold:
            held = (held, pinned_memories((*self.arrays, *self.inputs, *outputs)))
        result = execute(call, &self.operands.a, &self.operands.b, &self.operands.c, &self.operands.bias, &absent, &absent, self.owner,
                         None, held, self.factors, self.scales, rank, self.device, self.stream, self.after, pointers)
        return (result, *outputs)


cdef object seen_as(object array, str name):
    """Return an array of bytes as one of another type of bytes; a Buffer knows bytes alone."""
    if not hasattr(array, "view"):
        return array
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    return array.view(getattr(module, name, name) if hasattr(module, "Tensor") else name)


cdef tuple result_of(object problem, bint pairs):
    """Return the result's shape with all of numpy's promoted axes, half as wide where two columns make one."""
    return (*problem.batch_shape, problem.m, problem.n // 2 if pairs else problem.n)


cdef object beside_of(object given, object problem, tuple shape, int which):
    """Return an array as one of the result's whole shape, in which what is repeated has stride 0."""
    extents, strides = list(given.shape), list(given.strides)
    if which >= 0:
        # Axes that the result lacks because an operand is a vector, the input lacks too.
        if len(problem.b.shape) == 1:
            extents.append(1)
            strides.append(0)
        if len(problem.a.shape) == 1:
            place = max(0, len(extents) - 1)
            extents.insert(place, 1)
            strides.insert(place, 0)
    missing = len(shape) - len(extents)
    extents = [1] * missing + extents
    strides = [0] * missing + strides
    if missing < 0 or any(e not in (1, wanted) for e, wanted in zip(extents, shape)):
        raise InvalidProblemError(
            f"inputs[{which}]: shape {given.shape}; it must broadcast to the result's, {problem.result_shape[:-1]} + ({shape[-1]},)"
        )
    steps = tuple([0 if e == 1 else s for e, s in zip(extents, strides)])
    return OperandInfo(shape, steps, given.dtype)


cdef TileProgram with_row_bias(TileProgram program):
    """Return a program that begins by adding its last input, one more than it had, to the product."""
    cdef int free = 0
    for one in program.instructions:
        for register in one[1:2 if one[0] == "CONSTANT" else None]:
            if isinstance(register, int) and register >= free:
                free = register + 1
    cdef list code = [("INPUT", free, program.inputs)]
    for one in program.instructions:
        code.append(one)
        if one[0] in ("VALUE", "PARTNER"):
            code.append(("ADD", one[1], one[1], free))
    return TileProgram(code, program.result, program.inputs + 1, program.outputs, pairs=program.pairs)


cdef tuple staged_product(object a, object b, object c, TileProgram program, tuple inputs, object bias, object scales, object out, object options,
                          object stream, dict arguments):
    """Run a product on copies of its operands on the device, and bring its results back."""
    resolved = _options.resolve_options(options)
    _staging.check_allowed(resolved)
    scales = _staging.upload_scales(scales)
    blocks = scales is not None and (_blocks.are_blocks(scales[0]) or _blocks.are_blocks(scales[1]))
    prepared = (a, b) if scales is None else _blocks.prepare(a, b, scales[0], scales[1], resolved)
    like = getattr(prepared[0], "memory", prepared[0])
    moved = [_staging.upload(x, name, blocks=blocks) for x, name in zip((*prepared, c, bias), ("a", "b", "c", "bias"))]
    beside = tuple([_staging._moved(seen_as(x, "uint8") if is_boolean(x) else x, f"inputs[{i}]", None)
                    for i, x in enumerate(inputs)])
    results = product(*moved[:3], program=program, inputs=beside, bias=moved[3], scales=scales, options=options, stream=stream, **arguments)
    made = [_staging.download(x, like, stream) for x in results]
    made[1:] = [seen_as(x, "bool") if name == "bool" else x for x, name in zip(made[1:], program.outputs)]
    if out is not None:
        _copies.assign(out, made[0])
        made[0] = out
    return tuple(made)


def product(a, b, c=None, *, program, inputs=(), alpha=1.0, beta=None, bias=None, dtype=None, compute=None, scales=None, out=None, options=None,
            stream=None, rank=0):
    """Return ``program(alpha * a @ b + beta * c + bias)`` and the program's other outputs, in one pass.

    Parameters
    ----------
    a, b, c, alpha, beta, bias, dtype, compute, out, options, stream
        As in :func:`rocpy.matmul`.
    program
        A :class:`TileProgram`.
    inputs
        What it reads: arrays that broadcast to the result.
    scales
        ``(scale_a, scale_b, scale_c, scale_d, False)``, or none.
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
    cdef PlanKey key
    cdef shared_ptr[CachedCall] call
    cdef Call made
    cdef int requested = _LISTED if rank else 1
    made = Call(program, a, b, c, bias, tuple(inputs), alpha, beta, dtype, compute, scales, options, stream)
    if made.staged:
        with _staging.on_device_of(stream):
            return staged_product(a, b, c, program, tuple(inputs), bias, scales, out, options, stream,
                                  dict(alpha=alpha, beta=beta, dtype=dtype, compute=compute, rank=rank))
    if made.row_bias:
        return product(a, b, c, program=with_row_bias(program), inputs=(*inputs, bias), alpha=alpha, beta=beta, dtype=dtype, compute=compute,
                       scales=scales, out=out, options=options, stream=stream, rank=rank)
    made.fill_key(&key, requested)
    if key.fits():
        call = plan_cache().find(key)
    if call.get() == NULL:
        call = made.plan(requested)
        if key.fits():
            plan_cache().insert(key, call)
    if call.get().copies:
        a, b, c, bias = made.dense(call.get().copies)
        return product(a, b, c, program=program, inputs=inputs, alpha=alpha, beta=beta, bias=bias, dtype=dtype, compute=compute, scales=scales,
                       out=out, options=options, stream=stream, rank=rank)
    if not 0 <= rank < max(1, len(algorithms_of(call.get(), -1)) if rank else 1):
        raise InvalidProblemError(f"rank={rank}: the platform has fewer algorithms for this tile program")
    results = made.run(call.get(), rank)
    if out is None:
        return results
    if made.after != after_wait:
        settle(made.stream)
    _copies.assign(out, results[0])
    return (out, *results[1:])


def algorithms(a, b, c=None, *, program, inputs=(), bias=None, dtype=None, compute=None, scales=None, options=None, requested=16):
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
    cdef shared_ptr[CachedCall] call
    cdef Call made = Call(program, a, b, c, bias, tuple(inputs), 1.0, None, dtype, compute, scales, options, None)
    if made.staged:
        left, right = (a, b) if scales is None else _blocks.prepare(a, b, scales[0], scales[1], made.options)
        a, b, c, bias = [_staging.upload(x, name) for x, name in zip((left, right, c, bias), ("a", "b", "c", "bias"))]
        inputs = [_staging._moved(seen_as(x, "uint8") if is_boolean(x) else x, "inputs", None) for x in inputs]
        scales = _staging.upload_scales(scales)
    if made.row_bias:
        program, inputs, bias = with_row_bias(program), (*inputs, bias), None
    if made.staged or made.row_bias:
        return algorithms(a, b, c, program=program, inputs=inputs, bias=bias, dtype=dtype, compute=compute, scales=scales, options=options,
                          requested=requested)
    call = made.plan(requested)
    if call.get().copies:
        a, b, c, bias = made.dense(call.get().copies)
        return algorithms(a, b, c, program=program, inputs=inputs, bias=bias, dtype=dtype, compute=compute, scales=scales, options=options,
                          requested=requested)
    return algorithms_of(call.get(), made.device)
