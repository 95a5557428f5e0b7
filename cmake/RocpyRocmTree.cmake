# SPDX-License-Identifier: MIT
# The libraries of the stand-in ROCm tree: how each is made from the names that AMD's has.
include(CheckLinkerFlag)
# Functions that take C++ containers have AMD's names with GNU's C++ library alone: with another one, names of the map are absent.
check_linker_flag(CXX -Wl,--undefined-version ROCPY_LINKER_HAS_UNDEFINED_VERSION)

# rocpy_rocm_library(<library> SONAME <version> FOLDER <folder> [ROWS <row library>] [FACADE <library>] [UNTIL <node>] [SOURCES ...] [NEEDS <target> ...]):
# a library of the stand-in ROCm tree, under AMD's SONAME and with its version nodes. Its rows are the facade's, forwarded to
# librocpy_host.so; every other name of rocm_tree/<library>.names is counted and answers "not supported". FOLDER: the releases
# that it belongs to (all, 6, 7, or one), from which `rocpy rocm-tree` lays a tree out.
function(rocpy_rocm_library library)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SONAME;FOLDER;ROWS;FACADE;UNTIL" "SOURCES;NEEDS")
  set(names ${CMAKE_CURRENT_SOURCE_DIR}/rocm_tree/${library}.names)
  set(abi ${ROCPY_SOURCE_ROOT}/csrc/abi)
  set(generator ${ROCPY_SOURCE_ROOT}/tools/generate_rocm_tree.py)
  file(GLOB rows CONFIGURE_DEPENDS ${abi}/*.def)
  list(APPEND rows ${CMAKE_CURRENT_SOURCE_DIR}/hip/programs/hip_programs.def)
  set(depends ${generator} ${ROCPY_SOURCE_ROOT}/tools/generate_abi.py ${names} ${rows})
  set(objects rocpy_rocm_tree_${library})
  if(NOT TARGET ${objects})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/rocm_tree_${library}.cpp)
    add_custom_command(OUTPUT ${source}
      COMMAND Python::Interpreter ${generator} source ${names} ${source} "--rows=${arg_ROWS}"
      DEPENDS ${depends} VERBATIM)
    add_library(${objects} OBJECT ${source} ${arg_SOURCES})
    set_target_properties(${objects} PROPERTIES
      POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    target_include_directories(${objects} PRIVATE $<TARGET_PROPERTY:rocpy_host_layer_rocm_tree,INTERFACE_INCLUDE_DIRECTORIES>)
    # Names of HIP's are reserved ones, and generated functions take what their callers pass.
    target_compile_options(${objects} PRIVATE -O1 -Wall -Wextra -fno-builtin)
  endif()
  set(target rocpy_rocm_${library}_${arg_FOLDER})
  set(map ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  add_custom_command(OUTPUT ${map}
    COMMAND Python::Interpreter ${generator} map ${names} ${map} "--rows=${arg_ROWS}" "--until=${arg_UNTIL}"
    DEPENDS ${depends} VERBATIM)
  set(parts $<TARGET_OBJECTS:${objects}>)
  if(arg_FACADE)
    list(APPEND parts $<TARGET_OBJECTS:${arg_FACADE}>)
  endif()
  add_library(${target} SHARED ${parts} ${map})
  set(folder rocpy/_host/rocm/${arg_FOLDER})
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX PREFIX "" SUFFIX "" OUTPUT_NAME lib${library}.so.${arg_SONAME} NO_SONAME ON LINK_DEPENDS ${map}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder} BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../../lib")
  target_link_options(${target} PRIVATE -Wl,-soname,lib${library}.so.${arg_SONAME} -Wl,--version-script=${map} -Wl,-Bsymbolic
    -Wl,--no-as-needed $<$<BOOL:${ROCPY_LINKER_HAS_UNDEFINED_VERSION}>:-Wl,--undefined-version>)
  target_link_libraries(${target} PRIVATE rocpy_host ${arg_NEEDS})
  install(TARGETS ${target} LIBRARY DESTINATION ${folder})
endfunction()
