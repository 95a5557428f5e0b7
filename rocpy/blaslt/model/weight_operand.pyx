# SPDX-License-Identifier: MIT
"""WeightOperand: what a right operand is that was read before the product, for modules that a Weight itself needs."""


cdef class WeightOperand:
    """A Weight, or what one product reads of it."""

    cdef WeightOperand read(self):
        raise NotImplementedError


def is_weight(b):
    """Whether a right operand is a Weight, or what a product reads of one."""
    return isinstance(b, WeightOperand)


def snapshot_of(b):
    """Return what a product reads of a Weight, which stays as it is while the Weight is refreshed or closed.

    Parameters
    ----------
    b : Weight or array
        The right operand of a product.

    Returns
    -------
    WeightSnapshot or array
        Anything but a Weight is returned itself.

    Raises
    ------
    ClosedError
        The Weight was closed.
    """
    return (<WeightOperand>b).read() if isinstance(b, WeightOperand) else b
