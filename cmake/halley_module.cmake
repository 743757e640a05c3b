# The module wall. One folder is one module with one layer number; a module may depend only on
# modules of a strictly lower layer. The configure step stops where that is broken;
# tools/tidy.py fails where a file includes a module that is not declared here, or where a declared
# one is not used.

set_property(GLOBAL PROPERTY HALLEY_MODULES "")

# halley_module(NAME quant/none LAYER 45 SRCS detect.cc pack.cc DEPS quant/base kernels/gemm
#               [PRIVATE_DEPS ...] [EXTERNAL hwy::hwy ...] [HEADERS_ONLY]
#               [CUDA_SRCS ...] [CUDA_DEPS ...] [NO_CUDA_SRCS ...] [UNCHECKED_HEADERS ...])
# CUDA_SRCS and CUDA_DEPS count in builds that have CUDA, where HALLEY_HAS_CUDA is defined for the
# sources; NO_CUDA_SRCS in the others. UNCHECKED_HEADERS are not compiled alone: they need what only
# another target of the folder has.
# Must be called in src/halley/<NAME>/CMakeLists.txt. Includes are "halley/<NAME>/file.h".
# A module named X/testing has the test doubles of X: only tests and other such modules may depend
# on it, and it is built only where one of them needs it.
function(halley_module)
  cmake_parse_arguments(
    M "HEADERS_ONLY" "NAME;LAYER"
    "SRCS;DEPS;PRIVATE_DEPS;EXTERNAL;CUDA_SRCS;CUDA_DEPS;NO_CUDA_SRCS;UNCHECKED_HEADERS"
    ${ARGN})
  if(M_UNPARSED_ARGUMENTS OR NOT M_NAME OR "${M_LAYER}" STREQUAL "")
    message(FATAL_ERROR "halley_module: wrong arguments: ${ARGN}")
  endif()
  if(M_HEADERS_ONLY AND (M_SRCS OR M_PRIVATE_DEPS))
    message(FATAL_ERROR "module '${M_NAME}' has headers only: it can have neither SRCS nor "
                        "PRIVATE_DEPS")
  endif()
  if(HALLEY_HAS_CUDA)
    list(APPEND M_SRCS ${M_CUDA_SRCS})
    list(APPEND M_PRIVATE_DEPS ${M_CUDA_DEPS})
  else()
    list(APPEND M_SRCS ${M_NO_CUDA_SRCS})
  endif()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/src/halley" "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT folder STREQUAL M_NAME)
    message(FATAL_ERROR "module '${M_NAME}' is declared in folder '${folder}': the two must agree")
  endif()
  string(REPLACE "/" "_" target "halley_${M_NAME}")
  string(REGEX MATCH "/testing$" is_testing "${M_NAME}")
  if(M_HEADERS_ONLY)
    add_library(${target} INTERFACE)
    set(public INTERFACE)
  else()
    add_library(${target} STATIC ${M_SRCS})
    set(public PUBLIC)
    target_link_libraries(${target} PRIVATE halley_settings)
    halley_compile_sanitized(${target})
    if(HALLEY_HAS_CUDA AND (M_CUDA_SRCS OR M_CUDA_DEPS))
      target_compile_definitions(${target} PRIVATE HALLEY_HAS_CUDA)
    endif()
    if(is_testing)
      target_compile_definitions(${target} PRIVATE HALLEY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
  endif()
  set_target_properties(${target} PROPERTIES HALLEY_LAYER ${M_LAYER})
  set_property(GLOBAL APPEND PROPERTY HALLEY_MODULES ${M_NAME})
  foreach(dep IN LISTS M_DEPS M_PRIVATE_DEPS)
    if(dep MATCHES "/testing$" AND NOT is_testing)
      message(FATAL_ERROR "module '${M_NAME}' may not depend on '${dep}', which is for tests alone")
    endif()
    string(REPLACE "/" "_" dep_target "halley_${dep}")
    if(NOT TARGET ${dep_target})
      message(FATAL_ERROR "module '${M_NAME}' depends on '${dep}', which is not declared before "
                          "it. Check the name and the order in src/halley/CMakeLists.txt.")
    endif()
    get_target_property(dep_layer ${dep_target} HALLEY_LAYER)
    if(NOT dep_layer LESS M_LAYER)
      message(FATAL_ERROR "module '${M_NAME}' (layer ${M_LAYER}) may not depend on '${dep}' "
                          "(layer ${dep_layer}): see docs/ARCHITECTURE.md")
    endif()
    set(access ${public})
    if(dep IN_LIST M_PRIVATE_DEPS)
      set(access PRIVATE)
    endif()
    target_link_libraries(${target} ${access} ${dep_target})
  endforeach()
  target_link_libraries(${target} ${public} ${M_EXTERNAL})
  target_include_directories(${target} ${public} "${PROJECT_SOURCE_DIR}/src")
  if(HALLEY_CHECK_HEADERS)
    halley_check_headers(${target} "${M_NAME}" ${M_UNCHECKED_HEADERS})
  endif()
endfunction()

# Compiles every header of the module alone, so that none leans on what its includer happened to
# include. The .cc file of the same name does that where its first line of code includes the header.
# "-inl.h" files are compiled once per SIMD target by their includer and are left out.
function(halley_check_headers target name)
  file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.h")
  list(FILTER headers EXCLUDE REGEX "-inl\\.h$")
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE unchecked)
  list(REMOVE_ITEM headers ${unchecked})
  get_target_property(compiled ${target} SOURCES)
  list(TRANSFORM compiled PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set(sources "")
  foreach(header IN LISTS headers)
    get_filename_component(stem "${header}" NAME_WE)
    if("${CMAKE_CURRENT_SOURCE_DIR}/${stem}.cc" IN_LIST compiled)
      file(STRINGS "${stem}.cc" first REGEX "^#" LIMIT_COUNT 1)
      if(first STREQUAL "#include \"halley/${name}/${stem}.h\"")
        continue()
      endif()
    endif()
    set(source "${CMAKE_CURRENT_BINARY_DIR}/header_checks/${stem}.cc")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"halley/${name}/${stem}.h\"\n" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  if(sources)
    add_library(${target}_header_check OBJECT ${sources})
    target_link_libraries(${target}_header_check PRIVATE halley_settings ${target})
    target_compile_options(${target}_header_check PRIVATE -O0 -g0)
    # Headers of tests name the repository as halley_test() tells them.
    target_compile_definitions(${target}_header_check
                               PRIVATE HALLEY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  endif()
endfunction()

# halley_test(NAME gemm_test SRCS gemm_test.cc DEPS kernels/gemm [LABELS unit] [ARGS ...]
#             [EXTERNAL ...] [TIMEOUT 60] [UNSANITIZED Suite.Case...])
# A GoogleTest binary next to the code. The label is `unit` unless another one is given. Tests find
# the repository through the compile definition HALLEY_SOURCE_DIR. UNSANITIZED cases do not run
# under sanitizers: those that take long there, whose code other cases run too.
function(halley_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS;ARGS;EXTERNAL;UNSANITIZED"
                        ${ARGN})
  if(NOT HALLEY_BUILD_TESTS)
    return()
  endif()
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  if(HALLEY_SANITIZE)
    math(EXPR T_TIMEOUT "4 * ${T_TIMEOUT}")  # instrumented code is that much slower
    if(T_UNSANITIZED)
      list(JOIN T_UNSANITIZED ":" unsanitized)
      list(APPEND T_ARGS "--gtest_filter=-${unsanitized}")
    endif()
  endif()
  add_executable(${T_NAME} ${T_SRCS})
  foreach(dep IN LISTS T_DEPS)
    string(REPLACE "/" "_" dep_target "halley_${dep}")
    target_link_libraries(${T_NAME} PRIVATE ${dep_target})
  endforeach()
  target_link_libraries(${T_NAME} PRIVATE halley_settings ${T_EXTERNAL} GTest::gmock
                        GTest::gtest_main)
  target_compile_definitions(${T_NAME} PRIVATE HALLEY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # What tests call is compiled as users run it; the tests' own code only costs time to compile.
  target_compile_options(${T_NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  halley_compile_sanitized(${T_NAME})
  add_test(NAME ${T_NAME} COMMAND ${T_NAME} ${T_ARGS})
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
endfunction()

# The sanitized build by clang, which needs several times as long for instrumented code where it
# optimizes it: only folders of numerics are, where the time of the tests goes. The headers that
# most files include are compiled once for each of the two; the other builds see to it that each
# file names its own.
function(halley_compile_sanitized target)
  if(NOT HALLEY_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    return()
  endif()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/src/halley" "${CMAKE_CURRENT_SOURCE_DIR}")
  set(level O0)
  if(folder MATCHES "^(constraint|core|kernels|models|parallel|precision|quant)(/|$)")
    set(level O1)
  endif()
  set(owner halley_headers_${level})
  if(NOT TARGET ${owner})
    set(source "${PROJECT_BINARY_DIR}/${owner}.cc")
    file(CONFIGURE OUTPUT "${source}" CONTENT "")
    add_library(${owner} OBJECT EXCLUDE_FROM_ALL "${source}")
    target_link_libraries(${owner} PRIVATE halley_settings)
    target_compile_options(${owner} PRIVATE -${level})
    target_precompile_headers(
      ${owner} PRIVATE <algorithm> <atomic> <chrono> <cmath> <condition_variable> <filesystem>
      <fstream> <functional> <map> <memory> <mutex> <optional> <random> <set> <span> <sstream>
      <string> <string_view> <thread> <unordered_map> <variant> <vector> <nlohmann/json.hpp>)
    if(HALLEY_BUILD_TESTS)
      target_link_libraries(${owner} PRIVATE GTest::gmock)
      target_precompile_headers(${owner} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    endif()
  endif()
  # -fPIC as the object library: programs have -fPIE.
  target_compile_options(${target} PRIVATE -${level} -fPIC)
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# Files of SIMD code for which clang's optimizer needs many minutes once they are instrumented, and
# which tests run for minutes where they are not optimized: addresses are checked by calls, and
# undefined behaviour is not.
function(halley_compile_sanitized_kernels)
  if(NOT HALLEY_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    return()
  endif()
  set_source_files_properties(
    ${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
    "-fno-sanitize=undefined;-mllvm;-asan-instrumentation-with-call-threshold=0")
endfunction()

# halley_fuzzer(NAME safetensors_fuzz SRCS safetensors_fuzz.cc DEPS checkpoint/safetensors)
# A libFuzzer target in tests/fuzz; its corpus is testdata/fuzz/<NAME without _fuzz>.
function(halley_fuzzer)
  cmake_parse_arguments(F "" "NAME" "SRCS;DEPS" ${ARGN})
  if(NOT HALLEY_BUILD_FUZZERS)
    return()
  endif()
  add_executable(${F_NAME} ${F_SRCS})
  foreach(dep IN LISTS F_DEPS)
    string(REPLACE "/" "_" dep_target "halley_${dep}")
    target_link_libraries(${F_NAME} PRIVATE ${dep_target})
  endforeach()
  target_link_libraries(${F_NAME} PRIVATE halley_settings)
  target_link_options(${F_NAME} PRIVATE -fsanitize=fuzzer)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${F_NAME})
endfunction()
