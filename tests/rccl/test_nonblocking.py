# SPDX-License-Identifier: MIT
"""RCCL gives a nonblocking communicator's calls to their streams in a thread of its own, as stress mode does."""

from one_thread import require_calls

C_CALLS = """
    import ctypes
    import numpy as np
    import rocpy

    library = ctypes.CDLL(rocpy.platform.current().libraries["rccl"].path)
    with rocpy.rccl.Communicator.init(1, 0, rocpy.rccl.UniqueId.make()) as comm:
        x, y = rocpy.Buffer(4, "float32"), rocpy.Buffer(4, "float32")
        x.copy_from(np.ones(4, "f"))
        source, target, handle = (ctypes.c_void_p(one.handle) for one in (x, y, comm))
        arguments = source, target, ctypes.c_size_t(4), 7, 0, handle, None
        codes, state = [], ctypes.c_int(7)
        for _ in range(2):
            codes.append(library.ncclAllReduce(*arguments))
        while state.value == 7:
            library.ncclCommGetAsyncError(handle, ctypes.byref(state))
        codes += [state.value, library.ncclAllReduce(*arguments)]
        print(codes)
        while library.ncclCommGetAsyncError(handle, ctypes.byref(state)) or state.value == 7:
            pass
"""

CALLS = """
    import numpy as np
    import rocpy
    from rocpy import distributed, rccl

    def body(comm):
        rank = comm.rank
        with rocpy.Stream(device=rank) as stream:
            x, out = rocpy.Buffer(4, "float32", device=rank), rocpy.Buffer(4, "float32", device=rank)
            x.copy_from(np.full(4, rank + 1.0, "f"))
            for i in range(40):
                # Calls follow one another at once; what is queued behind one reads its result.
                works = [comm.all_reduce(x, out=out, block=False) for _ in range(3)]
                assert out.to_numpy().tolist() == [3.0] * 4, i
                out.copy_from(np.zeros(4, "f"))
                comm.broadcast(x, out=out, root=1)
                assert out.to_numpy().tolist() == [2.0] * 4, i
                with rccl.group():
                    comm.send(x, 1 - rank)
                    comm.recv(out, 1 - rank)
                assert out.to_numpy().tolist() == [2.0 - rank] * 4, i
                del works
                y = comm.all_gather(x, stream=stream)
                stream.synchronize()
                assert y.to_numpy().ravel().tolist() == [1.0] * 4 + [2.0] * 4, i
            assert comm.all_reduce(np.ones(3)).tolist() == [2.0] * 3
            half = comm.premul_sum(0.5, "float32")
            assert comm.all_reduce(x, op=half).to_numpy().tolist() == [1.5] * 4
            comm.barrier()

    distributed.run_threads(body, 2, timeout_s=30)
    print("done")
"""


def test_the_host_platform_refuses_a_call_before_the_last_is_over(run_python):
    require_calls("rocpyExtCommStatus")
    assert run_python(C_CALLS, ROCPY_HOST_STRESS="1").stdout.strip() == "[7, 4, 0, 7]"


def test_calls_wait_until_rccl_has_given_the_last_to_its_stream(run_python):
    assert run_python(CALLS, ROCPY_HOST_STRESS="2").stdout.strip() == "done"


FAMILIES = """
import numpy as np
from rocpy import rccl
families = [rccl.Communicator.init_all(2, timeout_s=30) for _ in range(3)]
for _ in range(4):
    with rccl.group():
        sums = [comm.all_reduce(np.ones(2)) for family in families for comm in family]
    assert all((one == 2).all() for one in sums)
for family in families:
    for comm in family:
        comm.abort()
print("done")
"""


def test_a_group_of_several_communicators_goes_to_their_streams_in_its_order(run_python):
    assert run_python(FAMILIES, ROCPY_HOST_STRESS="3").stdout.strip() == "done"
