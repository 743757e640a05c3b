# halley_find_gpu(VARIABLE) says whether this machine has a GPU that Halley runs models on:
# nvidia-smi lists one of compute capability 9.0; without nvidia-smi, the device of a GPU is there.
set(HALLEY_GPU_DEVICE "/dev/nvidia0" CACHE FILEPATH "The device whose presence means a GPU")
mark_as_advanced(HALLEY_GPU_DEVICE)

function(halley_find_gpu variable)
  set(found OFF)
  find_program(nvidia_smi nvidia-smi NO_CACHE)
  if(nvidia_smi)
    execute_process(COMMAND "${nvidia_smi}" --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capabilities ERROR_QUIET TIMEOUT 30 RESULT_VARIABLE failure)
    if(failure EQUAL 0 AND capabilities MATCHES "(^|\n)9\\.0")
      set(found ON)
    endif()
  elseif(EXISTS "${HALLEY_GPU_DEVICE}")
    set(found ON)
  endif()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
