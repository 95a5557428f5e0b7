# SPDX-License-Identifier: MIT
"""rocpy.compat.nccl has nccl4py's names, parameters and numbers, and its page says of each name what it does."""

import dataclasses
import enum
import inspect
import json
import pickle
import pydoc
import re
from pathlib import Path

import pytest

import rocpy
from rocpy.compat import nccl

THEIRS = json.loads((Path(__file__).parent / "nccl4py_names.json").read_text())
PAGE = (Path(__file__).parents[2] / "docs/compat-nccl.md").read_text()


def table_after(heading):
    """Return the names in the first column of the table below a heading of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([\w.]+)", cell)]


def test_every_name_is_there():
    assert len(THEIRS["names"]) == 80
    assert [name for name in THEIRS["names"] if not hasattr(nccl, name)] == []
    assert set(THEIRS["names"]) <= set(nccl.__all__)
    assert set(nccl.__all__) <= set(dir(nccl))
    assert nccl.__version__ == THEIRS["version"] == str(nccl.get_version().nccl4py)


@pytest.mark.parametrize("owner", THEIRS["members"])
def test_every_member_is_there(owner):
    ours = getattr(nccl, owner)
    for member, theirs in THEIRS["members"][owner].items():
        if isinstance(theirs, int):
            assert issubclass(ours, enum.IntEnum | enum.IntFlag)
            assert ours[member] == theirs, member
        elif theirs == "field":
            assert member in {field.name for field in dataclasses.fields(ours)}
        elif isinstance(theirs, dict):
            parameters = inspect.signature(getattr(ours, member)).parameters.values()
            names = [one.name for one in parameters if one.name != "self"]
            assert names == theirs["positional"] + theirs["keyword"], member
            assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == set(theirs["keyword"]), member
        else:
            assert member in {*dir(ours), *vars(ours), *inspect.get_annotations(ours)}


def test_the_page_lists_every_name():
    served, refused = table_after("Supported names"), table_after("Unsupported names")
    assert sorted(set(THEIRS["names"]) - {*served, *refused}) == []
    assert sorted(set(served) & set(refused)) == []
    assert [name for name in served + refused if not hasattr(nccl, name.partition(".")[0])] == []


@pytest.mark.parametrize("name", table_after("Unsupported names"))
def test_what_the_page_says_is_refused_says_why(name):
    owner, _, member = name.partition(".")
    comm = nccl.Communicator.init(1, 0, nccl.get_unique_id())
    try:
        with pytest.raises(rocpy.UnsupportedError, match=rf"{member or owner}.*: .+") as caught:
            ask_for(comm, owner, member)
        assert caught.value.library == "rccl"
    finally:
        comm.destroy()


def ask_for(comm, owner, member):
    """Make, call or read what is refused."""
    kind = getattr(nccl, owner)
    if not member:
        kind()
    elif issubclass(kind, enum.Enum):
        refuse_value(comm, kind[member])
    elif dataclasses.is_dataclass(kind):
        refuse_setting(comm, kind, member)
    else:
        instance = comm if owner == "Communicator" else comm.register_window(nccl.mem_alloc(4096))
        found = getattr(instance, member)
        found(*[None] * len(inspect.signature(found).parameters))


def refuse_value(comm, value):
    """Give a call the value of an enumeration that RCCL has nothing for."""
    if isinstance(value, nccl.WindowFlag):
        comm.register_window(nccl.mem_alloc(4096), value)
    else:
        nccl.Communicator.init(1, 0, nccl.get_unique_id(), nccl.NCCLConfig(host_cft_mode=value))


def refuse_setting(comm, kind, name):
    """Give a call a setting that RCCL has nothing for."""
    values = {"alg_selection": "ring", "host_cft_mode": nccl.NcclHostCftMode.ENABLE, "graph_stream_ordering": 0}
    settings = kind(**{name: values.get(name, 2)})
    if kind is nccl.NCCLConfig:
        nccl.Communicator.init(1, 0, nccl.get_unique_id(), settings)
    else:
        x = nccl.mem_alloc(16)
        comm.allreduce(x, x, nccl.SUM, config=settings)


def test_asking_for_names_is_harmless():
    assert not hasattr(nccl, "no_such_name")
    comm = nccl.Communicator()
    assert not hasattr(comm, "no_such_name")
    assert not hasattr(comm, "team_lsa")  # RCCL has none
    assert getattr(comm, "team_cft_multimem", 3) == 3
    with pytest.raises(AttributeError, match="no_such_name"):
        nccl.no_such_name  # noqa: B018
    assert "allreduce" in pydoc.render_doc(nccl)
    assert dict(inspect.getmembers(nccl))["torch"] is nccl.torch
    assert "split" in dir(comm)
    assert inspect.signature(nccl.Communicator.allreduce).parameters["config"].default is None


def test_records_are_pickled():
    ident = nccl.get_unique_id()
    error = nccl.NcclInvalid("what")
    for value in (ident, nccl.SUM, nccl.WindowFlag.COLL_SYMMETRIC, nccl.NCCLConfig(min_ctas=2), nccl.Version(1, 2, 3)):
        assert pickle.loads(pickle.dumps(value)) == value
    assert pickle.loads(pickle.dumps(error)).msg == "what"
    comm = nccl.Communicator.init(1, 0, ident)
    with pytest.raises(TypeError):
        pickle.dumps(comm)
    comm.destroy()
