# SPDX-License-Identifier: MIT
"""Wrong calls as people write them: the class of the error, and words that its message must have."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest

import rocpy
from rocpy import rccl
from rocpy._messages.distribution import install_command
from rocpy.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidOperandError,
    InvalidProblemError,
    RocpyError,
    UnsupportedError,
)

F32 = np.float32
# What the calls are made of: a of M = 4, K = 5, b of N = 6.
NAMES: dict[str, object] = {
    "copy": copy,
    "np": np,
    "rocpy": rocpy,
    "rccl": rccl,
    "A": np.ones((4, 5), F32),
    "B": np.ones((5, 6), F32),
    "C": np.ones((4, 6), F32),
    "BIAS": np.ones(6, F32),
    "INFO": rocpy.blaslt.OperandInfo.dense((4, 4), "float32"),
    "A3": np.ones((2, 4, 5), F32),
    "B3T": np.ones((2, 6, 5), F32),
    "COLUMN": np.ones((4, 3), F32)[:, :1],
    "TWICE": rocpy.epilogue(lambda x: 2 * x),
    "matmul": rocpy.matmul,
    "explain": rocpy.explain,
    "grouped": rocpy.grouped_matmul,
    "Weight": rocpy.Weight,
}

EPILOGUES = [
    ("matmul(A, B, epilogue='gelu_bais', bias=BIAS)", InvalidProblemError, "'gelu_bais'; did you mean 'gelu_bias'?"),
    ("rocpy.Epilogue('gleu')", InvalidProblemError, "no epilogue 'gleu'; did you mean 'gelu'?"),
    ("rocpy.epilogue(lambda y: y.astype('flaot32'))", InvalidOperandError, "'flaot32'", "did you mean 'float32'?"),
    ("matmul(A, B, epilogue='RELU')", InvalidProblemError, "did you mean 'relu'?"),
    ("matmul(A, B, epilogue='gelu-erf')", InvalidProblemError, "did you mean 'gelu_erf'?"),
    ("matmul(A, B, epilogue='gelu_tanh')", InvalidProblemError, "did you mean 'gelu'?"),
    ("matmul(A, B, epilogue='gelu_none')", InvalidProblemError, "did you mean 'gelu_erf'?"),
    ("matmul(A, B, epilogue='elu')", InvalidProblemError, "no epilogue 'elu'; names"),
    ("matmul(A, B, epilogue='softmax')", InvalidProblemError, "no epilogue 'softmax'", "names: default, bias"),
    ("matmul(A, B, epilogue=lambda y: y)", InvalidProblemError, "plain function", "@rocpy.epilogue"),
    (
        "matmul(A, B, epilogue=np.tanh)",
        InvalidProblemError,
        "tanh is a plain function",
        "pass rocpy.epilogue(lambda x: tanh(x))",
    ),
    ("explain(A, B, epilogue=max)", InvalidProblemError, "max is a plain function", "@rocpy.epilogue"),
    ("rocpy.Matmul(A, B, epilogue=lambda y: y)", InvalidProblemError, "plain function", "@rocpy.epilogue"),
    ("grouped([A], [B], epilogue=lambda y: y)", InvalidProblemError, "plain function", "@rocpy.epilogue"),
    ("matmul(A, B, epilogue=dict)", InvalidProblemError, "dict is a class", "@rocpy.epilogue"),
    ("grouped([A], [B], epilogue=TWICE)", UnsupportedError, "custom epilogues", "use rocpy.matmul"),
    ("grouped([A], B, epilogue=rocpy.epilogues.swiglu)", UnsupportedError, "custom epilogues", "use rocpy.matmul"),
    ("grouped(A, B[None], offsets=[0, 4], epilogue=TWICE)", UnsupportedError, "custom epilogues", "use rocpy.matmul"),
    ("explain([A], [B], epilogue=TWICE)", UnsupportedError, "custom epilogues", "use rocpy.matmul"),
    ("explain(A, B[None], offsets=[4], epilogue=TWICE)", UnsupportedError, "custom epilogues", "use rocpy.matmul"),
    ("explain([A], [B], epilogue='bgrada')", UnsupportedError, "'bgrada'", "use rocpy.matmul"),
    ("matmul(A, B, epilogue=lambda y: y, epilogue_inputs={})", InvalidProblemError, "@rocpy.epilogue"),
    ("matmul(A, B, epilogue='relu', epilogue_inputs={'s': 1})", InvalidProblemError, "epilogue_inputs", "'relu'"),
    ("matmul(A, B, epilogue=3)", InvalidProblemError, "epilogue must be a name", "int"),
    ("matmul(A, B, epilogue='gelu_bias')", InvalidProblemError, "needs bias=, of length N = 6"),
    ("matmul(A, B, epilogue='relu', bias=BIAS)", InvalidProblemError, "'relu_bias'"),
    ("matmul(A, B, epilogue='clamp')", InvalidProblemError, "clamp=(low, high)"),
    (
        "matmul(A, B, epilogue='clamp', clamp='01')",
        InvalidProblemError,
        "clamp: got '01'",
        "a pair of numbers (low, high)",
    ),
    (
        "matmul(A, B, epilogue='clamp', clamp=b'01')",
        InvalidProblemError,
        "clamp: got b'01'",
        "a pair of numbers (low, high)",
    ),
    ("matmul(A, B, epilogue='clamp', clamp=('0', '1'))", InvalidProblemError, "a pair of numbers (low, high)"),
    (
        "matmul(A, B, epilogue='clamp', clamp=range(10**12))",
        InvalidProblemError,
        "clamp: got range",
        "a pair of numbers (low, high)",
    ),
    ("matmul(A, B, epilogue='clamp', clamp=(0,))", InvalidProblemError, "a pair of numbers (low, high)"),
    (
        "explain(A, B, epilogue='clamp', clamp='01')",
        InvalidProblemError,
        "clamp: got '01'",
        "a pair of numbers (low, high)",
    ),
    ("matmul(A, B, epilogue='dgelu')", InvalidProblemError, "aux"),
    ("rocpy.epilogue(3)", (RocpyError, TypeError), "function"),
    ("rocpy.epilogue(lambda x: x if x > 0 else -x)", RocpyError, "where"),
]
# What is not an array, a case, a record or an operand's description at all.
OBJECTS = [
    (
        "Weight.from_linear(B)",
        InvalidOperandError,
        "module: got ndarray",
        "torch.nn.Linear",
        "Weight(array, layout='nk')",
    ),
    ("Weight.from_linear(None)", InvalidOperandError, "module: got NoneType"),
    ("rocpy.epilogues.interleave([1.0], [2.0])", InvalidOperandError, "gate: got list", "an array"),
    ("rocpy.epilogues.interleave(BIAS, None)", InvalidOperandError, "up: got NoneType"),
    ("rocpy.tuning.export_json(None)", InvalidOperandError, "records: got NoneType", "rocpy.tuning.Record"),
    ("rocpy.tuning.export_tunableop(3)", InvalidOperandError, "records: got int"),
    ("rocpy.tuning.export_hipblaslt(3)", InvalidOperandError, "records: got int"),
    ("rocpy.Graph(None)", InvalidOperandError, "stream: got NoneType", "rocpy.Stream"),
    ("rocpy.testing.run_case(None)", InvalidOperandError, "case: got NoneType", "rocpy.testing.Case"),
    ("rocpy.testing.make_operands(A)", InvalidOperandError, "case: got ndarray"),
    ("rocpy.testing.to_json([A])", InvalidOperandError, "selection: got ndarray"),
    ("rocpy.testing.to_json(None)", InvalidOperandError, "selection: got NoneType"),
    ("rocpy.testing.bounds(A, 'float32')", InvalidOperandError, "expected: got ndarray", "evaluate"),
    ("rocpy.testing.select(3)", InvalidProblemError, "tier: got 3", "'quick', 'full', 'slow'"),
    ("rocpy.testing.select('quik')", InvalidProblemError, "did you mean 'quick'?"),
    ("rocpy.testing.select([])", InvalidProblemError, "tier: got []"),
    ("rocpy.testing.Case.from_dict(None)", InvalidProblemError, "a dict, not NoneType"),
    ("rocpy.testing.Case.from_dict({'epilog': 'relu'})", InvalidProblemError, "epilog", "did you mean 'epilogue'?"),
    ("rocpy.blaslt.Problem.make(A, None)", InvalidOperandError, "a: got ndarray", "rocpy.blaslt.OperandInfo"),
    ("rocpy.blaslt.Problem.make(INFO, INFO, bias=3)", InvalidOperandError, "bias: got int"),
    ("rocpy.blaslt.Problem.make(INFO, INFO, epilogue='rleu')", InvalidProblemError, "did you mean 'relu'?"),
    ("rocpy.blaslt.Problem.make(INFO, INFO, epilogue='clamp', clamp=3)", InvalidProblemError, "clamp: got 3"),
]
KEYWORDS = [
    ("matmul()", TypeError, "matmul() missing 2 required positional arguments: 'a' and 'b'"),
    ("matmul(b=B)", TypeError, "matmul() missing 1 required positional argument: 'a'"),
    ("matmul(a=A, b=B)", TypeError, "matmul() takes 'a' and 'b' by position only"),
    ("rocpy.Matmul()", TypeError, "Matmul() missing 2 required positional arguments: 'a' and 'b'"),
    ("Weight()", TypeError, "Weight() missing 1 required positional argument: 'w'"),
    ("Weight.from_linear()", TypeError, "Weight.from_linear() missing 1 required positional argument: 'module'"),
    ("rocpy.Buffer(1).fill()", TypeError, "Buffer.fill() missing 1 required positional argument: 'value'"),
    ("rocpy.Buffer.from_dlpack()", TypeError, "Buffer.from_dlpack() missing 1 required positional argument: 'array'"),
    ("rocpy.Buffer.from_dlpack(arry=A)", TypeError, "from_dlpack() got", "Did you mean 'array'?"),
    ("rocpy.Buffer(1, 'int8', 'cpu')", TypeError, "Buffer() takes at most 2 positional arguments (3 given)"),
    ("rocpy.Stream().wait()", TypeError, "Stream.wait() missing 1 required positional argument: 'event'"),
    ("rccl.Communicator.send(None)", TypeError, "missing 2 required positional arguments: 'x' and 'peer'"),
    ("matmul(A, B, epilog='relu')", TypeError, "matmul() got", "'epilog'. Did you mean 'epilogue'?"),
    ("matmul(A, B, biases=BIAS)", TypeError, "Did you mean 'bias'?"),
    ("grouped([A], [B], epilogue='relu', epilogue_inputs={})", TypeError, "'epilogue_inputs'; it takes offsets,"),
    ("matmul(A, B, activation='relu')", TypeError, "Did you mean 'epilogue'?"),
    ("matmul(A, B, algoritm=0)", TypeError, "Did you mean 'algorithm'?"),
    ("matmul(A, B, nonsense=0)", TypeError, "it takes", "epilogue", "stream"),
    ("rocpy.Matmul(A, B, epilog='relu')", TypeError, "Matmul() got", "Did you mean 'epilogue'?"),
    ("rocpy.Matmul(A, B).autotune(iterations=5)", TypeError, "autotune() got", "Did you mean 'budget_ms'?"),
    ("rocpy.Matmul(A, B).execute(iterations=5)", TypeError, "execute() got", "it takes out, algorithm, stream"),
    ("rocpy.Matmul(A, B).plan(algorithm=0)", TypeError, "Did you mean 'algorithms'?"),
    ("rocpy.Matmul(A, B).reset_operands(x=A)", TypeError, "reset_operands() got", "it takes a, b"),
    ("explain(A, B, epilog='relu')", TypeError, "explain() got", "Did you mean 'epilogue'?"),
    ("explain(A, B, nonsense=0)", TypeError, "explain() got", "it takes c, alpha", "algorithm"),
    ("explain([A], [B], epilog='relu')", TypeError, "explain() got", "Did you mean 'epilogue'?"),
    ("explain(A, B3T, offsets=[0, 2, 4], epilog='relu')", TypeError, "explain() got", "Did you mean 'epilogue'?"),
    ("grouped([A], [B], epilog='relu')", TypeError, "grouped_matmul() got", "Did you mean 'epilogue'?"),
    ("grouped([A], [B], offset=[0, 4])", TypeError, "Did you mean 'offsets'?"),
    ("Weight(B, biass=BIAS)", TypeError, "Weight() got", "Did you mean 'bias'?"),
    ("Weight(B, scales=1.0)", TypeError, "Did you mean 'scale'?"),
    ("rocpy.Options(copys='error')", TypeError, "Options", "Did you mean 'copies'?"),
    ("rocpy.quantize(A, axes=0)", TypeError, "quantize() got", "Did you mean 'axis'?"),
    ("rocpy.quantize(A, dim=0)", TypeError, "Did you mean 'axis'?"),
    ("rocpy.Stream(priorty=0)", TypeError, "Stream() got", "Did you mean 'priority'?"),
    ("rocpy.Event(timings=True)", TypeError, "Event() got", "Did you mean 'timing'?"),
    ("rocpy.Module('kernels.co')", TypeError, "Module()", "create one with Module.from_code"),
    ("rocpy.runtime.Kernel('k')", TypeError, "Kernel()", "Module.kernel"),
    ("rccl.Communicator(2, 0, bytes(128))", TypeError, "Communicator()", "create one with init, init_all"),
    ("rccl.Communicator()", TypeError, "Communicator()", "from_torch"),
    ("rccl.Window(A)", TypeError, "Window()", "Communicator.window"),
    ("rccl.PreMulSum(2.0)", TypeError, "PreMulSum()", "Communicator.premul_sum"),
    ("rocpy.Buffer(16, dtyp='int8')", TypeError, "Did you mean 'dtype'?"),
    ("rccl.Communicator.init(1, 0, rccl.UniqueId.make(), timeout=3)", TypeError, "Did you mean 'timeout_s'?"),
    ("rccl.Communicator.init_all(1, timout_s=3)", TypeError, "Did you mean 'timeout_s'?"),
    ("rocpy.blaslt.supported('float32', epilog='relu')", TypeError, "Did you mean 'epilogue'?"),
    ("rocpy.plan_cache.resize(capcity=3)", TypeError, "resize() got", "Did you mean 'capacity'?"),
    ("rocpy.plan_cache.resize('3')", InvalidProblemError, "capacity: got '3'", "a number of plans, 0 or more"),
    ("rocpy.plan_cache.resize(-1)", InvalidProblemError, "capacity: got -1", "0 or more"),
    ("rocpy.plan_cache.resize(2**80)", InvalidProblemError, "capacity: got"),
]
OPTIONS = [
    ("matmul(A, B, options={'fallbck': 'error'})", InvalidProblemError, "'fallbck'; did you mean 'fallback'?"),
    ("rocpy.options(reproducable=True)", InvalidProblemError, "did you mean 'reproducible'?"),
    ("rocpy.options(3)", TypeError, "rocpy.options takes keywords", "copies='error'", "got 3"),
    ("rocpy.options({'copies': 'error'})", TypeError, "rocpy.options takes keywords", "got {'copies': 'error'}"),
    ("rocpy.options(copies='eror')", InvalidProblemError, "copies: got 'eror'", "'allow'", "did you mean 'error'?"),
    ("rocpy.options(reproducible='bacth')", InvalidProblemError, "did you mean 'batch'?"),
    ("rocpy.options(max_workspace_bytes='1 MB')", InvalidProblemError, "max_workspace_bytes: got '1 MB'", "bytes"),
    ("rocpy.Options(dynamic='n')", InvalidProblemError, "dynamic: got 'n'", "'m'"),
    ("matmul(A, B, options=3)", InvalidProblemError, "options must be", "int"),
    ("matmul(A, B, options=['copies'])", InvalidProblemError, "options must be", "list"),
    ("rocpy.platform.use('cuda')", InvalidProblemError, "'cuda'", "amd or host"),
    ("rocpy.platform.use('hots')", InvalidProblemError, "'hots'", "did you mean 'host'?"),
    ("rocpy.platform.environment('ROCPY_X')", InvalidProblemError, "ROCPY_X"),
]
DTYPES = [
    ("matmul(A, B, dtype='flaot32')", InvalidOperandError, "'flaot32'", "did you mean 'float32'?"),
    ("matmul(A, B, dtype='fp16')", InvalidOperandError, "did you mean 'float16'?"),
    ("matmul(A, B, dtype='bf16')", InvalidOperandError, "did you mean 'bfloat16'?"),
    ("matmul(A, B, compute='tf23')", InvalidProblemError, "compute: got 'tf23'", "did you mean 'tf32'?"),
    ("matmul(A, B, compute=32)", InvalidProblemError, "compute: got 32"),
    ("matmul(A, B, dtype='float16')", RocpyError, "float16"),
    ("matmul(A, B.astype('float64'))", InvalidProblemError, "a is float32 and b is float64", "cast one"),
    ("matmul(A > 0, B > 0)", RocpyError, "bool"),
    ("matmul(A, B, C.astype('float16'))", InvalidProblemError, "c is float16"),
    ("matmul(A.astype('int8'), B.astype('int8'), dtype='float32')", RocpyError, "scale"),
    ("rocpy.quantize(A, dtype='float8_e4m3')", InvalidOperandError, "did you mean 'float8_e4m3fn"),
    ("rocpy.quantize(A, dtype='float32')", InvalidProblemError, "dtype: got float32", "expected"),
    ("rocpy.quantize(A, axis=7)", InvalidProblemError, "axis: got 7", "2 axes"),
    ("rocpy.quantize([1.0])", InvalidOperandError, "list", "numpy array"),
    ("rocpy.quantize_mx(A, dtype='int8')", InvalidProblemError, "int8", "expected"),
    ("rocpy.dequantize(A, A)", RocpyError, "float32"),
    ("rocpy.quantize(A.astype(int))", RocpyError, "int64", "cast"),
]
SHAPES = [
    ("matmul(A, B.T)", InvalidProblemError, "must be equal; b.T would fit (shape (5, 6))"),
    ("matmul(A.T, B)", InvalidProblemError, "must be equal; a.T would fit (shape (4, 5))"),
    ("matmul(A3, B3T)", InvalidProblemError, "b with its last two axes exchanged would fit (shape (2, 5, 6))"),
    ("matmul(A, Weight(B.T))", InvalidProblemError, "must be equal", "would fit"),
    ("matmul(A, A)", InvalidProblemError, "b.T would fit"),
    ("grouped([A], [B.T])", InvalidProblemError, "b.T would fit"),
    ("matmul(np.float32(2), B)", RocpyError, "a"),
    ("matmul(A, np.array(2.0, 'float32'))", InvalidProblemError, "b: got a scalar", "multiply by it with *"),
    ("matmul(A, B, C.T)", InvalidProblemError, "c: shape (6, 4)", "(4, 6)"),
    ("matmul(A, B, epilogue='bias', bias=BIAS[:4])", InvalidProblemError, "bias: got shape (4,)", "N = 6"),
    (
        "matmul(A, BIAS[:5], epilogue='bias', bias=BIAS[:4])",
        InvalidProblemError,
        "length N = 1, as b is a vector; pass b[:, None] and a bias of shape (4, 1)",
    ),
    ("matmul(A3, np.ones((3, 5, 6), 'float32'))", InvalidProblemError, "(2,)", "(3,)", "broadcast"),
    ("matmul(A, B, out=C.T)", InvalidProblemError, "out"),
    ("matmul(A, B, beta=2.0)", InvalidProblemError, "beta = 2.0", "pass c="),
    ("Weight(BIAS)", InvalidProblemError, "w: got shape (6,)", "two axes"),
    ("Weight(B, bias=BIAS[:3])", InvalidProblemError, "bias: got shape (3,)", "N = 6"),
    ("Weight(B, layout='nt')", InvalidProblemError, "layout: got 'nt'", "'kn'", "'nk'"),
    ("Weight(Weight(B))", InvalidOperandError, "w: got a Weight", ".source"),
    ("Weight([[1.0]])", InvalidOperandError, "w: got list", "expected an array"),
    ("matmul(Weight(B), A)", InvalidOperandError, "a: got", "Weight"),
    ("grouped(A, B)", InvalidOperandError, "lists", "offsets="),
    ("grouped([A, A, A], [B, B])", RocpyError, "3", "2"),
    ("grouped(A, np.ones((2, 5, 6), 'float32'), offsets=[0, 9, 4])", RocpyError, "offsets"),
    ("matmul([[1.0]], B)", InvalidOperandError, "a: got list", "expected an array"),
    ("matmul(A, None)", InvalidOperandError, "b"),
    ("matmul(A, B, alpha='1')", RocpyError, "alpha", "'1'"),
]
STREAMS_AND_ALGORITHMS = [
    ("matmul(A, B, stream=12345)", InvalidOperandError, "stream: 0x3039 is not a stream"),
    ("rocpy.Matmul(A, B, stream=12345).execute()", InvalidOperandError, "stream: 0x3039 is not a stream"),
    ("rocpy.Matmul(A, B).execute(stream=12345)", InvalidOperandError, "stream: 0x3039 is not a stream"),
    ("grouped([A], [B], stream=12345)", InvalidOperandError, "stream: 0x3039 is not a stream"),
    ("matmul(A, B, stream=gone())", InvalidOperandError, "is not a stream", "destroyed"),
    ("matmul(A, B, stream=closed())", ClosedError, "Stream has been closed"),
    ("matmul(A, B, stream='0')", InvalidOperandError, "stream: got str", "rocpy.Stream"),
    ("matmul(A, B, stream=-1)", InvalidOperandError, "stream: -1 is not a handle"),
    ("matmul(A, B, stream=1.5)", InvalidOperandError, "stream: got float"),
    ("matmul(A, B, algorithm=99)", InvalidProblemError, "algorithm 99", "numbered from 0"),
    ("matmul(A, B, algorithm='skiny.1024')", InvalidProblemError, "did you mean 'skinny.1024'?"),
    ("matmul(A, B, algorithm={'id': 3})", InvalidProblemError, "record", "format"),
    ("rocpy.Matmul(A, B).plan(max_algorithms=0)", InvalidProblemError, "max_algorithms: got 0", "1 or more"),
    ("rocpy.Matmul(A, B).plan(algorithms='direct')", InvalidProblemError, "algorithms", "list"),
    ("rocpy.Matmul(A, B).reset_operands(a=B)", InvalidProblemError, "(4, 5)", "(5, 6)", "new Matmul"),
    ("matmul(A, B, autotune='yes')", InvalidProblemError, "autotune: got 'yes'", "True, False or None"),
    ("rocpy.Device(99)", InvalidProblemError, "no device 99"),
    ("rocpy.matmull", AttributeError, "'matmull'; did you mean 'matmul'?"),
    ("rocpy.cooprative", AttributeError, "did you mean 'cooperative'?"),
    ("rocpy.blaslt.Explanaton", AttributeError, "'rocpy.blaslt'", "did you mean 'Explanation'?"),
    ("copy.copy(rocpy.Event())", TypeError, "an Event belongs to this process"),
    ("copy.copy(rocpy.Matmul(A, B))", TypeError, "a Matmul belongs to this process"),
]
COLLECTIVES = [
    ("comm.all_reduce(A, op='sun')", InvalidArgumentError, "op: got 'sun'", "did you mean 'sum'?"),
    ("comm.all_reduce([1.0])", InvalidOperandError, "x"),
    ("comm.all_reduce(COLUMN)", InvalidOperandError, "x: shape (4, 1)", "not C-contiguous"),
    ("comm.all_reduce(A, out=C)", InvalidOperandError, "out: 24 elements", "expected 20"),
    ("comm.all_reduce(A, stream=12345)", RocpyError, "stream"),
    ("comm.broadcast(A, root=4)", InvalidArgumentError, "root: got 4", "from 0 to 0"),
    ("comm.send(A, 7)", InvalidArgumentError, "got 7"),
    ("comm.all_reduce(A.astype(bool).astype(object))", RocpyError, "x"),
    ("rccl.Communicator.init(2, 5, rccl.UniqueId.make())", InvalidArgumentError, "rank: got 5", "nranks"),
    ("rccl.Communicator.init(1, 0, b'x')", (InvalidArgumentError, TypeError), "unique_id"),
    ("rccl.Communicator.init(1, 0, rccl.UniqueId.make(), timeout_s=-1)", InvalidArgumentError, "timeout_s: got -1"),
]


@pytest.fixture(scope="module")
def names():
    """The names that the calls use."""
    stream = rocpy.Stream()
    handle = stream.handle
    stream.close()
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        yield {**NAMES, "comm": comm, "closed": lambda: stream, "gone": lambda: handle}


def check(call, error, parts, names):
    with pytest.raises(error) as caught:
        eval(call, names)
    text = str(caught.value)
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"


CALLS = [*OBJECTS, *EPILOGUES, *KEYWORDS, *OPTIONS, *DTYPES, *SHAPES, *STREAMS_AND_ALGORITHMS, *COLLECTIVES]


@pytest.mark.parametrize(("call", "error", "parts"), [(row[0], row[1], row[2:]) for row in CALLS], ids=lambda x: x)
def test_wrong_call(call, error, parts, names):
    check(call, error, parts, names)


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 5), (7, 9)),
        ((4, 5), (3, 3)),
        ((4, 5), (4,)),
        ((2, 4, 5), (3, 6, 5)),
        ((5,), (6, 4)),
        ((2, 5, 4), (3, 5, 6)),
    ],
)
def test_no_transposition_is_offered_where_none_would_fit(shapes):
    a, b = (np.ones(shape, F32) for shape in shapes)
    with pytest.raises(InvalidProblemError) as caught:
        rocpy.matmul(a, b)
    assert "would fit" not in str(caught.value)


COOPERATIVE = [
    ("coop.jit(3)", RocpyError, "Python function", "int"),
    ("coop.jit(warp_sise=64)", TypeError, "Did you mean 'warp_size'?"),
    ("coop.jit(warp_size=48)", InvalidProblemError, "warp_size is 48", "32, 64"),
    ("coop.jit(float='float16')", InvalidProblemError, "float is 'float16'", "'float32'"),
    ("kernel(A)", InvalidProblemError, "grid and a block", "kernel[grid, block]"),
    ("kernel[1, 0](A)", InvalidProblemError, "0"),
    ("kernel[1, 32]()", InvalidProblemError, "0 arguments"),
    ("kernel[1, 32](A, B)", InvalidProblemError, "2 arguments"),
    ("coop.row_sum(np.array(1.0))", InvalidProblemError, "no dimension"),
    ("coop.block_reduce(A, op='mix')", InvalidProblemError, "op is 'mix'", "did you mean 'min'?"),
]


@pytest.mark.parametrize(
    ("call", "error", "parts"), [(row[0], row[1], row[2:]) for row in COOPERATIVE], ids=lambda x: x
)
def test_wrong_call_of_kernels(call, error, parts, names):
    pytest.importorskip("numba", reason="the extra `cooperative` is not installed")
    coop = importlib.import_module("rocpy.cooperative")

    @coop.jit
    def kernel(x):
        x[0, 0] = 1

    check(call, error, parts, {**names, "coop": coop, "kernel": kernel})


TORCH = [
    ("rt.MLP(5, 8, 5)(X6)", InvalidProblemError, "input: shape (4, 6)", "6 elements", "the layer takes 5"),
    ("rt.Linear(5, 8)(X6)", InvalidProblemError, "input: shape (4, 6)", "the layer takes 5"),
    ("rt.GatedMLP(5, 8)(X6)", InvalidProblemError, "input: shape (4, 6)", "the layer takes 5"),
    ("frozen(X6)", InvalidProblemError, "input: shape (4, 6)", "the layer takes 5"),
    ("rt.linear(X, torch.ones(8, 6))", InvalidProblemError, "input: shape (4, 5)", "the layer takes 6", "(8, 6)"),
    ("rt.linear(X, torch.ones(8, 6), activation=tanh)", InvalidProblemError, "input: shape (4, 5)", "takes 6"),
    ("rt.linear(X, torch.ones(8, 5).double())", InvalidProblemError, "input is float32", "weight is float64"),
    ("rt.linear(A, torch.ones(8, 5))", InvalidOperandError, "input: got ndarray", "torch tensors"),
    ("rt.linear(X, torch.ones(8, 5), activation='geluu')", InvalidProblemError, "did you mean 'gelu'?"),
    ("rt.linear(X, torch.ones(8, 5), activation=lambda y: y)", InvalidProblemError, "@rocpy.epilogue"),
    ("rt.Linear(5, 8, activaton='gelu')", TypeError, "Linear() got", "Did you mean 'activation'?"),
    ("rt.MLP(5, 8, activaton='gelu')", TypeError, "MLP", "Did you mean 'activation'?"),
    ("rt.MLP(5, 8, activation='gellu')", InvalidProblemError, "did you mean 'gelu'?"),
    ("rt.matmul(X, torch.ones(5, 7), epilog='relu')", TypeError, "Did you mean 'epilogue'?"),
    ("rt.matmul(X, torch.ones(7, 5))", InvalidProblemError, "b.T would fit"),
    ("rt.replace_linear(X)", InvalidOperandError, "model: got Tensor", "torch.nn.Module"),
    ("rt.freeze('model')", InvalidOperandError, "model: got str"),
    ("rt.freeze(rt.Linear(5, 8))", InvalidProblemError, "train"),
]


@pytest.mark.torch
@pytest.mark.parametrize(("call", "error", "parts"), [(row[0], row[1], row[2:]) for row in TORCH], ids=lambda x: x)
def test_wrong_call_with_torch(call, error, parts, names):
    torch = pytest.importorskip("torch")
    rt = importlib.import_module("rocpy.torch")
    frozen = rt.Linear(5, 8, pack=True).eval().requires_grad_(False)
    more = {"torch": torch, "rt": rt, "X": torch.ones(4, 5), "X6": torch.ones(4, 6), "frozen": frozen}
    more["tanh"] = rocpy.epilogue(lambda x: torch.tanh(2 * x))
    check(call, error, parts, {**names, **more})


def test_there_are_at_least_120_calls():
    assert len(CALLS) + len(COOPERATIVE) + len(TORCH) >= 120


@pytest.mark.parametrize(
    ("package", "module", "parts"),
    [
        ("torch", "rocpy.torch", ["torch is not installed", install_command("torch")]),
        ("jax", "rocpy.jax", ["jax is not installed", install_command("jax")]),
    ],
)
def test_a_framework_that_is_missing_says_how_to_install_it(run_python, package, module, parts):
    code = f"""
        import sys
        sys.modules[{package!r}] = None
        import rocpy
        try:
            import {module}
        except ImportError as error:
            for part in {parts!r}:
                assert part in str(error), error
        else:
            raise SystemExit("it was imported")
        try:
            {module}
        except AttributeError as error:
            assert {parts[1]!r} in str(error), error
    """
    run_python(code)


def test_auto_without_a_usable_rocm_warns_once(run_python, tmp_path):
    code = f"""
        import warnings
        import numpy as np, rocpy
        rocpy.platform.DEVICE_NODES = ({str(tmp_path)!r},)
        rocpy.platform._core.load = lambda *_, load=rocpy.platform._core.load, need_device=False: (
            ("absent", "no libamdhip64.so") if need_device else load(*_))
        a = np.ones((2, 2), np.float32)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            rocpy.matmul(a, a)
            rocpy.matmul(a, a)
            rocpy.platform.current()
        (one,) = seen
        assert issubclass(one.category, rocpy.RocpyWarning)
        for part in ("on the CPU", {str(tmp_path)!r}, "no libamdhip64.so", "rocpy doctor", "ROCPY_PLATFORM=host"):
            assert part in str(one.message), one.message
    """
    run_python(code, ROCPY_PLATFORM="auto")
    asked_for = code.replace("(one,) = seen", "assert not seen; raise SystemExit")
    run_python(asked_for, ROCPY_PLATFORM="host")


def test_a_suggested_attribute_is_printed_once(run_python):
    run_python("""
        import traceback
        import rocpy
        for name in ("Matmull", "errrors"):
            try:
                getattr(rocpy, name)
            except AttributeError as error:
                text = "".join(traceback.format_exception(error)).lower()
            assert text.count("did you mean") == 1, text
        assert not hasattr(rocpy, "__wrapped__")
    """)
