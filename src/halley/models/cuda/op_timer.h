// GPU time of each operation of a step.
#pragma once

#include <string>
#include <vector>

#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/models/base/causal_lm.h"

namespace halley::cuda {

/// Events around the operations of a step. In a captured step the graph runs them without the gaps
/// of host launches.
class OpTimer {
 public:
  OpTimer(const CudaStream& stream, bool is_captured)
      : stream_(stream), is_captured_(is_captured) {}

  void begin(std::string name);
  void end();

  /// Call when all has run. Times count from the first begin().
  std::vector<OpTime> times() const;

 private:
  struct Op {
    std::string name;
    CudaEvent begin{CudaEvent::Time::kYes}, end{CudaEvent::Time::kYes};
  };
  void record(const CudaEvent& event) const;

  const CudaStream& stream_;
  bool is_captured_;
  std::vector<Op> ops_;
};

}  // namespace halley::cuda
