// Whole models of every quantized layout, that tools/make_golden.py wrote: their logits against the
// same weights in full precision and against NumPy; and every way in which a checkpoint can be
// wrong.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// f32 accumulation in another order, through one layer.
constexpr double kSameWeightsMax = 1e-5;
// Against NumPy in f64, and the frequencies of the rotary embedding in f32.
constexpr double kNumpyMax = 2e-5;
// Kernels that round the inputs to 16 bits: fixed point, or bf16 with 8 significant bits.
constexpr double kRoundedInputsMax = 1e-3;
constexpr double kBf16InputsMax = 2e-2;

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(testdata("quantized"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct QuantizedCase {
  explicit QuantizedCase(const std::string& name)
      : dir(testdata("quantized/" + name)),
        config(HfConfig::load(dir)),
        source(open_checkpoint_weights(dir)),
        expected(read_test_json(dir / "expected.json")) {
    options.quant = read_quant_config(config, dir);
  }

  fs::path dir;
  HfConfig config;
  std::unique_ptr<TensorSource> source;
  Json expected;
  LoadOptions options;
};

std::vector<float> logits_of(CausalLm& model, const Json& tokens) {
  const auto ids = tokens.get<std::vector<int32_t>>();
  const TestCache cache(model.shape(), KvDType::kF32, 1, 64);
  return forward_all_rows(model, cache, {{0, 0, ids}});
}

/// The largest difference, relative to the largest logit.
double difference(std::span<const float> logits, std::span<const float> expected) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::fabs(double{expected[i]}));
    error = std::max(error, std::fabs(double{logits[i]} - double{expected[i]}));
  }
  return error / largest;
}

std::vector<float> flat(const Json& rows) {
  std::vector<float> values;
  for (const Json& row : rows) {
    for (const Json& value : row) values.push_back(value.get<float>());
  }
  return values;
}

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

/// The largest difference from NumPy that the kernels of a plan may have.
double tolerance_of(const ModelPlan& plan) {
  double tolerance = kNumpyMax;
  for (const ModelPart& part : plan.parts) {
    for (const LinearPlan& linear : part.plans) {
      if (linear.kernel == nullptr) continue;
      if (linear.kernel->error_max > 1e-4) tolerance = std::max(tolerance, kRoundedInputsMax);
      if (linear.kernel->x_dtype == DType::kBf16) tolerance = std::max(tolerance, kBf16InputsMax);
    }
  }
  return tolerance;
}

/// The checkpoint with every linear layer's weight as the packed one says, in f32.
EditableSource dequantized(ExecContext& context, const QuantizedCase& golden) {
  EditableSource source(*golden.source);
  const auto scheme = detect_quant_scheme(*golden.options.quant, *golden.source);
  const LinearLoading loading = {*scheme, *golden.source, golden.options.kernels};
  for (const Json& linear : golden.expected.at("linears")) {
    const int64_t N = linear.at("shape")[0];
    LinearSpec spec;
    spec.parts = {{.name = linear.at("name"), .out_features = N, .stored_rows = N}};
    spec.in_features = linear.at("shape")[1];
    const auto K = static_cast<size_t>(spec.in_features);
    const LinearOp op = load_linear(context, loading, spec);
    std::vector<float> weight(static_cast<size_t>(N) * K);
    for (int64_t n = 0; n < N; ++n) {
      unpack_row(op.weight(), n, weight.data() + static_cast<size_t>(n) * K);
    }
    for (const std::string& name : linear_tensor_names(loading, spec)) {
      if (!name.ends_with(".bias")) source.remove(name);
    }
    source.set({.name = spec.parts[0].name + ".weight",
                .dtype = DType::kF32,
                .shape = {N, spec.in_features}},
               bytes_of(weight));
  }
  for (const TensorInfo& info : golden.source->tensors()) {
    if (info.name.ends_with("k_scale") || info.name.ends_with("v_scale")) source.remove(info.name);
  }
  return source;
}

class QuantizedModel : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Cases, QuantizedModel, testing::ValuesIn(case_names()),
                         [](const auto& name) { return name.param; });

TEST_P(QuantizedModel, HasTheLogitsOfItsWeights) {
  QuantizedCase golden(GetParam());
  // The one kernel for bf16 weights that does not round its inputs.
  if (golden.config.dtype() == "bfloat16") golden.options.kernels.forced = "gemm_bf16_hwy";
  ThreadPool pool(2);
  ExecContext context{pool};
  const auto loaded = load_model(context, golden.config, *golden.source, {}, golden.options);
  const Json& tokens = golden.expected.at("tokens");
  const std::vector<float> logits = logits_of(*loaded.model, tokens);
  EXPECT_LT(difference(logits, flat(golden.expected.at("logits"))), kNumpyMax);
  if (golden.expected.at("activation") != "none") return;
  const EditableSource source = dequantized(context, golden);
  LoadOptions plain;
  plain.quant = QuantConfig{};
  plain.kernels = golden.options.kernels;
  const auto reference = load_model(context, golden.config, source, {}, plain);
  EXPECT_LT(difference(logits, logits_of(*reference.model, tokens)), kSameWeightsMax);
}

TEST_P(QuantizedModel, RunsOnEveryKernelOfItsLayouts) {
  const QuantizedCase golden(GetParam());
  ThreadPool pool(1);
  ExecContext context{pool};
  const ModelPlan plan = plan_model(golden.config, *golden.source, golden.options);
  std::set<PackedLayout> layouts;
  for (const ModelPart& part : plan.parts) {
    for (const LinearPlan& linear : part.plans) {
      if (linear.kernel != nullptr) layouts.insert(linear.weight.layout);
    }
  }
  const std::vector<float> expected = flat(golden.expected.at("logits"));
  int num_kernels = 0;
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (layouts.count(kernel.w_layout) == 0) continue;
    LoadOptions options = golden.options;
    options.kernels.forced = kernel.name;
    try {
      const auto loaded = load_model(context, golden.config, *golden.source, {}, options);
      const auto logits = logits_of(*loaded.model, golden.expected.at("tokens"));
      EXPECT_LT(difference(logits, expected), tolerance_of(loaded.plan)) << kernel.name;
      ++num_kernels;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("kernel ") + kernel.name)) << GetParam();
    }
  }
  EXPECT_GT(num_kernels, 0);
}

TEST_P(QuantizedModel, PlanSaysWhatIsStored) {
  const QuantizedCase golden(GetParam());
  const ModelPlan plan = plan_model(golden.config, *golden.source, golden.options);
  std::map<std::string, const Json*> linears;
  for (const Json& linear : golden.expected.at("linears")) linears[linear.at("name")] = &linear;
  for (const ModelPart& part : plan.parts) {
    for (const LinearPlan& linear : part.plans) {
      const auto found = linears.find(linear.name);  // layers of one part
      if (part.kind != "linear" || found == linears.end()) continue;
      EXPECT_EQ(linear.weight.bits, found->second->at("bits").get<int>()) << linear.name;
    }
  }
  // A label that lies is told, and nothing else.
  const size_t num_warnings = golden.expected.at("warnings").size();
  EXPECT_EQ(plan.warnings.empty(), num_warnings == 0) << testing::PrintToString(plan.warnings);
}

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

OrderedJson read_ordered(const fs::path& path) {
  return parse_ordered_json(read_text_file(path, 1 << 20), path.string());
}

DType dtype_of(const OrderedJson& edit) {
  return dtype_from_safetensors(edit.at("dtype").get<std::string>()).value();
}

/// A checkpoint that edits make wrong: config.json, other JSON files, tensors.
struct EditedCheckpoint {
  explicit EditedCheckpoint(const QuantizedCase& base)
      : dir(base.dir), config(read_ordered(base.dir / "config.json")), source(*base.source) {}

  void apply(const OrderedJson& edit);
  QuantConfig quant() const;

  fs::path dir;
  OrderedJson config;                        // the order of patterns counts
  std::map<std::string, OrderedJson> files;  // those that were edited
  EditableSource source;
};

void edit_tensor(EditableSource& source, const OrderedJson& edit, const char* kind) {
  TensorInfo info = *source.find(edit.at(kind).get<std::string>());
  auto data = source.data(info.name);
  if (edit.contains("dtype")) info.dtype = dtype_of(edit);
  if (edit.contains("shape")) info.shape = edit.at("shape").get<Shape>();
  if (edit.contains("bytes")) data.resize(edit.at("bytes"));
  if (edit.contains("hex")) {
    const auto bytes = bytes_of_hex(edit.at("hex"));
    const auto offset = edit.at("offset_bytes").get<std::ptrdiff_t>();
    std::copy(bytes.begin(), bytes.end(), data.begin() + offset);
  }
  source.set(info, std::move(data));
}

void add_tensor(EditableSource& source, const OrderedJson& edit) {
  TensorInfo info = {.name = edit.at("add"), .dtype = dtype_of(edit), .shape = edit.at("shape")};
  const auto fill = bytes_of_hex(edit.at("fill_hex"));
  const auto num_bytes =
      static_cast<size_t>(num_elements_of(info.shape).value() * bits_of(info.dtype) / 8);
  std::vector<std::byte> data;
  while (data.size() < num_bytes) data.insert(data.end(), fill.begin(), fill.end());
  source.set(info, std::move(data));
}

void EditedCheckpoint::apply(const OrderedJson& edit) {
  if (edit.contains("config")) {
    config.merge_patch(edit.at("config"));
  } else if (edit.contains("file")) {
    const std::string name = edit.at("file");
    if (files.count(name) == 0) files[name] = read_ordered(dir / name);
    files[name].merge_patch(edit.at("patch"));
  } else if (edit.contains("dynamic_rules")) {
    OrderedJson& rules = config["quantization_config"]["dynamic"] = OrderedJson::object();
    for (int i = 0; i < edit.at("dynamic_rules").get<int>(); ++i) {
      rules[str("+:.*never_", i)] = {{"bits", 8}};
    }
  } else if (edit.contains("delete")) {
    source.remove(edit.at("delete"));
  } else if (edit.contains("rename")) {
    TensorInfo info = *source.find(edit.at("rename")[0].get<std::string>());
    const auto data = source.data(info.name);
    source.remove(info.name);
    info.name = edit.at("rename")[1];
    source.set(info, data);
  } else if (edit.contains("add")) {
    add_tensor(source, edit);
  } else {
    for (const char* kind : {"retype", "reshape", "set"}) {
      if (edit.contains(kind)) edit_tensor(source, edit, kind);
    }
  }
}

/// Edited files are read as read_quant_config() reads those of the directory.
QuantConfig EditedCheckpoint::quant() const {
  const HfConfig declared = HfConfig::parse(config.dump(), "config.json");
  if (files.empty()) return read_quant_config(declared, dir);
  const auto& [name, json] = *files.begin();
  return quant_config_of(HfConfig::parse(json.dump(), name));
}

/// "CheckpointError: text", or nothing where it loads.
std::string rejection_of(const std::function<void()>& load) {
  try {
    load();
  } catch (const InputError& error) {
    return std::string("InputError: ") + error.what();
  } catch (const CheckpointError& error) {
    return std::string("CheckpointError: ") + error.what();
  } catch (const UnsupportedError& error) {
    return std::string("UnsupportedError: ") + error.what();
  }
  return {};
}

/// The outcome of a case: a rejection, or the warnings and whether the logits are the base's.
struct Outcome {
  std::string rejection;
  std::vector<std::string> warnings;
  bool has_base_logits = false;
};

Outcome try_case(ExecContext& context, const OrderedJson& bad) {
  const QuantizedCase base(bad.at("base").get<std::string>());
  EditedCheckpoint edited(base);
  for (const OrderedJson& edit : bad.at("edits")) edited.apply(edit);
  Outcome outcome;
  outcome.rejection = rejection_of([&] {
    const HfConfig config = HfConfig::parse(edited.config.dump(), "config.json");
    LoadOptions options;
    options.quant = edited.quant();
    const LoadedDecoder loaded = load_model(context, config, edited.source, {}, options);
    outcome.warnings = loaded.plan.warnings;
    const auto logits = logits_of(*loaded.model, base.expected.at("tokens"));
    outcome.has_base_logits =
        difference(logits, flat(base.expected.at("logits"))) < tolerance_of(loaded.plan);
  });
  return outcome;
}

TEST(BadQuantizedModels, AreRejectedByNameWithWhatWasFound) {
  const OrderedJson cases = read_ordered(testdata("quantized/bad_cases.json")).at("cases");
  EXPECT_GE(cases.size(), size_t{250});
  ThreadPool pool(1);
  ExecContext context{pool};
  for (const OrderedJson& bad : cases) {
    SCOPED_TRACE(bad.at("name").get<std::string>());
    const Outcome outcome = try_case(context, bad);
    const std::string expected = bad.at("error");
    std::string text = outcome.rejection;
    if (expected == "none" || expected == "loads" || expected == "warning") {
      EXPECT_EQ(outcome.rejection, "");
      EXPECT_EQ(outcome.warnings.empty(), expected != "warning")
          << testing::PrintToString(outcome.warnings);
      EXPECT_TRUE(expected != "none" || outcome.has_base_logits);
      for (const std::string& warning : outcome.warnings) text += warning;
    } else {
      EXPECT_THAT(text, testing::StartsWith(expected));
    }
    for (const OrderedJson& part : bad.at("contains")) {
      EXPECT_THAT(text, HasSubstr(part.get<std::string>()));
    }
  }
}

}  // namespace
}  // namespace halley
