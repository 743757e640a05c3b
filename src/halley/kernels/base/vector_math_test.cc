// The SIMD functions are tested through the operations that use them, which have a run-time
// dispatch; this tests the parts of kernels/base that have no SIMD.
#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

TEST(RowTasks, CoverEveryRowOnce) {
  ThreadPool pool(3);
  ExecContext context{pool};
  for (const int64_t row_elements : {0, 1, 100, 5000, 40000}) {
    for (const int64_t num_rows : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(num_rows));
      for_row_ranges(context, num_rows, row_elements, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) ++visits[static_cast<size_t>(row)];
      });
      for (const auto& count : visits) ASSERT_EQ(count, 1) << row_elements << " " << num_rows;
    }
  }
}

TEST(RowTasks, SmallWorkStaysOnTheCallersThread) {
  ThreadPool pool(3);
  ExecContext context{pool};
  int num_calls = 0;  // not atomic: a second thread would be a race for the sanitizer to find
  for_row_ranges(context, 16, 2048, [&](int64_t begin, int64_t end) {
    ++num_calls;
    EXPECT_EQ(end - begin, 16);
  });
  EXPECT_EQ(num_calls, 1);
}

TEST(SimdTargets, VisitsAtLeastTheBestOneAndTheBaseline) {
  std::vector<const char*> names;
  for_each_simd_target([&](const char* name) { names.push_back(name); });
  EXPECT_FALSE(names.empty());
}

TEST(GuardedMatrix, SeesAWriteBetweenRowsAndAroundThem) {
  GuardedMatrix matrix(2, 3);
  EXPECT_TRUE(matrix.guards_are_intact());
  matrix.row(0)[3] = 1.0f;
  EXPECT_FALSE(matrix.guards_are_intact());
  GuardedMatrix other(2, 3);
  other.row(0)[-1] = 1.0f;
  EXPECT_FALSE(other.guards_are_intact());
}

}  // namespace
}  // namespace halley
