# `cmake --install` gives a tree that can be moved, also to another machine with a C library at
# least as new (glibc 2.36): bin/halley and, in lib/halley, the shared libraries that it needs.
# libstdc++ is copied too instead of being linked statically: the other libraries use it, and a
# program should not hold two of it. The C library itself always comes from the machine.
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
install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/halley")
