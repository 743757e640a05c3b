// The order in which an engine serves its requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace halley {

/// vLLM's --scheduling-policy.
enum class SchedulingPolicy : uint8_t {
  kFcfs,      // by arrival
  kPriority,  // by priority, the lower number first; of equal ones by arrival
};

const char* name_of(SchedulingPolicy policy);  // "fcfs", "priority"
std::optional<SchedulingPolicy> scheduling_policy_from_name(std::string_view name);

}  // namespace halley
