#include "halley/quant/methods/block_clip.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "halley/kernels/linalg/linalg.h"

namespace halley {
namespace {

// Exponents of the given ratios: 0 would be no clipping, 1 the given ones; 1.2 clips a little more.
constexpr std::array<float, 3> kPowers = {0.4f, 0.7f, 1.2f};
constexpr std::array<float, 2> kUniformRatios = {1.0f, 0.95f};

/// The candidates. `clip` itself comes first: where nothing is better, it stays.
std::vector<std::vector<float>> variants_of(std::span<const float> clip) {
  std::vector<std::vector<float>> variants = {{clip.begin(), clip.end()}};
  for (const float power : kPowers) {
    std::vector<float>& variant = variants.emplace_back(clip.begin(), clip.end());
    for (float& ratio : variant) ratio = std::pow(ratio, power);
  }
  for (const float ratio : kUniformRatios) variants.emplace_back(clip.size(), ratio);
  return variants;
}

/// Weighs the heads' errors by their effect at the output: w_o^T w_o of each head's inputs of o.
class HeadErrors {
 public:
  HeadErrors(ExecContext& context, ConstMatrix w_o, int64_t num_heads)
      : context_(context), width_(w_o.num_cols / num_heads) {
    for (int64_t h = 0; h < num_heads; ++h) {
      std::vector<float>& gram = grams_.emplace_back(static_cast<size_t>(width_ * width_), 0.0f);
      add_gram(context, w_o.cols(h * width_, (h + 1) * width_),
               f32_matrix(gram.data(), width_, width_));
    }
  }

  /// Squared errors at the output, for each head alone. Shapes expected, got [M, num_heads * width]
  std::vector<double> measure(std::span<const float> expected, std::span<const float> got) const {
    const auto num_cols = width_ * static_cast<int64_t>(grams_.size());
    const int64_t M = static_cast<int64_t>(expected.size()) / num_cols;
    std::vector<float> differences(expected.size());
    std::transform(got.begin(), got.end(), expected.begin(), differences.begin(), std::minus<>());
    const ConstMatrix all = f32_matrix(std::as_const(differences).data(), M, num_cols);
    std::vector<float> weighted(static_cast<size_t>(M * width_));
    std::vector<double> errors;
    for (size_t h = 0; h < grams_.size(); ++h) {
      const int64_t begin = static_cast<int64_t>(h) * width_;
      const ConstMatrix of_head = all.cols(begin, begin + width_);
      multiply_transposed(context_, of_head, f32_matrix(grams_[h].data(), width_, width_),
                          f32_matrix(weighted.data(), M, width_));
      double& error = errors.emplace_back(0.0);
      for (int64_t m = 0; m < M; ++m) {
        for (int64_t d = 0; d < width_; ++d) {
          error += double{of_head.row<float>(m)[d]} *
                   double{weighted[static_cast<size_t>(m * width_ + d)]};
        }
      }
    }
    return errors;
  }

 private:
  ExecContext& context_;
  int64_t width_;
  std::vector<std::vector<float>> grams_;
};

}  // namespace

/// Records the inputs and outputs of the block's last layer.
class BlockClip::Outputs final : public LayerObserver {
 public:
  explicit Outputs(const LinearSpec& o) : o_(o) {}

  void on_linear(const LinearSpec& spec, const LinearOp&, ConstMatrix x, ConstMatrix y) override {
    if (&spec != &o_) return;
    append(x, attended);
    append(y, out);
  }
  void on_keys_values(ConstMatrix, ConstMatrix) override {}

  std::vector<float> attended, out;

 private:
  static void append(ConstMatrix rows, std::vector<float>& all) {
    for (int64_t m = 0; m < rows.num_rows; ++m) {
      all.insert(all.end(), rows.row<float>(m), rows.row<float>(m) + rows.num_cols);
    }
  }

  const LinearSpec& o_;
};

std::string why_not_clip_by_block(const LayerSpec& spec) {
  const std::vector<LinearSpec::Part>& parts = spec.qkv.parts;
  if (parts.size() == 3 && parts[0].name != parts[1].name) return "";
  return "queries and keys are stored as one tensor, " + parts[0].name;
}

BlockClip::BlockClip(LayerInWork& layer, ObservedRun run) : layer_(layer), run_(std::move(run)) {
  Outputs outputs(layer.spec().o);
  run_(layer.tensors, outputs);
  attended_ = std::move(outputs.attended);
  expected_ = std::move(outputs.out);
}

void BlockClip::choose(const std::string& stored_name, const Quantize& quantize,
                       std::span<float> clip) {
  const std::vector<LinearSpec::Part>& parts = layer_.spec().qkv.parts;
  const bool is_query = stored_name == parts[0].name;
  if (!is_query && stored_name != parts[1].name) return;
  const auto num_heads =
      static_cast<size_t>(is_query ? layer_.config.num_heads : layer_.config.num_kv_heads);
  const HeadErrors head_errors(layer_.context,
                               weight_matrix(layer_.tensors, layer_.spec().o.parts[0].name),
                               static_cast<int64_t>(num_heads));
  const size_t head_size = clip.size() / num_heads;
  std::vector<float> mixed(clip.begin(), clip.end());
  std::vector<double> least;
  Errors errors;
  for (const std::vector<float>& variant : variants_of(clip)) {
    Outputs outputs(layer_.spec().o);
    run_with(stored_name, quantize(variant), outputs);
    const std::vector<double> of_heads = head_errors.measure(attended_, outputs.attended);
    if (least.empty()) {
      errors.before = squared_distance(expected_, outputs.out);
      least = of_heads;
    }
    for (size_t h = 0; h < num_heads; ++h) {
      if (!(of_heads[h] < least[h])) continue;
      least[h] = of_heads[h];
      std::copy_n(variant.data() + h * head_size, head_size, mixed.data() + h * head_size);
    }
  }
  Outputs outputs(layer_.spec().o);
  run_with(stored_name, quantize(mixed), outputs);
  errors.after = squared_distance(expected_, outputs.out);
  if (errors.after < errors.before) {
    std::copy(mixed.begin(), mixed.end(), clip.begin());
  } else {
    errors.after = errors.before;
  }
  errors_[stored_name] = errors;
}

void BlockClip::run_with(const std::string& stored_name, const QuantizedWeight& quantized,
                         Outputs& outputs) {
  const std::span<float> values = layer_.tensors.f32(stored_name + ".weight");
  const std::vector<float> exact(values.begin(), values.end());
  const auto K = static_cast<size_t>(quantized.K);
  for (int64_t n = 0; n < quantized.N; ++n) {
    dequantize_row(quantized, n, values.subspan(static_cast<size_t>(n) * K, K));
  }
  run_(layer_.tensors, outputs);
  std::copy(exact.begin(), exact.end(), values.begin());
}

}  // namespace halley
