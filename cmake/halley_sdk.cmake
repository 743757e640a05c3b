# The engine for other programs' builds: lib/libhalley.so with the headers of its modules, the
# kernels as libhalley_kernels.so and .a, and what find_package(halley) and pkg-config read. Its C++
# interface belongs to one version and to compilers that share a standard library;
# docs/embedding.md says what programs include.
include(CMakePackageConfigHelpers)

# The modules that a target needs, itself too where it is one, in `result`.
function(halley_modules_of target result)
  set(found ${${result}})
  get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
  if(NOT links)
    return()
  endif()
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    if(NOT link MATCHES "^halley_" OR NOT TARGET ${link} OR link IN_LIST found)
      continue()
    endif()
    get_target_property(layer ${link} HALLEY_LAYER)
    if(layer STREQUAL "layer-NOTFOUND")  # settings
      continue()
    endif()
    list(APPEND found ${link})
    halley_modules_of(${link} found)
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

set(modules "")
halley_modules_of(halley_embedding modules)

file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/sdk/empty.cc" CONTENT "" @ONLY)
add_library(halley_shared SHARED "${PROJECT_BINARY_DIR}/sdk/empty.cc")
target_link_options(halley_shared PRIVATE -Wl,--no-undefined -Wl,--disable-new-dtags)
target_compile_features(halley_shared INTERFACE cxx_std_20)
set_target_properties(
  halley_shared
  PROPERTIES OUTPUT_NAME halley
             EXPORT_NAME halley
             VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION}
             LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
             INSTALL_RPATH "$ORIGIN/halley"
             BUILD_WITH_INSTALL_RPATH ON)
set(archives "")
foreach(module IN LISTS modules)
  get_target_property(type ${module} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND archives ${module})
  endif()
  get_target_property(folder ${module} SOURCE_DIR)
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/src" "${folder}")
  file(GLOB headers CONFIGURE_DEPENDS "${folder}/*.h")
  install(FILES ${headers} DESTINATION "include/${name}")
endforeach()

# All objects of each module, whatever the others need of it; the archives then add what the modules
# link themselves.
foreach(archive IN LISTS archives)
  target_sources(halley_shared PRIVATE $<TARGET_OBJECTS:${archive}>)
endforeach()
target_link_libraries(halley_shared PRIVATE ${archives})

set(exported halley_shared)
if(TARGET halley_kernels)
  # The same in one archive. A program that links it links CUDA's runtime as well.
  set(kernel_modules "")
  halley_modules_of(halley_cuda_library kernel_modules)
  list(APPEND kernel_modules halley_cuda_library)
  add_library(halley_kernels_static STATIC "${PROJECT_BINARY_DIR}/sdk/empty.cc")
  foreach(module IN LISTS kernel_modules)
    get_target_property(type ${module} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      target_sources(halley_kernels_static PRIVATE $<TARGET_OBJECTS:${module}>)
    endif()
  endforeach()
  target_link_libraries(halley_kernels_static INTERFACE CUDA::cudart_static)
  set_target_properties(halley_kernels_static PROPERTIES
                        OUTPUT_NAME halley_kernels EXPORT_NAME kernels_static
                        ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  set_target_properties(halley_kernels PROPERTIES EXPORT_NAME kernels)
  list(APPEND exported halley_kernels halley_kernels_static)
endif()
install(TARGETS ${exported} EXPORT halley_targets LIBRARY DESTINATION lib
        ARCHIVE DESTINATION lib INCLUDES DESTINATION include)
install(EXPORT halley_targets NAMESPACE halley:: DESTINATION lib/cmake/halley)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/halleyConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/sdk/halleyConfig.cmake"
                              INSTALL_DESTINATION lib/cmake/halley)
# Before 1.0 any version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sdk/halleyConfigVersion.cmake"
                                 COMPATIBILITY ExactVersion)
install(FILES "${PROJECT_BINARY_DIR}/sdk/halleyConfig.cmake"
              "${PROJECT_BINARY_DIR}/sdk/halleyConfigVersion.cmake"
        DESTINATION lib/cmake/halley)

# pkg-config finds the prefix from where the file lies, so that a tree may be moved.
set(pc_packages halley)
set(pc_description_halley "The engine: models, tokenizers, continuous batching")
if(TARGET halley_kernels)
  list(APPEND pc_packages halley_kernels)
  set(pc_description_halley_kernels "GEMM kernels in low precision behind a C ABI")
  set(pc_static_halley_kernels "-lcudart_static -lstdc++ -lpthread -ldl -lrt")
endif()
foreach(pc_package IN LISTS pc_packages)
  set(pc_description "${pc_description_${pc_package}}")
  set(pc_static "${pc_static_${pc_package}}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/halley.pc.in"
                 "${PROJECT_BINARY_DIR}/sdk/${pc_package}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/sdk/${pc_package}.pc" DESTINATION lib/pkgconfig)
endforeach()
