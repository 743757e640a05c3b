#include "halley/cuda/tuning/tuned_plans.h"

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "halley/cuda/tuning/tuned_files.h"

namespace halley::cuda {
namespace {

/// Tables that were set live on, since plans of them are in use; few are ever set.
struct SetTables {
  std::mutex mutex;
  std::deque<TuningTable> tables;
  std::atomic<const TuningTable*> current = nullptr;
};

SetTables& set_tables() {
  static SetTables tables;
  return tables;
}

}  // namespace

std::span<const TuningTable> built_in_tuned_plans() {
  static const std::array<TuningTable, 2> tables = {
      TuningTable::parse(tuned_h200(), "the built-in plans of the H200"),
      TuningTable::parse(tuned_h100_ranks(), "the built-in plans of H100s")};
  return tables;
}

const TunedPlan* find_tuned_plan(int num_sms, const TunedGemm& gemm, int64_t M) {
  const auto find_in = [&](const TuningTable& table) {
    return table.num_sms() == num_sms ? table.find(gemm, M) : nullptr;
  };
  if (const TuningTable* table = set_tables().current.load()) {
    if (const TunedPlan* plan = find_in(*table)) return plan;
  }
  for (const TuningTable& table : built_in_tuned_plans()) {
    if (const TunedPlan* plan = find_in(table)) return plan;
  }
  return nullptr;
}

void set_tuned_plans(TuningTable table) {
  SetTables& all = set_tables();
  const std::lock_guard lock(all.mutex);
  all.current = &all.tables.emplace_back(std::move(table));
}

}  // namespace halley::cuda
