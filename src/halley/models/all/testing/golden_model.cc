#include "halley/models/all/testing/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/file.h"
#include "halley/core/float16.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr int64_t kPageTokens = 16;
constexpr size_t kJsonBytesMax = 64 << 20;

uint64_t fnv1a(std::string_view text) {
  uint64_t state = 0xCBF29CE484222325u;
  for (const char byte : text) state = (state ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
  return state;
}

int64_t hash_number(uint64_t state) {  // in [-1024, 1023]
  state += 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  state ^= state >> 31;
  return static_cast<int64_t>(state >> 53) - 1024;
}

float hash_value(const TensorInfo& info, uint64_t seed, uint64_t index) {
  const int64_t number = hash_number(seed + index);
  const auto value = static_cast<float>(number);
  if (info.name.ends_with(".bias")) return value / 16384.0f;
  if (info.shape.size() > 1) return value / 4096.0f;
  return 1.0f + static_cast<float>(number - (number & 3)) / 4096.0f;
}

KvPageLayout page_layout(const ModelShape& shape, KvDType dtype) {
  return {.dtype = dtype,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .page_tokens = kPageTokens};
}

}  // namespace

TestCache::TestCache(const ModelShape& shape, KvDType dtype, int64_t num_sequences,
                     int64_t num_tokens_max) {
  make(shape, page_layout(shape, dtype), num_sequences, ceil_div(num_tokens_max, kPageTokens),
       [&](size_t num_bytes) {
         storage_.emplace_back(num_bytes);
         std::memset(storage_.back().data(), 0xFF, num_bytes);
         return storage_.back().data();
       });
}

TestCache::TestCache(const CausalLm& model, KvDType dtype, int64_t num_sequences,
                     int64_t num_tokens_max, const Fill& fill) {
  const ModelShape& shape = model.shape();
  make(shape, page_layout(shape, dtype), num_sequences, ceil_div(num_tokens_max, kPageTokens),
       [&](size_t num_bytes) {
         memory_.push_back(model.make_kv_memory(num_bytes));
         fill(memory_.back()->data(), num_bytes);
         return memory_.back()->data();
       });
}

void TestCache::make(const ModelShape& shape, const KvPageLayout& layout, int64_t num_sequences,
                     int64_t pages_each, const Allocate& allocate) {
  const int64_t num_pages = pages_each * num_sequences;
  for (int64_t i = 0; i < shape.num_layers; ++i) {
    // All bits set is a NaN in every type: what is read before it is written shows.
    layers_.push_back(
        {.layout = layout,
         .pages = allocate(layout.page_bytes() * static_cast<size_t>(num_pages)),
         .num_pages = num_pages,
         .scales = shape.kv_scales.empty() ? KvScales{} : shape.kv_scales[static_cast<size_t>(i)]});
  }
  for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
    std::vector<int32_t>& table = page_tables_.emplace_back();
    for (int64_t page = 0; page < pages_each; ++page) {
      table.push_back(static_cast<int32_t>(num_pages - 1 - (page * num_sequences + sequence)));
    }
  }
}

std::vector<float> forward_all_rows(CausalLm& model, const TestCache& cache,
                                    const std::vector<TestChunk>& chunks) {
  std::vector<int32_t> ids;
  std::vector<BatchSequence> sequences;
  std::vector<const Adapter*> adapters;
  for (const TestChunk& chunk : chunks) {
    sequences.push_back({.first_row = static_cast<int64_t>(ids.size()),
                         .num_new_tokens = static_cast<int64_t>(chunk.ids.size()),
                         .num_past_tokens = chunk.num_past_tokens,
                         .page_table = cache.page_table(chunk.sequence)});
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    adapters.push_back(chunk.adapter);
  }
  if (!model.takes_adapters()) adapters.clear();
  std::vector<int32_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  const int64_t V = model.shape().vocab_size;
  std::vector<float> logits(ids.size() * static_cast<size_t>(V), std::nanf(""));
  model.forward(
      {.token_ids = ids, .sequences = sequences, .logit_rows = rows, .adapters = adapters},
      cache.view(), f32_matrix(logits.data(), static_cast<int64_t>(ids.size()), V));
  return logits;
}

std::vector<int32_t> decode_greedily(CausalLm& model, const TestCache& cache,
                                     std::vector<int32_t> ids, size_t num_tokens) {
  const int64_t V = model.shape().vocab_size;
  std::vector<int32_t> generated;
  int64_t num_past = 0;
  std::vector<float> logits(static_cast<size_t>(V));
  while (generated.size() < num_tokens) {
    const auto num_ids = static_cast<int64_t>(ids.size());
    const BatchSequence sequence = {
        .num_new_tokens = num_ids, .num_past_tokens = num_past, .page_table = cache.page_table(0)};
    const auto last = static_cast<int32_t>(num_ids - 1);
    model.forward({.token_ids = ids, .sequences = {&sequence, 1}, .logit_rows = {&last, 1}},
                  cache.view(), f32_matrix(logits.data(), 1, V));
    num_past += num_ids;
    const auto best = std::max_element(logits.begin(), logits.end());
    generated.push_back(static_cast<int32_t>(best - logits.begin()));
    ids = {generated.back()};
  }
  return generated;
}

Golden read_golden(const Json& json) {
  Golden golden;
  golden.input_ids = json.at("input_ids").get<std::vector<int32_t>>();
  golden.argmax = json.at("argmax").get<std::vector<int32_t>>();
  golden.greedy_ids = json.at("greedy_ids").get<std::vector<int32_t>>();
  golden.logits_row_0 = json.at("logits_row_0").get<std::vector<double>>();
  golden.logits_row_last = json.at("logits_row_last").get<std::vector<double>>();
  golden.logsumexp = json.at("logsumexp").get<std::vector<double>>();
  return golden;
}

Json read_test_json(const std::filesystem::path& path) {
  return parse_json(read_text_file(path, kJsonBytesMax), path.string());
}

namespace {

/// Largest difference in standard deviations of the reference row.
double row_deviation(const std::vector<double>& reference, std::span<const float> row) {
  HALLEY_CHECK(reference.size() == row.size(), reference.size(), row.size());
  const auto count = static_cast<double>(reference.size());
  const double mean = std::accumulate(reference.begin(), reference.end(), 0.0) / count;
  double sum_squares = 0, largest = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    sum_squares += (reference[i] - mean) * (reference[i] - mean);
    const double difference = std::abs(reference[i] - static_cast<double>(row[i]));
    largest = difference <= largest ? largest : difference;  // NaN stays
  }
  return largest / std::sqrt(sum_squares / count);
}

double log_sum_exp(std::span<const float> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float value : row) sum += std::exp(static_cast<double>(value) - largest);
  return largest + std::log(sum);
}

}  // namespace

Deviation compare(const Golden& golden, std::span<const float> logits, int64_t vocab_size) {
  const auto V = static_cast<size_t>(vocab_size);
  const size_t num_rows = logits.size() / V;
  HALLEY_CHECK(num_rows == golden.argmax.size(), num_rows, golden.argmax.size());
  Deviation deviation;
  deviation.logits = std::max(row_deviation(golden.logits_row_0, logits.subspan(0, V)),
                              row_deviation(golden.logits_row_last, logits.last(V)));
  for (size_t row = 0; row < num_rows; ++row) {
    const std::span<const float> values = logits.subspan(row * V, V);
    const double difference = std::abs(log_sum_exp(values) - golden.logsumexp[row]);
    deviation.logsumexp = difference <= deviation.logsumexp ? deviation.logsumexp : difference;
    const auto best = std::max_element(values.begin(), values.end());
    const float chosen = values[static_cast<size_t>(golden.argmax[row])];
    if (best - values.begin() != golden.argmax[row] && *best - chosen > 1e-3f) {
      ++deviation.num_wrong_argmax;
    }
  }
  return deviation;
}

double relative_error(const Json& expected, std::span<const float> logits) {
  double largest = 0, error = 0;
  size_t i = 0;
  for (const Json& row : expected) {
    for (const Json& value : row) {
      const auto reference = value.get<double>();
      HALLEY_CHECK(i < logits.size(), i);
      largest = std::max(largest, std::fabs(reference));
      const double difference = std::fabs(double{logits[i++]} - reference);
      error = difference <= error ? error : difference;
    }
  }
  HALLEY_CHECK(i == logits.size(), i, logits.size());
  return error / largest;
}

void round_frequencies_to_f16(DecoderConfig& decoder) {
  for (RopeSpec& rope : decoder.ropes) {
    for (float& frequency : rope.inv_freq) frequency = f16_to_f32(f32_to_f16(frequency));
  }
}

std::filesystem::path testdata(const std::string& name) {
  return std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" / name;
}

namespace {

class NoTensors : public TensorSource {
 public:
  std::string description() const override { return "none"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view) const override { return nullptr; }
  TensorView view(const TensorInfo&) const override { return {}; }

 private:
  std::vector<TensorInfo> infos_;
};

}  // namespace

std::unique_ptr<TensorSource> make_hash_weights(std::vector<TensorInfo> infos) {
  auto source = std::make_unique<EditableSource>(NoTensors());
  for (TensorInfo& info : infos) {
    HALLEY_CHECK(info.dtype == DType::kF32, name_of(info.dtype));
    std::vector<std::byte> data(info.num_bytes);
    const uint64_t seed = fnv1a(info.name);
    for (size_t i = 0; i < info.num_bytes / sizeof(float); ++i) {
      const float value = hash_value(info, seed, i);
      std::memcpy(data.data() + i * sizeof(float), &value, sizeof(float));
    }
    source->set(std::move(info), std::move(data));
  }
  return source;
}

EditableSource::EditableSource(const TensorSource& source) : infos_(source.tensors()) {
  for (const TensorInfo& info : infos_) {
    const TensorView view = source.view(info);
    data_.emplace_back(view.data, view.data + info.num_bytes);
  }
}

size_t EditableSource::index_of(std::string_view name) const {
  const auto found = std::lower_bound(
      infos_.begin(), infos_.end(), name,
      [](const TensorInfo& info, std::string_view wanted) { return info.name < wanted; });
  return static_cast<size_t>(found - infos_.begin());
}

const TensorInfo* EditableSource::find(std::string_view name) const {
  const size_t index = index_of(name);
  return index < infos_.size() && infos_[index].name == name ? &infos_[index] : nullptr;
}

TensorView EditableSource::view(const TensorInfo& info) const {
  return {data_[index_of(info.name)].data(), info.dtype, info.shape};
}

void EditableSource::remove(const std::string& name) {
  const auto index = static_cast<std::ptrdiff_t>(index_of(name));
  infos_.erase(infos_.begin() + index);
  data_.erase(data_.begin() + index);
}

void EditableSource::set(TensorInfo info, std::vector<std::byte> data) {
  if (find(info.name) != nullptr) remove(info.name);
  const auto index = static_cast<std::ptrdiff_t>(index_of(info.name));
  info.num_bytes = data.size();
  infos_.insert(infos_.begin() + index, std::move(info));
  data_.insert(data_.begin() + index, std::move(data));
}

const std::vector<std::byte>& EditableSource::data(const std::string& name) const {
  return data_[index_of(name)];
}

}  // namespace halley
