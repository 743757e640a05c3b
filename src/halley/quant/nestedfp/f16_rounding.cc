#include "halley/quant/nestedfp/f16_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"

namespace halley {
namespace {

/// Elements of a task: long enough to hide taking it.
constexpr int64_t kTaskElements = int64_t{1} << 16;

template <typename Element>
Element load(const std::byte* data, int64_t i) {
  Element element;  // data need not be aligned
  std::memcpy(&element, data + static_cast<size_t>(i) * sizeof(Element), sizeof(Element));
  return element;
}

float to_float(uint16_t bits, DType dtype) {
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void count_beyond(uint16_t bits, int64_t i, F16Rounding& counts) {
  if (counts.num_beyond++ == 0) counts.first_beyond = i;
  if ((bits & 0x7FFFu) < 0x7C00u) return;
  if (counts.num_overflows++ == 0) counts.first_overflow = i;
}

void count_change(float value, float rounded, F16Rounding& counts) {
  ++counts.num_changed;
  if (rounded == 0) ++counts.num_zeroed;
  const double error = std::fabs(double{rounded} - double{value});
  counts.worst_absolute_error = std::max(counts.worst_absolute_error, error);
  counts.worst_relative_error =
      std::max(counts.worst_relative_error, error / std::fabs(double{value}));
}

/// Elements [begin, end); indices count from `begin`.
template <typename Load>
F16Rounding round_elements(int64_t begin, int64_t end, uint16_t* bits, const Load& value_of) {
  F16Rounding counts;
  counts.num_values = end - begin;
  for (int64_t i = begin; i < end; ++i) {
    const float value = value_of(i);
    if (!std::isfinite(value)) {
      if (counts.first_not_finite < 0) counts.first_not_finite = i - begin;
      continue;
    }
    const uint16_t half = f32_to_f16(value);
    if (bits != nullptr) bits[i] = half;
    counts.min = std::min(counts.min, value);
    counts.max = std::max(counts.max, value);
    if (!can_split_f16(half)) count_beyond(half, i - begin, counts);
    const float rounded = f16_to_f32(half);
    if (rounded != value && std::isfinite(rounded)) count_change(value, rounded, counts);
  }
  return counts;
}

F16Rounding round_range(const TensorView& view, int64_t begin, int64_t end, uint16_t* bits) {
  if (view.dtype == DType::kF32) {
    return round_elements(begin, end, bits, [&](int64_t i) { return load<float>(view.data, i); });
  }
  const DType dtype = view.dtype;
  return round_elements(begin, end, bits,
                        [&](int64_t i) { return to_float(load<uint16_t>(view.data, i), dtype); });
}

int64_t shifted(int64_t index, int64_t by) { return index < 0 ? index : index + by; }

}  // namespace

void F16Rounding::append(const F16Rounding& next) {
  if (first_beyond < 0) first_beyond = shifted(next.first_beyond, num_values);
  if (first_overflow < 0) first_overflow = shifted(next.first_overflow, num_values);
  if (first_not_finite < 0) first_not_finite = shifted(next.first_not_finite, num_values);
  num_values += next.num_values;
  num_changed += next.num_changed;
  num_zeroed += next.num_zeroed;
  num_beyond += next.num_beyond;
  num_overflows += next.num_overflows;
  worst_relative_error = std::max(worst_relative_error, next.worst_relative_error);
  worst_absolute_error = std::max(worst_absolute_error, next.worst_absolute_error);
  min = std::min(min, next.min);
  max = std::max(max, next.max);
}

F16Rounding round_to_f16(ExecContext& context, const std::string& name, const TensorView& view,
                         std::span<uint16_t> bits) {
  if (view.dtype != DType::kF16 && view.dtype != DType::kBf16 && view.dtype != DType::kF32) {
    throw UnsupportedError(str("tensor ", quote(name), ": expected type f16, bf16 or f32, got ",
                               view.dtype, ". Start from an unquantized checkpoint."));
  }
  const int64_t count = view.num_elements();
  HALLEY_CHECK(bits.empty() || static_cast<int64_t>(bits.size()) == count, bits.size(), count);
  uint16_t* const out = bits.empty() ? nullptr : bits.data();
  std::vector<F16Rounding> of_tasks(static_cast<size_t>(ceil_div(count, kTaskElements)));
  context.pool.run(static_cast<int64_t>(of_tasks.size()), [&](int64_t task, int /*thread*/) {
    const int64_t begin = task * kTaskElements;
    of_tasks[static_cast<size_t>(task)] =
        round_range(view, begin, std::min(count, begin + kTaskElements), out);
  });
  F16Rounding counts;
  for (const F16Rounding& of_task : of_tasks) counts.append(of_task);
  if (counts.first_not_finite >= 0) {
    throw CheckpointError(str("tensor ", quote(name), ": expected finite values, got ", view.dtype,
                              " ", value_at(view, counts.first_not_finite), " at ",
                              index_in_words(view.shape, counts.first_not_finite),
                              ". The checkpoint is damaged: fetch it again."));
  }
  return counts;
}

OrderedJson to_json(const F16Rounding& rounding) {
  return {{"num_values", rounding.num_values},
          {"num_changed", rounding.num_changed},
          {"num_zeroed", rounding.num_zeroed},
          {"num_overflows", rounding.num_overflows},
          {"worst_relative_error", rounding.worst_relative_error},
          {"worst_absolute_error", rounding.worst_absolute_error}};
}

F16Rounding f16_rounding_of(const Json& json) {
  F16Rounding rounding;
  rounding.num_values = json.at("num_values");
  rounding.num_changed = json.at("num_changed");
  rounding.num_zeroed = json.at("num_zeroed");
  rounding.num_overflows = json.at("num_overflows");
  rounding.worst_relative_error = json.at("worst_relative_error");
  rounding.worst_absolute_error = json.at("worst_absolute_error");
  return rounding;
}

std::string index_in_words(const Shape& shape, int64_t i) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; i /= shape[d]) index[d] = i % shape[d];
  return str(index);
}

float value_at(const TensorView& view, int64_t i) {
  return view.dtype == DType::kF32 ? load<float>(view.data, i)
                                   : to_float(load<uint16_t>(view.data, i), view.dtype);
}

}  // namespace halley
