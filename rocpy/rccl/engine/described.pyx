# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Calls that stand for another one, or for arrays of another type: what the ranks compare of them instead."""


cdef class Described:
    """A block whose calls of a communicator the ranks compare by a text, which errors show too; Ctrl-C always leaves it.

    Parameters
    ----------
    comm : Handle
        The communicator.
    text : str
        What a call is to the user; it follows the call's name if it begins with a parenthesis.
    """

    cdef object comm
    cdef str text

    def __init__(self, comm, str text not None):
        self.comm, self.text = comm, text

    def __enter__(self):
        self.comm.describe_calls(self.text)

    def __exit__(self, *details):
        self.comm.describe_calls(None)
