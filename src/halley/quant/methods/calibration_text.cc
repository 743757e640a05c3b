#include "halley/quant/methods/calibration_text.h"

#include <cstddef>
#include <vector>

#include "halley/base/file.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace halley {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;

}  // namespace

CalibrationTokens read_calibration_text(const std::filesystem::path& model_dir,
                                        const std::string& text, int64_t num_samples,
                                        int64_t sample_length) {
  const std::vector<int32_t> ids =
      load_tokenizer(model_dir)->encode(read_text_file(text, kTextBytesMax), false);
  return cut_calibration_tokens(ids, num_samples, sample_length);
}

}  // namespace halley
