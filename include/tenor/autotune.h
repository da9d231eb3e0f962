// Autotuning: strategies measured on the caller's own problems, the fastest remembered.
#pragma once

namespace tenor {

/// Lets "auto" measure an operator's strategies at the first call of each problem (shapes, strides, dtypes) and take
/// the fastest from then on, in this process and, through tuning.json in the cache folder ($TENOR_CACHE_DIR,
/// $XDG_CACHE_HOME/tenor or ~/.cache/tenor), in later ones. Process-wide. Returns the previous setting, which starts as
/// the environment variable TENOR_AUTOTUNE says ("1").
///
/// Only strategies of one numerics class are candidates, so results keep their error bounds; their bits may differ from
/// those of the untuned choice, and are the same for one table. What is remembered belongs to one version, machine and
/// thread count; on CUDA to one version, GPU model, driver and cuBLASLt. Nothing is tuned under batch_invariant()
/// (strategies may not change with the batch there). On CUDA the first call of a problem waits for its measurement, by
/// events on the current stream; while that is captured nothing is measured, and what is remembered is taken.
bool autotune(bool on);

/// Whether it is on.
bool autotuning();

}  // namespace tenor
