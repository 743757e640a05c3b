// For code that the GPU runs and that tests run on the host.
#pragma once

#ifdef __CUDACC__
#define HALLEY_DEVICE __device__
#else
#define HALLEY_DEVICE
#endif
