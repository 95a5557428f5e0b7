# SPDX-License-Identifier: MIT
"""A platform without RCCL, or with one that cannot be used, serves for everything else."""

from fake_rocm import tree


def test_a_tree_without_rccl_serves_and_collectives_say_what_is_missing(machine):
    machine.add_gpu()
    lib = tree(machine.folder / "opt/rocm/lib", label="opt")
    program = """
    result.update(facts())
    from rocpy import rccl
    result["error"] = failure(rccl.UniqueId.make)
    """
    found = machine.run(program)
    assert found["name"] == "amd"
    assert found["missing"] == {"hip": [], "hipblaslt": []}
    assert found["error"]["type"] == "UnsupportedError"
    assert "ncclGetUniqueId (rccl) is not available: no librccl.so" in found["error"]["text"]
    (lib / "librccl.so.1").write_text("no library")
    assert "cannot open librccl.so" in machine.run(program)["error"]["text"]
