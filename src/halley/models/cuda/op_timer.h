// How long each operation of a step takes on the GPU.
#pragma once

#include <string>
#include <vector>

#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/models/base/causal_lm.h"

namespace halley::cuda {

/// Events around the operations of a captured step: the graph runs them without gaps that the host
/// would make.
class OpTimer {
 public:
  explicit OpTimer(const CudaStream& stream) : stream_(stream) {}

  /// Inside a capture.
  void begin(std::string name);
  void end();

  /// After the graph has run. Times count from the first begin().
  std::vector<OpTime> times() const;

 private:
  struct Op {
    std::string name;
    CudaEvent begin{CudaEvent::Time::kYes}, end{CudaEvent::Time::kYes};
  };
  void record(const CudaEvent& event) const;

  const CudaStream& stream_;
  std::vector<Op> ops_;
};

}  // namespace halley::cuda
