# SPDX-License-Identifier: MIT
"""Products on created streams: order, results, and memory that is dropped while work is still queued."""

from __future__ import annotations

import contextlib
import gc
import weakref

import numpy as np
import pytest

import rocpy
from rocpy.testing import Case, evaluate, make_operands, run_case
from rocpy.testing import cases as case_list
from rocpy.testing.runner import check_outputs


def check(outputs, *args, **options):
    for name, found in check_outputs(evaluate(*args, **options), outputs, np.float32).items():
        assert found.ok, f"{name}: {found.message}"


def test_a_product_on_a_stream(rng):
    a, b = rng.standard_normal((64, 64), dtype=np.float32), rng.standard_normal((64, 64), dtype=np.float32)
    with rocpy.Stream() as stream:
        d = rocpy.matmul(a, b, epilogue="gelu", stream=stream)
        stream.synchronize()
        check(d, a, b, epilogue="gelu")


@pytest.mark.parametrize("epilogue", ["default", "gelu_aux", "dgelu_bgrad", "bgrada"])
def test_every_reference_is_dropped_right_after_the_call(epilogue):
    case = Case(300, 200, 400, epilogue=epilogue)
    arrays = make_operands(case)
    plain = {key: value for key, value in arrays.items() if key == "aux"}
    expected = evaluate(arrays["a"], arrays["b"], epilogue=epilogue, **plain)
    with rocpy.Stream() as stream:
        for _ in range(10):
            copies = {key: value.copy() for key, value in arrays.items()}
            outputs = rocpy.matmul(copies.pop("a"), copies.pop("b"), **copies, epilogue=epilogue, stream=stream)
            del copies
            # New arrays of the same sizes would land in memory that was given back too early.
            trash = [np.full_like(value, np.nan) for value in arrays.values()]
            stream.synchronize()
            del trash
            for name, found in check_outputs(expected, outputs, np.float32).items():
                assert found.ok, f"{name}: {found.message}"


def test_the_result_may_be_dropped_too(rng):
    a = rng.standard_normal((300, 300), dtype=np.float32)
    with rocpy.Stream() as stream:
        for _ in range(50):
            rocpy.matmul(a, a, stream=stream)
        stream.synchronize()
        d = rocpy.matmul(a, a, stream=stream)
        stream.synchronize()
    check(d, a, a)


def test_held_references_are_released_after_synchronise(rng):
    class Owner(np.ndarray):
        pass

    a = Owner((64, 64), np.float32)
    a[...] = rng.standard_normal((64, 64))
    gone = weakref.ref(a)
    with rocpy.Stream() as stream:
        rocpy.matmul(np.asarray(a), np.asarray(a), stream=stream)
        del a
        stream.synchronize()
        small = np.ones((2, 2), dtype=np.float32)
        rocpy.matmul(small, small, stream=stream)
        stream.synchronize()
        gc.collect()
        assert gone() is None


def test_a_chain_on_one_stream_is_in_order(rng):
    a = (rng.standard_normal((200, 200)) / 15).astype(np.float32)
    with rocpy.Stream() as stream:
        x = a
        for _ in range(8):
            x = rocpy.matmul(x, a, stream=stream)
        stream.synchronize()
    y = a.astype(np.float64)
    for _ in range(8):
        y = y @ a.astype(np.float64)
    np.testing.assert_allclose(x, y, atol=1e-4)


def test_plans_take_a_stream(rng):
    a, b = rng.standard_normal((64, 64), dtype=np.float32), rng.standard_normal((64, 64), dtype=np.float32)
    with rocpy.Stream() as stream, rocpy.Stream() as other:
        with rocpy.Matmul(a, b, epilogue="silu", stream=stream) as mm:
            mm.plan()
            first = mm.execute()
            second = mm.execute(stream=other)
            stream.synchronize()
            other.synchronize()
        check(first, a, b, epilogue="silu")
        check(second, a, b, epilogue="silu")


def test_operands_that_are_copied_first_on_a_stream(rng):
    a, b = rng.standard_normal((64, 128), dtype=np.float32), rng.standard_normal((64, 64), dtype=np.float32)
    out = np.full((128, 128), np.nan, dtype=np.float32)
    with rocpy.Stream() as stream:
        rocpy.matmul(a[:, ::2], b[::-1], out=out[::2, ::2], stream=stream)
        stream.synchronize()
    check(out[::2, ::2], a[:, ::2], b[::-1])


def test_weights_on_streams(rng):
    x, weight = rng.standard_normal((64, 64), dtype=np.float32), rng.standard_normal((64, 64), dtype=np.float32)
    with rocpy.Stream() as stream:
        d = rocpy.matmul(x, rocpy.Weight(weight), stream=stream)
        gc.collect()
        stream.synchronize()
    check(d, x, weight)


@pytest.mark.parametrize("wrong", ["stream", object(), 1.5])
def test_what_is_no_stream_is_refused(wrong):
    a = np.ones((2, 2), dtype=np.float32)
    with pytest.raises((rocpy.InvalidOperandError, rocpy.InvalidProblemError), match="stream"):
        rocpy.matmul(a, a, stream=wrong)


def test_a_closed_stream_is_refused():
    a = np.ones((2, 2), dtype=np.float32)
    stream = rocpy.Stream()
    stream.close()
    with pytest.raises(rocpy.ClosedError):
        rocpy.matmul(a, a, stream=stream)


def test_without_a_stream_the_result_is_there_on_return():
    for case in case_list.select("quick", group="tall-k"):
        result = run_case(case)
        assert result.ok, result.message


STRESSED = """
    import numpy as np
    import rocpy
    from rocpy.testing import run_case
    from rocpy.testing.cases import DTYPES, cases

    # Types that every release's library multiplies.
    chosen = [case for case in cases("quick") if case.k < 2000 and case.dtype in DTYPES][::19]
    for case in chosen:
        result = run_case(case)
        assert result.ok, (case.name, result.message)

    def on_stream(*args, **options):
        with rocpy.Stream() as stream:
            outputs = rocpy.matmul(*args, stream=stream, **options)
            del args, options
            stream.synchronize()
        return outputs

    for case in chosen:
        result = run_case(case, matmul=on_stream)
        assert result.ok, (case.name, result.message)

    streams = [rocpy.Stream() for _ in range(4)]
    a = np.random.default_rng(1).standard_normal((60, 60)).astype(np.float32)
    expected = rocpy.matmul(a, a)
    for _ in range(10):
        found = [rocpy.matmul(a.copy(), a.copy(), stream=stream) for stream in streams]
        for stream in streams:
            stream.synchronize()
        assert all(np.array_equal(d, expected) for d in found)
    print("done", len(chosen))
"""


@pytest.mark.parametrize("seed", ["1", "77"])
def test_under_stress(run_python, seed):
    done = run_python(STRESSED, ROCPY_HOST_STRESS=seed, timeout_s=120)
    assert done.stdout.startswith("done")


def test_a_handle_that_is_no_stream_is_reported(run_python):
    # The host platform knows its handles; a GPU's driver may crash on a wrong one, hence a process of its own.
    code = """
        import numpy as np, rocpy
        if not rocpy.platform.current().is_emulated:
            raise SystemExit
        a = np.ones((2, 2), np.float32)
        for handle in (12345, 2**48, -1, 2**70):
            try:
                rocpy.matmul(a, a, stream=handle)
            except rocpy.RocpyError as error:
                print(error)
            else:
                raise SystemExit(f"{handle} was accepted")
    """
    run_python(code)


WAYS = {
    "function": lambda a, b, stream: rocpy.matmul(a, b, epilogue="relu", stream=stream),
    "plan": lambda a, b, stream: rocpy.Matmul(a, b, epilogue="relu", stream=stream).execute(),
    "stream of the execution": lambda a, b, stream: rocpy.Matmul(a, b, epilogue="relu", stream=stream).execute(
        stream=stream
    ),
    "list of products": lambda a, b, stream: rocpy.grouped_matmul([a], [b], epilogue="relu", stream=stream)[0],
    "packed groups": lambda a, b, stream: rocpy.grouped_matmul(
        a, b[None], offsets=[0, 4], epilogue="relu", stream=stream
    ),
    "epilogue of the user": lambda a, b, stream: rocpy.matmul(
        a, b, epilogue=rocpy.epilogue(lambda x: np.maximum(x, 0)), stream=stream
    ),
}


@pytest.mark.parametrize("given", ["Stream", "handle"])
@pytest.mark.parametrize("way", WAYS)
def test_arrays_in_cpu_memory_are_multiplied_on_the_streams_device(way, given, rng):
    a, b = rng.standard_normal((4, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    with rocpy.Stream(3) as stream:
        found = WAYS[way](a, b, stream if given == "Stream" else stream.handle)
        stream.synchronize()
        np.testing.assert_allclose(np.asarray(found), np.maximum(a.astype(np.float64) @ b, 0), rtol=1e-5, atol=1e-5)
    assert rocpy.Device.current().index == 0


@pytest.mark.parametrize("given", ["Stream", "handle"])
def test_a_stream_of_another_device_than_the_operands_is_refused(given):
    if rocpy.platform.current().host_memory:
        pytest.skip("memory of every device is the CPU's here, and belongs to none")
    a = rocpy.Buffer((4, 4), "float32", device=2)
    a.fill(0)
    with rocpy.Stream(3) as stream:
        for call in (rocpy.matmul, lambda a, b, stream: rocpy.Matmul(a, b, stream=stream).execute()):
            with pytest.raises(
                rocpy.InvalidOperandError, match="stream: it belongs to device 3, and the operands are on device 2"
            ):
                call(a, a, stream=stream if given == "Stream" else stream.handle)


@pytest.mark.skipif(
    not rocpy.platform.current().host_memory,
    reason="operands in CPU memory, which are copied, are refused in a capture",
)
@pytest.mark.parametrize("form", ["matmul", "execute", "weight", "groups"])
def test_a_product_on_the_null_stream_names_the_capture_that_it_invalidates(form, capfd):
    random = np.random.default_rng(0)
    a, b = random.standard_normal((5, 3), np.float32), random.standard_normal((3, 4), np.float32)
    with rocpy.Stream() as blocking, rocpy.Matmul(a, b) as mm, rocpy.Weight(b) as weight:
        call = {
            "matmul": lambda: rocpy.matmul(a, b),
            "execute": mm.execute,
            "weight": lambda: rocpy.matmul(a, weight),
            "groups": lambda: rocpy.grouped_matmul([a], [b]),
        }[form]
        with contextlib.suppress(rocpy.LibraryError), blocking.capture():
            rocpy.matmul(a, b, stream=blocking)
            with pytest.raises(rocpy.LibraryError, match="nonblocking=True") as refused:
                call()
        assert (refused.value.library, refused.value.status_name) == ("hip", "hipErrorStreamCaptureImplicit")
        np.testing.assert_allclose(rocpy.matmul(a, b), a @ b, rtol=1e-5, atol=1e-5)
    assert capfd.readouterr().err == ""
