# SPDX-License-Identifier: MIT
"""One product as arguments."""

__all__ = ["ProductCall"]


cdef class ProductCall:
    """The arguments of :func:`rocpy.matmul`.

    ``inputs`` are those of an epilogue of the user's, by name. ``scales`` are those of a, b, c and the result, and whether ``amax`` is
    wanted; or ``None``.
    """

    def __init__(self, a=None, b=None, c=None, **arguments):
        self.a, self.b, self.c, self.alpha = a, b, c, 1.0
        for name, value in arguments.items():
            setattr(self, name, value)

    def replaced(self, **changes):
        """Return the call with other arguments in the place of some."""
        cdef ProductCall made = ProductCall.__new__(ProductCall)
        made.a, made.b, made.c, made.bias, made.aux, made.out = self.a, self.b, self.c, self.bias, self.aux, self.out
        made.alpha, made.beta, made.epilogue, made.inputs, made.clamp = self.alpha, self.beta, self.epilogue, self.inputs, self.clamp
        made.dtype, made.compute, made.options, made.stream = self.dtype, self.compute, self.options, self.stream
        made.scales, made.algorithm = self.scales, self.algorithm
        for name, value in changes.items():
            setattr(made, name, value)
        return made
