// A thread's position in a ring of stages that mbarriers guard.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// `index` is the stage; `parity` names the phase that the stage's barrier completes next. A
/// consumer begins with {}. A producer begins with {0, 1}: every stage is empty at first, as if a
/// phase before the first had completed.
struct PipelineState {
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int num_stages) {
    if (++index == num_stages) {
      index = 0;
      parity ^= 1;
    }
  }
};

}  // namespace halley::ptx
