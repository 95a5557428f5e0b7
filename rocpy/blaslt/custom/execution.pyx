# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""CustomExecution: the executions of a planned product with an epilogue of the user's; plan.py plans them."""

from cpython.pythread cimport PyThread_get_thread_ident

from rocpy._core cimport DefaultFpEnvironment
from rocpy._memory_record cimport any_moved, refuse_gradients
from rocpy.blaslt.custom.executables cimport planned_call
from rocpy.blaslt.custom.outs cimport check_outs
from rocpy.blaslt.model.planned_product cimport PlannedProduct
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.native._planned cimport Planned
from rocpy.runtime cimport device as _device
from rocpy.runtime.handles.call_stream cimport CallStream

from rocpy.blaslt.arrays.staging import on_device_of
from rocpy.blaslt.arrays.views import delivered
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.model.scale_arguments import scales_of
from rocpy.blaslt.selection import library as _library
from rocpy.errors import InvalidOperandError, LibraryError, RocpyError, UnsupportedError
from rocpy.runtime.handles.stream_handle import hold_stream

__all__ = ["CustomExecution"]

cdef tuple _NO_OUT = (None,)


cdef class CustomExecution(PlannedProduct):
    """A product with an epilogue of the user's, by strategies that whoever inherits it plans.

    Attributes
    ----------
    operands, inputs
        Operands and the function's inputs, by name.
    right
        The Weight that was given as b, or the array.
    alpha, beta
        Factors of the product and of c.
    settings
        The other arguments of the product inside.
    options, stream
        As the user gave them.
    bound
        The function bound to its inputs.
    single
        Whether the function returns one value and no tuple.
    released
        Whether the operands were released.
    """

    cdef public dict operands, inputs, settings
    cdef public object right, alpha, beta, options, stream, bound
    cdef public bint single, released
    cdef public object _like  # whose results are to be, where the operands are numpy's views of another framework's arrays
    cdef public Planned _plain  # the product inside
    cdef public tuple _records  # of the inputs' memory
    cdef public dict _strategies, _positions  # by label; by the rank of an algorithm, label and place there
    cdef int depth  # of calls, each within the one before
    cdef unsigned long user  # the thread that makes them
    cdef int user_forks  # that had led to that thread's process

    def execute(self, *, out=None, algorithm=None, stream=None):
        """Compute the product of the operands as they are now."""
        return self.run(out, algorithm, stream)

    cpdef object enter(self):
        """Refuse a call while another thread is in one; `leave` ends it."""
        cdef unsigned long thread = PyThread_get_thread_ident()
        if self.depth and self.user != thread:
            if self.user_forks == _device.forks:
                raise RocpyError("this Matmul is in use by another thread; give each thread its own")
            self.depth = 0  # that thread stayed in the parent process
        self.user, self.user_forks = thread, _device.forks
        self.depth += 1

    cpdef object leave(self):
        """End a call."""
        self.depth -= 1

    cdef object run(self, object out, object algorithm, object stream):
        cdef DefaultFpEnvironment environment
        cdef CallStream order
        self.enter()
        environment.hold()
        if stream is None:
            stream = self.stream
        order.enter(<void *>stream)
        try:
            return self.results(out, algorithm, stream)
        finally:
            self.leave()

    cdef object results(self, object out, object algorithm, object stream):
        cdef tuple outs, results
        self.read_again()
        outs = _NO_OUT if out is None and self.single else self.checked_outs(out)
        if stream is None:
            results = self.launch(algorithm, outs, None)
        else:
            stream = hold_stream(stream)
            with on_device_of(stream):
                results = self.launch(algorithm, outs, stream)
        if self._like is not self.operands["a"]:
            results = delivered(results, self._like, outs)
        return results[0] if self.single else results

    cdef tuple checked_outs(self, object out):
        cdef dict operands = self.operands
        cdef ScaleArguments scales = scales_of(self.settings) if self.settings else None
        return check_outs(out, self.bound, operands["a"], operands["b"], operands["c"], self.inputs, scales, self.options)

    cpdef object check_usable(self):
        """Refuse a product that was closed, or whose operands were released."""
        if self.closed:
            self.check_open()
        if self.released:
            raise InvalidOperandError("the operands were released; pass them again with reset_operands()")

    cdef int read_again(self) except -1:
        """Take the operands as they are now, and plan the product where it is not."""
        self.check_usable()
        if isinstance(self.right, WeightOperand) and (<WeightOperand>self.right).read() is not self.operands["b"]:
            self.reset_operands(b=self.right)  # it was refreshed
        refuse_gradients(self._plain.records)
        refuse_gradients(self._records)
        self._plain.read_operands()
        if any_moved(self._records):  # refuses those of other shapes
            self._take_exported()
            _custom.check_inputs(self.inputs)  # refuses those without memory
        if not self._strategies:
            self.plan_when_needed()
        return 0

    cdef tuple launch(self, object algorithm, tuple outs, object stream):
        """Run the strategy of an algorithm; where the library refuses what was not asked for by name, plan again and run that."""
        cdef tuple chosen
        if algorithm is None or not self.planned_algorithms:  # there may be nothing to compute
            chosen = self.position_of(self.chosen)
        else:
            chosen = self.position_of((self.listed(algorithm) or self._find(algorithm)).rank)
        try:
            return self.launch_once(chosen, outs, stream)
        except (LibraryError, UnsupportedError) as error:
            inner = getattr(self._strategies[chosen[0]], "inner", None)
            if algorithm is not None or self.is_pinned or inner is None:
                raise
            if not _library.composes_after(error, inner.launched, self.device_index):
                raise
            self.plan()  # the library is not asked for it again
            if chosen == self.position_of(self.chosen):
                raise
        return self.launch_once(self.position_of(self.chosen), outs, stream)

    cdef tuple launch_once(self, tuple chosen, tuple outs, object stream):
        call = planned_call(self.operands, self.inputs, self.alpha, self.beta, self.settings, self.options, stream, outs)
        return self._strategies[chosen[0]].execute(call, chosen[1])

    cpdef tuple position_of(self, size_t rank):
        """The strategy of an algorithm, and the algorithm's place there; without algorithms there is nothing to compute."""
        if not self.planned_algorithms:
            return (next(iter(self._strategies)), 0)
        return <tuple>self._positions[rank]
