#include "halley/checkpoint/safetensors/testing/overlay_source.h"

#include <cstring>

#include <gtest/gtest.h>

#include "halley/checkpoint/safetensors/tensor_store.h"

namespace halley {
namespace {

/// Counts what it is told to release.
class CountingStore : public TensorStore {
 public:
  using TensorStore::TensorStore;
  void release(const TensorInfo&) const override { ++num_released; }
  mutable int num_released = 0;
};

class Overlay : public testing::Test {
 protected:
  Overlay() {
    back_.set_f32("a", {1}, std::vector<float>{1});
    back_.set_f32("b", {2}, std::vector<float>{2, 3});
    back_.set_f32("d", {1}, std::vector<float>{4});
    front_.set_f32("b", {1}, std::vector<float>{5});
    front_.set_f32("c", {1}, std::vector<float>{6});
  }

  static float first_of(const TensorSource& source, const char* name) {
    float value = 0;
    std::memcpy(&value, source.view(*source.find(name)).data, sizeof(value));
    return value;
  }

  CountingStore front_, back_{"the model"};
};

TEST_F(Overlay, ListsBothSortedWithTheFrontsOnTop) {
  const OverlaySource overlay(front_, back_);
  std::string names;
  for (const TensorInfo& info : overlay.tensors()) names += info.name;
  EXPECT_EQ(names, "abcd");
  EXPECT_EQ(overlay.find("b")->shape, Shape{1});
  EXPECT_EQ(overlay.find("e"), nullptr);
  EXPECT_EQ(overlay.description(), "the model");
}

TEST_F(Overlay, ShowsTheDataOfTheSourceThatHasTheName) {
  const OverlaySource overlay(front_, back_);
  EXPECT_EQ(first_of(overlay, "a"), 1);
  EXPECT_EQ(first_of(overlay, "b"), 5);
  EXPECT_EQ(first_of(overlay, "c"), 6);
}

TEST_F(Overlay, HidesNamesOfTheBackOnly) {
  const OverlaySource overlay(front_, back_, {"a", "b"});
  EXPECT_EQ(overlay.find("a"), nullptr);
  EXPECT_EQ(first_of(overlay, "b"), 5);
}

TEST_F(Overlay, ReleasesWhereTheTensorIs) {
  const OverlaySource overlay(front_, back_);
  overlay.release(*overlay.find("b"));
  EXPECT_EQ(front_.num_released, 1);
  EXPECT_EQ(back_.num_released, 0);
  overlay.release(*overlay.find("d"));
  EXPECT_EQ(back_.num_released, 1);
}

}  // namespace
}  // namespace halley
