# SPDX-License-Identifier: MIT
# rocpy_cython(<package path> <name>) and rocpy_pybind11(<package path> <name>): one extension module each, linked to rocpy_core by an
# rpath that holds in a wheel, in a normal and in an editable install.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module NumPy)
# The interpreter's own suffix is not the target's in a build for another architecture.
if(CMAKE_CROSSCOMPILING AND SKBUILD_SOABI)
  set(Python_SOABI ${SKBUILD_SOABI})
endif()

set(ROCPY_GENERATED ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${ROCPY_GENERATED})

# The checked calls that Cython sees (`cimport abi`), one per row.
file(GLOB ROCPY_ROWS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/abi/*.def)
add_custom_command(
  OUTPUT ${ROCPY_GENERATED}/abi.pxd
  COMMAND Python::Interpreter ${CMAKE_SOURCE_DIR}/tools/generate_abi.py pxd ${ROCPY_GENERATED}/abi.pxd
  DEPENDS ${CMAKE_SOURCE_DIR}/tools/generate_abi.py ${CMAKE_SOURCE_DIR}/tools/abi_libraries.py ${CMAKE_SOURCE_DIR}/tools/abi_pxd.py ${ROCPY_ROWS}
  VERBATIM)
add_custom_target(rocpy_abi_pxd DEPENDS ${ROCPY_GENERATED}/abi.pxd)

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
  target_link_options(${target} PRIVATE -Wl,--version-script=${ROCPY_MODULE_MAP})
  target_link_libraries(${target} PRIVATE rocpy_core)
  install(TARGETS ${target} LIBRARY DESTINATION ${package})
endfunction()

function(rocpy_cython package name)
  string(REPLACE "/" "_" target ${package}_${name})
  string(REPLACE "/" "." module ${package}/${name})
  set(source ${CMAKE_SOURCE_DIR}/${package}/${name}.pyx)
  set(output ${ROCPY_GENERATED}/${target}.cpp)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E env PYTHONHASHSEED=0 $<TARGET_FILE:Python::Interpreter> -m cython -3 --cplus -M -Wextra
      -X binding=True -X embedsignature=True -X autotestdict=False
      -I ${CMAKE_SOURCE_DIR} -I ${ROCPY_GENERATED} --module-name ${module}
      ${source} -o ${output}
    DEPENDS ${source} rocpy_abi_pxd
    DEPFILE ${output}.dep
    VERBATIM)
  python_add_library(${target} MODULE WITH_SOABI ${output})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/modules/${package})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/csrc/third_party/dlpack ${CMAKE_SOURCE_DIR}/csrc/third_party/xla
    ${CMAKE_SOURCE_DIR}/${package} ${Python_NumPy_INCLUDE_DIRS})
  # Calls of Python's and the library's functions gain nothing by -O3, which takes a third longer to compile.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
  target_compile_definitions(${target} PRIVATE NPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION NPY_TARGET_VERSION=NPY_1_25_API_VERSION)
  _rocpy_install(${target} ${package})
endfunction()

function(rocpy_pybind11 package name)
  find_package(pybind11 CONFIG REQUIRED)
  string(REPLACE "/" "_" target ${package}_${name})
  pybind11_add_module(${target} MODULE ${CMAKE_SOURCE_DIR}/${package}/${name}.cpp)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/modules/${package})
  if(CMAKE_CROSSCOMPILING)
    # pybind11 takes the suffix of the interpreter that runs the build.
    set_target_properties(${target} PROPERTIES SUFFIX ".${Python_SOABI}${CMAKE_SHARED_MODULE_SUFFIX}")
  endif()
  _rocpy_install(${target} ${package})
endfunction()
