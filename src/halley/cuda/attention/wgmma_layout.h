// Where wgmma expects its operands in shared memory: plain numbers, for kernels and their tests.
//
// An operand is cut into groups of eight rows and 64 columns of 16-bit elements: 128 bytes a row,
// 1024 bytes from a multiple of 1024 on, in which chunks of 16 bytes are exchanged ("128-byte
// swizzle"), so that reading eight rows of one chunk meets all banks. A panel is 64 columns; the
// groups of all panels stand beside each other before the next eight rows follow.
#pragma once

#include <cstdint>

namespace halley::attention {

inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelRowBytes = 2 * kPanelColumns;
inline constexpr int kPanelGroupBytes = 8 * kPanelRowBytes;  // alignment of operands, too

/// Byte of an operand of `num_panels` panels for byte `byte` of row `row`.
constexpr int panel_offset(int num_panels, int row, int byte) {
  const int panel = byte / kPanelRowBytes, chunk = byte % kPanelRowBytes / 16;
  return (row / 8 * num_panels + panel) * kPanelGroupBytes + row % 8 * kPanelRowBytes +
         ((chunk ^ (row % 8)) * 16) + byte % 16;
}

/// Matrix descriptor: address, leading and stride offset in units of 16 bytes, 128-byte swizzle
/// (PTX ISA, "Matrix Descriptor Format" of wgmma).
constexpr uint64_t panel_descriptor(uint32_t address, uint32_t leading_bytes,
                                    uint32_t stride_bytes) {
  return static_cast<uint64_t>((address & 0x3FFFFu) >> 4) |
         static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}

/// Descriptor of an operand whose rows are rows of A or columns of B, and whose columns are summed
/// over: eight rows to the next eight are the stride; the leading offset is not looked at.
constexpr uint64_t row_operand(uint32_t address, int num_panels) {
  return panel_descriptor(address, 16, static_cast<uint32_t>(num_panels * kPanelGroupBytes));
}
/// Bytes from the operand's start to its columns 16 * step.
constexpr int row_operand_step(int step) { return step / 4 * kPanelGroupBytes + step % 4 * 32; }

/// Descriptor of an operand B whose rows are summed over (its "transpose" bit is set) and whose
/// columns are those of the result: the next panel of columns is the leading offset away, the next
/// eight rows the stride.
constexpr uint64_t column_operand(uint32_t address, int num_panels) {
  return panel_descriptor(address, kPanelGroupBytes,
                          static_cast<uint32_t>(num_panels * kPanelGroupBytes));
}
/// Bytes from the operand's start to its rows 16 * step.
constexpr int column_operand_step(int num_panels, int step) {
  return step * 2 * num_panels * kPanelGroupBytes;
}

}  // namespace halley::attention
