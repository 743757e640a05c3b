#include "halley/slo/slo.h"

#include <charconv>
#include <system_error>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

double parse_duration(std::string_view text, const std::string& where) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [unit_begin, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(unit_begin, static_cast<size_t>(end - unit_begin));
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 0;
  const double seconds = value * scale;
  // Not-a-number fails the comparisons.
  if (error != std::errc() || !(seconds > 0 && seconds <= Slo::kSecondsMax)) {
    throw InputError(str(where,
                         ": expected a duration above 0 and up to a day like 200ms or 1.5s, ",
                         "got ", quote(text), "."));
  }
  return seconds;
}

}  // namespace

Slo parse_slo(std::string_view text, const std::string& where) {
  Slo slo;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    std::optional<double>* value = name == "ttft"   ? &slo.ttft
                                   : name == "tpot" ? &slo.tpot
                                   : name == "e2el" ? &slo.e2el
                                                    : nullptr;
    if (equals == std::string_view::npos || value == nullptr || value->has_value()) {
      throw InputError(str(where,
                           ": expected ttft, tpot and e2el, each at most once, like "
                           "ttft=200ms,tpot=33ms, got ",
                           quote(part), "."));
    }
    *value = parse_duration(part.substr(equals + 1), where);
    if (comma == std::string_view::npos) return slo;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace halley
