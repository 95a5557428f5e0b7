# SPDX-License-Identifier: MIT
"""What comes from ranks in processes where it cannot be pickled, or not be unpickled."""

import pytest

from rocpy import distributed
from rocpy.errors import InvalidArgumentError, RcclSystemError


class TwoArgumentsError(Exception):
    """Pickles, and does not unpickle: what it passes on is one argument."""

    def __init__(self, what, code):
        super().__init__(f"{what} ({code})")


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not to be sent")


class Unreadable:
    def __reduce__(self):
        return int, ("not a number",)


def answer(comm, kind):
    match kind:
        case "exception that does not unpickle":
            raise TwoArgumentsError("disk full", 28)
        case "exception that does not pickle":
            raise UnpicklableError("disk full")
        case "result that does not unpickle":
            return Unreadable()
        case "result that does not pickle":
            return lambda: "disk full"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("exception that does not unpickle", "rank 0 raised TwoArgumentsError.*disk full .28.*cannot be unpickled"),
        ("exception that does not pickle", "UnpicklableError.*disk full"),
        ("result that does not unpickle", "rank 0: its result cannot be unpickled.*invalid literal"),
        ("result that does not pickle", "rank 0: .*lambda.* cannot be sent"),
    ],
)
def test_what_cannot_be_pickled_is_named_with_its_rank(kind, said):
    with pytest.raises(RcclSystemError, match=said) as raised:
        distributed.run_processes(answer, 1, kind)
    assert raised.value.rank == 0


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("function", lambda comm: 1, ()),
        ("arguments", answer, (lambda: 1,)),
        ("arguments", answer, (UnpicklableError(),)),
    ],
    ids=["function", "argument", "object"],
)
def test_what_no_process_can_be_started_with_is_refused(name, function, arguments):
    with pytest.raises(InvalidArgumentError, match=rf"^{name}: cannot be pickled"):
        distributed.run_processes(function, 2, *arguments)


@pytest.mark.parametrize("run", [distributed.run_threads, distributed.run_processes])
@pytest.mark.parametrize("timeout_s", [None, 0, -1.0, float("nan"), "x"])
def test_a_timeout_is_a_positive_number(run, timeout_s):
    with pytest.raises(InvalidArgumentError, match="^timeout_s: got .*positive number of seconds"):
        run(answer, 2, "", timeout_s=timeout_s)
