// For tests: masks that are made on the engine's thread, as late as the test says and in any order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "halley/engine/mask_job.h"

namespace halley {

/// Not thread-safe: only the engine's thread uses it, and the model that it runs.
class FakeMaskExecutor final : public MaskExecutor {
 public:
  /// `pick(n)` is a number below n.
  using Pick = std::function<size_t(size_t n)>;
  explicit FakeMaskExecutor(Pick pick) : pick_(std::move(pick)) {}

  void post(std::shared_ptr<MaskJob> job) override { jobs_.push_back(std::move(job)); }
  /// One slice of one of the jobs.
  bool work_here() override {
    if (jobs_.empty()) return false;
    const size_t index = pick_(jobs_.size());
    if (jobs_[index]->run(1 + pick_(200))) {
      jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    return true;
  }
  size_t num_jobs() const { return jobs_.size(); }

 private:
  const Pick pick_;
  std::vector<std::shared_ptr<MaskJob>> jobs_;
};

}  // namespace halley
