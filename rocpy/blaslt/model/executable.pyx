# SPDX-License-Identifier: MIT
"""How products of some kind with an epilogue of the user's are computed, without their operands: what the function form keeps."""

__all__ = ["Executable"]


cdef class Executable:
    """How products of some kind are computed.

    Whoever makes calls makes the one that ``begin`` returns, if it returns one, and passes its result to ``finish``. ``call`` is complete:
    its ``inputs`` are all those of the function, and its ``out`` has an array or ``None`` for each result.

    Parameters
    ----------
    bound
        The function bound to its inputs.
    """

    def __init__(self, bound):
        self.bound = bound
        self.single = bound.resolved.expression.single

    cpdef ProductCall begin(self, ProductCall call):
        """Return the product of the library to begin with; ``None`` where there is none."""
        return None

    cpdef tuple finish(self, ProductCall call, object base):
        """Return the results from that of the product to begin with."""
        raise NotImplementedError
