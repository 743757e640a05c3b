// The fused sum, norm and quantization agree bit for bit with sum_over_ranks() and add_norm_rows().
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "halley/base/str.h"
#include "halley/cuda/fused/quantized_norm.h"
#include "halley/cuda/fused/testing/quantized_result.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/rank_sum/rank_sum.h"
#include "halley/cuda/rank_sum/testing/exchange_ranks.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"

namespace halley::cuda {
namespace {

constexpr DType kTypes[] = {DType::kF16, DType::kBf16};

bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Shape {
  int64_t M, K;
};

/// One rank's operands, twice: for the fused call, and for those that it replaces.
class NormOperands {
 public:
  NormOperands(int rank, DType dtype, Shape shape, int64_t gap)
      : block(dtype, shape.M, shape.K, gap),
        hidden(DType::kF32, shape.M, shape.K, gap),
        y(dtype, shape.M, shape.K, gap),
        same_block(dtype, shape.M, shape.K, gap),
        same_hidden(DType::kF32, shape.M, shape.K, gap),
        same_y(dtype, shape.M, shape.K, gap),
        weight_(weights(shape.K)),
        bias_(std::vector<float>(static_cast<size_t>(shape.K), 0.25f)) {
    block.fill_normal(static_cast<uint32_t>(17 + rank));
    same_block.fill_normal(static_cast<uint32_t>(17 + rank));
    hidden.fill_normal(3, 4.0f);  // ranks have the same residual stream
    same_hidden.fill_normal(3, 4.0f);
  }

  NormParams params(bool is_layer_norm) const {
    return {.is_layer_norm = is_layer_norm,
            .weight = weight_.data(),
            .bias = is_layer_norm ? bias_.data() : nullptr,
            .weight_offset = is_layer_norm ? 0.0f : 1.0f,
            .epsilon = 1e-5f};
  }

  void expect_same(const ExchangeRank& rank, const std::string& what) const {
    const CudaStream& stream = *rank.stream;
    EXPECT_TRUE(have_same_bits(hidden.get(stream), same_hidden.get(stream))) << what << ", hidden";
    EXPECT_TRUE(have_same_bits(y.get(stream), same_y.get(stream))) << what << ", y";
    for (const DeviceMatrix* matrix : {&block, &hidden, &y}) {
      EXPECT_TRUE(matrix->guards_are_intact(stream)) << what;
    }
  }

  DeviceMatrix block, hidden, y, same_block, same_hidden, same_y;

 private:
  static std::vector<float> weights(int64_t K) {
    std::vector<float> values(static_cast<size_t>(K));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f + static_cast<float>(i % 7) / 4;
    return values;
  }

  DeviceArray<float> weight_, bias_;
};

class SummedNorm : public ExchangeTest {
 protected:
  static std::vector<std::unique_ptr<NormOperands>> make_operands(ExchangeRanks& ranks, DType dtype,
                                                                  Shape shape, int64_t gap = 16) {
    std::vector<std::unique_ptr<NormOperands>> operands;
    ranks.for_each([&](ExchangeRank& rank) {
      operands.push_back(std::make_unique<NormOperands>(rank.number(), dtype, shape, gap));
    });
    return operands;
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, SummedNorm, kRankCases, ExchangeTest::name);

TEST_P(SummedNorm, EqualsTheSumThenTheNorm) {
  ExchangeRanks ranks = make_ranks();
  // One kernel and two, for reasons of M, of K and of the norm.
  for (const Shape shape : {Shape{1, 8},
                            {1, 4096},
                            {2, 8192},
                            {5, 1000},
                            {13, 4104},
                            {33, 8192},
                            {34, 4096},
                            {128, 8192},
                            {200, 2048},
                            {3, 8200}}) {
    for (const DType dtype : kTypes) {
      for (const bool is_layer_norm : {false, true}) {
        const int64_t gap = is_layer_norm ? 8 : 16;
        const auto operands = make_operands(ranks, dtype, shape, gap);
        const auto of = [&](const ExchangeRank& rank) -> const NormOperands& {
          return *operands[static_cast<size_t>(rank.number())];
        };
        ranks.for_each([&](ExchangeRank& rank) {
          const NormOperands& own = of(rank);
          sum_add_norm_rows(rank.context(), *rank.exchange, own.params(is_layer_norm),
                            own.block.matrix(), own.hidden.matrix(), own.y.matrix());
          sum_over_ranks(rank.context(), *rank.exchange, own.same_block.matrix());
          add_norm_rows(rank.context(), own.params(is_layer_norm), own.same_block.matrix(),
                        own.same_hidden.matrix(), own.same_y.matrix());
        });
        ranks.finish();
        ranks.for_each([&](ExchangeRank& rank) {
          const std::string what =
              str("rank ", rank.number(), " of ", ranks.size(), ", ", shape.M, " x ", shape.K, " ",
                  name_of(dtype), is_layer_norm ? ", LayerNorm" : "");
          of(rank).expect_same(rank, what);
          EXPECT_TRUE(have_same_bits(of(rank).hidden.get(*rank.stream),
                                     of(ranks[0]).hidden.get(*ranks[0].stream)))
              << what << ", other bits than rank 0";
        });
      }
    }
  }
}

TEST_P(SummedNorm, EqualsTheSumThenTheQuantizedNorm) {
  ExchangeRanks ranks = make_ranks();
  for (const Shape shape : {Shape{1, 8192}, {7, 4096}, {3, 1000}, {140, 2048}}) {
    for (const DType dtype : kTypes) {
      for (const QuantCase& quant : kQuantCases) {
        const auto operands = make_operands(ranks, dtype, shape);
        std::vector<std::unique_ptr<QuantizedResult>> got, right;
        ranks.for_each([&](ExchangeRank&) {
          for (auto* results : {&got, &right}) {
            results->push_back(
                std::make_unique<QuantizedResult>(quant, dtype, shape.M, shape.K, 8));
          }
        });
        ranks.for_each([&](ExchangeRank& rank) {
          const auto r = static_cast<size_t>(rank.number());
          const NormOperands& own = *operands[r];
          sum_add_norm_rows(rank.context(), *rank.exchange, own.params(false), own.block.matrix(),
                            own.hidden.matrix(), got[r]->to());
          sum_over_ranks(rank.context(), *rank.exchange, own.same_block.matrix());
          add_norm_rows(rank.context(), own.params(false), own.same_block.matrix(),
                        own.same_hidden.matrix(), right[r]->to());
        });
        ranks.finish();
        ranks.for_each([&](ExchangeRank& rank) {
          const auto r = static_cast<size_t>(rank.number());
          const std::string what = str("rank ", r, " of ", ranks.size(), ", ", shape.M, " x ",
                                       shape.K, " ", name_of(dtype), ", ", quant.kind);
          got[r]->expect_same(*right[r], *rank.stream, what);
          operands[r]->expect_same(rank, what);
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Each call reads what the one before wrote. The graph has an odd number of calls.
TEST_P(SummedNorm, ChainsInGraphsEqualCallsOneByOne) {
  constexpr size_t kCalls = 3, kLaunches = 7;
  ExchangeRanks ranks = make_ranks();
  for (const Shape shape : {Shape{1, 8192}, {13, 4096}}) {
    const auto operands = make_operands(ranks, DType::kBf16, shape);
    std::vector<std::unique_ptr<DeviceMatrix>> more, same_more;
    std::vector<CudaGraph> graphs;
    ranks.for_each([&](ExchangeRank& rank) {
      for (auto* matrices : {&more, &same_more}) {
        matrices->push_back(std::make_unique<DeviceMatrix>(DType::kBf16, shape.M, shape.K));
      }
      const auto r = static_cast<size_t>(rank.number());
      const NormOperands& own = *operands[r];
      const DeviceMatrix* const rows[kCalls] = {&own.block, &own.y, more[r].get()};
      graphs.push_back(CudaGraph::capture(*rank.stream, [&] {
        for (size_t i = 0; i < kCalls; ++i) {
          sum_add_norm_rows(rank.context(), *rank.exchange, own.params(false), rows[i]->matrix(),
                            own.hidden.matrix(), rows[(i + 1) % kCalls]->matrix());
        }
      }));
    });
    ranks.for_each([&](ExchangeRank& rank) {
      const auto r = static_cast<size_t>(rank.number());
      for (size_t launch = 0; launch < kLaunches; ++launch) graphs[r].launch(*rank.stream);
    });
    ranks.for_each([&](ExchangeRank& rank) {
      const auto r = static_cast<size_t>(rank.number());
      const NormOperands& own = *operands[r];
      const DeviceMatrix* const rows[kCalls] = {&own.same_block, &own.same_y, same_more[r].get()};
      for (size_t i = 0; i < kCalls * kLaunches; ++i) {
        const Matrix block = rows[i % kCalls]->matrix();
        sum_over_ranks(rank.context(), *rank.exchange, block);
        add_norm_rows(rank.context(), own.params(false), block, own.same_hidden.matrix(),
                      rows[(i + 1) % kCalls]->matrix());
      }
    });
    ranks.finish();
    ranks.for_each([&](ExchangeRank& rank) {
      const auto r = static_cast<size_t>(rank.number());
      const std::string what = str("rank ", r, ", ", shape.M, " x ", shape.K);
      EXPECT_TRUE(have_same_bits(operands[r]->hidden.get(*rank.stream),
                                 operands[r]->same_hidden.get(*rank.stream)))
          << what;
      // The last call of each reads the third and writes the first.
      EXPECT_TRUE(have_same_bits(operands[r]->block.get(*rank.stream),
                                 operands[r]->same_block.get(*rank.stream)))
          << what;
    });
  }
}

}  // namespace
}  // namespace halley::cuda
