#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gmock/gmock.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/rank_sum/rank_sum.h"
#include "halley/cuda/rank_sum/testing/exchange_ranks.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr DType kTypes[] = {DType::kF16, DType::kBf16};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

/// Random values; some are zeros of either sign, and where asked for infinities and NaN.
std::vector<float> random_values(std::mt19937& random, int64_t count, bool has_specials) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> kinds(0, 39);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = normal(random);
    const int kind = kinds(random);
    if (kind == 0) values[i] = -0.0f;
    if (kind == 1) values[i] = 0.0f;
    if (kind == 2 && i > 0) values[i] = values[i - 1] = -0.0f;
    if (!has_specials) continue;
    if (kind == 3) values[i] = std::numeric_limits<float>::infinity();
    if (kind == 4) values[i] = -std::numeric_limits<float>::infinity();
    if (kind == 5) values[i] = std::numeric_limits<float>::quiet_NaN();
    if (kind == 6) values[i] = 60'000;
  }
  return values;
}

/// The rows of all ranks for one call, and their sum.
class RankRows {
 public:
  RankRows(ExchangeRanks& ranks, DType dtype, int64_t M, int64_t K, int64_t gap)
      : what_(str(ranks.size(), " ranks, ", M, " x ", K, " ", name_of(dtype), ", gap ", gap)),
        dtype_(dtype) {
    ranks.for_each(
        [&](ExchangeRank&) { rows_.push_back(std::make_unique<DeviceMatrix>(dtype, M, K, gap)); });
  }

  Matrix of(const ExchangeRank& rank) const { return at(rank).matrix(); }

  /// No rank has queued work that is not done.
  void fill(ExchangeRanks& ranks, std::mt19937& random, bool has_specials = false) {
    values_.clear();
    ranks.for_each([&](ExchangeRank& rank) {
      const DeviceMatrix& rows = at(rank);
      values_.push_back(random_values(random, rows.num_rows() * rows.num_cols(), has_specials));
      at(rank).set(values_.back());
    });
  }

  void fill_with(ExchangeRanks& ranks, float value) {
    values_.clear();
    ranks.for_each([&](ExchangeRank& rank) {
      values_.emplace_back(static_cast<size_t>(at(rank).num_rows() * at(rank).num_cols()), value);
      at(rank).set(values_.back());
    });
  }
  /// The sums of these rows are expected.
  void take_values(const RankRows& rows) { values_ = rows.values_; }

  /// Compares each rank's rows with the sum in f64, and with the rounded one in f32.
  void expect_sums(ExchangeRanks& ranks) const {
    ranks.for_each([&](ExchangeRank& rank) {
      const std::vector<float> got = at(rank).get(*rank.stream);
      EXPECT_TRUE(at(rank).guards_are_intact(*rank.stream)) << what_ << ", rank " << rank.number();
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(is_right(i, got[i]))
            << what_ << ", rank " << rank.number() << ", row "
            << static_cast<int64_t>(i) / at(rank).num_cols() << ", column "
            << static_cast<int64_t>(i) % at(rank).num_cols() << ": expected " << sum_in_f64(i)
            << ", rounded " << sum_in_f32(i) << ", got " << got[i];
      }
    });
  }

 private:
  DeviceMatrix& at(const ExchangeRank& rank) const {
    return *rows_[static_cast<size_t>(rank.number())];
  }
  double sum_in_f64(size_t i) const {
    double sum = 0;
    for (const auto& values : values_) sum += rounded_to(dtype_, values[i]);
    return sum;
  }
  float sum_in_f32(size_t i) const {
    float sum = rounded_to(dtype_, values_[0][i]);
    for (size_t r = 1; r < values_.size(); ++r) sum += rounded_to(dtype_, values_[r][i]);
    return rounded_to(dtype_, sum);
  }
  bool is_right(size_t i, float got) const {
    const float rounded = sum_in_f32(i);
    if (std::isnan(rounded)) return std::isnan(got);
    if (got != rounded) return false;  // zeros may differ in sign
    if (std::isinf(got)) return true;
    double magnitude = 0;
    for (const auto& values : values_) magnitude += std::fabs(rounded_to(dtype_, values[i]));
    const double exact = sum_in_f64(i);
    const double smallest = dtype_ == DType::kF16 ? 0x1p-25 : 0;  // of a step below normal numbers
    return std::fabs(got - exact) <=
           half_step_of(dtype_) * std::fabs(exact) + 1e-6 * magnitude + smallest;
  }

  std::string what_;
  DType dtype_;
  std::vector<std::unique_ptr<DeviceMatrix>> rows_;
  std::vector<std::vector<float>> values_;
};

using RankSum = ExchangeTest;

INSTANTIATE_TEST_SUITE_P(Ranks, RankSum, kRankCases, ExchangeTest::name);

TEST_P(RankSum, AddsRowsOfEveryShape) {
  ExchangeRanks ranks = make_ranks();
  std::mt19937 random(1);
  for (const auto& [M, K] : {std::pair<int64_t, int64_t>{1, 8},
                             {1, 16},
                             {3, 24},
                             {128, 8},
                             {2, 1000},
                             {7, 1032},
                             {1, 4096},
                             {33, 4096},
                             {64, 5120},
                             {1, 8192},
                             {127, 8192},
                             {128, 8192}}) {
    for (const DType dtype : kTypes) {
      for (const int64_t gap : {0, 8, 24}) {
        RankRows rows(ranks, dtype, M, K, gap);
        rows.fill(ranks, random);
        ranks.for_each([&](ExchangeRank& rank) {
          sum_over_ranks(rank.context(), *rank.exchange, rows.of(rank));
        });
        ranks.finish();
        rows.expect_sums(ranks);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(RankSum, KeepsInfinitiesAndNan) {
  ExchangeRanks ranks = make_ranks();
  std::mt19937 random(2);
  for (const DType dtype : kTypes) {
    for (const int64_t K : {8, 4096}) {
      RankRows rows(ranks, dtype, 5, K, 8);
      rows.fill(ranks, random, true);
      ranks.for_each([&](ExchangeRank& rank) {
        sum_over_ranks(rank.context(), *rank.exchange, rows.of(rank));
      });
      ranks.finish();
      rows.expect_sums(ranks);
    }
  }
}

// A pair of them looks like memory that nobody has written.
TEST_P(RankSum, NegativeZerosArrive) {
  ExchangeRanks ranks = make_ranks();
  for (const DType dtype : kTypes) {
    RankRows rows(ranks, dtype, 3, 64, 0);
    rows.fill_with(ranks, -0.0f);
    ranks.for_each(
        [&](ExchangeRank& rank) { sum_over_ranks(rank.context(), *rank.exchange, rows.of(rank)); });
    ranks.finish();
    rows.expect_sums(ranks);
  }
}

TEST_P(RankSum, ManyCallsOfChangingSizesFollowEachOther) {
  constexpr int kCalls = 60, kRounds = 6;
  ExchangeRanks ranks = make_ranks();
  std::mt19937 random(3);
  std::uniform_int_distribution<int64_t> row_counts(0, 40), vectors(1, 200);
  std::vector<RankRows> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.emplace_back(ranks, kTypes[i % 2], row_counts(random), 8 * vectors(random), 8 * (i % 3));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (RankRows& rows : calls) rows.fill(ranks, random);
    ranks.for_each([&](ExchangeRank& rank) {
      for (const RankRows& rows : calls) {
        sum_over_ranks(rank.context(), *rank.exchange, rows.of(rank));
      }
    });
    ranks.finish();
    for (const RankRows& rows : calls) rows.expect_sums(ranks);
    if (HasFatalFailure()) return;
  }
}

// An odd number of calls in the graph, so that its launches begin in either half of the memory.
TEST_P(RankSum, GraphsAlternateWithOtherCalls) {
  ExchangeRanks ranks = make_ranks();
  std::mt19937 random(4);
  std::vector<RankRows> from, captured, other;
  for (const auto& [M, K] : {std::pair<int64_t, int64_t>{1, 8192}, {4, 2048}, {30, 4096}}) {
    from.emplace_back(ranks, DType::kBf16, M, K, 0);
    captured.emplace_back(ranks, DType::kBf16, M, K, 0);
  }
  other.emplace_back(ranks, DType::kF16, 9, 1000, 0);
  other.emplace_back(ranks, DType::kF16, 1, 64, 8);
  std::vector<CudaGraph> graphs;
  ranks.for_each([&](ExchangeRank& rank) {
    graphs.push_back(CudaGraph::capture(*rank.stream, [&] {
      for (size_t i = 0; i < captured.size(); ++i) {
        const Matrix to = captured[i].of(rank);
        check_cuda(cudaMemcpyAsync(to.data, from[i].of(rank).data,
                                   static_cast<size_t>(to.num_rows * to.num_cols) * 2,
                                   cudaMemcpyDeviceToDevice, rank.stream->get()),
                   "copy of a test's rows");
        sum_over_ranks(rank.context(), *rank.exchange, to);
      }
    }));
  });
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < from.size(); ++i) {
      from[i].fill(ranks, random);
      captured[i].take_values(from[i]);
    }
    for (RankRows& rows : other) rows.fill(ranks, random);
    ranks.for_each([&](ExchangeRank& rank) {
      const auto launch = [&] { graphs[static_cast<size_t>(rank.number())].launch(*rank.stream); };
      const auto call = [&](const RankRows& rows) {
        sum_over_ranks(rank.context(), *rank.exchange, rows.of(rank));
      };
      launch();
      call(other[0]);
      if (round % 2 == 0) call(other[1]);
      for (int i = 0; i < 5; ++i) launch();
    });
    ranks.finish();
    for (const RankRows& rows : captured) rows.expect_sums(ranks);
    other[0].expect_sums(ranks);
    if (round % 2 == 0) other[1].expect_sums(ranks);
    if (HasFatalFailure()) return;
  }
}

// With PDL each kernel reads what the one before wrote, and writes what the next one reads.
TEST_P(RankSum, WaitsForTheKernelBefore) {
  constexpr int kSteps = 4;
  constexpr int64_t M = 2, K = 8192;
  ExchangeRanks ranks = make_ranks();
  std::vector<std::unique_ptr<DeviceMatrix>> blocks, hiddens;
  std::vector<float> ones(static_cast<size_t>(M * K));
  for (size_t i = 0; i < ones.size(); ++i) ones[i] = static_cast<float>(i % 3) - 1;
  for (int round = 0; round < 10; ++round) {
    blocks.clear(), hiddens.clear();
    ranks.for_each([&](ExchangeRank&) {
      blocks.push_back(std::make_unique<DeviceMatrix>(DType::kF16, M, K));
      hiddens.push_back(std::make_unique<DeviceMatrix>(DType::kF32, M, K));
      blocks.back()->set(ones);
      hiddens.back()->set(ones);
    });
    ranks.for_each([&](ExchangeRank& rank) {
      const auto r = static_cast<size_t>(rank.number());
      for (int step = 0; step < kSteps; ++step) {
        sum_over_ranks(rank.context(), *rank.exchange, blocks[r]->matrix());
        add_rows(rank.context(), blocks[r]->matrix(), hiddens[r]->matrix());
      }
    });
    ranks.finish();
    float factor = 1, power = 1;
    for (int step = 0; step < kSteps; ++step) factor += power *= static_cast<float>(ranks.size());
    std::vector<float> expected = ones;
    for (float& value : expected) value *= factor;
    ranks.for_each([&](ExchangeRank& rank) {
      const DeviceMatrix& hidden = *hiddens[static_cast<size_t>(rank.number())];
      EXPECT_TRUE(hidden.get(*rank.stream) == expected) << "rank " << rank.number();
    });
  }
}

TEST_P(RankSum, SaysWhatFits) {
  ExchangeRanks ranks = make_ranks({.rows_bytes_max = 4096});
  const PeerExchange& exchange = *ranks[0].exchange;
  std::byte* const data = reinterpret_cast<std::byte*>(uintptr_t{4096});
  const auto fits = [&](DType dtype, int64_t M, int64_t K, int64_t stride, int64_t offset = 0) {
    return exchange.fits(ConstMatrix{data + offset, dtype, M, K, stride});
  };
  EXPECT_TRUE(fits(DType::kF16, 1, 2048, 2048));
  EXPECT_TRUE(fits(DType::kBf16, 2, 1024, 4096));
  EXPECT_TRUE(fits(DType::kBf16, 0, 1 << 20, 1 << 20));
  EXPECT_FALSE(fits(DType::kF16, 1, 2056, 2056)) << "more bytes";
  EXPECT_FALSE(fits(DType::kF32, 1, 8, 8));
  EXPECT_FALSE(fits(DType::kF16, 1, 12, 16)) << "columns";
  EXPECT_FALSE(fits(DType::kF16, 2, 16, 20)) << "stride";
  EXPECT_FALSE(fits(DType::kF16, 1, 16, 16, 8)) << "alignment";
}

TEST_P(RankSum, ARankThatDoesNotComeIsAnErrorAndFreesTheStreams) {
  if (ordinals_.size() < 2) GTEST_SKIP() << "one rank waits for nobody";
  ExchangeRanks ranks = make_ranks({.timeout = std::chrono::milliseconds(300)});
  std::mt19937 random(5);
  RankRows rows(ranks, DType::kF16, 3, 4096, 0);
  rows.fill(ranks, random);
  const int last = static_cast<int>(ranks.size()) - 1;
  ranks.for_each([&](ExchangeRank& rank) {
    if (rank.number() == last) return;
    for (int i = 0; i < 20; ++i) {
      sum_over_ranks(rank.context(), *rank.exchange, rows.of(rank));
    }
  });
  ranks.for_each([&](ExchangeRank& rank) { rank.stream->synchronize(); });
  const std::string error = error_of([&] { ranks[0].exchange->check(); });
  EXPECT_THAT(error, AllOf(HasSubstr("sum over ranks on rank 0 of "),
                           HasSubstr(str("rank ", last, " did not take part within 0.3 s"))));
  // The one that comes too late ends too, and all ranks have the same error.
  ranks.for_each([&](ExchangeRank& rank) {
    if (rank.number() == last) {
      for (int i = 0; i < 3; ++i) {
        sum_over_ranks(rank.context(), *rank.exchange, rows.of(rank));
      }
    }
    rank.stream->synchronize();
    EXPECT_EQ(error_of([&] { rank.exchange->check(); }), error) << "rank " << rank.number();
  });
}

TEST_P(RankSum, AnAbortEndsCallsThatWait) {
  if (ordinals_.size() < 2) GTEST_SKIP() << "one rank waits for nobody";
  ExchangeRanks ranks = make_ranks({.timeout = std::chrono::hours(1)});
  std::mt19937 random(6);
  RankRows rows(ranks, DType::kBf16, 1, 8, 0);
  rows.fill(ranks, random);
  ExchangeRank& first = ranks[0];
  check_cuda(cudaSetDevice(first.device.ordinal), "choice of a GPU");
  sum_over_ranks(first.context(), *first.exchange, rows.of(first));
  ranks[1].host->abort_all("rank 1: no memory");
  EXPECT_EQ(error_of([&] { first.exchange->check(); }), "rank 1: no memory");
  first.stream->synchronize();
  EXPECT_EQ(error_of([&] { first.exchange->check(); }), "rank 1: no memory");
}

TEST(PeerExchange, SaysWhyRanksCannotHaveOne) {
  const CudaDeviceInfo device = use_cuda_device(0);
  auto hosts = make_thread_communicators(kExchangeRanksMax + 1);
  std::vector<std::thread> threads;
  for (auto& host : hosts) {
    threads.emplace_back([&] {
      use_cuda_device(0);
      EXPECT_EQ(why_no_peer_exchange(*host, device), "9 ranks, more than 8");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace halley::cuda
