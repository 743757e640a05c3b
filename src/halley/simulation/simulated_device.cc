#include "halley/simulation/simulated_device.h"

#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// Both have the GH100 chip with the same SMs, clocks and tensor core peaks in NVIDIA's data sheets
// (dense: 989e12 operations in f16, 1979e12 in FP8 and INT8), so that the H100 has the rates that
// were measured on the H200. They differ in memory:
// - H200: memory.total of nvidia-smi as in bench/results.
// - H100 SXM: reads measured at 3.1 TB/s (docs/notes/decode_step_kernel.md; the data sheet has
//   3.35), 81559 MiB by nvidia-smi ("NVIDIA H100 80GB HBM3").
constexpr std::array kDevices = {
    SimulatedDevice{"h200", kH200Rates, 143'771 * kMib},
    SimulatedDevice{
        "h100",
        {.bytes = 3.1e12, .f16 = kH200Rates.f16, .e4m3 = kH200Rates.e4m3, .s8 = kH200Rates.s8},
        81'559 * kMib}};

}  // namespace

const SimulatedDevice& simulated_device(const std::string& name) {
  std::string names;
  for (const SimulatedDevice& device : kDevices) {
    if (name == device.name) return device;
    names += str(names.empty() ? "" : ", ", device.name);
  }
  throw InputError(str("device: expected one of ", names, ", got ", quote(name), "."));
}

std::vector<std::string> simulated_device_names() {
  std::vector<std::string> names;
  for (const SimulatedDevice& device : kDevices) names.emplace_back(device.name);
  return names;
}

}  // namespace halley
