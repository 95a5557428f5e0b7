# SPDX-License-Identifier: MIT
"""What `group` returns: one block at a time, again afterwards, as a decorator, copied and weakly referred to."""

import copy
import pickle
import threading
import weakref

import numpy as np
import pytest

from rocpy import rccl
from rocpy.compat import nccl

GROUPS = [rccl.group, nccl.group]
pytestmark = pytest.mark.parametrize("group", GROUPS, ids=["rccl", "compat"])
X = np.ones(4, np.float32)


@pytest.fixture
def comm():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as made:
        yield made


def enter_inside(opened):
    with opened:
        pass


def enter_in_another_thread(opened):
    raised = []

    def enter():
        try:
            with opened:
                pass
        except rccl.InvalidUsageError as error:
            raised.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    raise raised[0]


@pytest.mark.parametrize("enter", [enter_inside, enter_in_another_thread])
def test_an_open_group_is_not_entered_again_and_goes_on(comm, group, enter):
    opened, y = group(), np.zeros_like(X)
    with opened:
        comm.all_reduce(X, out=y)
        with pytest.raises(rccl.InvalidUsageError, match=r"its block has not ended; call group\(\) for each block"):
            enter(opened)
        assert not y.any()
    assert y.tolist() == X.tolist()
    assert comm.all_reduce(X).tolist() == X.tolist()


def test_a_group_that_has_ended_is_entered_again(comm, group):
    opened = group()
    for _ in range(2):
        y = np.zeros_like(X)
        with opened:
            comm.all_reduce(X, out=y)
        assert y.tolist() == X.tolist()


def test_a_decorated_function_has_a_group_of_its_own_in_each_call(comm, group):
    @group()
    def summed(depth, *, out):
        """Sum."""
        comm.all_reduce(X, out=out[depth])
        if depth:
            summed(depth - 1, out=out)
        assert not out.any()
        return depth

    assert (summed.__name__, summed.__doc__) == ("summed", "Sum.")
    out = np.zeros((3, 4), np.float32)
    assert summed(2, out=out) == 2
    assert out.tolist() == [X.tolist()] * 3

    @group()
    def raising(out):
        comm.all_reduce(X, out=out)
        raise KeyError

    y = np.zeros_like(X)
    with pytest.raises(KeyError):
        raising(y)
    assert not y.any()
    assert comm.all_reduce(X).tolist() == X.tolist()


@pytest.mark.parametrize("of", [copy.copy, copy.deepcopy, lambda opened: pickle.loads(pickle.dumps(opened))])
def test_a_copy_is_another_group(comm, group, of):
    opened, y = group(), np.zeros_like(X)
    with opened:
        with of(opened):
            comm.all_reduce(X, out=y)
        assert not y.any()  # an inner group is part of the outer one
    assert y.tolist() == X.tolist()


def test_groups_are_weakly_referred_to(comm, group):
    opened = group()
    assert weakref.ref(opened)() is opened
