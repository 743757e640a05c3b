#include "halley/engine/scheduling_policy.h"

#include "halley/base/check.h"

namespace halley {
namespace {

constexpr SchedulingPolicy kPolicies[] = {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority};

}  // namespace

const char* name_of(SchedulingPolicy policy) {
  switch (policy) {
    case SchedulingPolicy::kFcfs:
      return "fcfs";
    case SchedulingPolicy::kPriority:
      return "priority";
  }
  check_failed("SchedulingPolicy", str(static_cast<int>(policy)), __FILE__, __LINE__);
}

std::optional<SchedulingPolicy> scheduling_policy_from_name(std::string_view name) {
  for (const SchedulingPolicy policy : kPolicies) {
    if (name == name_of(policy)) return policy;
  }
  return std::nullopt;
}

}  // namespace halley
