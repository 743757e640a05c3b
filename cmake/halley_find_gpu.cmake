# halley_find_gpu(VARIABLE) says whether this machine has an NVIDIA GPU with a driver: nvidia-smi lists
# one, or there is the device of the first one. HALLEY_GPU_DEVICE is another file to look for.
set(HALLEY_GPU_DEVICE "/dev/nvidia0" CACHE FILEPATH "The device whose presence means a GPU")
mark_as_advanced(HALLEY_GPU_DEVICE)

function(halley_find_gpu variable)
  set(${variable} OFF PARENT_SCOPE)
  if(EXISTS "${HALLEY_GPU_DEVICE}")
    set(${variable} ON PARENT_SCOPE)
    return()
  endif()
  find_program(nvidia_smi nvidia-smi NO_CACHE)
  if(nvidia_smi)
    execute_process(COMMAND "${nvidia_smi}" -L OUTPUT_VARIABLE gpus ERROR_QUIET TIMEOUT 30
                    RESULT_VARIABLE failure)
    if(failure EQUAL 0 AND gpus MATCHES "GPU 0")
      set(${variable} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()
