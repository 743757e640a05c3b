// Pipeline parallelism: the exchange of hidden states between the stages of a decoder.
#pragma once

#include "halley/core/matrix.h"

namespace halley {

/// One rank's end. All ranks of a stage call both with equal hidden states [M, hidden_size] f32,
/// dense.
class StageExchange {
 public:
  virtual ~StageExchange() = default;
  /// Waits for the hidden states of the stage before. Not for the first stage.
  virtual void receive(Matrix hidden) = 0;
  /// Passes them to the stage behind. Not for the last stage.
  virtual void send(ConstMatrix hidden) = 0;
};

}  // namespace halley
