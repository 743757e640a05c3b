#include "halley/core/tensor.h"

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley {

std::optional<int64_t> num_elements_of(std::span<const int64_t> shape) {
  int64_t num_elements = 1;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    const auto total = checked_mul(num_elements, size);
    if (!total) return std::nullopt;
    num_elements = *total;
  }
  return num_elements;
}

int64_t TensorView::num_elements() const {
  const auto num = num_elements_of(shape);
  HALLEY_CHECK(num.has_value(), shape);
  return *num;
}

size_t TensorView::num_bytes() const {
  return static_cast<size_t>(num_elements()) * static_cast<size_t>(bits_of(dtype)) / 8;
}

TensorView TensorView::rows(int64_t begin, int64_t end) const {
  HALLEY_CHECK(!shape.empty() && 0 <= begin && begin <= end && end <= shape[0], begin, end, shape);
  const size_t row_bytes = shape[0] == 0 ? 0 : num_bytes() / static_cast<size_t>(shape[0]);
  TensorView view = *this;
  view.data = data + static_cast<size_t>(begin) * row_bytes;
  view.shape[0] = end - begin;
  return view;
}

}  // namespace halley
