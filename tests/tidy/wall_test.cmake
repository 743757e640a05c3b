# The module wall stops the configure step: small projects with one wrong declaration each.

# Configures a project with the modules `low` (layer 1) and `high` (layer 2), whose declarations
# are given, and the test doubles `low/testing`. Checks that it stops with a message that matches
# `expected` ("" for: it passes).
function(expect_configure name low high expected)
  set(project "${FOLDER}/${name}")
  file(REMOVE_RECURSE "${project}")
  file(WRITE "${project}/CMakeLists.txt"
       "cmake_minimum_required(VERSION 3.25)\nproject(wall NONE)\n"
       "include(\"${HALLEY_SOURCE_DIR}/cmake/halley_module.cmake\")\n"
       "add_library(halley_settings INTERFACE)\n"
       "add_subdirectory(src/halley/low)\nadd_subdirectory(src/halley/low/testing)\n"
       "add_subdirectory(src/halley/high)\n")
  file(WRITE "${project}/src/halley/low/CMakeLists.txt" "halley_module(${low})\n")
  file(WRITE "${project}/src/halley/low/testing/CMakeLists.txt"
       "halley_module(NAME low/testing LAYER 1 HEADERS_ONLY)\n")
  file(WRITE "${project}/src/halley/high/CMakeLists.txt" "halley_module(${high})\n")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${project}" -B "${project}/build"
                  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(expected STREQUAL "")
    if(NOT code EQUAL 0)
      message(FATAL_ERROR "${name}: expected the configure step to pass, it said: ${output}")
    endif()
  elseif(code EQUAL 0 OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${name}: expected the configure step to stop with '${expected}', it "
                        "ended with ${code} and said: ${output}")
  endif()
  message(STATUS "${name}: ok")
endfunction()

set(low "NAME low LAYER 1 HEADERS_ONLY")
expect_configure(right "${low}" "NAME high LAYER 2 HEADERS_ONLY DEPS low" "")
expect_configure(equal_layer "${low}" "NAME high LAYER 1 HEADERS_ONLY DEPS low"
                 "module 'high' .layer 1. may not depend on 'low' .layer 1.")
expect_configure(higher_layer "NAME low LAYER 3 HEADERS_ONLY"
                 "NAME high LAYER 2 HEADERS_ONLY DEPS low"
                 "module 'high' .layer 2. may not depend on 'low' .layer 3.")
expect_configure(unknown "${low}" "NAME high LAYER 2 HEADERS_ONLY DEPS lower"
                 "module 'high' depends on 'lower', which is not declared before it")
expect_configure(folder "${low}" "NAME other LAYER 2 HEADERS_ONLY"
                 "module 'other' is declared in folder 'high'")
expect_configure(arguments "${low}" "NAME high" "wrong arguments")
expect_configure(doubles "${low}" "NAME high LAYER 2 HEADERS_ONLY DEPS low/testing"
                 "module 'high' may not depend on 'low/testing', which is for tests alone")
