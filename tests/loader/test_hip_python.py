# SPDX-License-Identifier: MIT
"""hip-python, unmodified, gets the files that rocpy chose, whoever comes first: by ROCM_PATH, by its loader, or not."""

import os
import textwrap
from pathlib import Path

import pytest
from fake_rocm import package, tree

hip = pytest.importorskip("rocm.bindings.hip", exc_type=ImportError)
pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ImportError)

# Calls through hip-python; what it answers with, and which files are then mapped.
CALL = """
from rocm.bindings import hip, hipblaslt
result["count"] = int(hip.hipGetDeviceCount()[1])
result["names"] = hip.hipGetErrorName(hip.hipError_t.hipErrorInvalidValue)[1]
result["names"] = result["names"].decode() if isinstance(result["names"], bytes) else str(result["names"])
result["has_hipblaslt"] = bool(hipblaslt.has_symbol("hipblasLtCreate"))
"""
AFTER = """
from rocm.bindings import cyhip
from rocpy import _core
result["shared"] = _core.shares_runtime(cyhip.__pyx_capi__["hipGetErrorName"])[0]
result["rocm_path"] = os.environ.get("ROCM_PATH")
for stem in ("amdhip64", "hipblaslt"):
    result[stem] = mapped(stem)
"""
CHOOSE = "result.update(facts())\n"


def one_mapping(found):
    """Return whether each library is mapped once, and both sides use it."""
    return found["shared"] and found["has_hipblaslt"] and len(found["amdhip64"]) == len(found["hipblaslt"]) == 1


@pytest.fixture
def private_hip_python(machine):
    """Give the machine a hip-python of its own, made of links, into whose folder a test may put a library."""
    for root in {Path(place) for place in __import__("rocm").__path__}:
        for folder, _, files in os.walk(root):
            copy = machine.site / "rocm" / Path(folder).relative_to(root)
            copy.mkdir(parents=True, exist_ok=True)
            for file in files:
                if "__pycache__" not in folder:
                    (copy / file).symlink_to(Path(folder) / file)
    return machine.site / "rocm"


def test_rocm_path_suffices(machine):
    found = machine.run(CHOOSE + CALL + AFTER)
    assert one_mapping(found)
    assert found["count"] == 8
    assert found["rocm_path"] == str(Path(found["paths"]["hip"]).parent.parent)
    assert found["hip_python"] == f"ROCM_PATH is set to {found['rocm_path']}"


def test_hip_python_imported_but_unused_before(machine):
    found = machine.run(CHOOSE + CALL + AFTER, early="from rocm.bindings import hip, hipblaslt")
    assert one_mapping(found)
    assert found["count"] == 8


def test_a_rocm_path_that_is_the_users_stays_and_the_loader_is_preset(machine):
    mine = str(tree(machine.folder / "mine/lib", label="mine").parent)
    machine.environment["ROCM_PATH"] = mine
    for early in ("", "from rocm.bindings import hip", "import rocm.bindings.util.paths"):
        found = machine.run(CHOOSE + CALL + AFTER, early=early)
        assert one_mapping(found)
        assert found["count"] == 8
        assert found["rocm_path"] == mine
        assert "preset" in found["hip_python"]
        assert found["opened"] == []


def test_a_tree_that_rocm_path_names_already_is_left_alone(machine):
    machine.add_gpu()
    mine = str(tree(machine.folder / "mine/lib", label="mine").parent)
    machine.environment["ROCM_PATH"] = mine
    found = machine.run(CHOOSE + CALL + AFTER)
    assert one_mapping(found)
    assert found["names"] == "mine"
    assert found["hip_python"] == f"it finds the chosen files in {mine} by itself"


def test_the_sdk_packages_would_win_over_rocm_path(machine):
    lib = tree(machine.folder / "sdk", label="sdk")
    package(
        machine.site,
        "rocm_sdk",
        __init__=f"def find_libraries(*names):\n    return [{str(lib)!r} + f'/lib{{name}}.so' for name in names]\n",
    )
    assert machine.run(CALL)["names"] == "sdk"
    found = machine.run(CHOOSE + CALL + AFTER)
    assert one_mapping(found)
    assert found["count"] == 8
    assert found["rocm_path"] is None
    assert "preset" in found["hip_python"]


def test_a_library_in_hip_pythons_own_folder_would_win(machine, private_hip_python):
    tree(private_hip_python / "lib", label="own")
    assert machine.run(CALL)["names"] == "own"
    found = machine.run(CHOOSE + CALL + AFTER)
    assert one_mapping(found)
    assert found["count"] == 8
    assert "preset" in found["hip_python"]


def test_versioned_files_alone_reach_hip_python(machine):
    machine.add_gpu()
    lib = tree(machine.folder / "opt/rocm/lib", label="opt", hip="libamdhip64.so.7", hipblaslt="libhipblaslt.so.1")
    found = machine.run(CHOOSE + CALL + AFTER)
    assert one_mapping(found)
    assert found["amdhip64"] == [str(lib / "libamdhip64.so.7")]
    assert "preset" in found["hip_python"]


def test_the_preset_gives_the_trees_other_libraries_too(machine):
    machine.add_gpu()
    lib = tree(machine.folder / "opt/rocm/lib", label="opt", hip="libamdhip64.so.7", hipblaslt="libhipblaslt.so.1")
    (lib / "libhiprtc.so.7").touch()
    program = """
    result.update(facts())
    from rocm.bindings.util.paths import get_library_path
    result["files"] = [os.fsdecode(get_library_path(stem)) for stem in ("hiprtc", "rocfft")]
    """
    found = machine.run(program)
    assert found["files"] == [str(lib / "libhiprtc.so.7"), "librocfft.so"]


def test_hip_python_used_before_on_the_same_tree(machine):
    machine.add_gpu()
    machine.environment["ROCM_PATH"] = str(tree(machine.folder / "mine/lib", label="mine").parent)
    found = machine.run(CHOOSE + AFTER, early=CALL)
    assert one_mapping(found)


def test_hip_python_used_before_on_another_tree(machine):
    lib = tree(machine.folder / "mine/lib", label="mine")
    machine.environment["ROCM_PATH"] = str(lib.parent)
    program = """
    result["error"] = failure(facts)
    result["again"] = failure(facts)
    from rocpy import _core
    result["loaded"] = _core.is_loaded()
    result["rocm_path"] = os.environ["ROCM_PATH"]
    """
    found = machine.run(program, early=CALL)
    for error in (found["error"], found["again"]):
        assert error["type"] == "LibraryError"
        assert str(lib / "libamdhip64.so") in error["text"]
        assert "rocpy chose" in error["text"]
        assert "_host" in error["text"]
    assert not found["loaded"]
    assert found["rocm_path"] == str(lib.parent)
    # Whoever wants hip-python's tree asks for it.
    found = machine.run("from rocpy import platform\nplatform.use('amd')\n" + CHOOSE + AFTER, early=CALL)
    assert one_mapping(found)


def test_a_refused_choice_leaves_no_trace(machine):
    lib = tree(machine.folder / "mine/lib", label="mine")
    program = """
    result["error"] = failure(facts)
    result["rocm_path"] = os.environ.get("ROCM_PATH")
    from rocm.bindings.util.paths import get_library_path
    result["file"] = os.fsdecode(get_library_path("hipblaslt"))
    """
    machine.environment["LD_LIBRARY_PATH"] = str(lib)  # the variable would have been set
    found = machine.run(program, early=CALL)
    assert found["error"]["type"] == "LibraryError"
    assert (found["rocm_path"], found["file"]) == (None, "libhipblaslt.so")
    machine.environment["ROCM_PATH"] = str(lib.parent)  # the loader would have been preset
    found = machine.run(program, early=CALL)
    assert found["error"]["type"] == "LibraryError"
    assert (found["rocm_path"], found["file"]) == (str(lib.parent), str(lib / "libhipblaslt.so"))


def test_hipblaslt_alone_used_before_on_another_tree(machine):
    lib = tree(machine.folder / "mine/lib", label="mine")
    machine.environment["ROCM_PATH"] = str(lib.parent)
    found = machine.run(
        "result['error'] = failure(facts)\nresult['again'] = failure(facts)",
        early="from rocm.bindings import hipblaslt\nresult['opened'] = hipblaslt.has_symbol('hipblasLtCreate')",
    )
    assert found["error"]["type"] == "LibraryError"
    assert str(lib / "libhipblaslt.so") in found["error"]["text"]
    assert found["error"]["carries"]["library"] == "hipblaslt"
    assert found["again"] == found["error"]


def test_a_search_that_failed_before_is_reported(machine):
    early = "from rocm.bindings import hip\nresult['before'] = failure(hip.hipGetDeviceCount)"
    program = """
    with warnings.catch_warnings(record=True) as caught:
        result.update(facts())
    result["warnings"] = [str(warning.message) for warning in caught]
    """
    found = machine.run(program, early=early)
    assert found["before"]["type"] == "RuntimeError"
    assert found["name"] == "host"
    assert len(found["warnings"]) == 1
    assert "before rocpy chose" in found["warnings"][0]


def test_without_hip_python_nothing_is_set(machine):
    found = machine.run(
        CHOOSE + "result['rocm_path'] = os.environ.get('ROCM_PATH')", early="sys.modules['rocm'] = None"
    )
    assert found["hip_python"] == "hip-python is not installed"
    assert found["rocm_path"] is None


def test_choosing_does_not_import_hip_python(machine):
    machine.environment["ROCM_PATH"] = str(machine.folder / "elsewhere")
    found = machine.run(
        CHOOSE + "result['modules'] = [name for name in sys.modules if name.split('.')[0] in ('rocm', 'hip')]"
    )
    assert "preset" in found["hip_python"]
    assert found["modules"] == []


def test_a_choice_that_is_interrupted_anywhere_is_made_again(machine):
    found = machine.run(
        textwrap.dedent("""
    import sys, threading
    import rocpy
    from rocpy import _core, _hip_python, platform
    files = {platform.__file__, _hip_python.__file__}

    def interrupt_after(lines):
        def trace(frame, event, _):
            nonlocal lines
            if frame.f_code.co_filename not in files:
                return None
            lines -= event == "line"
            if lines < 0 and event == "line":
                raise KeyboardInterrupt
            return trace
        return trace

    lines, chosen = 0, False
    while not chosen:
        sys.settrace(interrupt_after(lines))
        try:
            rocpy.Stream()
            chosen = True
        except KeyboardInterrupt:
            lines += 1
            # What is not chosen yet serves no other thread.
            assert not _core.is_loaded() or platform._current is not None, lines
        finally:
            sys.settrace(None)
    result["lines"] = lines
    result.update(facts())
    """)
        + CALL
        + AFTER
    )
    assert found["lines"] > 50
    assert one_mapping(found)
    assert found["name"] == "host"
    assert found["hip_python"] == f"ROCM_PATH is set to {found['rocm_path']}"
