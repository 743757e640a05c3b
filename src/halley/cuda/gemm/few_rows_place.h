// Which bytes of a row and which sums each lane of a product of a few rows has.
#pragma once

#ifdef __CUDACC__
#define HALLEY_ON_BOTH __host__ __device__
#else
#define HALLEY_ON_BOTH
#endif

namespace halley::cuda {

inline constexpr int kFewRowsWarps = 8;
inline constexpr int kFewRowsThreads = 32 * kFewRowsWarps;
/// A warp takes whole lines of memory, in two units of 64 bytes.
inline constexpr int kFewRowsLineBytes = 128;
inline constexpr int kFewRowsUnitBytes = 64;

/// The units of a warp in a row; the last may reach behind the row.
HALLEY_ON_BOTH inline int few_rows_units(int row_bytes, int warp) {
  const int lines = (row_bytes + kFewRowsLineBytes - 1) / kFewRowsLineBytes;
  return 2 * ((lines - warp + kFewRowsWarps - 1) / kFewRowsWarps);
}

/// Where the 16 bytes of a lane begin. mma.sync takes the inputs of a lane of weights and of x at
/// the same place of its group of four; which inputs these are is for us to choose.
HALLEY_ON_BOTH inline int few_rows_begin(int unit, int warp, int lane) {
  const int line = warp + unit / 2 * kFewRowsWarps;
  return line * kFewRowsLineBytes + unit % 2 * kFewRowsUnitBytes + lane % 4 * 16;
}

/// The row of the weight, less the block's first, of fragment i (8 rows each) of a lane; that of x
/// too.
HALLEY_ON_BOTH inline int few_rows_fragment_row(int fragment, int lane) {
  return 8 * fragment + lane / 4;
}

/// What a lane's four sums of a tile of 16 outputs by 8 rows are.
HALLEY_ON_BOTH inline int few_rows_sum_output(int element, int lane) {
  return element / 2 * 8 + lane / 4;
}
HALLEY_ON_BOTH inline int few_rows_sum_row(int element, int lane) {
  return lane % 4 * 2 + element % 2;
}

}  // namespace halley::cuda

#undef HALLEY_ON_BOTH
