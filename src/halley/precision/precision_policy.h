// Chooses the precision of each step so that requests keep their SLOs: a pure function of what is
// planned, what is due and what was chosen before. It has no thread, no clock and no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "halley/precision/step_predictor.h"

namespace halley {

enum class PrecisionMode : uint8_t { kFull, kLow, kAuto };
const char* name_of(PrecisionMode mode);  // "full", "low", "auto"
std::optional<PrecisionMode> precision_mode_from_name(std::string_view name);

/// Times are seconds of one clock that does not go back. Levels are numbered as StepPredictor's.
struct PrecisionPolicyConfig {
  PrecisionMode mode = PrecisionMode::kFull;
  size_t num_levels = 1;
  /// A return to a better level needs this much more time than that level is predicted to take.
  double return_margin = 0.2;
  /// A return comes at least this long after the last switch; the time is doubled, up to 4 times,
  /// for each return that did not last as long itself. So there are at most T / dwell + 1 returns
  /// in a time T, and at most one more of the switches down.
  double dwell_seconds = 0.1;
};

/// A request that waits for its first token.
struct FirstTokenDue {
  double due = 0;                // submit + TTFT of its SLO
  int64_t num_tokens_ahead = 0;  // prompt tokens to be computed until then, its own included
};

/// The facts that are known before a step is launched.
struct StepOutlook {
  double now = 0;
  double start = 0;                // when the step can begin: after those in flight
  std::vector<StepEstimate> step;  // by level; empty where nothing can be predicted yet
  /// The earliest time at which a sequence that decodes in this step is due its next token: its
  /// last one + TPOT of its SLO.
  std::optional<double> token_due = {};
  std::vector<FirstTokenDue> first_tokens = {};
  std::vector<double> prompt_token_seconds = {};  // of one more prompt token, by level
};

enum class PrecisionReason : uint8_t {
  kFixed,       // the mode demands it
  kUnknown,     // nothing can be predicted yet
  kHolds,       // the best level that holds all SLOs
  kToken,       // better levels would be too late for a next token
  kFirstToken,  // better levels would be too late for a first token
  kOverload,    // no level holds all SLOs: the last one, which reads and computes the least
  kDwell,       // a better level would hold them, but not for long enough or with too little margin
  kPinned,      // a step of those that demand the best level, while others run lower
};
const char* name_of(PrecisionReason reason);

struct PrecisionChoice {
  size_t level = 0;
  PrecisionReason reason = PrecisionReason::kFixed;
  bool is_switch = false;  // another level than the last choice's
};

/// Not thread-safe.
class PrecisionPolicy {
 public:
  /// Throws InputError where kLow or kAuto is asked of a model with one level.
  explicit PrecisionPolicy(const PrecisionPolicyConfig& config);

  /// `kAuto`: the best level at which every token that is due comes in time. Lower levels are
  /// chosen at once, better ones after a dwell and with a margin.
  PrecisionChoice choose(const StepOutlook& outlook);

 private:
  struct Fit {
    size_t level = 0;
    PrecisionReason reason = PrecisionReason::kHolds;
  };

  static std::optional<PrecisionReason> why_late(const StepOutlook& outlook, size_t level,
                                                 double margin);
  Fit best_fit(const StepOutlook& outlook, double margin) const;
  PrecisionChoice take(size_t level, PrecisionReason reason, double now);

  PrecisionPolicyConfig config_;
  size_t level_ = 0;
  std::optional<double> switched_;  // when the level changed last
  double dwell_ = 0;
};

}  // namespace halley
