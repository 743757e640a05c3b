// Reads a calibration text as tokens of a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "halley/quant/methods/calibration_run.h"

namespace halley {

/// `num_samples` sequences of `sample_length` tokens of the UTF-8 file `text`, encoded by the
/// model's tokenizer without special tokens. Throws as load_tokenizer(), read_text_file() and
/// cut_calibration_tokens().
CalibrationTokens read_calibration_text(const std::filesystem::path& model_dir,
                                        const std::string& text, int64_t num_samples,
                                        int64_t sample_length);

}  // namespace halley
