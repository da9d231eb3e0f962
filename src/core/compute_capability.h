// Compute capabilities that candidates ask for, as DeviceTraits::capability counts them.
#pragma once

namespace tenor::core {

inline constexpr int kHopper = 90;  ///< wgmma and TMA

}  // namespace tenor::core
