#include "halley/engine/prefill_limit.h"

#include <algorithm>

#include "halley/base/check.h"

namespace halley {

// The number of rows that take `seconds` more than the decodes.
int64_t PrefillLimit::Steps::num_rows(double seconds, int64_t num_past) const {
  if (!model.has_prefill_seconds()) return num_rows_trusted;
  const double num_rows = model.num_rows(std::max(0.0, seconds), num_past);
  if (num_rows >= static_cast<double>(num_rows_trusted)) return num_rows_trusted;
  return std::max(static_cast<int64_t>(num_rows), num_rows_min);
}

void PrefillLimit::Steps::note(const StepWork& work, double seconds) {
  model.note_step(work, seconds);
  if (work.num_prefill_rows == 0) return;
  num_rows_trusted =
      std::max({2 * work.num_prefill_rows, num_rows_trusted * 7 / 8, 2 * num_rows_min});
}

PrefillLimit::PrefillLimit(const ItlTarget& target) : target_(target) {
  HALLEY_CHECK(target.kind != ItlTarget::Kind::kAutoOnHost, text_of(target));
}

double PrefillLimit::target_seconds() const {
  switch (target_.kind) {
    case ItlTarget::Kind::kAuto:
      if (!with_decodes_.model.has_decode_seconds()) return 0;
      return std::max(ItlTarget::kAutoSecondsMin,
                      ItlTarget::kAutoFactor * with_decodes_.model.decode_seconds());
    case ItlTarget::Kind::kSeconds:
      return target_.seconds;
    case ItlTarget::Kind::kOff:
    case ItlTarget::Kind::kAutoOnHost:
      return 0;
  }
  check_failed("ItlTarget::Kind", text_of(target_), __FILE__, __LINE__);
}

int64_t PrefillLimit::expected_rows(const PrefillOutlook& outlook) const {
  if (target_.kind == ItlTarget::Kind::kOff) return kNoLimit;
  if (outlook.num_decodes == 0) {
    return of_prefills_.num_rows(std::max(kPrefillSeconds, target_seconds()), outlook.num_past);
  }
  const double seconds = target_seconds() - with_decodes_.model.decode_seconds();
  return with_decodes_.num_rows(seconds, outlook.num_past);
}

int64_t PrefillLimit::num_rows(const PrefillOutlook& outlook) {
  const bool is_limited = target_.kind != ItlTarget::Kind::kOff && outlook.num_decodes > 0;
  if (!is_limited) return expected_rows(outlook);
  if (num_steps_to_probe_-- == 0) {
    num_steps_to_probe_ = kProbeInterval - 1;
    return 0;
  }
  return num_rows_last_ = expected_rows(outlook);
}

void PrefillLimit::note_step(const StepWork& work, double seconds) {
  if (target_.kind == ItlTarget::Kind::kOff) return;
  if (work.num_decodes == 0) return of_prefills_.note(work, seconds);
  with_decodes_.note(work, seconds);
  if (work.num_prefill_rows == 0) num_steps_to_probe_ = kProbeInterval - 1;
}

}  // namespace halley
