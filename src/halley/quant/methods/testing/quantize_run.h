// Quantizes test models with random tokens, and runs what was written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "halley/core/precision.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/quant/methods/quantize_model.h"
#include "halley/quant/methods/recipe.h"

namespace halley {

/// A folder that is gone when the test ends.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// A job on testdata/models/`family`; without tokens where the changes have no calibration.
QuantizeJob job_for(const std::string& family, const std::filesystem::path& out,
                    const std::string& method, const RecipeChanges& changes = {});

QuantizeSummary quantize(const QuantizeJob& job, int num_threads = 2,
                         const std::function<void(const QuantizeProgress&)>& on_progress = {});

/// The text of the error that the job ends with.
std::string message_of(const QuantizeJob& job);

/// The logits of a model on random tokens.
std::vector<float> logits_of(const std::filesystem::path& dir, KvDType kv_dtype = KvDType::kF32,
                             Precision precision = Precision::kFull);

/// The same of other tensors, in full precision.
std::vector<float> logits_of(const HfConfig& config, const TensorSource& source);

/// Root mean square of the difference in standard deviations of the expected logits.
double distance(const std::vector<float>& expected, const std::vector<float>& got);

std::string bytes_of(const std::filesystem::path& path);

}  // namespace halley
