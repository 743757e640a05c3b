// Any bytes as a table of measured ratios: only InputError may leave, and a table that is read has
// finite ratios above zero for every size of a step.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/simulation/step_ratios.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const halley::RatioTable table = halley::RatioTable::parse(text, "input");
    for (int64_t num_rows = 1; num_rows <= int64_t{1} << 21; num_rows = 3 * num_rows + 1) {
      const double ratio = table.of("f16").at(num_rows);
      HALLEY_CHECK(std::isfinite(ratio) && ratio > 0, num_rows, ratio);
    }
  } catch (const halley::InputError&) {
  }
  return 0;
}
