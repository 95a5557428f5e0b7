# SPDX-License-Identifier: MIT
"""The exceptions: their families, what they carry, and the table from a library's status to a class."""

import pickle
import re
from pathlib import Path

import generate_abi
import pytest

import rocpy
from rocpy import errors
from rocpy.rccl.model.failures import error_of

FAMILY = {
    "LibraryError": ("RocpyError", RuntimeError),
    "OutOfMemoryError": ("RocpyError", MemoryError),
    "UnsupportedError": ("RocpyError", NotImplementedError),
    "InvalidProblemError": ("RocpyError", ValueError),
    "InvalidOperandError": ("RocpyError", TypeError),
    "ClosedError": ("RocpyError", RuntimeError),
    "RcclError": ("RocpyError", Exception),
    "CollectiveTimeoutError": ("RcclError", TimeoutError),
    "CollectiveMismatchError": ("RcclError", Exception),
    "RemoteError": ("RcclError", Exception),
    "InvalidUsageError": ("RcclError", Exception),
    "InvalidArgumentError": ("RcclError", ValueError),
    "RcclSystemError": ("RcclError", Exception),
    "RcclInternalError": ("RcclError", Exception),
    "RcclOutOfMemoryError": ("RcclError", errors.OutOfMemoryError),
    "KernelTypeError": ("RocpyError", TypeError),
    "KernelError": ("RocpyError", RuntimeError),
    "DivergentBarrierError": ("KernelError", Exception),
    "SharedMemoryRaceError": ("KernelError", Exception),
    "GlobalMemoryRaceError": ("KernelError", Exception),
    "KernelDivisionError": ("KernelError", ZeroDivisionError),
    "KernelIndexError": ("KernelError", IndexError),
    "UninitializedResultError": ("KernelError", Exception),
}


def test_the_family_is_complete():
    defined = {name for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, Exception)}
    public = {name for name in defined if not name.startswith("_")}
    assert public == {*FAMILY, "RocpyError", "RocpyWarning"} == set(errors.__all__)


@pytest.mark.parametrize("name", FAMILY)
def test_parents(name):
    parent, builtin = FAMILY[name]
    assert issubclass(getattr(errors, name), getattr(errors, parent))
    assert issubclass(getattr(errors, name), errors.RocpyError)
    assert issubclass(getattr(errors, name), builtin)


def test_the_warning_is_a_runtime_warning():
    assert issubclass(errors.RocpyWarning, RuntimeWarning)
    assert not issubclass(errors.RocpyWarning, errors.RocpyError)


@pytest.mark.parametrize("name", FAMILY)
def test_message_and_pickle(name):
    error = getattr(errors, name)("what happened")
    copy = pickle.loads(pickle.dumps(error))
    assert str(error) == str(copy) == "what happened"
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


def test_a_library_error_survives_a_pickle_with_what_it_carries():
    error = errors.error_for_status("hipblaslt", "hipblasLtMatmul", 6, "HIPBLAS_STATUS_INTERNAL_ERROR")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.library, copy.function, copy.status, copy.status_name) == (
        "hipblaslt",
        "hipblasLtMatmul",
        6,
        "HIPBLAS_STATUS_INTERNAL_ERROR",
    )


def test_collective_errors_say_who():
    late = errors.CollectiveTimeoutError("late", waiting_for=[1, 3], op="all_reduce", seq=7)
    assert (late.waiting_for, late.op, late.seq) == ((1, 3), "all_reduce", 7)
    assert pickle.loads(pickle.dumps(late)).waiting_for == (1, 3)
    assert errors.RemoteError("gone", rank=2).rank == 2


@pytest.mark.parametrize(
    ("library", "status", "wanted"),
    [
        ("hip", 1, errors.LibraryError),
        ("hip", 2, errors.OutOfMemoryError),
        ("hip", 100, errors.LibraryError),
        ("hip", 719, errors.LibraryError),
        ("hip", 801, errors.UnsupportedError),
        ("hipblaslt", 2, errors.OutOfMemoryError),
        ("hipblaslt", 3, errors.LibraryError),
        ("hipblaslt", 6, errors.LibraryError),
        ("hipblaslt", 7, errors.UnsupportedError),
        ("hip", 123456, errors.LibraryError),
        ("rccl", 1, errors.RcclError),
    ],
)
def test_class_of_a_status(library, status, wanted):
    error = errors.error_for_status(library, "function", status)
    assert type(error) is wanted
    assert error.status == status
    assert f"function ({library}) failed: status {status}" in str(error)


def test_the_table_names_statuses_that_exist():
    headers = ("types_hip.h", "types_hipblaslt.h", "types_rccl.h", "types_hiprtc.h")
    text = "\n".join(Path(generate_abi.ABI, name).read_text() for name in headers)
    values = re.findall(r"\b(hipError\w+|HIPBLAS_STATUS_\w+|nccl\w+|HIPRTC_\w+) = (\d+)", text)
    numbers = {name: int(number) for name, number in values}
    source = Path(errors.__file__).read_text()
    rows = re.findall(r'\("(\w+)", (\d+)\): \w+,  # (\w+)', source)
    assert len(rows) == len(errors._CLASS_OF_STATUS)
    for library, number, name in rows:
        assert numbers[name] == int(number), name
        assert name.startswith(
            {"hip": "hipError", "hipblaslt": "HIPBLAS_STATUS_", "rccl": "nccl", "hiprtc": "HIPRTC_"}[library]
        )


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (1, "HIP failure 'out of memory'", errors.RcclOutOfMemoryError),
        (2, "mmap of shared memory: Cannot allocate memory", errors.RcclOutOfMemoryError),
        (1, "HIP failure 'invalid device ordinal'", errors.RcclError),
        (2, "socket: connection refused", errors.RcclSystemError),
        (3, "out of memory", errors.RcclInternalError),
    ],
)
def test_what_rccl_says_of_memory(code, text, expected):
    error = error_of(code, op="init", seq=None, rank=0, text=text)
    assert type(error) is expected
    assert (error.op, error.rank, error.status) == ("init", 0, code)


def test_an_exception_of_the_packages_own_has_the_name_of_a_public_one():
    torch = pytest.importorskip("torch")
    for provoke in (
        lambda: rocpy.Matmul(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)),
        lambda: rocpy.epilogue(lambda x: x.shape),
        lambda: rocpy.epilogue(lambda x: x.no_such_attribute),
    ):
        with pytest.raises(errors.RocpyError) as raised:
            provoke()
        public = getattr(errors, raised.type.__name__)
        assert raised.type.__module__ == "rocpy.errors"
        assert issubclass(raised.type, public)
        copy = pickle.loads(pickle.dumps(raised.value))
        assert type(copy) is public
        assert str(copy) == str(raised.value)
