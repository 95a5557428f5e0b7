# SPDX-License-Identifier: MIT
"""One product as arguments."""

__all__ = ["ProductCall"]


cdef class ProductCall:
    """The arguments of :func:`rocpy.matmul`.

    ``inputs`` are those of an epilogue of the user's, by name. ``scales`` are a :class:`ScaleArguments`, or ``None``.
    """

    def __init__(self, a=None, b=None, c=None, **arguments):
        self.a, self.b, self.c, self.alpha = a, b, c, 1.0
        for name, value in arguments.items():
            setattr(self, name, value)

    def replaced(self, **changes):
        """Return the call with other arguments in the place of some."""
        cdef ProductCall changed = ProductCall.__new__(ProductCall)
        changed.a, changed.b, changed.c, changed.bias, changed.aux, changed.out = self.a, self.b, self.c, self.bias, self.aux, self.out
        changed.alpha, changed.beta, changed.epilogue, changed.inputs, changed.clamp = self.alpha, self.beta, self.epilogue, self.inputs, self.clamp
        changed.dtype, changed.compute, changed.options, changed.stream = self.dtype, self.compute, self.options, self.stream
        changed.scales, changed.algorithm = self.scales, self.algorithm
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed
