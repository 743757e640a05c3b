#include "halley/models/transform/layer_tensors.h"

#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/float16.h"

namespace halley {
namespace {

constexpr int64_t kK = 3;

/// Element i of the weight of `name` is first + i, its bias -(first + row).
void add_linear(const std::string& name, int64_t num_rows, float first, TensorStore& store) {
  std::vector<float> weight(static_cast<size_t>(num_rows * kK)), bias;
  std::iota(weight.begin(), weight.end(), first);
  for (int64_t i = 0; i < num_rows; ++i) bias.push_back(-first - static_cast<float>(i));
  store.set_f32(name + ".weight", {num_rows, kK}, weight);
  store.set_f32(name + ".bias", {num_rows}, bias);
}

/// Rows 1 and 2 of five stored ones, then both of another tensor, then row 4 of the first.
class LayerTensors : public testing::Test {
 protected:
  LayerTensors() {
    add_linear("fused", 5, 100, store_);
    add_linear("own", 2, 200, store_);
    spec_.parts = {
        {.name = "fused", .out_features = 2, .row_begin = 1, .stored_rows = 5},
        {.name = "own", .out_features = 2, .stored_rows = 2},
        {.name = "fused", .out_features = 1, .row_begin = 4, .stored_rows = 5},
    };
    spec_.in_features = kK;
    spec_.has_bias = true;
  }

  static std::vector<float> firsts(const std::vector<LinearRow>& rows) {
    std::vector<float> values;
    for (const LinearRow& row : rows) values.push_back(row.weights[0]);
    return values;
  }

  TensorStore store_;
  LinearSpec spec_;
};

TEST_F(LayerTensors, RowsAreWhereThePartsSay) {
  EXPECT_EQ(firsts(rows_of(store_, spec_, 0, 5)), (std::vector<float>{103, 106, 200, 203, 112}));
  const std::vector<LinearRow> middle = rows_of(store_, spec_, 1, 4);
  EXPECT_EQ(firsts(middle), (std::vector<float>{106, 200, 203}));
  EXPECT_EQ(*middle[0].bias, -102);
  EXPECT_EQ(*middle[2].bias, -201);
  EXPECT_TRUE(rows_of(store_, spec_, 2, 2).empty());
}

TEST_F(LayerTensors, RowsOfSeveralTensorsArePermuted) {
  const std::vector<int32_t> order = {4, 2, 1, 3, 0};
  permute_rows(rows_of(store_, spec_, 0, 5), order);
  const std::vector<LinearRow> rows = rows_of(store_, spec_, 0, 5);
  EXPECT_EQ(firsts(rows), (std::vector<float>{112, 200, 106, 203, 103}));
  EXPECT_EQ(*rows[0].bias, -104);
  EXPECT_EQ(*rows[2].bias, -102);
  EXPECT_EQ(store_.f32("fused.weight")[0], 100);  // not of this layer
}

TEST_F(LayerTensors, CopiesAStoredTensorOnceInF32) {
  TensorStore source = store_;
  std::vector<std::byte> halves(5 * sizeof(uint16_t));
  const uint16_t half = f32_to_f16(0.5f);
  for (size_t i = 0; i < 5; ++i) std::memcpy(halves.data() + i * sizeof(half), &half, sizeof(half));
  source.set("fused.bias", DType::kF16, {5}, halves);
  TensorStore copy;
  copy_linear(source, spec_, copy);
  ASSERT_EQ(copy.tensors().size(), size_t{4});
  EXPECT_EQ(copy.f32("fused.bias")[4], 0.5f);
  EXPECT_EQ(copy.f32("own.weight")[5], 205);
}

}  // namespace
}  // namespace halley
