# SPDX-License-Identifier: MIT
"""PlannedProduct: what ``rocpy.Matmul`` holds and a tuner measures, whichever way it is computed."""

from rocpy.blaslt.model.algorithms import LISTED
from rocpy.errors import ClosedError

__all__ = ["PlannedProduct"]


cdef class PlannedProduct:
    """A product that is planned once and executed many times.

    The library's own products, those that are composed and those with a custom epilogue are of this class. What holds one asks nothing
    else of it, and only :func:`rocpy.blaslt.front.planned.planned_product` knows which there are. Operands, their checks, threads and
    streams are as :class:`rocpy.Matmul` documents them.
    """

    def __cinit__(self, *_, **__):
        self.closed = True  # until __init__ has succeeded

    # ---- what it is of ----

    @property
    def problem(self):
        """The validated problem, plain data."""
        raise NotImplementedError

    @property
    def launched(self):
        """The problem as it is launched and measured, with dense operands where copies are made."""
        raise NotImplementedError

    @property
    def options(self):
        """The options in force."""
        raise NotImplementedError

    @property
    def stream(self):
        """The stream, as the user gave it."""
        raise NotImplementedError

    @property
    def operand_arrays(self):
        """The operands as they are launched, by name."""
        raise NotImplementedError

    @property
    def scale_values(self):
        """The scales, as the user gave them; ``None`` where there are none."""
        return None

    def scalars(self):
        """Return alpha and beta as keyword arguments."""
        raise NotImplementedError

    # ---- how it is computed ----

    @property
    def copies(self):
        """Names of operands that are copied at each execution, because the library does not support their layout."""
        raise NotImplementedError

    @property
    def converted(self):
        """Names of operands and scales of which a copy in another form is read, because their memory cannot be used as it is."""
        return ()

    @property
    def staged(self):
        """Names of operands in CPU memory that are copied to the device when they are given."""
        raise NotImplementedError

    @property
    def prototype(self):
        """The user's a where the operands are copies on the device: results come back as its framework has them; else ``None``."""
        return None

    @property
    def unfused(self):
        """How it is composed where the library cannot fuse it: ``text`` says why, ``native`` is the product inside; else ``None``."""
        return None

    @property
    def why(self):
        """Why it is computed as it is, in a sentence; empty where it is one of the library's own."""
        return ""

    @property
    def absent(self):
        """Why it is not computed in other ways, by their names."""
        return {}

    @property
    def packed(self):
        """Whether b is a packed Weight."""
        raise NotImplementedError

    @property
    def device_name(self):
        """Name of the device that it runs on."""
        raise NotImplementedError

    # ---- its algorithms ----

    @property
    def algorithms(self):
        """The algorithms of the last plan(), best first; empty before."""
        return list(self.planned_algorithms or ())

    @property
    def algorithm(self):
        """The algorithm that execute() uses by default; ``None`` before plan(), and if there is nothing to compute."""
        for one in self.planned_algorithms or ():
            if one.rank == self.chosen:
                return one
        return None

    @property
    def choice(self):
        """The algorithm that execute() uses by default, and where the choice came from."""
        chosen = self.algorithm
        return (None, "nothing to compute") if chosen is None else (chosen, chosen.source)

    @property
    def is_pinned(self):
        """Whether the user named the algorithm that is taken."""
        chosen = self.algorithm
        return chosen is not None and chosen.source == "pinned"

    def plan(self, *, algorithms=None, max_algorithms=LISTED):
        """Ask the platform for algorithms, and return them; ``algorithms``: only these."""
        raise NotImplementedError

    def pin(self, algorithm):
        """Make execute() take one algorithm from now on, until the next plan, and return it."""
        raise NotImplementedError

    def select(self, list algorithms, size_t rank):
        """List the algorithms in this order, and take the one of a rank."""
        self.planned_algorithms, self.chosen = algorithms, rank

    cdef object listed(self, object algorithm):
        cdef list listed = self.planned_algorithms
        if listed is None:
            return None
        if type(algorithm) is int:
            return listed[algorithm] if 0 <= algorithm < len(listed) else None
        for one in listed:
            if one is algorithm:
                return one
        return None

    def prepare(self):
        """Do what the first execution of an algorithm would do besides computing, so that it is not measured."""

    # ---- its executions ----

    cdef object run(self, object out, object algorithm, object stream):
        return self.execute(out=out, algorithm=algorithm, stream=stream)

    def execute(self, *, out=None, algorithm=None, stream=None):
        """Compute the product of the operands as they are now."""
        raise NotImplementedError

    def reset_operands(self, *, a=None, b=None, c=None, bias=None, aux=None, alpha=None, beta=None, scale_a=None, scale_b=None,
                       scale_c=None, scale_d=None, epilogue_inputs=None):
        """Put other operands, factors and scales in the place of those before."""
        raise NotImplementedError

    def release_operands(self):
        """Release the operands and keep the plan; reset_operands() with all of them makes the product usable again."""
        raise NotImplementedError

    # ---- its life ----

    def check_open(self):
        """Refuse a product that was closed."""
        if self.closed:
            raise ClosedError("this Matmul was closed; create a new one")

    def close(self):
        """Release the plan and the operands; calling it again has no effect."""
        raise NotImplementedError

    def __enter__(self):
        self.check_open()
        return self

    def __exit__(self, *error):
        self.close()
