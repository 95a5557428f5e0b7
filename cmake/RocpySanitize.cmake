# SPDX-License-Identifier: MIT
# Builds for the sanitizers: ROCPY_SANITIZE, and rocpy_sanitize() for each target that takes part.
set(ROCPY_SANITIZE "" CACHE STRING "Sanitizer of the compiled code and the C++ tests: thread or address")
set_property(CACHE ROCPY_SANITIZE PROPERTY STRINGS "" thread address)

# rocpy_sanitize(<target>): what ROCPY_SANITIZE asks for.
function(rocpy_sanitize target)
  if(ROCPY_SANITIZE STREQUAL "thread")
    set(flags -fsanitize=thread)
  elseif(ROCPY_SANITIZE STREQUAL "address")
    set(flags -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  elseif(ROCPY_SANITIZE)
    message(FATAL_ERROR "ROCPY_SANITIZE is \"${ROCPY_SANITIZE}\"; it can be empty, thread or address")
  else()
    return()
  endif()
  # The lines that a report names: variables too would take the kernels half as long again.
  target_compile_options(${target} PRIVATE ${flags} -g1 -fno-omit-frame-pointer)
  target_link_options(${target} PRIVATE ${flags})
endfunction()
