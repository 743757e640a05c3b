// Service level objectives of a request: limits on the latencies that its user notices.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace halley {

/// Limits in seconds; a latency may reach its limit. Absent: no objective.
struct Slo {
  std::optional<double> ttft = {};  // time to first token
  std::optional<double> tpot = {};  // time per output token
  std::optional<double> e2el = {};  // from the request's start to its last token

  static constexpr double kSecondsMax = 86'400;

  bool is_empty() const { return !ttft && !tpot && !e2el; }
  bool operator==(const Slo&) const = default;
};

/// Reads "ttft=200ms,tpot=33.3ms,e2el=5s": each name at most once, units us, ms and s, durations
/// above 0 and at most a day. `where` names the option or field in errors. Throws InputError.
Slo parse_slo(std::string_view text, const std::string& where);

}  // namespace halley
