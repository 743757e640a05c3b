#include "halley/quant/base/scale_tensor.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

template <typename Element, typename Convert>
void convert_elements(const std::byte* from, int64_t count, float* out, int64_t stride,
                      const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, from + static_cast<size_t>(i) * sizeof(Element), sizeof(Element));
    out[i * stride] = convert(element);
  }
}

void check_numbers(const TensorSource& source, const std::string& layer, const TensorInfo& info,
                   const MatrixRange& range, bool is_zero_legal) {
  const TensorView view = source.view(info);
  const int64_t num_columns = info.shape.at(1);
  std::vector<float> row(static_cast<size_t>(range.column_end - range.column_begin));
  for (int64_t r = range.row_begin; r < range.row_end; ++r) {
    read_f32(view, r * num_columns + range.column_begin, static_cast<int64_t>(row.size()),
             row.data());
    for (size_t i = 0; i < row.size(); ++i) {
      if (std::isfinite(row[i]) && (is_zero_legal || row[i] != 0)) continue;
      throw CheckpointError(
          str(source.description(), ": layer ", quote(layer), ": tensor ", quote(info.name),
              ": expected finite ", is_zero_legal ? "numbers" : "scales other than zero", ", got ",
              row[i], " at [", r, ", ", range.column_begin + static_cast<int64_t>(i),
              "]. The file is damaged or its tool failed: get it again."));
    }
  }
}

}  // namespace

void read_f32(const TensorView& view, int64_t begin, int64_t count, float* out, int64_t stride) {
  const auto element_bytes = static_cast<size_t>(bits_of(view.dtype) / 8);
  const std::byte* from = view.data + static_cast<size_t>(begin) * element_bytes;
  switch (view.dtype) {
    case DType::kF32:
      convert_elements<float>(from, count, out, stride, [](float value) { return value; });
      break;
    case DType::kF16:
      convert_elements<uint16_t>(from, count, out, stride, f16_to_f32);
      break;
    case DType::kBf16:
      convert_elements<uint16_t>(from, count, out, stride, bf16_to_f32);
      break;
    default:
      HALLEY_CHECK(false, name_of(view.dtype));
  }
}

void check_scales(const TensorSource& source, const std::string& layer, const TensorInfo& info,
                  const MatrixRange& range) {
  check_numbers(source, layer, info, range, false);
}

void check_scaled_zeros(const TensorSource& source, const std::string& layer,
                        const TensorInfo& info, const MatrixRange& range) {
  check_numbers(source, layer, info, range, true);
}

}  // namespace halley
