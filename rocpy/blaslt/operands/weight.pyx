# SPDX-License-Identifier: MIT
"""Weight: a right operand that is used again and again, packed once for the platform."""

import os

cimport cython

from rocpy cimport _core
from rocpy cimport _operand
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot, raise_epoch, read_weight, records_of_tensors

from rocpy._locks import reentrant_lock
from rocpy._messages.text import plain_text
from rocpy.blaslt.arrays import copies as _copies
from rocpy._signatures import signature_like
from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError, UnsupportedError, warn


def sources_may_have_changed():
    """Notify every Weight that its torch tensors may have changed without a change of their version.

    This increments a counter, which each product checks with one integer comparison; a Weight of a torch tensor is then read again at its
    next product. Weights of other arrays are not affected. It is meant for hooks that run after optimizer steps: torch's fused optimizers
    change parameters without changing their version counters.

    Notes
    -----
    Thread-safe and cheap: nothing is read here. A product that runs at the same time uses the values from before or after.

    Examples
    --------
    >>> from rocpy.blaslt.weight import sources_may_have_changed
    >>> sources_may_have_changed()
    """
    raise_epoch()


cdef tuple detached(tuple parameters):
    """Return tensors of the memory of parameters: these require a gradient, and products with a Weight are for inference."""
    return tuple([None if one is None else one.detach() for one in parameters])


cdef class Weight(WeightOperand):
    """A weight matrix, with its bias, packed once for the platform.

    Parameters
    ----------
    w
        Shape ``(K, N)``, or ``(N, K)`` with ``layout="nk"``, as ``torch.nn.Linear`` stores it. The array is kept for export and for
        repacking.
    bias
        Length N; used by epilogues with a bias if the call does not pass one.
    scale
        ``scale_b`` of every product with this weight, for weights of 8 bits: a number, or float32 of shape ``(N,)`` or ``(1, N)``. For MX
        formats, the block scales of ``w``: ``(K / 32, N)``, or ``(N, K / 32)`` with ``layout="nk"``.
    layout
        ``"kn"`` or ``"nk"``.

    Raises
    ------
    InvalidOperandError
        If ``w`` is not an array.
    InvalidProblemError
        If it does not have two axes, or the bias is not of length N.
    UnsupportedError
        If a tensor requires a gradient and grad mode is on, here or in a product later: pass its ``.detach()``.

    Notes
    -----
    Each product keeps the copy that it reads until it finishes, on streams and in graphs too: any number of threads may multiply by, refresh
    and close one Weight. ``refresh()`` replaces the packed copy; closing lets running products finish.

    Changes of a torch tensor are detected by its version counter, by its memory, which ``tensor.data = other`` replaces, and after each
    optimizer step (:func:`rocpy.blaslt.weight.sources_may_have_changed`), and it is read again at the next product; block scales are
    packed with it. Writes through ``tensor.data``, a numpy view or a pointer are not detected, nor is what ``fully_shard`` gathers into a
    parameter. Other arrays are copied here, in addition to the packed memory, and so are tensors created in inference mode, whose changes
    torch does not count. After such a write, and after changing such an array, call :meth:`refresh`; with ``ROCPY_DEBUG=1`` a product
    warns if that was forgotten. Pickles, deep copies, which have arrays of their own, and :meth:`matrix` have a torch tensor's present
    values; the next product reads the tensor again, unless it is captured into a graph, so that it agrees with them. Of other arrays they
    have the values that were last read. A copy by ``copy.copy`` has the same source and shares what was read of it. A product that is
    composed may read the tensor itself, with writes that were not detected.

    References
    ----------
    ``rocpyExtPack`` and ``rocpyExtPackBlocks`` if the platform has them; otherwise the weight is not packed.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> w = rocpy.Weight(np.ones((3, 4), np.float32), bias=np.arange(4, dtype=np.float32))
    >>> rocpy.matmul(np.ones((1, 3), np.float32), w, epilogue="relu_bias")
    array([[3., 4., 5., 6.]], dtype=float32)
    """

    __signature__ = signature_like(lambda w, bias=None, *, scale=None, layout="kn": None)

    @cython.embedsignature(False)  # Cython puts the `*` elsewhere
    def __init__(self, w, bias=None, *, scale=None, layout="kn"):
        cdef WeightSnapshot first
        layout = plain_text(layout)
        if not isinstance(layout, str) or layout not in ("kn", "nk"):
            raise InvalidProblemError(f"layout: got {layout!r}, expected 'kn' for (K, N) or 'nk' for (N, K)")
        if isinstance(w, WeightOperand):
            raise InvalidOperandError(
                f"w: got a Weight; use it as it is, or pass the array that it was created from (its .source) with layout={w.layout!r}")
        _core.ensure()
        w, bias, scale = _operand.lasting(w, "w"), _operand.lasting(bias, "bias"), _operand.lasting(scale, "scale")
        self.reading, self.process = reentrant_lock(), os.getpid()
        self.parameters = ()
        first = read_weight(w, bias, scale, layout, ())
        self.layout, self.source, self.origin, self.scale = layout, w, bias, scale
        self.take(first)

    @classmethod
    def from_linear(cls, module):
        """Return the weight of a ``torch.nn.Linear``, with its bias.

        Parameters
        ----------
        module
            An object with ``weight`` of shape ``(N, K)`` and ``bias`` of length N or ``None``. Changes of these parameters take effect at
            the next product, also those of ``parameter.data = other``; other parameters assigned to the module do not.

        Raises
        ------
        InvalidOperandError
            If it has no weight or no bias, or its weight is not an array.

        Examples
        --------
        >>> import types, numpy as np, rocpy
        >>> linear = types.SimpleNamespace(weight=np.ones((4, 3), np.float32), bias=None)
        >>> rocpy.Weight.from_linear(linear).shape
        (3, 4)
        """
        cdef Weight weight
        cdef tuple parameters
        if not (hasattr(module, "weight") and hasattr(module, "bias")):
            raise InvalidOperandError(
                f"module: got {type(module).__name__}, expected a torch.nn.Linear, or an object with a weight and a bias; pass an array "
                "itself to Weight(array, layout='nk')")
        parameters = (module.weight, module.bias)
        if not hasattr(parameters[0], "detach"):
            return cls(parameters[0], bias=parameters[1], layout="nk")
        cdef tuple records = records_of_tensors(parameters)
        source, bias = detached(parameters)
        weight = cls(source, bias=bias, layout="nk")
        weight.parameters = parameters
        weight.published.records += records
        return weight

    cdef WeightOperand read(self):
        """Return what a product reads; reads the source again where that has changed."""
        cdef WeightSnapshot snapshot
        with cython.critical_section(self):
            snapshot = self.published
        if snapshot is None:
            raise self.closed_error()
        if snapshot.outdated():
            return self.renew(snapshot)
        if snapshot.doubted:
            try:
                return self.renew(snapshot)
            except UnsupportedError:  # the stream is captured, or a transform of torch's is active: nothing is packed there
                return snapshot
        if snapshot.checksum is not None and snapshot.changed_unnoticed(self.source, self.origin, self.scale):
            warn(
                "w: the array that this Weight was created from has changed without rocpy's knowledge (a write "
                "through numpy, .data or a pointer), "
                "and products still read the earlier copy; call its refresh(), or repack() of a "
                "layer")
        return snapshot

    cdef WeightSnapshot current(self):
        """Return what is handed out, with the values that the source itself has: the next product reads a tensor again, for writes that
        went unnoticed. Nothing is read here, where a transform of torch's may be active or the stream captured."""
        cdef WeightSnapshot snapshot
        with cython.critical_section(self):
            snapshot = self.published
        if snapshot is None or not snapshot.doubted or snapshot.outdated():  # else the next product reads it
            snapshot = <WeightSnapshot>self.read()
            snapshot.doubted = snapshot.reads_copy()
        return snapshot

    cdef int take(self, WeightSnapshot snapshot) except -1:
        """Publish what was read; a tensor may have another shape and type than before (``.data =``)."""
        self.shape, self.dtype, self.published = snapshot.shape, snapshot.dtype, snapshot
        return 0

    cdef int check_open(self) except -1:
        cdef WeightSnapshot snapshot
        with cython.critical_section(self):
            snapshot = self.published
        if snapshot is None:
            raise self.closed_error()
        return 0

    cdef object closed_error(self):
        return ClosedError("w: this Weight was closed")

    cdef WeightSnapshot renew(self, WeightSnapshot before):
        """Read the source and publish what was read; nothing where another thread did since `before` was found outdated. One thread reads
        at a time, so that none publishes values older than those that stand."""
        cdef WeightSnapshot snapshot, fresh
        if self.process != os.getpid():  # a thread that the child of a fork does not have may hold the lock
            self.reading, self.process = reentrant_lock(), os.getpid()
        with self.reading:
            with cython.critical_section(self):
                snapshot = self.published
            if snapshot is None:
                raise self.closed_error()
            if before is not None and snapshot is not before and not snapshot.outdated():
                return snapshot
            if self.parameters:
                self.source, self.origin = detached(self.parameters)
            fresh = read_weight(self.source, self.origin, self.scale, self.layout, self.parameters)
            with cython.critical_section(self):
                snapshot = self.published  # kept until the lock is given back: freeing it waits for the device
                if snapshot is not None:
                    self.take(fresh)
        if snapshot is None:
            raise self.closed_error()
        return fresh

    def refresh(self):
        """Read the source again, after a change that cannot be detected; running products finish with the earlier values.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> source = np.zeros((2, 2), np.float32)
        >>> w = rocpy.Weight(source)
        >>> source[:] = 1
        >>> w.refresh()
        >>> rocpy.matmul(np.ones((1, 2), np.float32), w)
        array([[2., 2.]], dtype=float32)
        """
        self.renew(None)

    @property
    def bias(self):
        """The bias that products use; a copy of its values if changes of the array that was passed cannot be detected."""
        cdef WeightSnapshot snapshot
        with cython.critical_section(self):
            snapshot = self.published
        if snapshot is None:
            return self.origin
        return snapshot.bias if snapshot.bias is None or snapshot.bias is self.origin else _copies.snapshot(snapshot.bias)

    @property
    def packed(self):
        """Whether it is packed for the platform; otherwise products read the source or a copy of it."""
        cdef WeightSnapshot snapshot
        with cython.critical_section(self):
            snapshot = self.published
        return snapshot is not None and snapshot.packed

    @property
    def closed(self):
        """Whether it was closed."""
        with cython.critical_section(self):
            return self.published is None

    def matrix(self):
        """Return the weight as a new array of shape (K, N), with the values that products read from now on."""
        return _copies.snapshot(self.current().in_rows())

    def close(self):
        """Free the packed memory after the last product that uses it. Closing twice has no effect; later use, copying and pickling
        included, raises ClosedError, while the attributes stay readable.

        Freeing waits for all work of the device, as where a Weight that is not closed is collected; while a collective is
        pending, the memory is freed later.
        """
        cdef WeightSnapshot before
        with cython.critical_section(self):
            before = self.published
            self.published = None
        del before  # freed here: that may wait for the device

    def __enter__(self):
        self.check_open()
        return self

    def __exit__(self, *error):
        self.close()

    def __copy__(self):
        cdef WeightSnapshot snapshot = <WeightSnapshot>self.read()
        cdef Weight other = type(self).__new__(type(self))
        other.reading, other.process = reentrant_lock(), os.getpid()
        other.source, other.origin, other.scale, other.layout = self.source, self.origin, self.scale, self.layout
        other.parameters = self.parameters
        other.take(snapshot)
        return with_attributes(other, getattr(self, "__dict__", {}))

    def __reduce__(self):
        source, bias, scale = self.current().values()
        attributes = getattr(self, "__dict__", {})
        arrays = [_copies.picklable(array) for array in (source, bias, scale)]
        return (_rebuild, (arrays[0], arrays[1], self.layout, arrays[2], type(self), attributes))

    def __repr__(self):
        cdef WeightSnapshot snapshot
        with cython.critical_section(self):
            snapshot = self.published
        if snapshot is None:
            return "<rocpy.Weight, closed>"
        return f"<rocpy.Weight {self.shape} {self.dtype}{', packed' if snapshot.packed else ''}{', with bias' if snapshot.bias is not None else ''}>"


def _rebuild(source, bias, layout, scale=None, cls=Weight, attributes=()):
    """Make a Weight again from what it pickles as, with the attributes of a subclass."""
    weight = cls.__new__(cls)
    source, bias, scale = [_copies.unpickled(array) for array in (source, bias, scale)]
    Weight.__init__(weight, source, bias, scale=scale, layout=layout)
    return with_attributes(weight, attributes)


cdef Weight with_attributes(Weight weight, attributes):
    """Return a Weight with the attributes of one of a subclass."""
    for name in attributes:
        setattr(weight, name, attributes[name])
    return weight
