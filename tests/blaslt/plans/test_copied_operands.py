# SPDX-License-Identifier: MIT
"""Operands of which only a copy can be read: refused where a graph would hold it and where copies are forbidden."""

import ml_dtypes
import numpy as np
import pytest

import rocpy

ALLOWED = pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="operands in CPU memory are refused in every capture there"
)
FORBIDDEN = {"copies": "error"}


def big_endian(x):
    return x.astype(x.dtype.newbyteorder(">"))


def unaligned(x):
    copy = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def ones(*shape):
    return np.ones(shape, np.float32)


def arguments(name, copied):
    """Return operands and keywords of a product, of which one can only be read as a copy."""
    operands = {"a": ones(4, 4), "b": ones(4, 4)}
    more = {"c": {}, "bias": {"epilogue": "bias"}, "aux": {"epilogue": "drelu"}}.get(name, {})
    operands[name] = copied(ones(4) if name == "bias" else ones(4, 4))
    return operands.pop("a"), operands.pop("b"), {**operands, **more}


def by_function(a, b, **keywords):
    return rocpy.matmul(a, b, **keywords)


def by_plan(a, b, *, stream=None, **keywords):
    with rocpy.Matmul(a, b, **keywords) as planned:
        return planned.execute(stream=stream)


def by_weight(a, b, **keywords):
    with rocpy.Weight(b) as weight:
        return rocpy.matmul(a, weight, **keywords)


def by_program(a, b, c=None, *, bias=None, epilogue=None, **keywords):
    inputs = {} if bias is None else {"bias": bias}
    function = rocpy.epilogue(_cubed if bias is None else _scaled_cube)
    return rocpy.matmul(a, b, c, epilogue=function, epilogue_inputs=inputs, **keywords)


def _cubed(x):
    return x * x * x


def _scaled_cube(x, bias):
    return x * x * x * bias


FORMS = [by_function, by_plan]


@pytest.fixture
def stream():
    with rocpy.Stream(nonblocking=True) as made:
        yield made


def refused_in_a_capture(stream, name, product, *args, **keywords):
    with stream.capture() as graph, pytest.raises(rocpy.UnsupportedError, match=f"a copy of {name} is read"):
        product(*args, stream=stream, **keywords)
    graph.close()


@ALLOWED
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "aux"])
@pytest.mark.parametrize("copied", [big_endian, unaligned])
def test_a_capture_refuses_them(stream, form, name, copied):
    a, b, keywords = arguments(name, copied)
    refused_in_a_capture(stream, name, form, a, b, **keywords)


@ALLOWED
@pytest.mark.parametrize("copied", [big_endian, unaligned])
def test_a_capture_refuses_one_beside_a_weight(stream, copied):
    refused_in_a_capture(stream, "a", by_weight, copied(ones(4, 4)), ones(4, 4))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "aux"])
@pytest.mark.parametrize("copied", [big_endian, unaligned])
def test_copies_that_are_forbidden(form, name, copied):
    a, b, keywords = arguments(name, copied)
    with pytest.raises(rocpy.UnsupportedError, match=rf"^{name}: .*copies='error'"):
        form(a, b, **keywords, options=FORBIDDEN)
    form(a, b, **keywords)
    plain_a, plain_b, plain = arguments(name, np.copy)
    form(plain_a, plain_b, **plain, options=FORBIDDEN)


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "aux"])
@pytest.mark.parametrize("copied", [big_endian, unaligned])
def test_explain_names_them(name, copied):
    a, b, keywords = arguments(name, copied)
    assert name in rocpy.explain(a, b, **keywords).copies
    with rocpy.Matmul(a, b, **keywords) as planned:
        assert planned.copies == (name,) if rocpy.platform.current().host_memory else name in planned.staged
    with pytest.raises(rocpy.UnsupportedError, match=f"^{name}: "):
        rocpy.explain(a, b, **keywords, options=FORBIDDEN)


def test_an_operand_that_is_reset_is_checked_too():
    with rocpy.Matmul(ones(4, 4), ones(4, 4), options=FORBIDDEN) as planned:
        with pytest.raises(rocpy.UnsupportedError, match="^a: .*byte order"):
            planned.reset_operands(a=big_endian(ones(4, 4)))
        np.testing.assert_array_equal(planned.execute(), 4)


@pytest.mark.parametrize("copied", [big_endian, unaligned])
@pytest.mark.parametrize("name", ["a", "b", "bias"])
class TestGroups:
    def operands(self, name, copied, lists):
        shapes = {"a": (4, 4), "b": (4, 4) if lists else (2, 4, 4), "bias": (4,)}
        operands = {each: (copied if each == name else np.copy)(ones(*shape)) for each, shape in shapes.items()}
        if lists:
            operands = {each: [ones(*value.shape), value] for each, value in operands.items()}
        else:
            operands["offsets"] = [0, 1, 4]
        return operands.pop("a"), operands.pop("b"), {**operands, "epilogue": "bias"}

    @ALLOWED
    @pytest.mark.parametrize("lists", [True, False])
    def test_a_capture_refuses_them(self, stream, name, copied, lists):
        a, b, keywords = self.operands(name, copied, lists)
        refused_in_a_capture(stream, name, rocpy.grouped_matmul, a, b, **keywords)

    @pytest.mark.parametrize("lists", [True, False])
    def test_copies_that_are_forbidden(self, name, copied, lists):
        a, b, keywords = self.operands(name, copied, lists)
        with pytest.raises(rocpy.UnsupportedError, match=rf"^{name}.*copies='error'"):
            rocpy.grouped_matmul(a, b, **keywords, options=FORBIDDEN)
        rocpy.grouped_matmul(a, b, **keywords)

    def test_explain_names_them(self, name, copied):
        a, b, keywords = self.operands(name, copied, lists=False)
        assert name in rocpy.explain(a, b, **keywords).copies


# Scales are few numbers, which may be copied; not into a graph, which would never read them again.
SCALES = {
    "strided": lambda: ones(8)[::2],
    "big-endian": lambda: big_endian(ones(4)),
    "unaligned": lambda: unaligned(ones(4)),
    "one of several": lambda: big_endian(ones(1)),
}


@ALLOWED
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["scale_a", "scale_b"])
def test_a_capture_refuses_scales_that_are_copied(stream, form, scale, name):
    values = np.ones((4, 4), ml_dtypes.float8_e4m3fn)
    scales = {"scale_a": 1.0, "scale_b": 1.0, name: SCALES[scale]()}
    refused_in_a_capture(stream, name, form, values, values, dtype="float32", **scales)
    assert form(values, values, dtype="float32", options=FORBIDDEN, **scales)[0, 0] == 4


@ALLOWED
def test_a_capture_refuses_a_scale_that_is_spread(stream):
    values = np.ones((4, 4), ml_dtypes.float8_e4m3fn)
    for name, scales in (("scale_a", (ones(1), ones(4))), ("scale_b", (ones(4), ones(1)))):
        keywords = dict(zip(("scale_a", "scale_b"), scales, strict=True), dtype="float32")
        refused_in_a_capture(stream, name, rocpy.matmul, values, values, **keywords)


@ALLOWED
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("dtype", "name"), [("float4_e2m1fn", "a"), ("float8_e4m3fn", "b")])
def test_a_capture_refuses_blocks_that_are_brought_into_order(stream, form, dtype, name):
    a, scale_a = rocpy.quantize_mx(ones(32, 32), dtype)
    b, scale_b = rocpy.quantize_mx(ones(32, 32), dtype, axis=-2)
    b = np.ascontiguousarray(b)  # K is not its adjacent axis
    refused_in_a_capture(stream, name, form, a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32")


@ALLOWED
@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize("copied", [big_endian, unaligned, lambda x: np.repeat(x, 2, axis=1)[::-1, ::2]])
def test_a_capture_refuses_copies_for_a_custom_epilogue(stream, name, copied):
    a, b, keywords = arguments(name, copied)
    with stream.capture() as graph, pytest.raises(rocpy.UnsupportedError, match="being captured"):
        by_program(a, b, stream=stream, **keywords)
    graph.close()
    with pytest.raises(rocpy.UnsupportedError, match=f"^{name}: "):
        by_program(a, b, options=FORBIDDEN, **keywords)
    assert name in rocpy.explain(a, b, epilogue=rocpy.epilogue(_cubed), **keywords).copies


@ALLOWED
@pytest.mark.parametrize("copied", [big_endian, unaligned])
def test_a_capture_refuses_copied_inputs_of_a_custom_epilogue(stream, copied):
    a, b, keywords = arguments("bias", copied)
    with stream.capture() as graph, pytest.raises(rocpy.UnsupportedError, match="being captured"):
        by_program(a, b, stream=stream, **keywords)
    graph.close()


@pytest.mark.torch
class TestTensors:
    @pytest.fixture
    def torch(self):
        import torch

        return torch

    def unaligned(self, torch):
        return torch.frombuffer(bytearray(65), dtype=torch.float32, offset=1, count=16).reshape(4, 4)

    @ALLOWED
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("kind", ["unaligned", "negative"])
    def test_a_capture_refuses_them(self, torch, stream, form, kind):
        one = torch.ones(4, 4)
        copied = self.unaligned(torch) if kind == "unaligned" else torch._neg_view(one)
        refused_in_a_capture(stream, "a", form, copied, one)
        with pytest.raises(rocpy.UnsupportedError, match="^a: "):
            form(copied, one, options=FORBIDDEN)
        assert rocpy.explain(copied, one).copies == ("a",)

    @ALLOWED
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("name", ["c", "bias"])
    def test_lazy_conjugates(self, torch, stream, form, name):
        one = torch.ones(4, 4, dtype=torch.complex64)
        keywords = {"c": one.conj()} if name == "c" else {"bias": one[0].conj(), "epilogue": "bias"}
        refused_in_a_capture(stream, name, form, one, one, **keywords)
        with pytest.raises(rocpy.UnsupportedError, match=f"^{name}: "):
            form(one, one, options=FORBIDDEN, **keywords)
