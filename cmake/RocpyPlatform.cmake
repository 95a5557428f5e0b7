# SPDX-License-Identifier: MIT
# rocpy_platform(<name> LAYERS <folder> ... [OBJECTS <object library> ...] FACADES <library>=<row library> ...): a platform of rocpy's own, laid
# out like a ROCm install, of the layers that rocpy_layer() made.
#
# All code is in librocpy_<name>.so, which exports rocpy_<name>_* and nothing else. A facade lib<library>.so exports the rows of one row
# library and forwards them. Its SONAME is not AMD's, nothing binds to a symbol of another library by AMD's name (-Bsymbolic), and it
# finds librocpy_<name>.so beside itself: so it neither captures nor is captured by a real ROCm in the same process.
find_package(Python REQUIRED COMPONENTS Interpreter)

get_filename_component(ROCPY_SOURCE_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
include(RocpySanitize)
include(RocpyLayer)

# CMake's own WHOLE_ARCHIVE asks for --push-state, which zig's linker lacks.
set(CMAKE_LINK_LIBRARY_USING_rocpy_whole "-Wl,--whole-archive" "<LINK_ITEM>" "-Wl,--no-whole-archive")
set(CMAKE_LINK_LIBRARY_USING_rocpy_whole_SUPPORTED TRUE)

function(rocpy_platform name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LAYERS;OBJECTS;FACADES")
  set(folder ${CMAKE_BINARY_DIR}/rocpy/_${name}/lib)
  set(abi ${ROCPY_SOURCE_ROOT}/csrc/abi)
  set(generator ${ROCPY_SOURCE_ROOT}/tools/generate_abi.py)
  file(GLOB rows CONFIGURE_DEPENDS ${abi}/*.def)
  list(APPEND rows ${ROCPY_SOURCE_ROOT}/tools/abi_libraries.py)
  find_package(Threads REQUIRED)

  # -z nodelete: worker threads may run this code until the process ends.
  set(link_options -Wl,-Bsymbolic -Wl,--disable-new-dtags -Wl,-z,nodelete)
  if(NOT ROCPY_SANITIZE)
    list(APPEND link_options -Wl,-z,defs)
  endif()

  # The code is a static library first, so that a C++ test can link what the shared one hides.
  set(core rocpy_${name})
  add_library(${core}_static STATIC)
  set_target_properties(${core}_static PROPERTIES LINKER_LANGUAGE CXX)
  foreach(layer IN LISTS arg_LAYERS)
    string(REPLACE "/" "_" layer ${core}_layer_${layer})
    list(APPEND arg_OBJECTS ${layer})
    target_include_directories(${core}_static INTERFACE $<TARGET_PROPERTY:${layer},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
  foreach(objects IN LISTS arg_OBJECTS)
    target_sources(${core}_static PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
  target_link_libraries(${core}_static PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
  rocpy_sanitize(${core}_static)
  set(symbols ${CMAKE_CURRENT_BINARY_DIR}/${core}.map)
  file(WRITE ${symbols} "{ global: rocpy_${name}_*; local: *; };\n")
  add_library(${core} SHARED ${symbols})
  set_target_properties(${core} PROPERTIES
    LINKER_LANGUAGE CXX LINK_DEPENDS ${symbols}
    LIBRARY_OUTPUT_DIRECTORY ${folder} BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  target_link_options(${core} PRIVATE ${link_options} -Wl,--version-script=${symbols})
  target_link_libraries(${core} PRIVATE "$<LINK_LIBRARY:rocpy_whole,${core}_static>")
  rocpy_sanitize(${core})
  install(TARGETS ${core} LIBRARY DESTINATION rocpy/_${name}/lib)

  foreach(facade IN LISTS arg_FACADES)
    string(REPLACE "=" ";" facade ${facade})
    list(GET facade 0 library)
    list(GET facade 1 row_library)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/facade_${library}.cpp)
    add_custom_command(
      OUTPUT ${source}
      COMMAND Python::Interpreter ${generator} facade ${row_library} ${source}
      DEPENDS ${generator} ${rows}
      VERBATIM)
    set(target rocpy_${name}_${library})
    add_library(${target} SHARED ${source})
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME ${library} CXX_VISIBILITY_PRESET hidden
      LIBRARY_OUTPUT_DIRECTORY ${folder} BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN" NO_SONAME ON)
    target_include_directories(${target} PRIVATE ${abi})
    target_include_directories(${target} INTERFACE ${abi})
    target_compile_options(${target} PRIVATE -Wall -Wextra)
    target_link_options(${target} PRIVATE ${link_options} -Wl,-soname,librocpy_${library}.so)
    target_link_libraries(${target} PRIVATE ${core})
    install(TARGETS ${target} LIBRARY DESTINATION rocpy/_${name}/lib)
    # A program linked with -l${library} asks the dynamic linker for the SONAME: the library has that name too, as a link here, as a
    # copy in a wheel, which holds no links.
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink lib${library}.so ${folder}/librocpy_${library}.so VERBATIM)
    install(FILES ${folder}/librocpy_${library}.so DESTINATION rocpy/_${name}/lib)
  endforeach()
endfunction()
