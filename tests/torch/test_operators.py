# SPDX-License-Identifier: MIT
"""The operators as torch's own tools see them: opcheck, gradients of rocpy.matmul, autocast, vmap, traces."""

from __future__ import annotations

import pytest
from presented import skip_without

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
float64 = {"dtype": torch.float64} if torch else {}
NAMES = ["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid"]


def randn(*shape, grad=True):
    return torch.randn(shape, **float64, requires_grad=grad)


def tensors(result):
    return (result[0], *result[1].values()) if isinstance(result, tuple) else result


# ---- opcheck ----


def matmul_arguments(epilogue, a=(3, 4), b=(4, 5), *, grad=True):
    row = rocpy.blaslt.EPILOGUES[epilogue]
    bias = randn(b[-1], grad=grad) if row.bias else None
    shape = torch.broadcast_shapes(a[:-2], b[:-2])
    aux = randn(*shape, a[-2], b[-1], grad=grad) if row.aux == "load" else None
    clamp = [-0.5, 0.5] if row.clamp else None
    return (randn(*a, grad=grad), randn(*b, grad=grad), None, bias, aux, epilogue, 1.0, 0.0, clamp, None, None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(3, 4), pytest.param((2, 3, 4), marks=pytest.mark.slow)])
def test_opcheck_linear(name, shape):
    arguments = (randn(*shape), randn(5, 4), randn(5), name)
    torch.library.opcheck(torch.ops.rocpy.linear.default, arguments)
    torch.library.opcheck(torch.ops.rocpy.linear.default, (randn(*shape, grad=False), randn(5, 4), None, name))
    if name in ("gelu", "gelu_tanh", "silu"):
        torch.library.opcheck(torch.ops.rocpy.linear_aux.default, arguments)


@pytest.mark.parametrize("name", NAMES)
def test_opcheck_mlp(name):
    arguments = (randn(3, 4), randn(5, 4), randn(5), randn(2, 5), None, name)
    torch.library.opcheck(torch.ops.rocpy.mlp.default, arguments)
    torch.library.opcheck(torch.ops.rocpy.mlp_aux.default, arguments)


# One of each kind: of each further operand and of each further result.
QUICK = {"default", "silu_bias", "clamp", "gelu_aux_bias", "relu_aux", "dgelu_bgrad", "drelu", "bgrada", "bgradb"}


@pytest.mark.parametrize(
    "epilogue",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in rocpy.blaslt.EPILOGUES],
)
@pytest.mark.parametrize(("a", "b"), [((3, 4), (4, 5)), pytest.param((2, 3, 4), (2, 4, 5), marks=pytest.mark.slow)])
def test_opcheck_matmul(epilogue, a, b):
    operators = torch.ops.rocpy
    outputs = rocpy.blaslt.EPILOGUES[epilogue].outputs
    operator = operators.matmul_extra.default if outputs else operators.matmul.default
    torch.library.opcheck(operator, matmul_arguments(epilogue, a, b))


# ---- gradients of rocpy.matmul ----

SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize(
    "epilogue", ["default", "bias", "relu_bias", "gelu", "gelu_aux_bias", "silu_bias", "bgrada", "bgradb"]
)
def test_matmul_gradients(a, b, epilogue):
    row = rocpy.blaslt.EPILOGUES[epilogue]
    bias = randn(b[-1] if len(b) > 1 else 1) if row.bias else None

    def run(a, b, bias):
        return tensors(rocpy.matmul(a, b, alpha=0.7, epilogue=epilogue, bias=bias))

    # Along random directions: the shapes differ in how extents are summed, which shows in any of them.
    operands = (randn(*a), randn(*b), bias)
    assert torch.autograd.gradcheck(run, operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, operands, fast_mode=True)


@pytest.mark.parametrize(
    "epilogue", ["clamp", "clamp_aux_bias", "sigmoid_bias", "gelu_erf_bias", "relu_aux", "dgelu", "dgelu_bgrad"]
)
def test_gradients_of_composed_epilogues(epilogue):
    a, b, _, bias, aux, _, _, _, clamp, _, _ = matmul_arguments(epilogue)

    def run(a, b, bias, aux):
        return tensors(rocpy.matmul(a, b, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp))

    assert torch.autograd.gradcheck(run, (a, b, bias, aux))
    assert torch.autograd.gradgradcheck(run, (a, b, bias, aux))


@pytest.mark.parametrize("c", [(3, 5), (5,), (3, 1), (1,), ()])
@pytest.mark.parametrize("bias", [(5,), (2, 5), (3, 1)])
def test_gradients_of_addends(c, bias):
    operands = randn(2, 3, 4), randn(4, 5), randn(*c), randn(*bias)

    def run(a, b, c, bias):
        return rocpy.matmul(a, b, c, beta=1.3, epilogue="bias", bias=bias)

    assert torch.autograd.gradcheck(run, operands)


@pytest.mark.parametrize("conjugate", [False, True])
def test_complex_gradients(conjugate):
    skip_without("complex128")
    a, b, bias = (torch.randn(shape, dtype=torch.complex128, requires_grad=True) for shape in ((3, 4), (5, 4), (5,)))

    def run(a, b, bias):
        b = b.mH if conjugate else b.mT
        return rocpy.matmul(a.conj() if conjugate else a, b, alpha=0.5, epilogue="bias", bias=bias)

    assert torch.autograd.gradcheck(run, (a, b, bias))
    assert torch.autograd.gradgradcheck(run, (a, b, bias))


def test_gradient_of_a_wider_result():
    a, b = (torch.randn(8, 8).bfloat16().requires_grad_() for _ in range(2))
    d = rocpy.matmul(a, b, dtype="float32")
    assert d.dtype == torch.float32
    d.sum().backward()
    assert a.grad.dtype == torch.bfloat16
    torch.testing.assert_close(a.grad.float(), b.detach().float().sum(1).expand(8, 8), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_a_weight_lets_gradients_through(layout):
    matrix = torch.randn(5, 4, **float64) if layout == "nk" else torch.randn(4, 5, **float64)
    weight = rocpy.Weight(matrix, bias=torch.randn(5, **float64), layout=layout)
    a = randn(3, 4)
    assert torch.autograd.gradcheck(lambda a: rocpy.matmul(a, weight, epilogue="gelu_bias"), (a,))


def test_what_cannot_be_recorded_is_refused():
    a, b = randn(3, 4), randn(4, 5)
    with pytest.raises(UnsupportedError, match="out: .*records"):
        rocpy.matmul(a, b, out=torch.empty(3, 5, **float64))
    with pytest.raises(UnsupportedError, match="alpha: got a tensor"):
        rocpy.matmul(a, b, alpha=torch.tensor(2.0, requires_grad=True))
    with pytest.raises(InvalidOperandError, match="b: got ndarray"):
        rocpy.matmul(a, b.detach().numpy())
    with pytest.raises(InvalidProblemError, match="beta = 2"):
        rocpy.matmul(a, b, beta=2)
    with rocpy.Stream() as stream, pytest.raises(UnsupportedError, match="stream"):
        rocpy.matmul(a, b, stream=stream)


def test_options_hold_for_a_recorded_product():
    a, b = randn(4, 6), randn(6, 5)
    odd = a[::2, ::2].expand(2, 3)
    rocpy.matmul(odd, b[:3], options={"copies": "allow"})
    with pytest.raises(UnsupportedError, match="copies"):
        rocpy.matmul(odd, b[:3], options={"copies": "error"})


# ---- autocast ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("grad", [True, False])
def test_autocast(dtype, grad):
    functional = torch.nn.functional
    x, weight, bias = torch.randn(4, 6), torch.randn(5, 6), torch.randn(5)
    ours = [t.clone().requires_grad_(grad) for t in (x, weight, bias)]
    theirs = [t.clone().requires_grad_(grad) for t in (x, weight, bias)]
    with torch.autocast("cpu", dtype=dtype):
        y = rt.linear(*ours, "gelu")
        z = functional.gelu(functional.linear(*theirs))
        product = rocpy.matmul(ours[0], ours[1].t())
        with torch.autocast("cpu", enabled=False):
            assert rt.linear(*ours).dtype == torch.float32
        wide = rt.linear(*(t.double() for t in ours))
    assert y.dtype == z.dtype == product.dtype == dtype
    assert wide.dtype == torch.float64
    tolerance = {"rtol": 3e-2, "atol": 3e-2}
    torch.testing.assert_close(y, z, **tolerance)
    if grad:
        y.float().square().sum().backward()
        z.float().square().sum().backward()
        for p, q in zip(ours, theirs, strict=True):
            assert p.grad.dtype == torch.float32
            torch.testing.assert_close(p.grad, q.grad, rtol=5e-2, atol=2e-1)


def test_autocast_leaves_modules_alone():
    module = rt.MLP(6, 8, activation="gelu")
    x = torch.randn(4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
        y.sum().backward()
    assert y.dtype == torch.bfloat16
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in module.parameters())
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert module.eval()(x).dtype == torch.bfloat16


# ---- vmap and torch.func ----


@pytest.mark.parametrize(
    "in_dims", [(0, None, None), (1, None, None), (None, 0, None), (None, None, 0), (0, 0, 0), (2, 1, None)]
)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
@pytest.mark.parametrize("name", [None, "gelu", "relu"])
@pytest.mark.parametrize("grad", [True, False])
def test_vmap_linear(in_dims, shape, name, grad):
    operands = []
    for own, axis in zip((shape, (5, 4), (5,)), in_dims, strict=True):
        full = own if axis is None else (*own[:axis], 7, *own[axis:])
        operands.append(randn(*full, grad=grad))
    functional = torch.nn.functional

    def reference(x, weight, bias):
        y = functional.linear(x, weight, bias)
        return y if name is None else getattr(functional, name)(y)

    ours = torch.vmap(lambda *args: rt.linear(*args, name), in_dims=in_dims)(*operands)
    theirs = torch.vmap(reference, in_dims=in_dims)(*operands)
    torch.testing.assert_close(ours, theirs)
    if grad:
        found = torch.autograd.grad(ours.square().sum(), operands)
        wanted = torch.autograd.grad(theirs.square().sum(), operands)
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("mapped", ["a", "b", "ab", "c", "bias", "abc", "aux"])
@pytest.mark.parametrize("epilogue", ["bias", "gelu_aux_bias", "dgelu", "bgrada", "bgradb"])
def test_vmap_matmul(a, b, mapped, epilogue):
    row = rocpy.blaslt.EPILOGUES[epilogue]
    if (mapped == "bias" and not row.bias) or (mapped == "aux" and row.aux != "load"):
        pytest.skip("this epilogue has no such operand")
    result = torch.matmul(torch.empty(a), torch.empty(b)).shape
    n = b[-1] if len(b) > 1 else 1
    shapes = {
        "a": a,
        "b": b,
        "c": result,
        "bias": (n,) if row.bias else None,
        "aux": result if row.aux == "load" else None,
    }
    places = {
        "a": "a" in mapped.replace("bias", "").replace("aux", ""),
        "b": mapped in ("b", "ab", "abc"),
        "c": mapped in ("c", "abc"),
    }
    places |= {"bias": mapped == "bias", "aux": mapped == "aux"}
    operands, dims = [], []
    for name, shape in shapes.items():
        operands.append(None if shape is None else randn(*((3,) if places[name] else ()), *shape, grad=False))
        dims.append(0 if places[name] and shape is not None else None)

    def run(*operands):
        a, b, c, bias, aux = operands
        return tensors(
            rocpy.matmul(a, b, c, epilogue=epilogue, bias=bias, aux=aux, clamp=(-1.0, 1.0) if row.clamp else None)
        )

    given = [i for i, x in enumerate(operands) if x is not None]

    def mapped_run(*some):
        full = [None] * 5
        for i, x in zip(given, some, strict=True):
            full[i] = x
        return run(*full)

    found = torch.vmap(mapped_run, in_dims=tuple(dims[i] for i in given))(*(operands[i] for i in given))
    each = [run(*(x if dim is None else x[i] for x, dim in zip(operands, dims, strict=True))) for i in range(3)]
    if isinstance(found, tuple):
        for j, x in enumerate(found):
            torch.testing.assert_close(x, torch.stack([one[j] for one in each]))
    else:
        torch.testing.assert_close(found, torch.stack(each))


def test_torch_func():
    x, weight, bias = randn(3, 4, grad=False), randn(5, 4, grad=False), randn(5, grad=False)
    functional = torch.nn.functional

    def ours(weight, x):
        return rt.linear(x, weight, bias, "gelu", approximate="tanh").square().sum()

    def theirs(weight, x):
        return functional.gelu(functional.linear(x, weight, bias), approximate="tanh").square().sum()

    close = torch.testing.assert_close
    close(torch.func.grad(ours)(weight, x), torch.func.grad(theirs)(weight, x))
    per_sample = [torch.vmap(torch.func.grad(f), in_dims=(None, 0))(weight, x) for f in (ours, theirs)]
    close(*per_sample)
    close(torch.func.jacrev(ours)(weight, x), torch.func.jacrev(theirs)(weight, x))
    close(*(torch.func.jacrev(torch.func.grad(f))(weight[:1], x) for f in (_one(ours), _one(theirs))))


def _one(function):
    return lambda weight, x: function(weight.expand(5, 4), x)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_forward_mode_is_refused():
    x, weight = randn(3, 4, grad=False), randn(5, 4, grad=False)
    for run in (lambda x: rt.linear(x, weight), lambda x: rt.matmul(x, weight.t(), epilogue="relu")):
        with pytest.raises((UnsupportedError, RuntimeError)):
            torch.func.jvp(run, (x,), (x,))


# ---- tensors without memory, subclasses, traces ----


def test_meta_and_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    meta = rt.MLP(6, 8, 3, device="meta")
    y = meta(torch.empty(2, 5, 6, device="meta"))
    assert y.is_meta
    assert y.shape == (2, 5, 3)
    y.sum().backward()
    assert meta.fc1.weight.grad.is_meta
    with FakeTensorMode():
        module = rt.GatedMLP(6, 8)
        z = module(torch.empty(4, 6))
        z.sum().backward()
        assert z.shape == (4, 6)
        assert module.down_proj.weight.grad.shape == (6, 8)
    with pytest.raises(InvalidProblemError, match="last axis of a has 5"):
        rocpy.matmul(torch.empty(4, 5, device="meta"), torch.empty(6, 3, device="meta"))
    with pytest.raises(InvalidOperandError, match="device"):
        rt.linear(torch.empty(4, 6), torch.empty(3, 6, device="meta"))


@pytest.mark.parametrize("where", [("cpu", "meta"), ("meta", "cpu")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64] if torch else [])
def test_an_out_on_another_device_is_refused(where, dtype):
    device, of_out = where
    a = torch.ones(4, 4, device=device)
    with pytest.raises(InvalidOperandError, match=f"^out is on {of_out} and the result on {device}; pass"):
        rocpy.matmul(a, a, out=torch.zeros(4, 4, device=of_out, dtype=dtype))


def test_an_out_without_memory_beside_a_weight_is_refused():
    a = torch.ones(4, 4)
    with pytest.raises(InvalidOperandError, match="^out is on meta"):
        rocpy.matmul(a, rocpy.Weight(a), out=torch.zeros(4, 4, device="meta"))


def test_a_subclass_goes_through():
    class Tagged(torch.Tensor):
        pass

    x = torch.randn(4, 6).as_subclass(Tagged)
    weight = torch.randn(5, 6)
    torch.testing.assert_close(rt.linear(x, weight).as_subclass(torch.Tensor), x.as_subclass(torch.Tensor) @ weight.t())


def test_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    x, weight = torch.randn(4, 6), torch.randn(5, 6)
    graph = make_fx(lambda x: rocpy.matmul(rt.linear(x, weight, None, "relu"), weight))(x)
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert names == ["rocpy.linear.default", "rocpy.matmul.default"]
    other = torch.randn(4, 6)
    torch.testing.assert_close(graph(other), (other @ weight.t()).relu() @ weight)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_jit_trace():
    module = rt.MLP(6, 8, activation="relu").eval()
    x = torch.randn(5, 6)
    with torch.no_grad():
        traced = torch.jit.trace(module, (torch.randn(2, 6),))
        torch.testing.assert_close(traced(x), module(x))


def test_a_dispatch_mode_sees_the_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Record(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x, weight = torch.randn(4, 6), torch.randn(5, 6)
    with Record() as mode:
        y = rt.linear(x, weight)
    torch.testing.assert_close(y, x @ weight.t())
    assert mode.seen == ["rocpy.linear.default"]


def test_threads_record_apart():
    from concurrent.futures import ThreadPoolExecutor

    module = rt.MLP(16, 32, activation="gelu", approximate="tanh")

    def one(seed):
        x = torch.randn(64, 16, generator=torch.Generator().manual_seed(seed))
        y = module(x)
        with torch.no_grad():
            rt.linear(x, module.fc1.weight)
        return [y, *torch.autograd.grad(y.square().sum(), tuple(module.parameters()))]

    expected = [one(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(8)))
    torch.testing.assert_close(found, expected)


def test_importing_rocpy_brings_no_torch_and_a_gradient_brings_the_layer(run_python):
    run_python("""
        import sys, rocpy
        assert "torch" not in sys.modules
        import torch
        # The first tensor that rocpy sees: its shape raises.
        try:
            rocpy.matmul(torch.nested.nested_tensor([torch.ones(1, 2)]), torch.ones(2, 2))
        except rocpy.InvalidOperandError as error:
            assert str(error).startswith("a: got a nested tensor")
        a = torch.ones(2, 2, requires_grad=True)
        with torch.no_grad():
            rocpy.matmul(a, a)
        assert "rocpy.torch" not in sys.modules
        rocpy.matmul(a, a).sum().backward()
        assert "rocpy.torch" in sys.modules and "torch._dynamo" not in sys.modules
        assert a.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    """)
