# SPDX-License-Identifier: MIT
"""Operands of layers cut over ranks: types of results, what is refused by name, autocast and torch's transforms."""

import numpy as np
import pytest

import rocpy
from rocpy import distributed
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

X, W = np.ones((4, 6)), np.ones((5, 6))


def matmul_all_reduce(x, weight, bias=None, **settings):
    return distributed.matmul_all_reduce(x, weight.T, bias, **settings)


def matmul_reduce_scatter(x, weight, bias=None, **settings):
    return distributed.matmul_reduce_scatter(x, weight.T, **settings)


def all_gather_matmul(x, weight, bias=None, **settings):
    return distributed.all_gather_matmul(x, weight.T, bias, **settings)


def row_linear_cut(*operands, **settings):
    return distributed.row_linear(*operands, sequence_parallel=True, **settings)


def column_linear_cut(*operands, **settings):
    return distributed.column_linear(*operands, sequence_parallel=True, **settings)


SUMMED = (distributed.row_linear, row_linear_cut, matmul_all_reduce, matmul_reduce_scatter)
LAYERS = (distributed.row_linear, row_linear_cut, distributed.column_linear, column_linear_cut)
WITH_COLLECTIVES = (*SUMMED, column_linear_cut, all_gather_matmul)
WITH_BIAS = (*LAYERS, matmul_all_reduce, all_gather_matmul)
EVERY = (*WITH_COLLECTIVES, distributed.column_linear)
of_each = pytest.mark.parametrize


@pytest.mark.torch
@of_each("kind", ["numpy", "torch"])
def test_products_of_int8_are_summed_in_int32(torch, kind):
    x, w = np.full((2, 4), 8, np.int8), np.full((3, 4), 4, np.int8)
    if kind == "torch":
        x, w = torch.from_numpy(x), torch.from_numpy(w)

    def body(comm):
        return [(np.asarray(f(x, w, comm=comm)), f in SUMMED) for f in EVERY]

    for results in distributed.run_threads(body, 2):
        for y, is_summed in results:
            assert y.dtype == np.int32
            assert (y == (256 if is_summed else 128)).all()


@pytest.mark.torch
@of_each("function", EVERY)
def test_eight_bit_floats_are_to_be_cast(torch, function):
    x = torch.ones(4, 6).to(torch.float8_e4m3fn)

    def body(comm):
        with pytest.raises(UnsupportedError, match="^x: products of float8_e4m3fn over ranks.*cast x and w"):
            function(x, x, comm=comm)

    distributed.run_threads(body, 1)


@of_each("function", WITH_BIAS)
@of_each("shape", [(1, 5), (5, 1), (5, 5), (1, 1), (1,), (4,)])
def test_a_bias_has_one_element_for_each_column(function, shape):
    def body(comm):
        with pytest.raises(InvalidProblemError, match=r"^bias: got shape .* expected \(5,\)"):
            function(np.ones((5, 6)) if function is not row_linear_cut else X, W, np.ones(shape), comm=comm)

    distributed.run_threads(body, 1)


@of_each("function", WITH_BIAS)
@of_each("bias", [np.float64(1), [1.0] * 5, 1.0])
def test_a_bias_is_an_array(function, bias):
    def body(comm):
        with pytest.raises((InvalidOperandError, InvalidProblemError), match="^bias: got"):
            function(X, W, bias, comm=comm)

    distributed.run_threads(body, 1)


@of_each("function", WITH_BIAS)
def test_a_bias_has_the_type_of_the_result(function):
    def body(comm):
        with pytest.raises(InvalidProblemError, match="^bias.*float32.*float64"):
            function(X, W, np.ones(5, np.float32), comm=comm)

    distributed.run_threads(body, 1)


@of_each("function", WITH_COLLECTIVES)
@of_each("chunks", [0, 1.5, "x"])
def test_chunks_are_a_whole_number(function, chunks):
    def body(comm):
        with pytest.raises(InvalidProblemError, match=rf"^chunks: got {chunks!r}"):
            function(X, W, comm=comm, chunks=chunks)

    distributed.run_threads(body, 1)


@of_each("function", EVERY)
def test_other_objects_are_refused_by_name(function):
    with pytest.raises(InvalidOperandError, match="^comm: got NoneType"):
        function(X, W, comm=None)

    def body(comm):
        with pytest.raises(InvalidOperandError, match="^x: got list"):
            function(X.tolist(), W, comm=comm)
        if function in LAYERS:
            with pytest.raises(InvalidOperandError, match="^weight: got list"):
                function(X, W.tolist(), comm=comm)

    distributed.run_threads(body, 1)


@of_each("function", EVERY)
@of_each(("x", "w", "said"), [("float32", "float64", "NAME: got float64"), ("int16", "int16", "x: products of int16")])
def test_types_without_a_product_are_refused_by_name(function, x, w, said):
    name = "weight" if function in LAYERS else "w"

    def body(comm):
        with pytest.raises((InvalidProblemError, UnsupportedError), match=f"^{said.replace('NAME', name)}"):
            function(X.astype(x), W.astype(w), comm=comm)

    distributed.run_threads(body, 1)


@pytest.mark.torch
@of_each("function", LAYERS)
@of_each("records", [True, False])
@of_each("name", ["x", "weight"])
def test_sparse_operands_are_refused_by_the_names_of_the_layer(torch, function, records, name):
    operands = {"x": torch.ones(4, 6, requires_grad=records), "weight": torch.ones(5, 6, requires_grad=records)}
    operands[name] = operands[name].detach().to_sparse()

    def body(comm):
        with pytest.raises(InvalidOperandError, match=f"^{name}: got a tensor of layout torch.sparse_coo"):
            function(*operands.values(), comm=comm)

    distributed.run_threads(body, 1)


@of_each("function", [column_linear_cut, all_gather_matmul])
@of_each("chunks", [None, 1, 2, 4])
def test_rows_that_are_gathered_are_contiguous(function, chunks):
    def body(comm):
        with pytest.raises(InvalidOperandError, match=r"^x: shape \(4, 6\) with strides \(1, 4\) is not C-contiguous"):
            function(np.ones((6, 4)).T, W, comm=comm, chunks=chunks)

    distributed.run_threads(body, 1)


@pytest.mark.torch
@of_each("where", ["forward", "backward"])
@of_each("function", LAYERS)
def test_layers_under_autocast_compute_in_its_type(torch, function, where):
    def body(comm):
        tensors = [torch.ones(shape, requires_grad=True) for shape in ((4, 6), (5, 6), (5,))]
        # 1/256 is lost in bfloat16 beside 1.
        tensors[0].data[:, 0] = 1 + 2**-8
        with torch.autocast("cpu", torch.bfloat16):
            with torch.autocast("cpu", enabled=where == "forward"):
                y = function(*tensors, comm=comm)
            with torch.autocast("cpu", enabled=where == "backward"):
                y.float().sum().backward()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert function(*tensors, comm=comm).dtype == torch.bfloat16
        assert y.dtype == (torch.bfloat16 if where == "forward" else torch.float32)
        assert [tensor.grad.dtype for tensor in tensors] == [torch.float32] * 3
        terms = 6 if where == "forward" else 6 + 2**-8
        assert y.max() == terms * (2 if function in SUMMED else 1) + 1

    distributed.run_threads(body, 2)


@pytest.mark.torch
@of_each("function", [matmul_all_reduce, matmul_reduce_scatter, all_gather_matmul])
def test_products_under_autocast_compute_in_its_type(torch, function):
    def body(comm):
        operands = torch.ones(4, 6), torch.ones(5, 6)
        with torch.autocast("cpu", torch.bfloat16):
            types = function(*operands, comm=comm).dtype, function(*(x.double() for x in operands), comm=comm).dtype
        assert types == (torch.bfloat16, torch.float64)
        with pytest.raises(UnsupportedError, match="^x: it requires grad"):
            function(operands[0].requires_grad_(), operands[1], comm=comm)

    distributed.run_threads(body, 1)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, in make_dual
@of_each("function", WITH_COLLECTIVES)
def test_what_torch_transforms_is_refused_by_name(torch, function):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.autograd import forward_ad

    with rocpy.rccl.Communicator.init(1, 0, rocpy.rccl.UniqueId.make()) as comm:
        x, w = torch.ones(4, 6), torch.ones(5, 6)
        with pytest.raises(UnsupportedError, match=r"^x: .*vmap"):
            torch.vmap(lambda one: function(one, w, comm=comm))(x[None])
        with pytest.raises(UnsupportedError, match="^x: .*meta"):
            function(x.to("meta"), w.to("meta"), comm=comm)
        with FakeTensorMode(), pytest.raises(UnsupportedError, match=r"^x: .*fake tensor"):
            function(torch.ones(4, 6), torch.ones(5, 6), comm=comm)
        with forward_ad.dual_level(), pytest.raises(UnsupportedError, match="^x: .*tangent"):
            function(forward_ad.make_dual(x, x), w, comm=comm)


@pytest.mark.torch
@of_each("function", LAYERS)
def test_a_recorded_layer_takes_tensors_only(torch, function):
    with rocpy.rccl.Communicator.init(1, 0, rocpy.rccl.UniqueId.make()) as comm:
        with pytest.raises(InvalidOperandError, match="^weight: got ndarray"):
            function(torch.ones(4, 6, dtype=torch.float64, requires_grad=True), W, comm=comm)
        with pytest.raises(UnsupportedError, match=r"^x: .*vmap"):
            torch.vmap(lambda one: function(one, torch.ones(5, 6, requires_grad=True), comm=comm))(torch.ones(1, 4, 6))
