// For tests: runs a check once for every SIMD target that this build has and this machine can run.
#pragma once

#include <cstdint>

#include <hwy/targets.h>

namespace halley {

/// Calls check(name_of_target) with the run-time dispatch pinned to one target after another, and
/// restores the normal choice. Not thread-safe.
template <typename Check>
void for_each_simd_target(const Check& check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace halley
