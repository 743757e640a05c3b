# `cmake --install` gives a tree that can be moved: bin/halley finds its libraries beside itself.
include(GNUInstallDirs)
if(TARGET halley_executable)
  install(TARGETS halley_executable RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
