# SPDX-License-Identifier: MIT
# The kernels, built per instruction set: only they may hold instructions that the CPU is not known to have. They see gemm/interface alone,
# and none sees them: a set is known by its table (kernels.hpp).
set(ROCPY_GEMM_KERNELS)

# rocpy_gemm_kernels(<isa> <sources, with commas in between> <options ...>): an object library, added to ROCPY_GEMM_KERNELS.
function(rocpy_gemm_kernels isa sources)
  set(target rocpy_gemm_kernels_${isa})
  if(NOT TARGET ${target})
    string(REPLACE "," ";" sources ${sources})
    list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/)
    add_library(${target} OBJECT ${sources})
    # Link-time optimisation could move wide code into functions of the baseline.
    set_target_properties(${target} PROPERTIES
      CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON INTERPROCEDURAL_OPTIMIZATION OFF)
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}
      $<TARGET_PROPERTY:rocpy_host_layer_gemm_interface,INTERFACE_INCLUDE_DIRECTORIES>)
    target_compile_definitions(${target} PRIVATE ROCPY_KERNEL_ISA=${isa})
    if(COMMAND rocpy_sanitize)
      rocpy_sanitize(${target})
    endif()
    # Fused operations are written out where they are meant; see simd.hpp. Instrumented kernels take minutes to optimise further.
    target_compile_options(${target} PRIVATE $<IF:$<BOOL:${ROCPY_SANITIZE}>,-O1,-O3> -Wall -Wextra -ffp-contract=off -fno-math-errno ${ARGN})
  endif()
  set(ROCPY_GEMM_KERNELS ${ROCPY_GEMM_KERNELS} ${target} PARENT_SCOPE)
endfunction()

set(all kernels.cpp,kernels_blocks.cpp,kernels_bytes.cpp,kernels_complex.cpp,kernels_integer.cpp,kernels_program.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512)
  rocpy_gemm_kernels(avx512_bf16 pairs/kernels_pairs.cpp ${avx512} -mavx512vbmi -mavx512bf16)
  rocpy_gemm_kernels(avx512_vbmi kernels_bytes.cpp ${avx512} -mavx512vbmi)
  rocpy_gemm_kernels(avx512_vnni kernels_integer.cpp ${avx512} -mavx512vnni -DROCPY_KERNEL_BASE=avx512)
  rocpy_gemm_kernels(avx512 ${all} ${avx512})
  rocpy_gemm_kernels(avx2_vnni kernels_integer.cpp -mavx2 -mfma -mf16c -mavxvnni -DROCPY_KERNEL_BASE=avx2)
  rocpy_gemm_kernels(avx2 ${all} -mavx2 -mfma -mf16c)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  rocpy_gemm_kernels(neon ${all})
endif()
# For processors of before 2013: its vectors are written out, and but for integers -O3 makes it 2 % faster in half as much time again.
rocpy_gemm_kernels(baseline ${all} -O1)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/kernels_integer.cpp PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<BOOL:${ROCPY_SANITIZE}>>:-O3>")
