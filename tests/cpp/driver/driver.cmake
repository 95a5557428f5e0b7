# SPDX-License-Identifier: MIT
# The driver of hipBLASLt's C ABI: the shared case list, many threads, and, without a sanitizer, what an epilogue allocates.
set(testing ${ROCPY_SOURCE_ROOT}/rocpy/testing)
# With a sanitizer the large cases take too long, and show nothing that the small ones do not.
set(driver_limit 1e9)
if(ROCPY_SANITIZE)
  set(driver_limit 3e6)
endif()
foreach(set IN ITEMS quick scratch)
  set(driver_${set} ${CMAKE_CURRENT_BINARY_DIR}/driver_${set}.json)
  add_custom_command(
    OUTPUT ${driver_${set}}
    BYPRODUCTS ${CMAKE_CURRENT_BINARY_DIR}/driver_${set}.bin
    COMMAND Python::Interpreter ${CMAKE_CURRENT_LIST_DIR}/driver_cases.py ${set} --max-flops ${driver_limit} --output ${driver_${set}}
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/driver_cases.py ${testing}/cases.py ${testing}/oracles.py ${testing}/runner.py ${testing}/tolerance.py
    VERBATIM)
endforeach()
add_custom_target(driver_cases ALL DEPENDS ${driver_quick} ${driver_scratch})

set(driver_programs driver)
if(NOT ROCPY_SANITIZE)
  # A sanitizer has an allocator of its own, which leaves nothing to hook.
  list(APPEND driver_programs driver_scratch)
endif()
foreach(program IN LISTS driver_programs)
  rocpy_cpp_program(driver/${program} driver/driver_case.cpp driver/driver_product.cpp)
  target_link_libraries(${program} PRIVATE rocpy_host_amdhip64 rocpy_host_hipblaslt)
  add_dependencies(${program} facade_links driver_cases)
endforeach()

add_test(NAME driver COMMAND driver ${driver_quick} --max-flops ${driver_limit})
add_test(NAME driver_threads COMMAND driver ${driver_quick} --threads 8 --rounds 60)
add_test(NAME driver_threads_stress COMMAND driver ${driver_quick} --threads 4 --rounds 20)
set_tests_properties(driver driver_threads driver_threads_stress PROPERTIES TIMEOUT 300 RUN_SERIAL ON)
set_tests_properties(driver_threads_stress PROPERTIES ENVIRONMENT ROCPY_HOST_STRESS=1)
if(NOT ROCPY_SANITIZE)
  add_test(NAME driver_scratch COMMAND driver_scratch ${driver_scratch})
  set_tests_properties(driver_scratch PROPERTIES TIMEOUT 300 RUN_SERIAL ON)
endif()
