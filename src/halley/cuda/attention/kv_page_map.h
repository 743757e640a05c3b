// The TMA tensor map of a layer's KV pages, for caches of 16-bit types.
#pragma once

#include <cuda.h>

#include "halley/kernels/kv/kv_cache_view.h"

namespace halley::attention {

/// Positions of one TMA box: a power of two that divides a page and a tile of 128. 0 if TMA cannot
/// write such pages in the 128-byte swizzle that wgmma reads, in groups of eight whole rows of 64
/// or 128 elements.
int box_tokens(const KvPageLayout& layout);

/// From the group of eight rows that holds a key to that of its value.
int value_groups(const KvPageLayout& layout);

/// A map of five dimensions: 64 elements, 8 rows, panels of 64 columns, groups of eight rows in a
/// page (keys, then values), pages. A box is box_tokens() > 0 rows in the layout of wgmma_layout.h.
/// Throws DeviceError where the driver has no tensor maps.
CUtensorMap page_map(const KvLayerView& cache);

}  // namespace halley::attention
