# SPDX-License-Identifier: MIT
# rocpy_precompile(<target> <kind> <headers ...>): the library's headers that its sources include most, read once for all targets of a kind, which
# are compiled with the same options. To read them for each source took a fifth of a build.
#
# A source includes what it uses all the same: wheels are built without, and so is all that a compiler cache keeps, which does not know them.
if(CMAKE_CXX_COMPILER_LAUNCHER OR (DEFINED SKBUILD_STATE AND NOT SKBUILD_STATE STREQUAL "editable"))
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

function(rocpy_precompile target kind)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  # The compiler takes them for no target that has a macro of its own.
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
  string(MD5 key "${kind}")
  get_property(first GLOBAL PROPERTY ROCPY_PRECOMPILED_${key})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY ROCPY_PRECOMPILED_${key} ${target})
  endif()
endfunction()
