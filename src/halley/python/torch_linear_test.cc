#include "halley/python/torch_linear.h"

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halley/base/error.h"

namespace halley::python {
namespace {

template <typename T>
TensorMemory memory_of(std::vector<T>& values) {
  return {reinterpret_cast<uintptr_t>(values.data()), values.size() * sizeof(T)};
}

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

struct Case {
  const char* scheme;
  int64_t N, K, group_size;
  /// Relative to the sum of |x w|: rounding of activations to 21 bits, to int8 or to e4m3.
  double error_max;
};

// An input's magnitude is at most 1, a step of int8 then 1/127, of e4m3 1/16; sums of many errors
// stay far below their bound.
constexpr double kExact = 1e-6, kInt8 = 1.0 / 64, kFloat8 = 1.0 / 16;
constexpr Case kCases[] = {{"int4", 40, 96, 32, kExact},     {"int8", 33, 100, 100, kExact},
                           {"int4_a8", 64, 256, 128, kInt8}, {"int8_a8", 31, 64, 64, kInt8},
                           {"int4_ax", 40, 256, 128, kInt8}, {"float8", 33, 128, 128, kFloat8},
                           {"nestedfp", 65, 33, 0, kExact}};

TEST(TorchLinear, MultipliesTheDequantizedWeight) {
  for (const Case& one : kCases) {
    PackedFormat format = {.scheme = one.scheme,
                           .N = one.N,
                           .K = one.K,
                           .group_size = one.group_size,
                           .num_inputs = one.K,
                           .num_s8_inputs = one.K};
    HostBuffer qweight(static_cast<size_t>(*num_elements_of(qweight_shape(format))));
    HostBuffer groups(static_cast<size_t>(*num_elements_of(groups_shape(format))) * 4);
    const PackedTensors packed = {
        {reinterpret_cast<uintptr_t>(qweight.data()), qweight.num_bytes()},
        {reinterpret_cast<uintptr_t>(groups.data()), groups.num_bytes()},
        {}};
    std::vector<float> w = random_values(one.N * one.K, 1), bias = random_values(one.N, 2);
    with_threads(2, [&](ExecContext& context) {
      ASSERT_EQ(round_linear(context, "layer", format, {}, memory_of(w), packed), "");
    });
    dequantize_linear(format, packed, Precision::kFull, memory_of(w));
    for (const int64_t M : {0, 1, 5}) {
      std::vector<float> x = random_values(M * one.K, 3), y(static_cast<size_t>(M * one.N));
      CpuLinear(format, Precision::kFull)
          .run(2, packed, memory_of(bias), memory_of(x), memory_of(y));
      for (int64_t i = 0; i < M * one.N; ++i) {
        const int64_t m = i / one.N, n = i % one.N;
        double sum = bias[static_cast<size_t>(n)], magnitude = std::fabs(sum);
        for (int64_t k = 0; k < one.K; ++k) {
          const double term = double{x[static_cast<size_t>(m * one.K + k)]} *
                              double{w[static_cast<size_t>(n * one.K + k)]};
          sum += term;
          magnitude += std::fabs(term);
        }
        EXPECT_NEAR(y[static_cast<size_t>(i)], sum, one.error_max * magnitude)
            << one.scheme << " " << i;
      }
    }
  }
}

TEST(TorchLinear, RejectsLowPrecisionOfWeightsThatHaveOne) {
  const PackedFormat format = {
      .scheme = "int4", .N = 1, .K = 32, .group_size = 32, .num_inputs = 32};
  try {
    CpuLinear(format, Precision::kLow);
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "halley.torch: precision: expected full for int4, which has no other, got low.");
  }
}

TEST(TorchLinear, RejectsNumbersOfThreads) {
  try {
    with_threads(0, [](ExecContext&) {});
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "halley.torch: threads: expected 1 to 1024, got 0.");
  }
}

TEST(TorchLinear, ThreadsTakeThePoolInTurns) {
  std::atomic<int> num_inside = 0, num_runs = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      with_threads(1 + i % 2, [&](ExecContext& context) {
        EXPECT_EQ(context.pool.num_threads(), 1 + i % 2);
        EXPECT_EQ(++num_inside, 1);
        --num_inside;
        ++num_runs;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_runs, 4);
}

TEST(TorchLinear, AForkedProcessHasAPoolOfItsOwn) {
  const auto count_tasks = [] {
    std::atomic<int> count = 0;
    with_threads(
        2, [&](ExecContext& context) { context.pool.run(8, [&](int64_t, int) { ++count; }); });
    return count.load();
  };
  EXPECT_EQ(count_tasks(), 8);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // ends a child that waits for threads which it does not have
    _exit(count_tasks() == 8 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace halley::python
