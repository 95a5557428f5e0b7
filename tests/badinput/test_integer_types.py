# SPDX-License-Identifier: MIT
"""Integers of any type are taken as numbers of algorithms, bytes, plans and devices; others are refused by name."""

import numpy as np
import pytest

import rocpy
from rocpy._integers import integer_of

A = np.ones((8, 8), np.float32)


def planned(use):
    with rocpy.Matmul(A, A) as mm:
        mm.plan()
        return use(mm)


def resize(number):
    before = rocpy.plan_cache.info()["capacity"]
    try:
        rocpy.plan_cache.resize(number)
        return rocpy.plan_cache.info()["capacity"]
    finally:
        rocpy.plan_cache.resize(before)


def stream(*args, **keywords):
    with rocpy.Stream(*args, **keywords) as made:
        return made.device_index, made.priority


def event(number):
    with rocpy.Event(device=number) as made:
        return made.device_index


# What takes an integer, one that it takes, and the argument's name in errors.
USES = {
    "plan": (lambda x: len(planned(lambda mm: mm.plan(max_algorithms=x))), 2, "max_algorithms"),
    "pin": (lambda x: planned(lambda mm: mm.pin(x)), 0, "algorithm"),
    "execute": (lambda x: planned(lambda mm: mm.execute(algorithm=x)).tolist(), 0, "algorithm"),
    "matmul": (lambda x: rocpy.matmul(A, A, algorithm=x).tolist(), 0, "algorithm"),
    "options": (lambda x: rocpy.blaslt.Options(max_workspace_bytes=x), 4096, "max_workspace_bytes"),
    "a product's options": (
        lambda x: rocpy.matmul(A, A, options={"max_workspace_bytes": x}).tolist(),
        4096,
        "max_workspace_bytes",
    ),
    "plan_cache": (resize, 7, "capacity"),
    "Device": (rocpy.Device, 0, "index"),
    "Stream": (stream, 0, "device"),
    "a priority": (lambda x: stream(priority=x), 0, "priority"),
    "Event": (event, 0, "device"),
    "Buffer": (lambda x: rocpy.Buffer((2,), "float32", device=x).device, 0, "device"),
}
TYPES = [np.int16, np.int32, np.uint64, np.array]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", TYPES)
def test_integers_of_any_type(use, kind):
    call, number, _ = USES[use]
    assert call(kind(number)) == call(number)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("wrong", [2.0, np.float32(2), "a 2", True, np.bool_(True), np.array([1, 2])], ids=repr)
def test_others_are_refused_by_name(use, wrong):
    call, _, name = USES[use]
    if use in ("pin", "execute", "matmul") and isinstance(wrong, str):
        name = "algorithm a 2"  # the name of a kernel
    with pytest.raises((rocpy.InvalidProblemError, rocpy.InvalidOperandError), match=f"{name}"):
        call(wrong)


@pytest.mark.parametrize("use", ["Device", "Stream", "Event", "Buffer"])
@pytest.mark.parametrize("index", [-1, 99, 2**70])
def test_a_device_that_there_is_not(use, index):
    call, _, name = USES[use]
    with pytest.raises(rocpy.InvalidProblemError, match=f"^{name}: there is no device {index}; the platform has"):
        call(index)


def test_an_option_is_one_key_whatever_its_type():
    one, other = (rocpy.blaslt.Options(max_workspace_bytes=kind(64)) for kind in (int, np.int32))
    assert one == other
    assert hash(one) == hash(other)
    assert type(other.max_workspace_bytes) is int


@pytest.mark.torch
def test_integers_of_torch(torch):
    assert integer_of(torch.tensor(3)) == 3
    assert integer_of(torch.tensor([3, 4])) is None
    assert integer_of(torch.tensor(3.0)) is None
