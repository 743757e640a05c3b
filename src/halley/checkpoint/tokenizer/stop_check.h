// Asks now and then whether to go on.
#pragma once

#include <cstdint>
#include <functional>

namespace halley {

/// For inner loops: asks a function that may read a clock once in many steps.
class StopCheck {
 public:
  /// `ask` may be null: never stops. It must outlive this.
  explicit StopCheck(const std::function<bool()>& ask) : ask_(ask) {}

  /// Counts a step of about 100 ns.
  bool must_stop() { return ++num_steps_ % kStepsPerQuestion == 0 && asks(); }
  /// Asks now.
  bool asks() const { return ask_ && ask_(); }

 private:
  static constexpr uint32_t kStepsPerQuestion = 1 << 14;

  const std::function<bool()>& ask_;
  uint32_t num_steps_ = 0;
};

}  // namespace halley
