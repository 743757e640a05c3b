#include "halley/engine/itl_target.h"

#include <charconv>
#include <system_error>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {

ItlTarget itl_target_from_text(std::string_view text) {
  using Kind = ItlTarget::Kind;
  if (text == "auto") return {.kind = Kind::kAuto};
  if (text == "off") return {.kind = Kind::kOff};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const bool is_number = error == std::errc() && (unit.empty() || unit == "s" || unit == "ms");
  const double seconds = unit == "ms" ? value / 1000 : value;
  // The comparison is false for NaN too.
  if (is_number && seconds >= 0 && seconds <= ItlTarget::kSecondsMax) {
    return seconds == 0 ? ItlTarget{.kind = Kind::kOff}
                        : ItlTarget{.kind = Kind::kSeconds, .seconds = seconds};
  }
  throw InputError(str("itl_target: expected auto, off, or a time of at most ",
                       ItlTarget::kSecondsMax, " seconds such as 50ms or 0.05s, got ",
                       quote(text)));
}

std::string text_of(const ItlTarget& target) {
  switch (target.kind) {
    case ItlTarget::Kind::kOff:
      return "off";
    case ItlTarget::Kind::kAutoOnHost:
      return "auto on the CPU";
    case ItlTarget::Kind::kAuto:
      return "auto";
    case ItlTarget::Kind::kSeconds:
      return str(target.seconds, "s");
  }
  check_failed("ItlTarget::Kind", str(static_cast<int>(target.kind)), __FILE__, __LINE__);
}

}  // namespace halley
