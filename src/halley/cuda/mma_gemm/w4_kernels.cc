#include "halley/cuda/mma_gemm/w4_kernels.h"

#include <algorithm>
#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cuda {
namespace {

constexpr std::array<W4KernelRow, 2> kRows = {{
    {W4Kernels::kHopper, "hopper", 90, 90},
    {W4Kernels::kMma, "mma", 80, 90},
}};

bool runs_on(const W4KernelRow& row, const CudaDeviceInfo& device) {
  const int capability = 10 * device.compute_major + device.compute_minor;
  return capability >= row.capability_min && capability <= row.capability_max;
}

std::string capability_text(int capability) { return str(capability / 10, ".", capability % 10); }

std::string range_text(int least, int most) {
  if (least == most) return capability_text(least);
  return str(capability_text(least), " to ", capability_text(most));
}

std::string got_text(const CudaDeviceInfo& device) {
  return str(", got ", device.compute_major, ".", device.compute_minor);
}

}  // namespace

const W4KernelRow* find_w4_kernels(const CudaDeviceInfo& device) {
  const auto* found = std::find_if(kRows.begin(), kRows.end(),
                                   [&](const W4KernelRow& row) { return runs_on(row, device); });
  return found == kRows.end() ? nullptr : found;
}

std::string why_no_w4_kernels(const CudaDeviceInfo& device) {
  if (find_w4_kernels(device) != nullptr) return {};
  int least = kRows[0].capability_min, most = kRows[0].capability_max;
  for (const W4KernelRow& row : kRows) {
    least = std::min(least, row.capability_min);
    most = std::max(most, row.capability_max);
  }
  return str("expected compute capability ", range_text(least, most), got_text(device));
}

const W4KernelRow& w4_kernels_named(const CudaDeviceInfo& device, std::string_view name) {
  for (const W4KernelRow& row : kRows) {
    if (name != row.name) continue;
    if (runs_on(row, device)) return row;
    throw UnsupportedError(str("kernels of 4-bit weights ", quote(name),
                               ": expected compute capability ",
                               range_text(row.capability_min, row.capability_max), got_text(device),
                               ". Ask for no kernels by name."));
  }
  std::string names;
  for (const W4KernelRow& row : kRows) names += str(names.empty() ? "" : " or ", row.name);
  throw InputError(str("kernels of 4-bit weights: expected ", names, ", got ", quote(name),
                       ". Use one of them, or none."));
}

}  // namespace halley::cuda
