#include "halley/models/base/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

[[noreturn]] void fail(const RopeContext& context, const std::string& field,
                       const std::string& problem) {
  throw InputError(str(context.where, ": rotary field '", field, "': ", problem,
                       ". Correct rope_parameters (or rope_scaling)."));
}

/// base^(-2i/dim) for i in [0, dim/2).
std::vector<double> plain_frequencies(double base, int64_t dim) {
  std::vector<double> frequencies(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(dim);
    frequencies[i] = 1.0 / std::pow(base, exponent);
  }
  return frequencies;
}

double original_length(const RopeConfig& rope, const RopeContext& context) {
  return static_cast<double>(
      rope.original_max_position_embeddings.value_or(context.max_position_embeddings));
}

/// NTK-aware scaling: a larger base, so that max_length fits the trained range.
double dynamic_base(const RopeConfig& rope, const RopeContext& context, int64_t dim) {
  if (dim <= 2)
    fail(context, "rope_type", str("dynamic needs more than 2 rotary columns, got ", dim));
  const auto trained = static_cast<double>(context.max_position_embeddings);
  const double length = std::max(trained, static_cast<double>(context.max_length));
  const double growth = rope.factor * length / trained - (rope.factor - 1);
  const auto columns = static_cast<double>(dim);
  return rope.theta * std::pow(growth, columns / (columns - 2));
}

/// Llama 3.1: long wavelengths are divided by `factor`, short ones kept, between them a blend.
void scale_llama3(const RopeConfig& rope, const RopeContext& context,
                  std::vector<double>& frequencies) {
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    fail(context, "high_freq_factor",
         str("expected more than low_freq_factor ", rope.low_freq_factor, ", got ",
             rope.high_freq_factor));
  }
  const double trained = original_length(rope, context);
  for (double& frequency : frequencies) {
    const double wavelength = kTwoPi / frequency;
    if (wavelength > trained / rope.low_freq_factor) {
      frequency /= rope.factor;
    } else if (wavelength >= trained / rope.high_freq_factor) {
      const double smooth = (trained / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
}

/// The column whose wave turns `num_rotations` times within the trained length (YaRN, section 3.2).
double yarn_column(double num_rotations, double dim, double base, double trained) {
  return dim * std::log(trained / (num_rotations * kTwoPi)) / (2 * std::log(base));
}

void scale_yarn(const RopeConfig& rope, const RopeContext& context, int64_t dim,
                std::vector<double>& frequencies) {
  if (rope.theta <= 1)
    fail(context, "rope_theta", str("yarn: expected more than 1, got ", rope.theta));
  const double trained = original_length(rope, context);
  const auto columns = static_cast<double>(dim);
  double low = yarn_column(rope.beta_fast, columns, rope.theta, trained);
  double high = yarn_column(rope.beta_slow, columns, rope.theta, trained);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, columns - 1);
  if (low == high) high += 0.001;  // as the reference: a step instead of a division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const double mscale = rope.mscale.value_or(0), mscale_all_dim = rope.mscale_all_dim.value_or(0);
  if (mscale != 0 && mscale_all_dim != 0) {
    return yarn_magnitude(rope.factor, mscale) / yarn_magnitude(rope.factor, mscale_all_dim);
  }
  return yarn_magnitude(rope.factor, 1);
}

void scale_longrope(const RopeConfig& rope, const RopeContext& context,
                    std::vector<double>& frequencies) {
  const bool is_long = static_cast<double>(context.max_length) > original_length(rope, context);
  const std::vector<double>& factors = is_long ? rope.long_factor : rope.short_factor;
  if (factors.size() != frequencies.size()) {
    fail(context, is_long ? "long_factor" : "short_factor",
         str("expected ", frequencies.size(), " numbers (half the rotary columns), got ",
             factors.size()));
  }
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

double longrope_attention_factor(const RopeConfig& rope, const RopeContext& context) {
  if (rope.attention_factor) return *rope.attention_factor;
  const double trained = original_length(rope, context);
  if (rope.factor <= 1) return 1;
  return std::sqrt(1 + std::log(rope.factor) / std::log(trained));
}

/// Rotary columns of a head.
int64_t rotary_columns(const RopeConfig& rope, const RopeContext& context) {
  const double columns = static_cast<double>(context.head_dim) * rope.partial_rotary_factor;
  const auto dim = static_cast<int64_t>(columns);
  if (!(columns >= 2) || dim > context.head_dim || dim % 2 != 0) {
    fail(context, "partial_rotary_factor",
         str("expected an even number of rotary columns, 2 to head_dim ", context.head_dim,
             ", got ", columns));
  }
  return dim;
}

RopeSpec rounded(const std::vector<double>& frequencies, double attention_factor,
                 const RopeContext& context) {
  RopeSpec spec;
  spec.attention_factor = static_cast<float>(attention_factor);
  for (const double frequency : frequencies) {
    spec.inv_freq.push_back(static_cast<float>(frequency));
    if (std::isfinite(spec.inv_freq.back()) && spec.inv_freq.back() > 0) continue;
    fail(context, "rope_theta",
         str("expected values that give positive finite frequencies, got ", frequency));
  }
  if (!std::isfinite(spec.attention_factor) || spec.attention_factor <= 0) {
    fail(context, "attention_factor", str("expected a positive number, got ", attention_factor));
  }
  return spec;
}

}  // namespace

RopeSpec make_rope(const RopeConfig& rope, const RopeContext& context) {
  const int64_t dim = rotary_columns(rope, context);
  const bool is_longrope = rope.type == "longrope" || rope.type == "su";
  double base = rope.theta, attention_factor = 1;
  if (rope.type == "dynamic") base = dynamic_base(rope, context, dim);
  std::vector<double> frequencies = plain_frequencies(base, dim);
  if (rope.type == "linear") {
    for (double& frequency : frequencies) frequency /= rope.factor;
  } else if (rope.type == "llama3") {
    scale_llama3(rope, context, frequencies);
  } else if (rope.type == "yarn") {
    scale_yarn(rope, context, dim, frequencies);
    attention_factor = yarn_attention_factor(rope);
  } else if (is_longrope) {
    scale_longrope(rope, context, frequencies);
    attention_factor = longrope_attention_factor(rope, context);
  } else if (rope.type != "default" && rope.type != "dynamic") {
    throw UnsupportedError(str(context.where,
                               ": rope_type: expected one of default, linear, dynamic, "
                               "yarn, longrope, llama3, got ",
                               quote(rope.type), ". This rotary embedding is not supported."));
  }
  return rounded(frequencies, attention_factor, context);
}

}  // namespace halley
