#include "halley/precision/precision_policy.h"

#include <algorithm>
#include <array>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr double kDwellGrowthMax = 4;
constexpr std::array<const char*, 3> kModeNames = {"full", "low", "auto"};
constexpr std::array<const char*, 8> kReasonNames = {"fixed",       "unknown",  "holds", "token",
                                                     "first_token", "overload", "dwell", "pinned"};

}  // namespace

const char* name_of(PrecisionMode mode) { return kModeNames.at(static_cast<size_t>(mode)); }

std::optional<PrecisionMode> precision_mode_from_name(std::string_view name) {
  for (size_t i = 0; i < kModeNames.size(); ++i) {
    if (name == kModeNames[i]) return static_cast<PrecisionMode>(i);
  }
  return std::nullopt;
}

const char* name_of(PrecisionReason reason) { return kReasonNames.at(static_cast<size_t>(reason)); }

PrecisionPolicy::PrecisionPolicy(const PrecisionPolicyConfig& config)
    : config_(config), dwell_(config.dwell_seconds) {
  HALLEY_CHECK(config.num_levels >= 1 && config.dwell_seconds >= 0 && config.return_margin >= 0);
  if (config.mode != PrecisionMode::kFull && config.num_levels == 1) {
    throw InputError(str("precision: expected a model with weights in two precisions for \"",
                         name_of(config.mode),
                         "\", got one precision. `halley quantize --help` "
                         "names the methods that make such a model."));
  }
  if (config.mode == PrecisionMode::kLow) level_ = config.num_levels - 1;
}

std::optional<PrecisionReason> PrecisionPolicy::why_late(const StepOutlook& outlook, size_t level,
                                                         double margin) {
  const double seconds = outlook.step.at(level).bound() * (1 + margin);
  const double end = outlook.start + seconds;
  if (outlook.token_due && end > *outlook.token_due) return PrecisionReason::kToken;
  for (const FirstTokenDue& first : outlook.first_tokens) {
    const double prompt = static_cast<double>(first.num_tokens_ahead) *
                          outlook.prompt_token_seconds.at(level) * (1 + margin);
    // The step itself computes some of those tokens; a first token comes with its end at best.
    if (outlook.start + std::max(prompt, seconds) > first.due) return PrecisionReason::kFirstToken;
  }
  return std::nullopt;
}

PrecisionPolicy::Fit PrecisionPolicy::best_fit(const StepOutlook& outlook, double margin) const {
  Fit fit;
  for (; fit.level < config_.num_levels; ++fit.level) {
    const auto late = why_late(outlook, fit.level, margin);
    if (!late) return fit;
    fit.reason = *late;
  }
  return {.level = config_.num_levels - 1, .reason = PrecisionReason::kOverload};
}

PrecisionChoice PrecisionPolicy::take(size_t level, PrecisionReason reason, double now) {
  const bool is_switch = level != level_;
  if (is_switch) {
    const bool was_short = level > level_ && switched_ && now - *switched_ < dwell_;
    dwell_ = was_short        ? std::min(2 * dwell_, kDwellGrowthMax * config_.dwell_seconds)
             : level > level_ ? config_.dwell_seconds
                              : dwell_;
    switched_ = now;
    level_ = level;
  }
  return {.level = level, .reason = reason, .is_switch = is_switch};
}

PrecisionChoice PrecisionPolicy::choose(const StepOutlook& outlook) {
  if (config_.mode != PrecisionMode::kAuto) return {.level = level_};
  if (outlook.step.empty()) return take(level_, PrecisionReason::kUnknown, outlook.now);
  HALLEY_CHECK(outlook.step.size() == config_.num_levels, outlook.step.size());
  const Fit fit = best_fit(outlook, 0);
  if (fit.level >= level_) return take(fit.level, fit.reason, outlook.now);
  const Fit with_margin = best_fit(outlook, config_.return_margin);
  const bool may_return = !switched_ || outlook.now - *switched_ >= dwell_;
  if (may_return && with_margin.level < level_) {
    return take(with_margin.level, with_margin.reason, outlook.now);
  }
  return take(level_, PrecisionReason::kDwell, outlook.now);
}

}  // namespace halley
