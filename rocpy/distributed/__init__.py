# SPDX-License-Identifier: MIT
"""Linear layers whose weight is split over the ranks of a communicator, with products and collectives that overlap."""

from rocpy._messages.keywords import suggest_keywords_in
from rocpy._signatures import public_names
from rocpy.distributed._linear import column_linear, row_linear
from rocpy.distributed._overlap import all_gather_matmul, matmul_all_reduce, matmul_reduce_scatter
from rocpy.distributed._ranks import run_processes, run_threads
from rocpy.distributed._spans import Span, overlap_trace

__all__ = [
    "Span",
    "all_gather_matmul",
    "column_linear",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "overlap_trace",
    "row_linear",
    "run_processes",
    "run_threads",
]

suggest_keywords_in(globals(), __all__)
__dir__ = public_names(globals())
