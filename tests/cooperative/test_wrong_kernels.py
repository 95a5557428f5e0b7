# SPDX-License-Identifier: MIT
"""Kernels that are wrong: what is said is for people and names the line, a KernelTypeError on the CPU and for GPUs."""

import linecache
import math
import string
import token
import types

import numba
import numpy as np
import pytest
from device_kernels import NO_COMPILER

from rocpy import cooperative as coop
from rocpy.errors import KernelTypeError

helpers = types.ModuleType("helpers")
TABLE = {"a": 1}
NUMBERS = [1, 2]


class Box:
    value = 1


def two(a, b):
    return a + b


def endless(n):
    return endless(n - 1) if n else 0


def keyword_only(a, *, scale=2):
    return a * scale


async def coroutine(a):
    return a


@numba.njit
def compiled(a):
    return two(a, a)


@coop.jit
def other(x):
    x[0] = 1


box = Box()
helpers.two = two

# Statements, with the wrong line marked by its number, and what must be said of them.
WRONG = [
    ("out[0] = scael * 2", 2, r"NameError: name 'scael' is not defined"),
    ("y = 1\n    out[0] = coop.thread.x", 3, r"coop has no 'thread'"),
    ("out[0] = round(x[0], ndigits=0)", 2, r"an argument by name that it takes by position only"),
    ("out[0] = coop.threadIdx.w", 2, r"coop\.threadIdx has no attribute 'w'"),
    ("out[0] = np.foo(x[0])", 2, r"numpy has no 'foo'"),
    ("out[0] = math.foo(x[0])", 2, r"math has no 'foo'"),
    ("out[0] = two(x[0])", 2, r"a function of \(a, b\) is called with other arguments.*missing.*'b'"),
    ("out[0] = x['a']", 2, r"getitem\(array.*the string 'a'\): an index is an integer"),
    ("out[0] = x[1.5]", 2, r"float64\): an index is an integer"),
    ("out[0] = x[0, 0]", 2, r"as many as the array has dimensions"),
    ("out[0] = TABLE['a']", 2, r"TABLE is of type dict, which kernels cannot refer to"),
    ("d = {}\n    out[0] = d['a']", 2, r"d is a list, a dict or a set"),
    ("NUMBERS.append(1)", 2, r"NUMBERS is a list, which kernels cannot refer to: make it a tuple"),
    ("out[0] = box.value", 2, r"box is of type Box, which kernels cannot refer to"),
    ("a = 1 if x[0] > 1 else 'b'\n    out[0] = a", 2, r"int64.* a variable must have one type"),
    ("out[0] = a\n    a = 1", 2, r"a is used before it has a value"),
    ("out[0] = x", 2, r"setitem\(array.*the value must fit the elements"),
    ("r[0] = 1", 2, r"a read-only array is written to: pass a writable one"),
    ("r += x", 2, r"a read-only array is written to"),
    ("r.flat[0] = 1", 2, r"a read-only array is written to"),
    ("for v, w in np.nditer((x, r)):\n        w[()] = v[()]", 3, r"a read-only array is written to"),
    ("np.fill_diagonal(r.reshape(1, 3), 1)", 2, r"a read-only array is written to|memory is allocated here"),
    ("np.ascontiguousarray(r)[0] = 1", 2, r"a read-only array is written to"),
    ("out <<= x", 2, r"changed in place by array.*do not take the result"),
    ("t = (1, 2)\n    t[0] = 3", 3, r"an immutable object, .*tuples are immutable"),
    ("t = (1, 2.0)\n    out[0] = t[coop.threadIdx.x]", 3, r"a tuple of different types must be a literal"),
    ("coop.threadIdx.x = 1", 2, r"coop\.threadIdx\.x cannot be set"),
    ("return x[0]", 2, r"a kernel returns nothing, but this returns float32"),
    ("if x[0] > 1:\n        return\n    out[0] = 1\n    return x[0]", 5, r"a kernel returns nothing|on one path"),
    ("yield x[0]", 2, r"a kernel cannot be a generator, but this has a yield"),
    ("with open('f') as f:\n        out[0] = 1", 2, r"'with' cannot be used in kernels"),
    ("try:\n        out[0] = x[0]\n    except ValueError:\n        out[0] = 2", 4, r"write 'except Exception'"),
    ("import os\n    out[0] = 1", 2, r"it contains an import"),
    ("global TABLE\n    TABLE = 1", 3, r"it sets a global"),
    ("class A:\n        pass\n    out[0] = 1", 2, r"it defines a class"),
    ("out[0] = helpers.two(x[0], x[1])", 2, r"helpers\.two is a function of a module.*from helpers import two"),
    ("out[0] = token.tok_name[0]", 2, r"token\.tok_name is of type dict, which kernels cannot refer to"),
    ("out[0] = string.Template(x[0])", 2, r"string\.Template is a class, which kernels cannot refer to"),
    ("out[0] = x[0](1)", 2, r"float32 is called, which is not a function"),
    ("out[0] = endless(3)", 2, r"endless calls itself, which functions called from kernels cannot do"),
    ("out[0] = keyword_only(x[0])", 2, r"keyword_only has a keyword-only parameter, scale.*before the \*"),
    ("out[0] = coroutine(x[0])", 2, r"coroutine is a coroutine function, which kernels cannot call: use def"),
    ("out[0] = compiled(x[0])", 2, r"two is a Python function that is not compiled.*decorate two with numba\.njit"),
    ("out[0] = coop.ThreadData(2, 'flaot32')[0]", 2, r"ThreadData: dtype is 'flaot32'; did you mean 'float32'\?"),
    ("s = {1, 'a'}\n    out[0] = 1", 2, r"KeyError"),
    ("raise box", 2, r"what is raised is not an exception"),
    ("other[1, 2](x)", 2, r"a kernel is launched here"),
    ("for i in x[0]:\n        out[0] = i", 2, r"float32 cannot be iterated over"),
    ("f = lambda a: a + x[0]\n    out[0] = f", 2, r"a nested function uses x"),
    ("f = lambda a, b: a\n    out[0] = f(1)", 3, r"a nested function of \(a, b\) is called with .*missing.*'b'"),
    ("f = lambda a, b: a\n    out[0] = f(1, 2, 3)", 3, r"a nested function of \(a, b\).*too many"),
    ("f = lambda a, *b: a\n    out[0] = f(1, 2)", 3, r"nested functions neither have nor are called with \*args"),
    ("f = lambda a, *, b: a\n    out[0] = f(1, b=2)", 3, r"a keyword-only parameter, b.*before the \*"),
    ("f = lambda a, *, b=1: a\n    out[0] = f(1, b=2)", 2, r"a keyword-only parameter.*before the \*"),
    ("f = (two, coop.grid)\n    out[0] = f[int(x[0])](1)", 3, r"a function is chosen from a tuple.*if and else"),
    ("out[0] = coop.sum(coop.this_block(), x)", 2, r"sum: value is an array"),
    ("out[0] = coop.reduce(coop.this_block(), x[0], 'plus')", 2, r"op is 'plus'; the names are"),
    ("out[0] = coop.shared.array(4)[0]", 2, r"shared\.array\(shape, dtype\): missing.*'dtype'"),
    ("coop.atomic.add(out, 0)", 2, r"atomic\.add\(array, index, value\): missing.*'value'"),
    ("coop.atomic.mul(out, 0, 1)", 2, r"coop\.atomic has no attribute 'mul'"),
    ("out[0] = coop.grid()", 2, r"grid\(ndim\): missing.*'ndim'"),
    ("out[0] = coop.this_warp(3).size()", 2, r"width is 3; it must be a power of two up to the warp size, 64"),
    ("out[0] = coop.this_warp(128).size()", 2, r"width is 128, and the warps of this kernel have 64"),
    ("out[0] = coop.this_warp('a').size()", 2, r"this_warp: width is .*it must be an integer"),
]
ON_GPUS = [
    ("t = np.zeros(4)\n    out[0] = t[0]", 2, r"memory is allocated here.*coop\.local\.array"),
    ("y = x + x\n    out[0] = y[0]", 2, r"memory is allocated here"),
    ("y = 1\n    print(x[0])", 3, r"it prints or creates a string"),
    ("print(x[0])", 2, r"it prints or creates a string"),
]
SIGNATURE = "void(float32[::1],float32[::1],Array(float32, 1, 'C', readonly=True))"


def kernel_of(body, number):
    source, filename = f"def kernel(x, out, r):\n    {body}\n", f"<wrong {number}>"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    names = {"coop": coop, "np": np, "math": math, "box": box, "two": two, "endless": endless, "helpers": helpers}
    names |= {
        "keyword_only": keyword_only,
        "coroutine": coroutine,
        "compiled": compiled,
        "string": string,
        "token": token,
        "TABLE": TABLE,
        "NUMBERS": NUMBERS,
        "other": other,
        "__name__": __name__,
    }
    exec(compile(source, filename, "exec"), names)
    return coop.jit(names["kernel"])


def check(told, number, line):
    text = str(told.value)
    assert f"(<wrong {number}>:{line})" in text, text
    assert not {"Numba Type", "reportissue", "numba.core"} & set(text.split()), text
    assert len(text) < 600, text


@pytest.mark.filterwarnings("ignore:First-class function type")
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_on_the_cpu(number):
    body, line, said = WRONG[number]
    constant = np.ones(3, np.float32)
    constant.flags.writeable = False
    with pytest.raises(KernelTypeError, match=said) as told:
        kernel_of(body, number)[1, 2](np.ones(3, np.float32), np.ones(3, np.float32), constant)
    check(told, number, line)


@pytest.mark.filterwarnings("ignore:First-class function type")
@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
@pytest.mark.parametrize("number", range(len(WRONG) + len(ON_GPUS)))
def test_for_a_gpu(number):
    body, line, said = (WRONG + ON_GPUS)[number]
    with pytest.raises(KernelTypeError, match=said) as told:
        coop.compile(kernel_of(body, number), SIGNATURE, cache=False)
    check(told, number, line)


def test_only_python_functions_are_kernels():
    with pytest.raises(KernelTypeError, match=r"takes a Python function, not CPUDispatcher; pass its py_func"):
        coop.jit(compiled)
    with pytest.raises(KernelTypeError, match="kernel coroutine is a coroutine function"):
        coop.jit(coroutine)


@pytest.mark.slow
def test_arrays_are_filled_with_one_number():
    @coop.jit
    def kernel(x, y):
        x.fill(y)

    x = np.ones(3)
    with pytest.raises(KernelTypeError, match=r"fill takes one number, not array\(float64, 1d, C\)"):
        kernel[1, 1](x, x)
    kernel[1, 1](x, 2)
    assert x.tolist() == [2, 2, 2]


def test_an_array_of_another_length_is_not_unpacked():
    @coop.jit
    def kernel(x):
        a, b = x
        x[0] = a + b

    with pytest.raises(ValueError, match="the number of values to unpack is not that of the names"):
        kernel[1, 1](np.ones(3))


def set_first(record):
    record.f0 = 9


def test_records_of_a_read_only_array_are_read():
    @coop.jit
    def wrong(x):
        for record in x:
            set_first(record)

    @coop.jit
    def right(x, out):
        for i in range(2):
            for record in (out[0], out[1]):
                record.f0 += x[i].f0
        for mine, held in np.nditer((out.f1, x.f1)):
            mine[()] = held[()]

    x, out = np.array([(1, 2.0), (3, 4.0)], "i4,f8"), np.zeros(2, "i4,f8")
    x.flags.writeable = False
    with pytest.raises(KernelTypeError, match="a read-only array is written to"):
        wrong[1, 1](x)
    right[1, 1](x, out)
    assert out.tolist() == [(4, 2.0), (4, 4.0)]
    assert x.tolist() == [(1, 2.0), (3, 4.0)]


shape = two  # named as an attribute of the arrays in the next kernel


@coop.jit(threads=1)
def names_an_attribute(x, out):
    out[0] = x.shape[0] + two(x.size, 1)


size = box  # the same, of a type that no kernel could name


def test_globals_may_be_named_as_attributes():
    out = np.zeros(1, np.int64)
    names_an_attribute[1, 1](np.zeros(3), out)
    assert out[0] == 7


dtype = endless  # a function that is refused where it is called


def test_a_refused_function_may_be_named_as_an_attribute():
    @coop.jit(threads=1)
    def kernel(x, out):
        out[0] = coop.ThreadData(1, x.dtype).size

    out = np.zeros(1, np.int64)
    kernel[1, 1](np.zeros(3), out)
    assert out[0] == 1


@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
def test_exceptions_may_have_arguments_that_only_a_launch_knows():
    @coop.jit
    def kernel(x):
        if x[0] < 0:
            raise ValueError("negative", x[0])
        x[0] = 1

    assert coop.compile(kernel, "void(float32[::1])", cache=False).code


def set_one(x):
    x[0] = 1


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (3, r"set of a value that has none, setitem\(int64, .*: pass an array"),
        ((1, 2), "tuples are immutable"),
        (np.zeros(3, np.dtype(np.float32).newbyteorder()), "an array of .f4; kernels .* machine's byte order: cast it"),
        (np.zeros(3, object), "an array of Python objects; .*: cast it"),
        (2**70, "an integer beyond 64 bits"),
    ],
    ids=["an integer", "a tuple", "other byte order", "objects", "a large integer"],
)
def test_arguments_of_kernels_that_are_none(argument, words):
    with pytest.raises(KernelTypeError, match=words):
        coop.jit(set_one)[1, 1](argument)
