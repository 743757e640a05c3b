# Settings of CUDA code: one architecture, Hopper's own instructions included.
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# CMake 3.25 (Debian 12) does not know that nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# Warnings of the host compiler, and of nvcc's own front end as errors. ptxas says C75xx where it
# serialises the tensor cores: code that is many times slower must not pass unseen.
target_compile_options(halley_settings INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-sign-conversion,-Werror>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>"
  # It overlooks the `requires` of BasicMatrix's conversion.
  "$<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=554>")

# halley_kernel_instances(MODULE cuda/x HEADERS x_kernel.cuh [NAMESPACE halley::attention]
#                         PARAMETERS "const CudaContext&, const XArguments&"
#                         INSTANCES "launch_x<DType::kF16, 64>" ...)
# Compiles instances of a function template of the module's HEADERS, which gives void, each as a
# source file of its own, so that they compile next to each other. A header without device code
# declares the template for its callers: an instance that is not listed does not link.
function(halley_kernel_instances)
  cmake_parse_arguments(I "" "MODULE;NAMESPACE;PARAMETERS" "HEADERS;INSTANCES" ${ARGN})
  if(I_UNPARSED_ARGUMENTS OR NOT I_MODULE OR NOT I_HEADERS OR NOT I_PARAMETERS OR NOT I_INSTANCES)
    message(FATAL_ERROR "halley_kernel_instances: wrong arguments: ${ARGN}")
  endif()
  if(NOT I_NAMESPACE)
    set(I_NAMESPACE halley::cuda)
  endif()
  set(includes "")
  foreach(header IN LISTS I_HEADERS)
    string(APPEND includes "#include \"halley/${I_MODULE}/${header}\"\n")
  endforeach()
  string(REPLACE "/" "_" target "halley_${I_MODULE}")
  foreach(instance IN LISTS I_INSTANCES)
    string(REGEX REPLACE "[^A-Za-z0-9]+" "_" name "${instance}")
    string(REGEX REPLACE "^launch_|_$" "" name "${name}")
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/instances/${name}.cu" @ONLY CONTENT
"// Made by halley_kernel_instances().
@includes@
namespace @I_NAMESPACE@ {

template void @instance@(@I_PARAMETERS@);

}  // namespace @I_NAMESPACE@
")
    target_sources(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/instances/${name}.cu")
  endforeach()
endfunction()
