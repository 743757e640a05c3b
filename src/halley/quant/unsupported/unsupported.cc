#include "halley/quant/unsupported/unsupported.h"

#include <algorithm>
#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr const char* kUse4Bits =
    "Use a checkpoint of this model in GPTQ, AWQ or compressed-tensors (pack-quantized), or "
    "quantize the original with GPTQModel or llm-compressor.";
constexpr const char* kUseFp8 =
    "Use an FP8 checkpoint of this model, or quantize the original with llm-compressor (scheme "
    "FP8_DYNAMIC).";
constexpr const char* kUseInt8 =
    "Use a compressed-tensors checkpoint of this model, or quantize the original with "
    "llm-compressor (scheme W8A8).";
constexpr const char* kUseDense =
    "Use the original checkpoint without quantization, or quantize it with GPTQModel or "
    "llm-compressor.";
constexpr const char* kDequantize =
    "Save the model dequantized with transformers, or use its original checkpoint and quantize "
    "that with GPTQModel or llm-compressor.";

constexpr auto kMethods = std::to_array<UnsupportedMethod>({
    {"aqlm", "codes of additive codebooks", kUse4Bits},
    {"bitblas", "weights in a GPU library's order",
     "Use the checkpoint in format \"gptq\" from which it was converted."},
    {"bitnet", "ternary weights", kUse4Bits},
    {"deepspeedfp", "6- and 8-bit floats in DeepSpeed's layout", kUseFp8},
    {"eetq", "8-bit weights in a GPU library's order", kUseInt8},
    {"exl2", "ExLlamaV2's mixed bits", kUse4Bits},
    {"exl3", "ExLlamaV3's trellis codes", kUse4Bits},
    {"experts_int8", "a conversion at load that has no files", kUseDense},
    {"fbgemm_fp8", "FP8 with bounds that FBGEMM computes at run time", kUseFp8},
    {"fp_quant", "4-bit floats behind rotations", kUse4Bits},
    {"gptq_marlin_24", "2:4 sparse weights in a GPU kernel's order", kUse4Bits},
    {"higgs", "codes of vector grids behind rotations", kUse4Bits},
    {"hqq", "codes with scales that are quantized themselves", kUse4Bits},
    {"marlin", "weights in a GPU kernel's order without a GPTQ configuration",
     "State quant_method \"gptq\" with checkpoint_format \"marlin\", or use the checkpoint from "
     "which it was converted."},
    {"modelopt_mixed", "several formats of ModelOpt in one file", kUseFp8},
    {"modelopt_mxfp8", "8-bit floats with power-of-two scales", kUseFp8},
    {"mxfp4", "4-bit floats with power-of-two scales", kDequantize},
    {"mxfp8", "8-bit floats with power-of-two scales", kUseFp8},
    {"nvfp4", "4-bit floats with 8-bit float scales", kUse4Bits},
    {"paroquant", "4-bit weights behind rotations", kUse4Bits},
    {"petit_nvfp4", "4-bit floats with 8-bit float scales", kUse4Bits},
    {"qqq", "W4A8 weights in a GPU kernel's order",
     "Use a QoQ (QServe) or compressed-tensors checkpoint of this model."},
    {"quanto", "optimum-quanto's tensors", kDequantize},
    {"quark", "AMD Quark's export", kUseFp8},
    {"quip", "codes of lattice codebooks behind rotations", kUse4Bits},
    {"quip#", "codes of lattice codebooks behind rotations", kUse4Bits},
    {"sinq", "codes with scales along both directions", kUse4Bits},
    {"spqr", "mixed bits with sparse outliers", kUse4Bits},
    {"squeezellm", "look-up tables for each output with sparse outliers", kUse4Bits},
    {"torchao", "torchao's tensor subclasses", kDequantize},
    {"vptq", "codes of vector codebooks", kUse4Bits},
});

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields) return nullptr;
  const auto* method =
      std::find_if(kMethods.begin(), kMethods.end(),
                   [&](const UnsupportedMethod& row) { return row.name == config.method; });
  if (method == kMethods.end()) return nullptr;
  throw UnsupportedError(str(config.where(),
                             ": expected fp8, compressed-tensors, gptq, awq, qoq or ModelOpt's "
                             "FP8, got ",
                             quote(config.method), ", ", method->what, ". ", method->advice));
}

}  // namespace

std::span<const UnsupportedMethod> unsupported_methods() { return kMethods; }

const QuantFormat kQuantUnsupported = {.name = "unsupported", .detect = detect};

}  // namespace halley
