// Step times over roofline times. Made by tools/make_step_ratios.py from bench/results.
#include "halley/simulation/step_ratios.h"

namespace halley {
namespace {

constexpr MeasuredRatio kRatios[] = {
    {"f16", 1, 1.2286, "gpu_latency_f16_batch1.json", false},
    {"f16", 16, 1.2984, "gpu_latency_f16_batch16.json", false},
    {"f16", 64, 1.3396, "gpu_latency_f16_batch64.json", false},
    {"f16", 128, 1.3687, "gpu_latency_f16_batch128.json", false},
    {"f16", 252, 1.4648, "gpu_throughput_f16.json", false},
    {"f16", 1024, 1.4578, "gpu_latency_f16_batch1.json", true},
    {"f16", 8192, 1.6796, "gpu_throughput_f16.json", true},
    {"fp8", 1, 1.4541, "gpu_latency_fp8_batch1.json", false},
    {"fp8", 16, 1.6239, "gpu_latency_fp8_batch16.json", false},
    {"fp8", 64, 1.5527, "gpu_latency_fp8_batch64.json", false},
    {"fp8", 128, 1.6036, "gpu_latency_fp8_batch128.json", false},
    {"fp8", 252, 1.4693, "gpu_throughput_fp8.json", false},
    {"fp8", 1024, 1.7250, "gpu_latency_fp8_batch1.json", true},
    {"fp8", 8192, 1.9101, "gpu_throughput_fp8.json", true},
    {"nested_full", 1, 1.4394, "gpu_latency_nested_full_batch1.json", false},
    {"nested_full", 16, 1.3947, "gpu_latency_nested_full_batch16.json", false},
    {"nested_full", 64, 1.4224, "gpu_latency_nested_full_batch64.json", false},
    {"nested_full", 128, 1.4625, "gpu_latency_nested_full_batch128.json", false},
    {"nested_full", 252, 1.5236, "gpu_throughput_nested_full.json", false},
    {"nested_full", 1024, 1.5349, "gpu_latency_nested_full_batch1.json", true},
    {"nested_full", 8192, 1.8409, "gpu_throughput_nested_full.json", true},
    {"nested_low", 1, 1.7359, "gpu_latency_nested_low_batch1.json", false},
    {"nested_low", 16, 1.7724, "gpu_latency_nested_low_batch16.json", false},
    {"nested_low", 64, 1.6370, "gpu_latency_nested_low_batch64.json", false},
    {"nested_low", 128, 1.6815, "gpu_latency_nested_low_batch128.json", false},
    {"nested_low", 252, 1.5088, "gpu_throughput_nested_low.json", false},
    {"nested_low", 1024, 2.0537, "gpu_latency_nested_low_batch1.json", true},
    {"nested_low", 8192, 2.1906, "gpu_throughput_nested_low.json", true},
    {"w4a16", 1, 1.8927, "gpu_latency_w4a16_batch1.json", false},
    {"w4a16", 16, 1.9520, "gpu_latency_w4a16_batch16.json", false},
    {"w4a16", 64, 1.8064, "gpu_latency_w4a16_batch64.json", false},
    {"w4a16", 128, 1.7829, "gpu_latency_w4a16_batch128.json", false},
    {"w4a16", 252, 1.6955, "gpu_throughput_w4a16.json", false},
    {"w4a16", 1024, 1.4054, "gpu_latency_w4a16_batch1.json", true},
    {"w4a16", 8192, 1.6790, "gpu_throughput_w4a16.json", true},
    {"w4a8", 1, 1.8147, "gpu_latency_w4a8_batch1.json", false},
    {"w4a8", 16, 1.9493, "gpu_latency_w4a8_batch16.json", false},
    {"w4a8", 64, 1.6422, "gpu_latency_w4a8_batch64.json", false},
    {"w4a8", 128, 1.5621, "gpu_latency_w4a8_batch128.json", false},
    {"w4a8", 252, 1.4475, "gpu_throughput_w4a8.json", false},
    {"w4a8", 1024, 1.5932, "gpu_latency_w4a8_batch1.json", true},
    {"w4a8", 8192, 1.8596, "gpu_throughput_w4a8.json", true},
    {"w4a8_group", 1, 1.9486, "gpu_latency_w4a8_group_batch1.json", false},
    {"w4a8_group", 16, 1.9314, "gpu_latency_w4a8_group_batch16.json", false},
    {"w4a8_group", 64, 1.6746, "gpu_latency_w4a8_group_batch64.json", false},
    {"w4a8_group", 128, 1.5678, "gpu_latency_w4a8_group_batch128.json", false},
    {"w4a8_group", 252, 1.4730, "gpu_throughput_w4a8_group.json", false},
    {"w4a8_group", 1024, 1.6055, "gpu_latency_w4a8_group_batch1.json", true},
    {"w4a8_group", 8192, 1.9097, "gpu_throughput_w4a8_group.json", true},
    {"w4ax", 1, 1.8277, "gpu_latency_w4ax_batch1.json", false},
    {"w4ax", 16, 1.9303, "gpu_latency_w4ax_batch16.json", false},
    {"w4ax", 64, 1.8608, "gpu_latency_w4ax_batch64.json", false},
    {"w4ax", 128, 1.8135, "gpu_latency_w4ax_batch128.json", false},
    {"w4ax", 252, 1.6369, "gpu_throughput_w4ax.json", false},
    {"w4ax", 1024, 2.5809, "gpu_latency_w4ax_batch1.json", true},
    {"w4ax", 8192, 2.5648, "gpu_throughput_w4ax.json", true},
};

}  // namespace

std::span<const MeasuredRatio> measured_ratios() { return kRatios; }

}  // namespace halley
