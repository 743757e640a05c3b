#include "halley/python/torch_linear.h"

#include <mutex>
#include <utility>

#include <pthread.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/matrix.h"
#include "halley/core/thread_pool.h"
#include "halley/python/session_options.h"

namespace halley::python {
namespace {

struct SharedPool {
  std::mutex mutex;
  std::unique_ptr<ThreadPool> pool;
};

/// Lives until the process ends: other threads may still run then.
SharedPool*& shared_pool() {
  static SharedPool* pool = [] {
    // The threads of a pool do not live on in a child.
    pthread_atfork(nullptr, nullptr, [] { shared_pool() = new SharedPool; });
    return new SharedPool;
  }();
  return pool;
}

}  // namespace

void with_threads(int num_threads, const std::function<void(ExecContext& context)>& run) {
  check_range("halley.torch: threads", num_threads, 1, kThreadsMax);
  SharedPool& shared = *shared_pool();
  const std::lock_guard lock(shared.mutex);
  if (shared.pool == nullptr || shared.pool->num_threads() != num_threads) {
    shared.pool.reset();
    shared.pool = std::make_unique<ThreadPool>(num_threads);
  }
  ExecContext context{*shared.pool};
  run(context);
}

CpuLinear::CpuLinear(PackedFormat format, Precision precision) : format_(std::move(format)) {
  if (precision == Precision::kLow && !has_low_precision(layout_of(format_))) {
    throw InputError(str("halley.torch: precision: expected full for ", format_.scheme,
                         ", which has no other, got low."));
  }
  const GemmProblem full = problem_of(format_);
  kernel_ = &find_gemm_kernel(precision == Precision::kLow ? low_problem(full) : full);
}

void CpuLinear::run(int num_threads, const PackedTensors& weight, TensorMemory bias, TensorMemory x,
                    TensorMemory y) const {
  const auto row_bytes = static_cast<size_t>(format_.num_inputs) * sizeof(float);
  const auto M = static_cast<int64_t>(x.num_bytes / row_bytes);
  const float* from = elements_of<float>(x, M * format_.num_inputs, "x");
  float* to = elements_of<float>(y, M * format_.N, "y");
  const float* added = bias.address == 0 ? nullptr : elements_of<float>(bias, format_.N, "bias");
  const PackedWeight view = view_linear(format_, weight);
  if (M == 0) return;
  with_threads(num_threads, [&](ExecContext& context) {
    kernel_->launch(context, view, added, f32_matrix(from, M, format_.num_inputs),
                    f32_matrix(to, M, format_.N));
  });
}

}  // namespace halley::python
