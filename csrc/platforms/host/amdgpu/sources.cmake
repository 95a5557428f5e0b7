# SPDX-License-Identifier: MIT
# The emulator of AMD's instructions. Its arithmetic is the instructions' own: nothing is contracted, and the rounding mode may change.
set(ROCPY_AMDGPU_SOURCES)
foreach(source IN ITEMS
    address atomics code_object cross_lane decode decode_memory decode_tuples emulator indexing launch matrix memory metadata opcode_handlers opcodes operand_names operands packed print program scalar
    scalar_compare scalar_memory shared_memory vector_compare vector_convert vector_float vector_half vector_integer vector_memory wave)
  list(APPEND ROCPY_AMDGPU_SOURCES amdgpu/${source}.cpp)
endforeach()
set_source_files_properties(${ROCPY_AMDGPU_SOURCES} PROPERTIES COMPILE_OPTIONS "-ffp-contract=off;-frounding-math")
