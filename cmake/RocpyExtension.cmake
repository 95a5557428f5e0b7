# SPDX-License-Identifier: MIT
# rocpy_cython(<package path> <name>) and rocpy_pybind11(<package path> <name>): one extension module each, linked to rocpy_core by an
# rpath that holds in a wheel, in a normal and in an editable install.
include(RocpyPrecompile)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module NumPy)
# The interpreter's own suffix is not the target's in a build for another architecture.
if(CMAKE_CROSSCOMPILING AND SKBUILD_SOABI)
  set(Python_SOABI ${SKBUILD_SOABI})
endif()

set(ROCPY_GENERATED ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${ROCPY_GENERATED})

# As Cython includes it.
file(CONFIGURE OUTPUT ${ROCPY_GENERATED}/python.h CONTENT "#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n#include <structmember.h>\n")

# Templates of the C++ library are instantiated in each module, and are not for others.
set(ROCPY_MODULE_MAP ${ROCPY_GENERATED}/module.map)
file(CONFIGURE OUTPUT ${ROCPY_MODULE_MAP} CONTENT "{ global: PyInit_*; local: *; };\n")

function(_rocpy_install target package)
  file(RELATIVE_PATH up ${CMAKE_SOURCE_DIR}/${package} ${CMAKE_SOURCE_DIR}/rocpy)
  string(REGEX REPLACE "/$" "" up "${up}")
  if(up STREQUAL "")
    set(up ".")
  endif()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${up}/_lib")
  # An rpath that comes before LD_LIBRARY_PATH, where another build's library may lie.
  target_link_options(${target} PRIVATE -Wl,--version-script=${ROCPY_MODULE_MAP} -Wl,--disable-new-dtags)
  target_link_libraries(${target} PRIVATE rocpy_core)
  install(TARGETS ${target} LIBRARY DESTINATION ${package})
endfunction()

function(rocpy_cython package name)
  string(REPLACE "/" "_" target ${package}_${name})
  python_add_library(${target} MODULE WITH_SOABI ${ROCPY_GENERATED}/${package}/${name}.cpp)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/modules/${package})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/csrc/third_party/dlpack ${CMAKE_SOURCE_DIR}/csrc/third_party/xla
    ${CMAKE_SOURCE_DIR}/${package} ${Python_NumPy_INCLUDE_DIRS})
  # By size, which takes a fifth off a module, but for what each product and collective runs through. The compiler reads no headers that were
  # precompiled with the other.
  set(optimization -Os)
  if(target MATCHES "(front_(call|function|stateful)|engine_launch|engine_streams|operands__arguments|native_plan|custom_(call|executables|execution)|rccl_engine_(call|operands)|handles_communicator|public_(collectives|transfers)|_producers_.*|rocpy__operand|rocpy__core)$")
    set(optimization -O2)
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${optimization}>)
  target_compile_definitions(${target} PRIVATE NPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION NPY_TARGET_VERSION=NPY_1_25_API_VERSION)
  rocpy_precompile(${target} cython${optimization} ${ROCPY_GENERATED}/python.h <atomic> <cmath> <cstdlib> <ios> <memory> <mutex> <stdexcept> <string> <vector>)
  _rocpy_install(${target} ${package})
endfunction()

function(rocpy_pybind11 package name)
  find_package(pybind11 CONFIG REQUIRED)
  string(REPLACE "/" "_" target ${package}_${name})
  pybind11_add_module(${target} MODULE NO_EXTRAS ${CMAKE_SOURCE_DIR}/${package}/${name}.cpp)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/modules/${package})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/rocpy)
  if(CMAKE_CROSSCOMPILING)
    # pybind11 takes the suffix of the interpreter that runs the build.
    set_target_properties(${target} PROPERTIES SUFFIX ".${Python_SOABI}${CMAKE_SHARED_MODULE_SUFFIX}")
  endif()
  _rocpy_install(${target} ${package})
endfunction()
