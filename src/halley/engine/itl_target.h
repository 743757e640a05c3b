// The inter-token latency (ITL) that running requests keep while prompts of others are computed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace halley {

struct ItlTarget {
  enum class Kind : uint8_t {
    kOff,         // a step has as many prefill rows as fit
    kAutoOnHost,  // 75 % of the SLO's TPOT; without one kAuto on the host, kOff on a
                  // device
    kAuto,        // kAutoFactor times what a step of decodes alone takes, as measured, but at least
                  // kAutoSecondsMin
    kSeconds,
  };
  /// A step of decodes gets one and a half times its own time for prefills; steps that take longer
  /// than predicted stay below 3.
  static constexpr double kAutoFactor = 2.5;
  /// A shorter step would spend most of its time on what it costs without any rows.
  static constexpr double kAutoSecondsMin = 0.005;
  static constexpr double kSecondsMax = 3600;

  Kind kind = Kind::kOff;
  double seconds = 0;  // of kSeconds: above 0, at most kSecondsMax

  bool operator==(const ItlTarget&) const = default;
};

/// Reads "auto", "off", "0" (off), "50ms", "0.05s" or "0.05" (seconds). Throws InputError for any
/// other text.
ItlTarget itl_target_from_text(std::string_view text);

/// The text that itl_target_from_text() reads; "auto on the CPU" for
/// kAutoOnHost.
std::string text_of(const ItlTarget& target);

}  // namespace halley
