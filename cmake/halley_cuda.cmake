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
