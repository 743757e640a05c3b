# The native module of the Python package, and the component `python` of the installation, which is
# the wheel without the files of python/halley. pyproject.toml asks for both.
#
# libstdc++ and libgcc are the machine's, as in every wheel: a process has one of each, and other
# modules in it may need a newer one than ours.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module
             ${SKBUILD_SABI_COMPONENT})
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_folder
                RESULT_VARIABLE nanobind_result)
if(NOT nanobind_result EQUAL 0)
  message(FATAL_ERROR "HALLEY_PYTHON: expected a Python with nanobind, ${Python_EXECUTABLE} has "
                      "none. Run tools/setup.sh --python and 'make wheel', or give CMake "
                      "-DPython_EXECUTABLE=.venv/python/bin/python.")
endif()
find_package(nanobind CONFIG REQUIRED PATHS "${nanobind_folder}" NO_DEFAULT_PATH)

# Links the module and says where the wheel has it, its libraries and the program.
function(halley_install_python name)
  get_target_property(suffix ${name} SUFFIX)
  if(SKBUILD_SABI_VERSION AND NOT suffix STREQUAL ".abi3.so")
    message(FATAL_ERROR "${name}: expected a module of the stable ABI, as the wheel's name says, "
                        "got the suffix ${suffix}.")
  endif()
  target_link_libraries(${name} PRIVATE halley_settings halley_python)
  target_compile_definitions(${name} PRIVATE HALLEY_VERSION="${PROJECT_VERSION}")
  # Another module of the process may hold the same libraries in other versions.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/lib/halley"
                        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/python")
  nanobind_add_stub(${name}_stub MODULE ${name} OUTPUT "${PROJECT_BINARY_DIR}/python/${name}.pyi"
                    PYTHON_PATH "${PROJECT_BINARY_DIR}/python" DEPENDS ${name})
  add_custom_target(python_files DEPENDS ${name} ${name}_stub halley_executable)

  set(component COMPONENT python EXCLUDE_FROM_ALL)
  install(TARGETS ${name} halley_executable RUNTIME_DEPENDENCY_SET halley_python_libraries
          LIBRARY DESTINATION halley ${component} RUNTIME DESTINATION halley/bin ${component})
  install(RUNTIME_DEPENDENCY_SET halley_python_libraries
          PRE_EXCLUDE_REGEXES "^ld-linux.*\\.so" "^libcuda\\."
                              "^lib(c|m|mvec|pthread|dl|rt|resolv|stdc\\+\\+|gcc_s)\\.so"
          LIBRARY DESTINATION halley/lib/halley ${component})
  install(FILES "${PROJECT_BINARY_DIR}/python/${name}.pyi" DESTINATION halley ${component})
endfunction()
