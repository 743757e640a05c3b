# Compiler settings for every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# A compiler cache is used where there is one, with paths relative to this folder so that every
# checkout shares it. CMAKE_CXX_COMPILER_LAUNCHER= and CMAKE_CUDA_COMPILER_LAUNCHER= (empty) say no.
find_program(HALLEY_CCACHE ccache)
mark_as_advanced(HALLEY_CCACHE)
foreach(language IN ITEMS CXX CUDA)
  if(HALLEY_CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER
     AND NOT DEFINED ENV{CMAKE_${language}_COMPILER_LAUNCHER})
    set(CMAKE_${language}_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=true
        CCACHE_SLOPPINESS=pch_defines,time_macros "${HALLEY_CCACHE}")
  endif()
endforeach()

add_library(halley_settings INTERFACE)
target_compile_options(halley_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra
                       -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
                       -Werror>)
# g++ 12 sees overlapping copies in std::string's own code (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(halley_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# Results must not depend on whether the compiler fuses a multiply and an add: kernels that want
# fused operations say so through Highway.
target_compile_options(halley_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_include_directories(halley_settings INTERFACE "${PROJECT_SOURCE_DIR}/src")
find_package(Threads REQUIRED)
target_link_libraries(halley_settings INTERFACE Threads::Threads)

if(HALLEY_SANITIZE)
  set(sanitize_options -fsanitize=${HALLEY_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer)
  add_compile_options(${sanitize_options})
  add_link_options(${sanitize_options})
  # clang takes minutes for one file with many SIMD targets under the undefined-behaviour sanitizer.
  # The widest that sanitizers are run on and the baseline take every path of the shared code.
  add_compile_definitions("HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3|HWY_AVX3_DL)")
endif()
if(HALLEY_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "HALLEY_BUILD_FUZZERS needs clang++, the compiler is "
                        "${CMAKE_CXX_COMPILER_ID}. Use the preset 'fuzz'.")
  endif()
  # They are those of -fsanitize=fuzzer-no-link, which clang 14 does not take with precompiled
  # headers.
  set(HALLEY_COUNTERS inline-8bit-counters,indirect-calls,trace-cmp,pc-table)
  add_compile_options(-fsanitize-coverage=${HALLEY_COUNTERS})
endif()
