# SPDX-License-Identifier: MIT
# Products with a tile program: `inputs` of the call is the tuple of arrays that the program reads.
from rocpy.blaslt.engine.program cimport TileProgram
from rocpy.blaslt.model.product_call cimport ProductCall


cdef tuple run_program(TileProgram program, ProductCall call, int rank)
cdef list algorithms_of_program(TileProgram program, ProductCall call, int requested)
