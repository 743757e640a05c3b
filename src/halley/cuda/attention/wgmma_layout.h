// Shared-memory layout of wgmma operands with the 128-byte swizzle, for kernels and their tests.
//
// An operand is cut into swizzle atoms of eight rows and 64 columns of 16-bit elements: 128 bytes a
// row, 1024 bytes aligned to 1024. In row r of an atom, 16-byte chunk i is stored at i ^ (r % 8),
// so that reading one chunk of eight rows hits all banks. A panel is 64 columns. The atoms of all
// panels of eight rows are contiguous; the next eight rows follow.
#pragma once

#include <cstdint>

namespace halley::attention {

inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelRowBytes = 2 * kPanelColumns;
inline constexpr int kSwizzleAtomBytes = 8 * kPanelRowBytes;  // and alignment of operands

/// Offset of byte `byte` of row `row` in an operand of `num_panels` panels.
constexpr int panel_offset(int num_panels, int row, int byte) {
  const int panel = byte / kPanelRowBytes, chunk = byte % kPanelRowBytes / 16;
  return (row / 8 * num_panels + panel) * kSwizzleAtomBytes + row % 8 * kPanelRowBytes +
         ((chunk ^ (row % 8)) * 16) + byte % 16;
}

/// Matrix descriptor: address, leading and stride offset in units of 16 bytes, 128-byte swizzle
/// (PTX ISA, "Matrix Descriptor Format" of wgmma).
constexpr uint64_t smem_descriptor(uint32_t address, uint32_t leading_bytes,
                                   uint32_t stride_bytes) {
  return static_cast<uint64_t>((address & 0x3FFFFu) >> 4) |
         static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}

/// Descriptor of a K-major operand: its rows are rows of A or columns of B. The stride offset goes
/// from eight rows to the next eight; the hardware ignores the leading offset.
constexpr uint64_t k_major_descriptor(uint32_t address, int num_panels) {
  return smem_descriptor(address, 16, static_cast<uint32_t>(num_panels * kSwizzleAtomBytes));
}
/// Bytes from the operand's start to k-step `step`, 16 columns each.
constexpr int k_major_step_offset(int step) { return step / 4 * kSwizzleAtomBytes + step % 4 * 32; }

/// Descriptor of an MN-major operand B (its "transpose" bit is set): its rows are k, its columns
/// those of the result. The leading offset goes to the next panel of columns, the stride offset to
/// the next eight rows.
constexpr uint64_t mn_major_descriptor(uint32_t address, int num_panels) {
  return smem_descriptor(address, kSwizzleAtomBytes,
                         static_cast<uint32_t>(num_panels * kSwizzleAtomBytes));
}
/// Bytes from the operand's start to k-step `step`, 16 rows each.
constexpr int mn_major_step_offset(int num_panels, int step) {
  return step * 2 * num_panels * kSwizzleAtomBytes;
}

}  // namespace halley::attention
