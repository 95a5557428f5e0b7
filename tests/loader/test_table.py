# SPDX-License-Identifier: MIT
"""What a loaded table answers: rows that the library lacks, failed calls as exceptions, one choice for a process."""

from fake_rocm import tree

# A call through the binding with no operands: the nouns of the runtime do it for every user.
ALLOCATE = """
from rocpy.runtime.memory import Buffer
result['error'] = failure(lambda: Buffer(64))
"""


def test_every_row_is_found_in_a_whole_tree(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt", rccl="librccl.so", hiprtc="libhiprtc.so")
    found = machine.run("""
    result.update(facts())
    from rocpy import _core
    result["rows"] = [row for row in _core.functions() if not row[3] and not _core.has(row[1])]
    """)
    assert found["missing"] == {"hip": [], "hipblaslt": [], "rccl": [], "hiprtc": []}
    assert found["versions"]["rccl"] == "2.30.4"
    assert found["versions"]["hiprtc"] == "7.2.0"
    assert found["rows"] == []


def test_extension_rows_are_not_reported_as_missing_and_not_there_on_amd(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    program = """
    result.update(facts())
    from rocpy import _core
    result['extensions'] = {row[1]: _core.has(row[1]) for row in _core.functions() if row[3]}
    result['nonsense'] = _core.has('hipNoSuchFunction')
    """
    found = machine.run(program)
    assert found["extensions"]
    assert not any(found["extensions"].values())
    assert not found["nonsense"]
    machine.environment["ROCPY_PLATFORM"] = "host"
    assert all(machine.run(program)["extensions"].values())


def test_cpp_functions_are_found_by_symbol_or_reported_absent(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    program = """
    import rocpy
    result['functions'] = rocpy.platform.extension_functions()
    """
    found = machine.run(program)["functions"]
    assert "getKernelNameFromAlgo" in found
    assert not any(found.values())
    machine.environment["ROCPY_PLATFORM"] = "host"
    assert all(machine.run(program)["functions"].values())


def test_a_missing_function_is_named_with_library_path_and_version(machine):
    machine.add_gpu()
    lib = tree(machine.folder / "opt/rocm/lib", label="opt", without=("hipMalloc", "hipblasLtCheckNumericsDrain"))
    found = machine.run("result.update(facts())\n" + ALLOCATE)
    assert found["missing"] == {"hip": ["hipMalloc"], "hipblaslt": ["hipblasLtCheckNumericsDrain"]}
    error = found["error"]
    assert error["type"] == "UnsupportedError"
    assert "NotImplementedError" in error["bases"]
    for part in ("hipMalloc", "(hip)", str(lib / "libamdhip64.so"), "HIP 7.1.51000", "HIP 6.0 has it"):
        assert part in error["text"]
    assert error["carries"]["function"] == "hipMalloc"
    assert error["carries"]["status_name"] == "hipErrorNotSupported"


def test_a_failed_call_raises_the_class_of_its_status(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    error = machine.run(ALLOCATE)["error"]
    assert error["type"] == "OutOfMemoryError"
    assert "MemoryError" in error["bases"]
    assert error["text"] == "hipMalloc (hip) failed: hipErrorOutOfMemory (2): out of memory"
    assert error["carries"] == {
        "function": "hipMalloc",
        "library": "hip",
        "status": 2,
        "status_name": "hipErrorOutOfMemory",
    }


def test_a_failed_choice_is_raised_by_the_call_that_needed_it(machine):
    machine.environment["ROCPY_PLATFORM"] = "amd"
    error = machine.run(ALLOCATE)["error"]
    assert error["type"] == "LibraryError"
    assert "no usable ROCm" in error["text"]


def test_nothing_is_chosen_or_opened_by_import(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    found = machine.run("""
    import rocpy
    from rocpy import _core
    result["loaded"], result["mapped"] = _core.is_loaded(), mapped("amdhip64")
    """)
    assert found == {"loaded": False, "mapped": [], "opened": [], "stderr": ""}


def test_use_chooses_before_the_first_call_and_refuses_after(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    found = machine.run("""
    from rocpy import platform
    platform.use("host")
    result.update(facts())
    platform.use("host")
    platform.use("auto")
    result["error"] = failure(lambda: platform.use("amd"))
    result["unknown"] = failure(lambda: platform.use("cuda"))
    """)
    assert found["name"] == "host"
    assert found["error"]["type"] == "LibraryError"
    assert "already runs on the platform 'host'" in found["error"]["text"]
    assert found["unknown"]["type"] == "InvalidProblemError"
    assert found["opened"] == []


def test_a_second_load_changes_nothing(machine):
    machine.add_gpu()
    first = tree(machine.folder / "opt/rocm/lib", label="opt")
    second = tree(machine.folder / "second", label="second")
    found = machine.run(f"""
    result.update(facts())
    from rocpy import _core
    result["second"] = _core.load([{str(second)!r}])
    result["path"] = _core.library_facts()[0][1]
    """)
    assert found["second"][0] == "already_loaded"
    assert found["path"] == str(first / "libamdhip64.so")
    assert set(found["opened"]) == {"opt"}


def test_many_threads_choose_once(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    found = machine.run("""
    import threading
    from rocpy import platform
    gate, seen = threading.Barrier(16), []
    def choose():
        gate.wait()
        seen.append(platform.current())
    threads = [threading.Thread(target=choose) for _ in range(16)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    result["seen"], result["different"] = len(seen), len({id(chosen) for chosen in seen})
    """)
    assert (found["seen"], found["different"]) == (16, 1)
    assert sorted(found["opened"]) == ["opt", "opt"]  # one mark of each library


def test_a_foreign_runtime_with_amds_sonames_does_not_answer_for_ours(machine):
    lib = tree(machine.folder / "stranger", label="stranger", link=True)
    open_stranger = f"""
    import ctypes
    stranger = ctypes.CDLL({str(lib / "libhipblaslt.so")!r}, mode=ctypes.RTLD_GLOBAL)
    """
    ask_stranger = """
    stranger.hipGetErrorName.restype = ctypes.c_char_p
    result["stranger"] = stranger.hipGetErrorName(1).decode()
    """
    choose = """
    result.update(facts())
    """
    for early, late in ((open_stranger, choose + ask_stranger), ("", choose + open_stranger + ask_stranger)):
        found = machine.run(late, early=early)
        assert found["is_emulated"]
        assert all("host" in name for name in found["devices"])
        assert found["stranger"] == "stranger"


def test_variables_show_what_is_set(machine):
    machine.environment |= {"ROCPY_HOST_DEVICES": "3", "ROCPY_PLAN_CACHE": ""}
    found = machine.run("""
    from rocpy import platform
    result["variables"] = {variable.name: [variable.default, variable.value] for variable in platform.variables()}
    result["error"] = failure(lambda: platform.environment("ROCPY_NO" "NE"))
    result["devices"] = len(platform.current().devices)
    """)
    assert found["variables"]["ROCPY_HOST_DEVICES"] == ["8", "3"]
    assert found["variables"]["ROCPY_PLAN_CACHE"] == ["1024", "1024"]
    assert found["devices"] == 3
    assert found["error"]["type"] == "InvalidProblemError"
