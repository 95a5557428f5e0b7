# SPDX-License-Identifier: MIT
# Libraries of folders, each an object library that finds the headers of the folders below it and no others.
include(RocpyPrecompile)
include(RocpySanitize)

get_filename_component(ROCPY_LAYER_ABI ${CMAKE_CURRENT_LIST_DIR}/../csrc/abi ABSOLUTE)

# rocpy_layer(<name> <folder> [BELOW <folder> ...] [SOURCES ...] [OPTIONS ...]): the sources of one folder of a library, with the compiler's
# options for them. They find the headers of csrc/abi, of this folder, of those BELOW and of what these name, and no others.
# Without sources the folder holds headers alone.
function(rocpy_layer name folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "BELOW;SOURCES;OPTIONS")
  string(REPLACE "/" "_" target rocpy_${name}_layer_${folder})
  set(abi ${ROCPY_LAYER_ABI} ${ROCPY_LAYER_ABI}/process)
  if(arg_SOURCES)
    list(TRANSFORM arg_SOURCES PREPEND ${folder}/)
    add_library(${target} OBJECT ${arg_SOURCES})
    set_target_properties(${target} PROPERTIES
      CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    target_compile_options(${target} PRIVATE -Wall -Wextra ${arg_OPTIONS})
    rocpy_sanitize(${target})
    rocpy_precompile(${target} "${name};${arg_OPTIONS}" <algorithm> <atomic> <cstdint> <cstdio> <cstring> <functional> <map> <memory> <mutex> <string> <vector>)
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${CMAKE_CURRENT_SOURCE_DIR}/${folder} ${abi})
  foreach(below IN LISTS arg_BELOW)
    string(REPLACE "/" "_" lower rocpy_${name}_layer_${below})
    if(NOT TARGET ${lower})
      message(FATAL_ERROR "${folder} is defined before ${below}, so ${below} is not below it: layers are defined from the bottom up")
    endif()
    target_include_directories(${target} ${scope} $<TARGET_PROPERTY:${lower},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
endfunction()
