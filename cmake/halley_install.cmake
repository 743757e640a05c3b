# `cmake --install` gives a tree that can be moved, also to another machine with a C library at
# least as new (glibc 2.36): bin/halley and, in lib/halley, the shared libraries that it needs.
# libstdc++ is copied too instead of being linked statically: the other libraries use it, and a
# program should not hold two of it. The C library itself always comes from the machine, and so does
# MPI, which must be the one of the machine's mpirun (libhalley_mpi.so is linked with it).
include(GNUInstallDirs)

if(TARGET halley_executable)
  # DT_RPATH (not DT_RUNPATH) because it also serves the libraries' own dependencies.
  target_link_options(halley_executable PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(halley_executable PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/halley"
                        BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS halley_executable RUNTIME_DEPENDENCY_SET halley_libraries
          RUNTIME DESTINATION bin)
  install(RUNTIME_DEPENDENCY_SET halley_libraries
          PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|resolv))\\.so" "^libcuda\\."
          LIBRARY DESTINATION lib/halley)
endif()
if(NOT HALLEY_SANITIZE)
  include(halley_sdk)
endif()
# The manual page and the completions of shells are made from the program's own help.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET halley_executable AND Python3_Interpreter_FOUND)
  add_custom_target(
    cli_files
    COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/packaging/make_cli_files.py"
            $<TARGET_FILE:halley_executable> "${PROJECT_BINARY_DIR}/cli_files"
    DEPENDS halley_executable
    VERBATIM)
endif()
# `cmake --build ... --target installed_files` builds all that `cmake --install` takes, and no more;
# tests/packaging/install_test.py checks that.
add_custom_target(installed_files)
foreach(target IN ITEMS halley_executable halley_shared halley_kernels halley_kernels_static
                       halley_mpi cli_files)
  if(TARGET ${target})
    add_dependencies(installed_files ${target})
  endif()
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/cli_files/halley.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
        OPTIONAL)
install(FILES "${PROJECT_BINARY_DIR}/cli_files/halley.bash" RENAME halley
        DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" OPTIONAL)
install(FILES "${PROJECT_BINARY_DIR}/cli_files/_halley"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" OPTIONAL)
install(FILES CHANGELOG.md LICENSE README.md DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/halley")
